"""Input of the causal gates: allocations, arrivals, crossings, late outcomes, users who return."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from storage.postgres.rows import value_of
from storage.schema.encoding import (
    BLOCK,
    SIGHTINGS,
    TREATMENT,
    arms,
    epoch_microseconds,
    moment,
)
from storage.schema.policy_columns import GRACE
from storage.verdicts.packed_cells import AT, integers_sent, packed

_BLOCK = timedelta(minutes=5)
_RETURNING_COUNTS = (
    *("treatment", "control"),
    *("again_treatment", "kept_treatment", "again_control", "kept_control"),
)


@dataclass(frozen=True, kw_only=True)
class CountedDeploy:
    """A deploy as the blocks of an experiment see it: its declared share, and its start."""

    commit: str
    allocation: float | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A span over which the treatment's share was declared, or was not (None)."""

    begin: datetime
    end: datetime | None
    share: float | None


@dataclass(frozen=True, kw_only=True)
class ArrivalColumns:
    """Units by the build that first served them, an entry a block, by block.

    Attributes:
        block: Where the block begins, in seconds since the epoch.
        treatment: Units that the treatment served.
        other: Units that any other build served.
    """

    block: "array[int]"
    treatment: "array[int]"
    other: "array[int]"


NO_ARRIVALS = ArrivalColumns(block=array("q"), treatment=array("q"), other=array("q"))


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A unit that was seen in both arms: block and stratum of its exposure, and when it was."""

    block: datetime
    stratum: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class LateOutcome:
    """A unit whose outcome came after its block had closed."""

    block: datetime
    stratum: str
    treated: bool
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class ReturningColumns:
    """Units by arm, and the users with a second session by the block of it, an entry a block.

    Attributes:
        block: Where the block begins, in seconds since the epoch.
        again_treatment: Users whose first session was in treatment.
        kept_treatment: Those of them whose second session is in treatment too.
        again_control: The same of control.
        kept_control: The same of control.
    """

    block: "array[int]"
    treatment: "array[int]"
    control: "array[int]"
    again_treatment: "array[int]"
    kept_treatment: "array[int]"
    again_control: "array[int]"
    kept_control: "array[int]"


@dataclass(frozen=True, kw_only=True)
class GateReading:
    """The input of an experiment's gates."""

    arrivals: ArrivalColumns = NO_ARRIVALS
    crossings: Sequence[Crossing] = ()
    late: Sequence[LateOutcome] = ()
    returning: ReturningColumns | None = None


def block_begin(moment: datetime) -> datetime:
    """Returns when the block of a moment of exposure begins."""
    seconds = moment.timestamp()
    return datetime.fromtimestamp(seconds - seconds % _BLOCK.total_seconds(), tz=UTC)


def block_close(moment: datetime, grace_seconds: float) -> datetime:
    """Returns when the block of a moment of exposure closes."""
    return block_begin(moment) + _BLOCK + timedelta(seconds=grace_seconds)


def allocations(
    deploys: Iterable[CountedDeploy],
    *,
    commit: str,
    starts_at: datetime,
    is_portfolio: bool = False,
) -> list[Allocation]:
    """Returns the history of a commit's declared share from the start on.

    A deploy of the commit states its share, or none; a deploy of another commit that is no canary
    puts everybody there, so that an earlier declaration holds no longer. A portfolio's treatment,
    which everybody gets but for hold-backs and canaries, has the rest of their shares.

    Args:
        deploys: Of the environment, as far as they count, in order of time.
        starts_at: When exposure began.
        is_portfolio: Whether the experiment compares the standing build with a hold-back.
    """
    steps: list[tuple[datetime, float | None]] = []
    own: float | None = None
    others: dict[str, float] = {}
    for deploy in deploys:
        canary = deploy.allocation is not None and 0 < deploy.allocation < 1
        if deploy.commit == commit:
            own = deploy.allocation
        elif canary:
            others[deploy.commit] = deploy.allocation or 0.0
        else:
            others.pop(deploy.commit, None)
            if deploy.at > starts_at and deploy.allocation != 0:
                own = None
        share = 1 - sum(others.values()) if is_portfolio and own == 1 else own
        if steps or deploy.commit == commit:
            steps.append((deploy.at, share))
    spans: list[Allocation] = []
    for (begin, share), (end, _) in zip(steps, [*steps[1:], (None, None)], strict=True):
        if spans and spans[-1].share == share:
            begin = spans.pop().begin  # noqa: PLW2901 - the span goes on
        spans.append(Allocation(begin=begin, end=end, share=share))
    return [span for span in spans if span.end is None or span.end > starts_at]


_ARRIVALS = text(f"""
SELECT experiment_id, {packed("int8send", "at", "own", "other", order="block")}
FROM (
    SELECT experiment_id, block, {AT}, own, treatment + control + partial + warming - own AS other
    FROM block_units
    WHERE experiment_id = ANY(:ids) AND treatment + control + partial + warming > 0
) AS served
GROUP BY experiment_id
""")

_MOVED_ARRIVALS = text(f"""
-- A unit arrives with its first event on the eligible routes, whatever build served it: one that
-- nobody had told of is another build.
WITH unknown AS (
    SELECT s.experiment_id, s.unit, s.sighted_at - {BLOCK} - {epoch_microseconds(GRACE)} AS block
    FROM sightings AS s JOIN experiments AS x USING (experiment_id)
    WHERE s.kind = {SIGHTINGS["unknown_commit"]} AND s.experiment_id = ANY(:ids)
      -- Nor does one in flight arrive, whether or not it is exposed later.
      AND NOT EXISTS (
          SELECT FROM sightings AS f
          WHERE f.experiment_id = s.experiment_id AND f.unit = s.unit
            AND f.kind = {SIGHTINGS["in_flight"]}
      )
), met AS (
    -- Those of them who were exposed as well: they arrived with whichever came first.
    SELECT u.experiment_id, u.block AS unknown_from, p.block AS exposed_from,
        p.commit_sha = x.treatment_commit AS own
    FROM unknown AS u
    JOIN experiments AS x USING (experiment_id)
    -- By its key, which LIMIT holds the planner to; below likewise.
    LEFT JOIN LATERAL (
        SELECT p.block, p.commit_sha FROM exposures AS p
        WHERE p.experiment_id = u.experiment_id AND p.unit = u.unit
          AND p.arm IN {arms("treatment", "control", "partial", "warming")}
        LIMIT 1
    ) AS p ON true
), moved AS (
    SELECT experiment_id, exposed_from AS block, -own::int AS treatment, own::int - 1 AS other
    FROM met
    WHERE exposed_from IS NOT NULL
    UNION ALL
    SELECT experiment_id, least(exposed_from, unknown_from),
        (own AND exposed_from <= unknown_from)::int,
        1 - (own AND exposed_from <= unknown_from)::int
    FROM met
    WHERE exposed_from IS NOT NULL
    UNION ALL
    SELECT experiment_id, unknown_from, 0, 1 FROM met WHERE exposed_from IS NULL
)
SELECT experiment_id, block / 1000000 AS block,
    sum(treatment)::bigint AS treatment, sum(other)::bigint AS other
FROM moved
GROUP BY experiment_id, block
""")

_CROSSINGS = text(f"""
SELECT experiment_id, {moment("block")} AS block, stratum, {moment("sighted_at")} AS at
FROM sightings
WHERE kind = {SIGHTINGS["crossover"]} AND experiment_id = ANY(:ids)
ORDER BY experiment_id, at, block, stratum COLLATE "C"
""")

_LATE = text(f"""
SELECT c.experiment_id, {moment("c.block")} AS block, c.stratum, c.arm = {TREATMENT} AS treated,
    {moment("c.received_at")} AS received_at
FROM conversions AS c
JOIN experiments AS x ON x.experiment_id = c.experiment_id AND x.target_metric = c.metric
WHERE c.experiment_id = ANY(:ids) AND c.late = 1
ORDER BY c.experiment_id, c.received_at, c.block, c.stratum COLLATE "C", treated, c.unit COLLATE "C"
""")


_RETURNING = text(f"""
SELECT experiment_id, {packed("int8send", "at", *_RETURNING_COUNTS, order="block")}
FROM (
    SELECT experiment_id, block, {AT}, {", ".join(_RETURNING_COUNTS)}
    FROM block_units AS u
    WHERE experiment_id = ANY(:ids) AND treatment + control > 0 AND EXISTS (
        SELECT FROM block_units AS r
        WHERE r.experiment_id = u.experiment_id AND r.again_treatment + r.again_control > 0
    )
) AS counted
GROUP BY experiment_id
""")


def read_gates(
    connection: Connection, ids: Sequence[str], *, declared: Sequence[str]
) -> dict[str, GateReading]:
    """Returns the input of each experiment's gates.

    Args:
        connection: To the store, or to a separate reading of it.
        declared: Those whose treatment has a declared allocation: arrivals matter to them alone.
    """
    arrivals = _arrivals(connection, declared)
    crossings: dict[str, list[Crossing]] = defaultdict(list)
    for row in connection.execute(_CROSSINGS, {"ids": list(ids)}):
        crossings[row.experiment_id].append(value_of(Crossing, row))
    late: dict[str, list[LateOutcome]] = defaultdict(list)
    for row in connection.execute(_LATE, {"ids": list(ids)}):
        late[row.experiment_id].append(value_of(LateOutcome, row))
    returns = {
        row.experiment_id: ReturningColumns(
            block=integers_sent(row.at),
            **{name: integers_sent(getattr(row, name)) for name in _RETURNING_COUNTS},
        )
        for row in connection.execute(_RETURNING, {"ids": list(ids)})
    }
    return {
        experiment_id: GateReading(
            arrivals=arrivals.get(experiment_id, NO_ARRIVALS),
            crossings=crossings[experiment_id],
            late=late[experiment_id],
            returning=returns.get(experiment_id),
        )
        for experiment_id in ids
    }


def _arrivals(connection: Connection, ids: Sequence[str]) -> dict[str, ArrivalColumns]:
    """Returns the arrivals of each experiment that has any."""
    arrivals = {
        row.experiment_id: ArrivalColumns(
            block=integers_sent(row.at),
            treatment=integers_sent(row.own),
            other=integers_sent(row.other),
        )
        for row in connection.execute(_ARRIVALS, {"ids": list(ids)})
    }
    # Few units, of few experiments.
    moved: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_MOVED_ARRIVALS, {"ids": list(ids)}):
        moved[row.experiment_id].append(row)
    for experiment_id, rows in moved.items():
        arrivals[experiment_id] = _with_moved(arrivals.get(experiment_id, NO_ARRIVALS), rows)
    return arrivals


def _with_moved(arrivals: ArrivalColumns, moved: Iterable[Row[Any]]) -> ArrivalColumns:
    """Returns arrivals with those of units that an unknown build served."""
    treatment = Counter(dict(zip(arrivals.block, arrivals.treatment, strict=True)))
    other = Counter(dict(zip(arrivals.block, arrivals.other, strict=True)))
    for row in moved:
        treatment[row.block] += row.treatment
        other[row.block] += row.other
    blocks = sorted(block for block in treatment if treatment[block] + other[block] > 0)
    return ArrivalColumns(
        block=array("q", blocks),
        treatment=array("q", [treatment[block] for block in blocks]),
        other=array("q", [other[block] for block in blocks]),
    )
