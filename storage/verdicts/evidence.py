"""The engine's input from the store, and the counts that evidence shows beside it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.evidence.counts import Counts, LeftOut
from domain.lineage.flag import flag_change
from domain.lineage.history import History
from domain.lineage.serving import ReleaseStep
from domain.policy import KeepRecord, Policy
from domain.words import EndedBecause
from storage.experiments.histories import joint_with, read_facts
from storage.experiments.serving import POSTED
from storage.pipeline.assignments import Question
from storage.pipeline.inputs import read_environments
from storage.postgres.rows import value_of
from storage.schema.encoding import (
    ARMS,
    BLOCK,
    CONTROL,
    LEFT_OUT,
    SIGHTINGS,
    TREATMENT,
    epoch_microseconds,
    sightings,
)
from storage.schema.policy_columns import GRACE, JUDGED_METRICS
from storage.verdicts.gates import (
    Allocation,
    CountedDeploy,
    GateReading,
    allocations,
    block_begin,
    read_gates,
)
from storage.verdicts.keep_records import read_keep_records
from storage.verdicts.packed_cells import NO_CELLS, Columns, Stratum, read_cells, read_strata
from storage.verdicts.stratum_shares import stratum_shares

_BLOCK = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class ExperimentReading:
    """All that an experiment's evidence is computed from, counts of units apart.

    Attributes:
        strata: The names of the strata that were ever exposed, in order; cells hold their places.
        lineages: Of each of them the digest of its lineage alone.
        joint_with: The changes under test that are not the treatment commit's own.
        frozen: The policy as it is stored, of which evidence shows a digest.
        stratum_shares: By lineage, treatment's declared share of the units of its strata; empty
            where none is declared.
    """

    experiment_id: str
    project_id: int
    environment: str
    treatment_commit: str
    control_commit: str | None
    joint_with: Sequence[str]
    registered_at: datetime
    starts_at: datetime
    bound_at: datetime
    closed_at: datetime | None
    change: Sequence[str]
    policy: Policy
    frozen: Mapping[str, object]
    as_of: datetime
    strata: Sequence[str]
    lineages: Sequence[str]
    flags: Sequence[Mapping[str, str]]
    cells_by_metric: Mapping[str, Columns]
    cuts: Sequence[datetime]
    deploys: Sequence[ReleaseStep]
    base_assumed: bool
    allocations: Sequence[Allocation]
    stratum_shares: Mapping[str, Sequence[Allocation]]
    gates: GateReading
    records: Sequence[KeepRecord] = ()
    day_unequal: bool = False
    place_ended: bool = False

    @property
    def cells(self) -> Columns:
        """The closed cells of the target."""
        return self.cells_by_metric[self.policy.target.name]


_ACTIVE = text(f"""
SELECT x.*, {joint_with("x")} AS joint_with,
    read.at + {GRACE} AS as_of, EXISTS (
        SELECT FROM self_checks AS c WHERE NOT c.equal AND x.experiment_id = ANY(c.experiments)
    ) AS day_unequal, (
        SELECT d.base_assumed FROM deploys AS d WHERE d.deploy_id = x.deploy_id
    ) AS base_assumed, EXISTS (
        SELECT FROM places AS p
        WHERE p.experiment_id = x.experiment_id AND p.asked_at <= x.registered_at
          AND p.ended_at <= x.closed_at AND p.outcome IN ('harmless', 'suspected', 'unanswered')
    ) AS place_ended
FROM (
    SELECT * FROM experiments
    WHERE CAST(:only AS text[]) IS NULL OR experiment_id = ANY(CAST(:only AS text[]))
    OFFSET 0
) AS x
JOIN cursors AS read ON read.stage = 'conversions' AND read.experiment_id = x.experiment_id
LEFT JOIN verdicts AS v ON v.experiment_id = x.experiment_id
WHERE coalesce(v.decided, false) = :decided
ORDER BY x.experiment_id
""")

_DEPLOYS = text(f"""
SELECT project_id, environment, commit_sha AS commit, base_commit AS base, deployed_at,
    recorded_at, allocation, withdrawn_at, {POSTED}
FROM deploys
WHERE (project_id, environment) IN (
    SELECT project_id, environment FROM experiments WHERE experiment_id = ANY(:ids)
)
ORDER BY deployed_at, recorded_at, deploy_id
""")


def read_experiments(
    connection: Connection, *, only: Sequence[str] | None = None, decided: bool = False
) -> list[ExperimentReading]:
    """Returns every bound experiment without a decided verdict, with its closed cells."""
    bound = {"only": None if only is None else list(only), "decided": decided}
    active = connection.execute(_ACTIVE, bound).all()
    ids = [row.experiment_id for row in active]
    cells = read_cells(connection, ids)
    strata = read_strata(connection, ids)
    deploys = _deploys(
        connection,
        {row.experiment_id: (row.project_id, row.environment, row.bound_at) for row in active},
    )
    policies = {row.experiment_id: Policy.of(row.policy) for row in active}
    known = {
        row.experiment_id: _counted(
            deploys[row.experiment_id],
            bound_at=row.bound_at,
            grace=policies[row.experiment_id].grace_seconds,
        )
        for row in active
    }
    shares = {
        row.experiment_id: []
        if policies[row.experiment_id].flag is not None
        else allocations(
            known[row.experiment_id],
            commit=row.treatment_commit,
            starts_at=row.starts_at,
            is_portfolio=policies[row.experiment_id].portfolio,
        )
        for row in active
    }
    declared = [row for row in active if any(span.share for span in shares[row.experiment_id])]
    gates = read_gates(connection, ids, declared=[row.experiment_id for row in declared])
    within = _within_strata(connection, declared, known, strata, policies)
    stand = {row.project_id for row in active if policies[row.experiment_id].keep_when == "stands"}
    records = read_keep_records(connection, stand)
    return [
        value_of(
            ExperimentReading,
            row,
            policy=policies[row.experiment_id],
            frozen=row.policy,
            strata=[stratum.name for stratum in strata[row.experiment_id]],
            lineages=[stratum.lineage for stratum in strata[row.experiment_id]],
            flags=[stratum.flags for stratum in strata[row.experiment_id]],
            cells_by_metric={
                name: cells.get((row.experiment_id, name), NO_CELLS)
                for name in policies[row.experiment_id].cell_names
            },
            cuts=_cuts(known[row.experiment_id], starts_at=row.starts_at),
            deploys=deploys[row.experiment_id],
            allocations=shares[row.experiment_id],
            stratum_shares=within.get(row.experiment_id, {}),
            gates=gates[row.experiment_id],
            records=records.get(row.project_id, ()),
        )
        for row in active
    ]


def _within_strata(
    connection: Connection,
    declared: Sequence[Row[Any]],
    deploys: Mapping[str, Sequence[CountedDeploy]],
    strata: Mapping[str, Sequence[Stratum]],
    policies: Mapping[str, Policy],
) -> dict[str, dict[str, list[Allocation]]]:
    """Returns treatment's share within each lineage of the experiments that declare shares."""
    places = {(row.project_id, row.environment) for row in declared}
    histories = read_environments(connection, places).histories if places else {}
    return {
        row.experiment_id: stratum_shares(
            deploys[row.experiment_id],
            {stratum.lineage for stratum in strata[row.experiment_id]},
            commits=[*filter(None, (row.treatment_commit, row.control_commit))],
            question=Question(change=frozenset(row.change), bound_at=row.bound_at),
            history=histories[row.project_id, row.environment],
            starts_at=row.starts_at,
            grace_seconds=policies[row.experiment_id].grace_seconds,
        )
        for row in declared
    }


def _deploys(
    connection: Connection, bound: Mapping[str, tuple[int, str, datetime]]
) -> dict[str, list[ReleaseStep]]:
    """Returns the deploys that each experiment reads, in order.

    A withdrawn deploy is still read by the experiments that were bound before: their
    evidence does not change, and an evaluation as of an earlier time reads the same.

    Args:
        bound: The project, the environment and the time of the binding of each experiment.
    """
    recorded: dict[tuple[int, str], list[tuple[ReleaseStep, datetime | None]]] = defaultdict(list)
    for row in connection.execute(_DEPLOYS, {"ids": list(bound)}):
        step = value_of(ReleaseStep, row)
        recorded[row.project_id, row.environment].append((step, row.withdrawn_at))
    return {
        experiment_id: [
            step
            for step, withdrawn_at in recorded[project_id, environment]
            if withdrawn_at is None or withdrawn_at > bound_at
        ]
        for experiment_id, (project_id, environment, bound_at) in bound.items()
    }


def _counted(
    deploys: Sequence[ReleaseStep], *, bound_at: datetime, grace: int
) -> list[CountedDeploy]:
    """Returns the deploys in the order in which they begin to count.

    A deploy counts for each block whose close, or the binding, came after its record: a deploy
    posted late counts from the first such block on, unless a later step of its commit does already.
    """
    close = _BLOCK + timedelta(seconds=grace)
    counted: list[CountedDeploy] = []
    in_force: dict[str, datetime] = {}
    for deploy in reversed(deploys):
        at = deploy.deployed_at
        if deploy.recorded_at > max(block_begin(at) + close, bound_at):
            first = block_begin(deploy.recorded_at - close)
            at = first if first + close >= deploy.recorded_at else first + _BLOCK
        later = in_force.get(deploy.commit)
        if later is None or at < later:
            in_force[deploy.commit] = at
            counted.append(CountedDeploy(commit=deploy.commit, allocation=deploy.allocation, at=at))
    counted.reverse()
    return sorted(counted, key=lambda deploy: deploy.at)


def _cuts(deploys: Iterable[CountedDeploy], *, starts_at: datetime) -> list[datetime]:
    """Returns the times at which an analysis block is cut.

    At each change of a declared allocation and each first deploy of a commit.
    """
    declared: dict[str, float | None] = {}
    cuts: list[datetime] = []
    for deploy in deploys:
        new = deploy.commit not in declared
        changed = new or declared[deploy.commit] != deploy.allocation
        declared[deploy.commit] = deploy.allocation
        if changed and deploy.at > starts_at:
            cuts.append(deploy.at)
    return cuts


@dataclass(frozen=True, kw_only=True)
class CountsAt:
    """The look at which to count an experiment's units, with the counts of its evaluation."""

    experiment_id: str
    look: datetime
    in_cells: int
    excluded: tuple[int, int] = (0, 0)
    compared_with_none: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class UnitCounts:
    """Units as of a look."""

    units: Counts
    left_out: Sequence[LeftOut]
    late_treatment: int
    late_control: int
    never_received: Sequence[str]


# Kinds of sightings of units that no known build served.
UNKNOWN = ("unknown_commit", "ambiguous_commit", "unknown_build")
_UNKNOWN = "p.unit IS NULL AND u.kind IS NULL"
# By kind, which units that were sighted are counted.
_SIGHTED = {
    "late": _UNKNOWN,
    "unknown_commit": "p.unit IS NULL",
    "ambiguous_commit": "p.unit IS NULL AND u.kind = s.kind",
    "unknown_build": "p.unit IS NULL AND u.kind = s.kind",
    "unmatched_route": "true",
    "unknown_user": "true",
    "crossover": "true",
    "unsigned": f"{_UNKNOWN} AND l.unit IS NULL",
}
# Why units are left out that an arm served.
_STORED = (*LEFT_OUT, "late", "unmatched_route", "unknown_user")
_REASONS = (*LEFT_OUT, "compared_with_none", *_STORED[len(LEFT_OUT) :])
_BY_ARM = [f"{reason}_{arm}" for reason in _STORED for arm in ARMS[:2]]
_EXPOSED = ("partial", *LEFT_OUT, *_BY_ARM[: 2 * len(LEFT_OUT)])
_COUNTED = ("exposed", "partial", *LEFT_OUT, *_SIGHTED, *_BY_ARM)


def _sighted_counts() -> Iterator[str]:
    for name, holds in _SIGHTED.items():
        seen = f"count(*) FILTER (WHERE s.kind = {SIGHTINGS[name]} AND {holds}"
        yield f"{seen}) AS {name}"
        if name in _REASONS:
            yield from (f"{seen} AND s.arm = {at}) AS {name}_{ARMS[at]}" for at in (0, 1))


_COUNTS = text(f"""
WITH asked AS (
    SELECT a.experiment_id, {epoch_microseconds("a.look")} AS look,
        {epoch_microseconds(f"a.look - {GRACE}")} - {BLOCK} AS last_block, x.target_metric,
        a.look AS looked_at, x.project_id, {JUDGED_METRICS} AS metrics
    FROM unnest(CAST(:ids AS text[]), CAST(:looks AS timestamptz[])) AS a (experiment_id, look)
    JOIN experiments AS x USING (experiment_id)
), exposed AS (
    SELECT a.experiment_id, sum(u.treatment + u.control)::bigint AS exposed,
        {", ".join(f"sum(u.{name})::bigint AS {name}" for name in _EXPOSED)}
    FROM asked AS a
    JOIN block_units AS u
      ON u.experiment_id = a.experiment_id AND u.block <= a.last_block
    GROUP BY a.experiment_id
), seen AS (
    SELECT a.experiment_id,
        {", ".join(_sighted_counts())}
    FROM asked AS a
    JOIN sightings AS s ON s.experiment_id = a.experiment_id AND s.sighted_at <= a.look
    -- Each looked up by its key, which LIMIT holds the planner to: there are few sightings, and it
    -- would else read all units that there ever were.
    LEFT JOIN LATERAL (
        SELECT p.unit FROM exposures AS p
        WHERE p.experiment_id = a.experiment_id AND p.unit = s.unit
          AND p.block <= a.last_block
        LIMIT 1
    ) AS p ON true
    LEFT JOIN LATERAL (
        SELECT u.kind FROM sightings AS u
        WHERE u.experiment_id = a.experiment_id AND u.unit = s.unit
          AND u.kind IN {sightings(*UNKNOWN)} AND u.sighted_at <= a.look
        ORDER BY u.kind
        LIMIT 1
    ) AS u ON true
    LEFT JOIN LATERAL (
        SELECT l.unit FROM sightings AS l
        WHERE l.experiment_id = a.experiment_id AND l.unit = s.unit AND l.kind = {SIGHTINGS["late"]}
          AND l.sighted_at <= a.look
        LIMIT 1
    ) AS l ON true
    GROUP BY a.experiment_id
), tardy AS (
    SELECT a.experiment_id,
        count(*) FILTER (WHERE c.arm = {TREATMENT}) AS tardy_treatment,
        count(*) FILTER (WHERE c.arm = {CONTROL}) AS tardy_control
    FROM asked AS a
    JOIN conversions AS c
      ON c.experiment_id = a.experiment_id AND c.metric = a.target_metric
     AND c.late = 1 AND c.received_at <= a.look
    GROUP BY a.experiment_id
), silent AS (
    SELECT a.experiment_id, array_agg(m.metric ->> 'name' ORDER BY m.place) AS never_received
    FROM asked AS a
    CROSS JOIN LATERAL jsonb_array_elements(a.metrics) WITH ORDINALITY AS m (metric, place)
    WHERE NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(m.metric -> 'sources') AS e (event)
        JOIN seen_names AS s ON s.project_id = a.project_id AND s.event = e.event
        WHERE s.first_at <= a.looked_at
    )
    GROUP BY a.experiment_id
)
SELECT a.experiment_id,
    {", ".join(f"coalesce({name}, 0) AS {name}" for name in _COUNTED)},
    coalesce(tardy_treatment, 0) AS tardy_treatment, coalesce(tardy_control, 0) AS tardy_control,
    coalesce(never_received, '{{}}') AS never_received
FROM asked AS a
LEFT JOIN exposed USING (experiment_id)
LEFT JOIN seen USING (experiment_id)
LEFT JOIN tardy USING (experiment_id)
LEFT JOIN silent USING (experiment_id)
""")


def count_units(connection: Connection, wanted: Sequence[CountsAt]) -> dict[str, UnitCounts]:
    """Returns the counts of units of each experiment as of its look."""
    evaluated = {at.experiment_id: at for at in wanted}
    bound = {"ids": list(evaluated), "looks": [at.look for at in evaluated.values()]}
    counts: dict[str, UnitCounts] = {}
    for row in connection.execute(_COUNTS, bound):
        at = evaluated[row.experiment_id]
        excluded, alone = sum(at.excluded), sum(at.compared_with_none)
        # An exposed, closed unit is in cells, left out of them, or still open.
        units = value_of(
            Counts,
            row,
            in_cells=at.in_cells,
            compared_with_none=alone,
            open=row.exposed - at.in_cells - alone - excluded,
            excluded=row.excluded + excluded,
        )
        counts[row.experiment_id] = UnitCounts(
            units=units,
            left_out=units_left_out({name: getattr(row, name) for name in _BY_ARM}, at),
            late_treatment=row.tardy_treatment,
            late_control=row.tardy_control,
            never_received=row.never_received,
        )
    return counts


def units_left_out(counts: Mapping[str, int], at: CountsAt) -> tuple[LeftOut, ...]:
    """Returns the units that an arm served and that count in neither, by reason."""
    more = {
        f"{reason}_{arm}": units
        for reason in ("excluded", "compared_with_none")
        for arm, units in zip(ARMS, getattr(at, reason), strict=False)
    }
    rows = (
        LeftOut(reason=reason, of="units", control=control, treatment=treatment)
        for reason in _REASONS
        for names in [[f"{reason}_{arm}" for arm in ARMS[:2]]]
        for control, treatment in [(counts.get(name, 0) + more.get(name, 0) for name in names)]
    )
    return tuple(row for row in rows if row.control or row.treatment)


def histories_at(
    connection: Connection, experiments: Sequence[ExperimentReading], looks: Sequence[datetime]
) -> dict[str, History]:
    """Returns, for each experiment, the history of its environment as its look reads it."""
    facts = read_facts(
        connection, [(experiment.project_id, experiment.environment) for experiment in experiments]
    )
    return {
        experiment.experiment_id: History(
            facts[experiment.project_id, experiment.environment],
            known_at=max(look, experiment.bound_at),
            bound_at=experiment.bound_at,
        )
        for experiment, look in zip(experiments, looks, strict=True)
    }


def stratum_changes(
    connection: Connection,
    experiments: Sequence[ExperimentReading],
    histories: Mapping[str, History],
) -> dict[str, dict[str, frozenset[str]]]:
    """Returns, for each experiment, the changes that each of its strata carries.

    The values of other flags are among them.
    """
    by_id = {experiment.experiment_id: experiment for experiment in experiments}
    changes: dict[str, dict[str, frozenset[str]]] = {experiment_id: {} for experiment_id in by_id}
    for experiment_id, strata in read_strata(connection, list(by_id)).items():
        experiment = by_id[experiment_id]
        for stratum in strata:
            carried = histories[experiment_id].lineage(stratum.commit) | {
                flag_change(name, value)
                for name, value in stratum.flags.items()
                if experiment.policy.flag is None or name != experiment.policy.flag.name
            }
            changes[experiment_id][stratum.name] = carried - frozenset(experiment.change)
    return changes


# So long an experiment waits for the deploy that it tests.
WAITS_FOR_DEPLOY = timedelta(days=28)
_WAITED_OUT = text("""
SELECT x.experiment_id, x.cannot_start,
    CASE WHEN x.cannot_start IS NOT NULL THEN 'cannot_start'
        -- To close what has ended changes nothing.
        WHEN x.closed_at <= least(
            CAST(:as_of AS timestamptz), x.registered_at + CAST(:waits AS interval)
        ) THEN 'closed' END AS ended
FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
WHERE NOT coalesce(v.decided, false) AND (
    x.cannot_start IS NOT NULL
    OR x.bound_at IS NULL
       AND (x.registered_at <= CAST(:as_of AS timestamptz) - CAST(:waits AS interval)
            OR x.closed_at <= :as_of)
)
ORDER BY x.experiment_id
""")


def experiments_waited_out(
    connection: Connection, *, as_of: datetime
) -> dict[str, tuple[EndedBecause | None, str | None]]:
    """Returns the experiments that never start, by what ended each, and why it cannot start.

    No deploy came in time where nothing ended it.
    """
    bound = {"as_of": as_of, "waits": WAITS_FOR_DEPLOY}
    rows = connection.execute(_WAITED_OUT, bound)
    return {
        row.experiment_id: (
            None if row.ended is None else EndedBecause(row.ended),
            row.cannot_start,
        )
        for row in rows
    }
