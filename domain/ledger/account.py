"""The account: sums over the entries of a ledger, by actor, by week and by metric."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from domain.ledger.entry import Entry
from domain.ledger.standing import FALSE_DISCOVERY_RATE, standing

DAYS = 28
# Of the keeps the newest are listed; the sums are those of all.
MOST_KEEPS = 200

Key = TypeVar("Key", bound=str | None)


def account_of(entries: Sequence[Entry], *, as_of: datetime) -> dict[str, Any]:
    """Returns the ledger as a document.

    Args:
        entries: The experiments that had a look in the 28 days before.
        as_of: The end of these days.
    """
    stands = standing(entries)
    keeps = sorted(_keeps(entries), key=lambda keep: (keep.at, keep.experiment_id), reverse=True)
    by_actor = _grouped(entries, lambda entry: entry.actor)
    return {
        "as_of": as_of,
        "days": DAYS,
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        **_counts(entries, stands),
        "actors": [
            {"actor": actor, **_counts(group, stands)}
            for actor, group in sorted(
                by_actor.items(), key=lambda item: (-len(item[1]), item[0] is None, item[0] or "")
            )
        ],
        "weeks": [
            {"week": week, **_counts(group, stands)}
            for week, group in sorted(_grouped(entries, _week).items())
        ],
        "metrics": [
            {"metric": metric, **_sums(group)}
            for metric, group in sorted(_grouped(keeps, lambda entry: entry.metric).items())
        ],
        "keeps": [keep.document(stands=stands[keep.experiment_id]) for keep in keeps[:MOST_KEEPS]],
        "left_out": len(keeps[MOST_KEEPS:]),
    }


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


def _counts(entries: Sequence[Entry], stands: Mapping[str, str]) -> dict[str, Any]:
    """Returns how many were judged and kept, and how many keeps may be false.

    Half of a test's level is what chance makes of a change without an effect: the other half are
    rollbacks.
    """
    keeps = _keeps(entries)
    return {
        "judged": len(entries),
        "kept": len(keeps),
        "rolled_back": sum(entry.verdict == "rollback" for entry in entries),
        "expected_false": min(math.fsum(entry.level / 2 for entry in entries), float(len(keeps))),
        "standing": sum(stands[keep.experiment_id] == "yes" for keep in keeps),
    }


def _sums(keeps: Sequence[Entry]) -> dict[str, Any]:
    """Returns the sum of relative effects as claimed, and of those that were measured afterwards.

    The two are compared over the same keeps.
    """
    measured = [keep for keep in keeps if keep.measured is not None]
    return {
        "kept": len(keeps),
        "claimed": _sum(keep.claimed for keep in keeps),
        "measured": len(measured),
        "claimed_of_measured": _sum(keep.claimed for keep in measured),
        "after_decision": _sum(keep.measured for keep in measured),
        "standard_error": math.sqrt(_sum((keep.measured_error or 0.0) ** 2 for keep in measured)),
    }


def _sum(values: Iterable[float | None]) -> float:
    return math.fsum(value for value in values if value is not None)
