"""Own splits: last week's control of a project, split by lot, and what the test says of it."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import numpy as np
from msgspec import structs

from domain.checklist.own_splits import By, OwnSplits, SplitResult
from domain.metric import FrozenMetric
from domain.millionths import MILLION
from stats.decision.random_splits import SPLITS, Outcomes, answers, exact_interval, lots, worst
from storage.ledger.own_splits import ControlWeek

# A split needs some clusters, and half of the units must name theirs.
_FEWEST_UNITS, _FEWEST_CLUSTERS, _KNOWN = 1000, 4, 0.5
_HOUR = 3_600_000_000


def own_splits(week: ControlWeek, *, night: date, salt: str | None = None) -> OwnSplits:
    """Returns what 200 splits of each kind show, where there is nothing to find."""
    salt = secrets.token_hex(8) if salt is None else salt
    clusters = dict(_clusters(week)) if len(week.units) >= _FEWEST_UNITS else {}
    results = [
        _result(by, names, metric, outcomes, salt)
        for metric, outcomes in _outcomes(week).items()
        for by, names in clusters.items()
    ]
    return OwnSplits(
        night=night,
        experiment_id=week.experiment_id,
        unit=week.policy.unit,
        units=len(week.units),
        alpha=week.policy.alpha,
        salt=salt,
        results=tuple(results),
    )


def _clusters(week: ControlWeek) -> Iterator[tuple[By, Sequence[str]]]:
    """Yields what splits keep together: a name for each unit."""
    yield "unit", [each.unit for each in week.units]
    named: Mapping[By, Sequence[str | None]] = {
        "user": [each.person for each in week.units] if week.policy.unit == "session" else [],
        "pod": [each.pod for each in week.units],
        "hour": [str(each.block // _HOUR) for each in week.units],
    }
    for by, names in named.items():
        known = [name for name in names if name is not None]
        if len({*known}) >= _FEWEST_CLUSTERS and len(known) >= _KNOWN * len(week.units):
            # A unit without a named cluster is one of its own.
            yield by, [f"alone {i}" if name is None else name for i, name in enumerate(names)]


def _outcomes(week: ControlWeek) -> Mapping[str, Outcomes]:
    """Returns what the units did on each conversion and each mean of the experiment."""
    place = {each.unit: index for index, each in enumerate(week.units)}
    block = np.array([each.block // 1_000_000 for each in week.units], dtype=np.int64)
    grace = week.policy.grace_seconds

    def empty(metric: FrozenMetric) -> Outcomes:
        return Outcomes(
            policy=structs.replace(
                week.policy, better=metric.better, window_seconds=metric.seconds_open(grace=grace)
            ),
            block=block,
            converted=np.zeros_like(block),
            amount=np.zeros(block.size) if metric.kind == "mean" else None,
        )

    read = {
        metric.name: empty(metric)
        for metric in week.policy.metrics
        if metric.kind in ("conversion", "mean") and metric.over is None
    }
    for row in week.outcomes:
        if (outcomes := read.get(row.metric)) is None or row.unit not in place:
            continue
        if row.value is None:
            outcomes.converted[place[row.unit]] = 1
        elif outcomes.amount is not None:
            outcomes.amount[place[row.unit]] += float(row.value) / MILLION
    return {name: each for name, each in read.items() if each.converted.any()}


def _result(
    by: By, names: Sequence[str], metric: str, outcomes: Outcomes, salt: str
) -> SplitResult:
    distinct, cluster = np.unique(np.array(names), return_inverse=True)
    count = answers(outcomes, lots(distinct.tolist(), f"{salt}:{by}")[cluster])
    low, high = exact_interval(count, SPLITS)
    return SplitResult(
        by=by,
        metric=metric,
        splits=SPLITS,
        answers=count,
        low=round(low, 4),
        high=round(high, 4),
        worst=str(distinct[worst(outcomes, cluster)]) if by == "pod" else None,
    )
