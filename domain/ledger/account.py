"""The account: sums over the entries of a ledger, by actor, by week and by metric."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from domain.document import Document, Moment
from domain.ledger.entry import Entry, LedgerKeep, Standing
from domain.ledger.standing import standing
from domain.policy import FALSE_DISCOVERY_RATE, RECORD_DAYS

DAYS = RECORD_DAYS
# Chance alone keeps a change without an effect with at most so much of its level, whatever its
# information is: the rest is rolled back, or was never reached (docs/statistics.md).
FALSE_KEEPS = 0.3
# A ledger lists its newest keeps; its sums count all of them.
MOST_KEEPS = 200

Key = TypeVar("Key", bound=str | None)


class LedgerCounts(Document, frozen=True, kw_only=True):
    """How many experiments were judged and kept, and how many keeps may be false."""

    judged: Annotated[
        int, Meta(description="Experiments with a look in these days, open ones included.")
    ]
    kept: int
    rolled_back: int
    answered: Annotated[
        int,
        Meta(description="With a verdict; or their place ended since a greater loss is excluded."),
    ]
    bundled: Annotated[int, Meta(description="Experiments on several changes together.")]
    hours: Annotated[
        float | None,
        Meta(description="Median until an answer, from the change's asking or registration on."),
    ]
    lost_units: Annotated[
        int, Meta(description="Units that had a change which was rolled back or sent back.")
    ]
    expected_false: Annotated[
        float,
        Meta(
            description="At most about so many of these keeps are false: 0.3 of each judged"
            " experiment's level, summed; never more than there are keeps."
        ),
    ]
    standing: Annotated[int, Meta(description="Keeps that stand.")]


class LedgerActor(LedgerCounts, frozen=True, kw_only=True):
    """The counts of who asked for the experiments, or made their changes."""

    actor: Annotated[
        str | None,
        Meta(
            description="As the registration names it, else the deploy's commit; else its author."
        ),
    ]


class LedgerWeek(LedgerCounts, frozen=True, kw_only=True):
    """The counts of a week."""

    week: Annotated[str, Meta(description="Its Monday.")]


class LedgerDay(LedgerCounts, frozen=True, kw_only=True):
    """The counts of the changes that asked, or were registered, on a day."""

    day: str


class LedgerMetric(Document, frozen=True, kw_only=True):
    """The keeps of a metric: the sums of their relative effects, as claimed and as measured."""

    metric: str
    kept: int
    claimed: Annotated[
        float, Meta(description="The sum of the measured lifts when they were decided.")
    ]
    measured: Annotated[int, Meta(description="Keeps with an effect after the decision.")]
    claimed_of_measured: Annotated[float, Meta(description="Of them alone.")]
    after_decision: Annotated[
        float, Meta(description="Their effects on units that came after the decision, summed.")
    ]
    standard_error: Annotated[float, Meta(description="Of after_decision.")]


class Ledger(LedgerCounts, frozen=True, kw_only=True):
    """The sums over a project's verdicts of the last days."""

    as_of: Moment
    days: int
    false_discovery_rate: Annotated[
        float, Meta(description="Of the keeps that stand, so many are false on average, at most.")
    ]
    queued: Annotated[int, Meta(description="Changes that wait for a place now.")]
    placed: Annotated[int, Meta(description="Changes that have a place now.")]
    actors: tuple[LedgerActor, ...]
    by_day: Annotated[tuple[LedgerDay, ...], Meta(description="The last day first.")]
    weeks: Annotated[tuple[LedgerWeek, ...], Meta(description="The last week first.")]
    metrics: tuple[LedgerMetric, ...]
    keeps: Annotated[tuple[LedgerKeep, ...], Meta(description="The newest 200, the last first.")]
    left_out: Annotated[int, Meta(description="Keeps that are not listed.")]
    retrospective: Annotated[
        int,
        Meta(
            description="Experiments on history, or registered after their outcomes: not counted."
        ),
    ]


def ledger_of(
    entries: Sequence[Entry], *, as_of: datetime, queued: int = 0, placed: int = 0
) -> Ledger:
    """Returns the ledger.

    Args:
        entries: The experiments that had a look in the 30 days before.
    """
    history = [entry for entry in entries if entry.retrospective]
    entries = [entry for entry in entries if not entry.retrospective]
    stands = standing(entries)
    keeps = sorted(_keeps(entries), key=lambda keep: (keep.at, keep.experiment_id), reverse=True)
    by_actor = sorted(
        _grouped(entries, lambda entry: entry.actor).items(),
        key=lambda item: (-len(item[1]), item[0] is None, item[0] or ""),
    )
    by_week = sorted(_grouped(entries, _week).items(), reverse=True)
    by_day = sorted(_grouped(entries, _day).items(), reverse=True)
    by_metric = sorted(_grouped(keeps, lambda entry: entry.metric).items())
    return Ledger(
        **_counts(entries, stands),
        as_of=as_of,
        days=DAYS,
        false_discovery_rate=FALSE_DISCOVERY_RATE,
        queued=queued,
        placed=placed,
        by_day=tuple(LedgerDay(day=day, **_counts(of, stands)) for day, of in by_day),
        actors=tuple(LedgerActor(actor=actor, **_counts(of, stands)) for actor, of in by_actor),
        weeks=tuple(LedgerWeek(week=week, **_counts(of, stands)) for week, of in by_week),
        metrics=tuple(_sums(metric, of) for metric, of in by_metric),
        keeps=tuple(keep.keep(stands[keep.experiment_id]) for keep in keeps[:MOST_KEEPS]),
        left_out=len(keeps[MOST_KEEPS:]),
        retrospective=len(history),
    )


def _keeps(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.verdict == "keep"]


def _grouped(
    entries: Sequence[Entry], key: Callable[[Entry], Key]
) -> Mapping[Key, Sequence[Entry]]:
    groups = defaultdict[Key, list[Entry]](list)
    for entry in entries:
        groups[key(entry)].append(entry)
    return groups


def _week(entry: Entry) -> str:
    """Returns the Monday of an entry's week."""
    day = entry.at.date()
    return (day - timedelta(days=day.weekday())).isoformat()


def _day(entry: Entry) -> str:
    return entry.asked_at.date().isoformat()


def _counts(entries: Sequence[Entry], stands: Mapping[str, Standing]) -> dict[str, Any]:
    """Returns the members of some entries' counts."""
    keeps = _keeps(entries)
    answered = [entry for entry in entries if entry.answered]
    return {
        "judged": len(entries),
        "answered": len(answered),
        "bundled": sum(entry.changes > 1 for entry in entries),
        "hours": median(entry.hours for entry in answered) if answered else None,
        "lost_units": sum(entry.units or 0 for entry in entries),
        "kept": len(keeps),
        "rolled_back": sum(entry.verdict == "rollback" for entry in entries),
        "expected_false": min(
            math.fsum(FALSE_KEEPS * entry.level for entry in entries), float(len(keeps))
        ),
        "standing": sum(stands[keep.experiment_id] == "yes" for keep in keeps),
    }


def _sums(metric: str, keeps: Sequence[Entry]) -> LedgerMetric:
    """Returns the sums of a metric's keeps; claims and measurements compare over the same keeps."""
    measured = [keep for keep in keeps if keep.after_decision is not None]
    return LedgerMetric(
        metric=metric,
        kept=len(keeps),
        claimed=sum_of(keep.claimed for keep in keeps),
        measured=len(measured),
        claimed_of_measured=sum_of(keep.claimed for keep in measured),
        after_decision=sum_of(keep.after_decision for keep in measured),
        standard_error=math.sqrt(sum_of((keep.measured_error or 0.0) ** 2 for keep in measured)),
    )


def sum_of(values: Iterable[float | None]) -> float:
    """Returns the exact sum of those values that are known."""
    return math.fsum(value for value in values if value is not None)
