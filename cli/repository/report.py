"""The report of a simulated repository: each change's answer beside the truth."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cli.repository.change import HARM
from cli.repository.sessions import Sessions
from cli.repository.team import Fate, Team, Trial

_VERDICTS = {Fate.KEPT, Fate.ROLLED_BACK, Fate.REVISED}
# That a loss is excluded is an answer as well: most changes do nothing.
_ANSWERS = {*_VERDICTS, Fate.MERGED}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answers to the team's changes.

    Attributes:
        team: The team, at the end.
        sessions: The sessions, at the end.
        days: How long it lasted.
    """

    team: Team
    sessions: Sessions
    days: float

    def document(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        canaries = [trial for trial in self.team.trials if trial.build is not None]
        flags = [trial for trial in self.team.trials if trial.build is None]
        intervals = [trial.interval for trial in self.team.trials if trial.interval is not None]
        covered = sum(low <= lift <= high for low, high, lift in intervals)
        return {
            "days": self.days,
            "sessions": self.sessions.total,
            "conversions": self.sessions.conversions,
            "commits": self._commits(),
            "canaries": self._answers(canaries),
            "flags": self._answers(flags),
            "intervals": {
                "intervals": len(intervals),
                "that hold the true lift": covered,
                "coverage": covered / len(intervals) if intervals else None,
            },
            "harmful": self._harmful(),
            "changes": [_row(trial) for trial in self.team.trials],
        }

    def _commits(self) -> dict[str, Any]:
        trials = self.team.trials
        shipped = sum(len(trial.changes) for trial in trials)
        ended = [trial for trial in trials if trial.ended is not None]
        alone = [trial for trial in ended if len(trial.changes) == 1]
        answered = sum(trial.fate in _ANSWERS for trial in alone)
        changes = sum(len(trial.changes) for trial in ended)
        return {
            "ready": shipped + len(self.team.waiting),
            "waiting": len(self.team.waiting),
            "hotfixes": len(self.team.hotfixes),
            "ended": changes,
            "with an answer of their own": answered,
            "with a verdict of their own": sum(trial.fate in _VERDICTS for trial in alone),
            "share with an answer of their own": answered / changes if changes else None,
            "largest bundle": max((len(trial.changes) for trial in trials), default=0),
            "median rebases": median([trial.rebases for trial in ended if trial.build])
            if any(trial.build for trial in ended)
            else None,
        }

    def _answers(self, trials: Sequence[Trial]) -> dict[str, Any]:
        hours = [
            (trial.ended - trial.shipped) / 60
            for trial in trials
            if trial.ended is not None and trial.fate in _ANSWERS
        ]
        return {
            "fates": dict(Counter(str(trial.fate) for trial in trials)),
            "kept though it harms or does nothing": sum(
                trial.fate is Fate.KEPT and trial.effect <= 0 for trial in trials
            ),
            "rolled back though it helps or does nothing": sum(
                trial.fate is Fate.ROLLED_BACK and trial.effect >= 0 for trial in trials
            ),
            "median hours to an answer": median(hours) if hours else None,
        }

    def _harmful(self) -> list[dict[str, Any]]:
        """Returns the cost of each change that halves the rate, alone or in a bundle."""
        harmful = [
            trial
            for trial in self.team.trials
            if any(change.effect == HARM for change in trial.changes)
        ]
        return [
            {
                "fate": str(trial.fate),
                "behind a flag": trial.build is None,
                "changes": len(trial.changes),
                "hours until withdrawn": _hours(trial),
                "share of all sessions": trial.sessions(self.sessions.count) / self.sessions.total,
            }
            for trial in harmful
        ]


def _hours(trial: Trial) -> float | None:
    return None if trial.ended is None else (trial.ended - trial.shipped) / 60


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "change": [change.name[:12] for change in trial.changes],
        "true_effect": round(trial.effect, 4),
        "fate": str(trial.fate),
        "hours": _hours(trial),
        "rebases": trial.rebases,
        "interval": trial.interval and [round(value, 5) for value in trial.interval[:2]],
        "true_lift": trial.interval and round(trial.interval[2], 5),
    }


def rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields a report's document as lines for people."""
    for name in ("days", "sessions", "conversions"):
        yield name, f"{document[name]:,}"
    for part in ("commits", "canaries", "flags", "intervals"):
        for name, value in document[part].items():
            fates = value.items() if isinstance(value, dict) else [(name, _text(value))]
            yield from ((f"{part}: {label}", str(text)) for label, text in fates)
    for harmful in document["harmful"]:
        said = "; ".join(f"{name}: {_text(value)}" for name, value in harmful.items())
        yield "a change that halves the rate", said


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
