"""Input of the causal gates: allocations, arrivals, crossings, late outcomes, users who return."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.draw import FEW_OFF, ONE_OFF_IN
from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of
from storage.schema.encoding import (
    BLOCK,
    SIGHTINGS,
    TREATMENT,
    arms,
    epoch_microseconds,
    moment,
    sightings,
)
from storage.schema.policy_columns import FLAG_NAME, GRACE, GRACE_SECONDS, HAS_FLAG, IS_DRAWN
from storage.verdicts.packed_cells import AT, Columns, packed, sent

_BLOCK = timedelta(minutes=5)
_BLOCK_SECONDS = BLOCK // 1_000_000
_COUNTED = (
    *("own", "others", "treatment", "control", "as_drawn", "off_draw"),
    *("again_treatment", "kept_treatment", "again_control", "kept_control", "unnamed"),
)
NAMELESS = ("block", "treatment", "others", "units", "named")
NO_UNITS: Columns = {name: array("q") for name in ("block", *_COUNTED)}


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
class GateReading:
    """The input of an experiment's gates.

    Attributes:
        units: What gates ask of units, by block; `own` and `others` arrived at a known build.
        nameless: Each name of events that name no build, with the columns of `UnknownBuilds`; the
            empty name holds the events of unrecorded commits.
        pooled: Each flag beside it that is off the draw, with the columns of `PooledFlag`.
    """

    units: Columns
    crossings: Sequence[Crossing] = ()
    late: Sequence[LateOutcome] = ()
    pooled: Sequence[tuple[str, Columns]] = ()
    nameless: Sequence[tuple[str, Columns]] = ()


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


_UNITS = text(f"""
WITH served AS (
    SELECT *, treatment + control + partial + warming - own AS others
    FROM block_units
    WHERE experiment_id = ANY(:ids) AND treatment + control + partial + warming > 0
), anonymous AS (
    SELECT s.experiment_id, s.sighted_at - {BLOCK} - {epoch_microseconds(GRACE)} AS block,
        count(*) AS unnamed
    FROM sightings AS s JOIN experiments AS x USING (experiment_id)
    WHERE s.kind = {SIGHTINGS["unknown_user"]} AND s.experiment_id = ANY(:ids)
    GROUP BY 1, 2
)
SELECT experiment_id, {packed("int8send", "at", *_COUNTED, order="block")}
FROM (
    SELECT experiment_id, block, {AT},
        {", ".join(f"coalesce({name}, 0) AS {name}" for name in _COUNTED)}
    FROM served FULL JOIN anonymous USING (experiment_id, block)
) AS counted
GROUP BY experiment_id
""")

_MOVED_ARRIVALS = text(f"""
-- A unit arrives with its first event on the eligible routes, whatever build served it. What events
-- without a commit would move is counted by their names; under the empty name, what events of
-- unrecorded commits would.
WITH unknown AS (
    SELECT DISTINCT ON (s.experiment_id, s.unit) s.experiment_id, s.unit,
        coalesce(s.event, '') AS event,
        s.sighted_at - {BLOCK} - {epoch_microseconds(GRACE)} AS unknown_from
    FROM sightings AS s JOIN experiments AS x USING (experiment_id)
    WHERE s.kind IN {sightings("unknown_commit", "unknown_build")} AND s.experiment_id = ANY(:ids)
      -- Nor does one in flight arrive, whether or not it is exposed later.
      AND NOT EXISTS (
          SELECT FROM sightings AS f
          WHERE f.experiment_id = s.experiment_id AND f.unit = s.unit
            AND f.kind = {SIGHTINGS["in_flight"]}
      )
    ORDER BY s.experiment_id, s.unit, s.kind
), met AS (
    -- Those of them who were exposed as well: they arrived with whichever came first.
    SELECT u.*, p.block AS exposed_from, coalesce(p.commit_sha = x.treatment_commit, false) AS own,
        coalesce(p.commit_sha = x.treatment_commit AND p.block <= u.unknown_from, false) AS stays
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
    SELECT experiment_id, event, exposed_from AS block, -own::int AS treatment,
        own::int - 1 AS others, 0 AS units, 0 AS named
    FROM met
    WHERE exposed_from IS NOT NULL
    UNION ALL
    SELECT experiment_id, event, least(exposed_from, unknown_from), stays::int, 1 - stays::int, 0, 0
    FROM met
    UNION ALL
    SELECT experiment_id, event, unknown_from, 0, 0, 1, 0 FROM met WHERE event <> ''
    UNION ALL
    SELECT experiment_id, event, b.block, 0, 0, 0, b.units
    FROM (SELECT DISTINCT experiment_id, event FROM met WHERE event <> '') AS names
    JOIN block_names AS b USING (experiment_id, event)
)
SELECT experiment_id, event, block / 1000000 AS block, sum(treatment)::bigint AS treatment,
    sum(others)::bigint AS others, sum(units)::bigint AS units, sum(named)::bigint AS named
FROM moved
GROUP BY experiment_id, event, block
ORDER BY experiment_id, event COLLATE "C", block
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


# Units are read as they are served, also from a separate reading, which has few rows of units.
# Without more units off its draw a flag is no suspect: there is no evidence.
_POOLED = text(f"""
WITH asked AS (
    SELECT x.experiment_id, x.project_id, x.environment, {GRACE_SECONDS} AS grace,
        {epoch_microseconds("x.starts_at")} AS starts_at
    FROM experiments AS x
    WHERE x.experiment_id = ANY(:ids)
), beside AS (
    SELECT x.experiment_id, x.project_id, x.environment, {GRACE_SECONDS} AS grace,
        {FLAG_NAME} AS name
    FROM {SCHEMA}.experiments AS x
    WHERE {IS_DRAWN} AND {HAS_FLAG} AND EXISTS (
        SELECT FROM asked AS a
        WHERE a.project_id = x.project_id AND a.environment = x.environment AND EXISTS (
            SELECT FROM {SCHEMA}.block_units AS u
            WHERE u.experiment_id = x.experiment_id AND u.block >= a.starts_at
        )
    )
), counted AS (
    SELECT u.experiment_id, u.block, u.as_drawn, u.off_draw, sum(u.off_draw) OVER w AS off,
        sum(u.as_drawn + u.off_draw) OVER w AS units
    FROM {SCHEMA}.block_units AS u JOIN beside USING (experiment_id)
    WINDOW w AS (PARTITION BY u.experiment_id ORDER BY u.block)
), suspects AS (
    SELECT b.experiment_id, b.project_id, b.environment, b.grace, b.name,
        {packed("int8send", "closes", "as_drawn", "off_draw", order="block")}
    FROM beside AS b JOIN (
        SELECT c.*, block / 1000000 + {_BLOCK_SECONDS} + ceil(b.grace)::bigint AS closes
        FROM counted AS c JOIN beside AS b USING (experiment_id)
    ) AS c USING (experiment_id)
    GROUP BY 1, 2, 3, 4, 5
    HAVING bool_or(c.off > {FEW_OFF} AND c.off * {ONE_OFF_IN} > c.units)
), joint AS (
    SELECT a.experiment_id, s.experiment_id AS flagged,
        greatest(p.block / 1000000 + ceil(a.grace)::bigint,
            q.block / 1000000 + ceil(s.grace)::bigint) + {_BLOCK_SECONDS} AS joint_closes,
        count(*) FILTER (WHERE p.arm = {TREATMENT}) AS n1,
        count(*) FILTER (WHERE p.arm = {TREATMENT} AND q.arm = {TREATMENT}) AS x1,
        count(*) FILTER (WHERE p.arm IN {arms("control")}) AS n0,
        count(*) FILTER (WHERE p.arm IN {arms("control")} AND q.arm = {TREATMENT}) AS x0
    FROM asked AS a
    JOIN suspects AS s ON s.project_id = a.project_id AND s.environment = a.environment
        AND s.experiment_id <> a.experiment_id
    JOIN {SCHEMA}.exposures AS p ON p.experiment_id = a.experiment_id
    JOIN {SCHEMA}.exposures AS q ON q.experiment_id = s.experiment_id AND q.unit = p.unit
    WHERE p.arm IN {arms("treatment", "control")} AND q.arm IN {arms("treatment", "control")}
    GROUP BY 1, 2, 3
)
SELECT j.experiment_id, s.name, s.closes, s.as_drawn, s.off_draw,
    {packed("int8send", "joint_closes", "n1", "x1", "n0", "x0", order="joint_closes")}
FROM joint AS j JOIN suspects AS s ON s.experiment_id = j.flagged
GROUP BY j.experiment_id, j.flagged, s.name, s.closes, s.as_drawn, s.off_draw
ORDER BY j.experiment_id, s.name COLLATE "C", j.flagged
""")
_POOLED_COUNTS = ("closes", "as_drawn", "off_draw", "joint_closes", "n1", "x1", "n0", "x0")


def read_gates(
    connection: Connection, ids: Sequence[str], *, declared: Sequence[str]
) -> dict[str, GateReading]:
    """Returns the input of experiments' gates; arrivals matter to `declared` allocations alone."""
    units = {
        row.experiment_id: sent(row, "at", *_COUNTED)
        for row in connection.execute(_UNITS, {"ids": list(ids)})
    }
    # Few units, of few experiments.
    moved: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_MOVED_ARRIVALS, {"ids": list(declared)}):
        moved[row.experiment_id].append(row)
    crossings: dict[str, list[Crossing]] = defaultdict(list)
    for row in connection.execute(_CROSSINGS, {"ids": list(ids)}):
        crossings[row.experiment_id].append(value_of(Crossing, row))
    late: dict[str, list[LateOutcome]] = defaultdict(list)
    for row in connection.execute(_LATE, {"ids": list(ids)}):
        late[row.experiment_id].append(value_of(LateOutcome, row))
    pooled: dict[str, list[tuple[str, Columns]]] = defaultdict(list)
    for row in connection.execute(_POOLED, {"ids": list(ids)}):
        pooled[row.experiment_id].append((row.name, sent(row, *_POOLED_COUNTS)))
    return {
        experiment_id: GateReading(
            nameless=[
                (event, _nameless(list(rows)))
                for event, rows in groupby(moved[experiment_id], lambda row: row.event)
            ],
            units=units.get(experiment_id, NO_UNITS),
            crossings=crossings[experiment_id],
            late=late[experiment_id],
            pooled=pooled[experiment_id],
        )
        for experiment_id in ids
    }


def _nameless(rows: Sequence[Row[Any]]) -> Columns:
    """Returns what events of a name would move that name no build."""
    return {name: array("q", (getattr(row, name) for row in rows)) for name in NAMELESS}
