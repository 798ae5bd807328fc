"""The report of a simulated repository: each change's answer beside the truth."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.repository.change import HARM
from benchmarks.repository.sessions import Sessions
from benchmarks.repository.team import Fate, Team, Trial

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
        shipped = [trial for trial in self.team.trials if trial.share]
        return {
            "days": self.days,
            "sessions": self.sessions.total,
            "sessions that asked for their arms": self.sessions.asked,
            "units that are not in the arm drawn for them": sum(
                trial.mismatched for trial in shipped
            ),
            "conversions": self.sessions.conversions,
            "commits": self._commits(),
            "canaries": self._answers([trial for trial in shipped if trial.build is not None]),
            "flags": self._answers([trial for trial in shipped if trial.build is None]),
            "intervals": _coverage(shipped),
            "harmful": self._harmful(shipped),
            "changes": [_row(trial) for trial in shipped],
        }

    def _commits(self) -> dict[str, Any]:
        trials = self.team.trials
        ended = [trial for trial in trials if trial.ended is not None]
        answered = [trial for trial in ended if trial.fate in _ANSWERS]
        moved = [trial.rebases for trial in ended if trial.build]
        return {
            "ready": len(trials),
            "waiting": sum(trial.fate is Fate.WAITING for trial in trials),
            "hotfixes": self.team.hotfixes,
            "ended": len(ended),
            "with an answer of their own": len(answered),
            "with a verdict of their own": sum(trial.fate in _VERDICTS for trial in answered),
            "share with an answer of their own": len(answered) / len(ended) if ended else None,
            "median hours in the queue": _median(
                [(trial.shipped - trial.ready) / 60 for trial in trials if trial.share]
            ),
            "median rebases": _median(moved),
            "seconds of the service's CPU for each": sum(self.team.service.cpu)
            / max(1, len(trials)),
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
                trial.fate is Fate.KEPT and trial.change.effect <= 0 for trial in trials
            ),
            "rolled back though it helps or does nothing": sum(
                trial.fate is Fate.ROLLED_BACK and trial.change.effect >= 0 for trial in trials
            ),
            "median hours to an answer": _median(hours),
        }

    def _harmful(self, trials: Sequence[Trial]) -> list[dict[str, Any]]:
        """Returns the cost of each change that halves the rate."""
        return [
            {
                "fate": str(trial.fate),
                "behind a flag": trial.build is None,
                "hours until withdrawn": _hours(trial),
                "share of all sessions": trial.sessions(self.sessions.count) / self.sessions.total,
            }
            for trial in trials
            if trial.change.effect == HARM
        ]


def _hours(trial: Trial) -> float | None:
    return None if trial.ended is None else (trial.ended - trial.shipped) / 60


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _coverage(trials: Sequence[Trial]) -> dict[str, Any]:
    intervals = [trial.interval for trial in trials if trial.interval is not None]
    covered = sum(low <= lift <= high for low, high, lift in intervals)
    return {
        "intervals": len(intervals),
        "that hold the true lift": covered,
        "coverage": covered / len(intervals) if intervals else None,
    }


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "change": trial.change.name[:12],
        "true_effect": round(trial.change.effect, 4),
        "fate": str(trial.fate),
        "hours": _hours(trial),
        "rebases": trial.rebases,
        "interval": trial.interval and [round(value, 5) for value in trial.interval[:2]],
        "true_lift": trial.interval and round(trial.interval[2], 5),
    }


def rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields a report's document as lines for people."""
    for name, value in document.items():
        if isinstance(value, int | float):
            yield name, f"{value:,}"
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
