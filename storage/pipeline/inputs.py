"""Inputs: the small tables beside the log that the text reads, made of experiments and history."""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from domain.currency import RATE_SCALE
from domain.lineage.flag import segment_name, spellings
from domain.route import RouteTable, canonical_route
from storage.experiments.commit_ids import read_commit_ids
from storage.experiments.graphs import graph_patterns
from storage.experiments.histories import AMONG, among, read_facts, read_flags
from storage.pipeline.assignments import (
    AMBIGUOUS,
    Assignment,
    FlagValues,
    KnownHistory,
    PostedStep,
    tested_values,
)
from storage.pipeline.engines.engine import Engine
from storage.pipeline.experiments import Metric, PipelineExperiment, ReadExperiment, segments_of
from storage.pipeline.moments import EARLIEST, LATEST, block_of, microseconds, moment_of
from storage.pipeline.steps import (
    ABSENT_VALUE,
    AMBIGUOUS_ARM,
    CONTROL_VALUE,
    FLAG_SETS,
    FURTHER_VALUE,
    LOG_WITH_CONTEXTS,
    LOG_WITH_TIES,
    LOG_WITHOUT_FLAGS,
    NAMED_COMMITS,
    NAMED_ROUTES,
    SEGMENT_END,
    SEGMENT_SETS,
    SPOTS,
    TIED_ROUTES,
    TREATMENT_VALUE,
    UNASSIGNED,
    segment_text,
    with_segments,
)
from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of
from storage.schema.encoding import ARMS, epoch_microseconds

EnvironmentKey = tuple[int, str]


class TooManyAssignmentsError(ValueError):
    """An experiment has more assignments than a packed exposure can number."""


# --- Scope --------------------------------------------------------------------------------------

_SCOPE = {
    "experiment": "experiment",
    **dict.fromkeys(("number", "leader", "project_id", "by_user", "trusted_only"), "int"),
    **dict.fromkeys(("signed_only",), "int"),
    **dict.fromkeys(("vouched_only", "by_route", "flagged", "drawn"), "int"),
    **dict.fromkeys(("environment", "flag", "flag_treatment", "flag_control"), "text"),
    **dict.fromkeys(("treatment_too", "control_too", "treatment_commit", "sample_bound"), "text"),
    **dict.fromkeys(("starts_at", "bound_at", "grace", "target_window", "horizon"), "bigint"),
    **dict.fromkeys(("warm_at", "seen_from", "from_block", "to_block"), "bigint"),
    **dict.fromkeys(("received_from", "received_to"), "bigint"),
}
_OF_READING = frozenset(("from_block", "to_block", "received_from", "received_to"))
# The columns of it that the steps from outcomes to cells read.
_OUTCOME_SCOPE = (
    *("number", "experiment", "project_id", "environment", "by_user", "trusted_only"),
    *("vouched_only", "starts_at", "seen_from", "grace", "from_block", "to_block"),
)
# And these say whose exposures an experiment shares, by its number and by its key.
_SHARED = ("leader", "exposures_of")


@dataclass(frozen=True, kw_only=True)
class Environments:
    """The recorded history of the environments of some experiments."""

    histories: Mapping[EnvironmentKey, KnownHistory]
    flags: Mapping[EnvironmentKey, frozenset[str]]


def read_environments(
    connection: Connection, environments: Iterable[EnvironmentKey]
) -> Environments:
    """Returns the recorded history of these environments."""
    wanted = sorted(set(environments))
    facts, flags = read_facts(connection, wanted), read_flags(connection, wanted)
    ids = read_commit_ids(connection, (project_id for project_id, _ in wanted))
    steps: dict[EnvironmentKey, dict[str, list[PostedStep]]] = {key: {} for key in wanted}
    for row in connection.execute(_DEPLOYS, among(wanted)):
        own = steps[row.project_id, row.environment].setdefault(row.commit_sha, [])
        own.append(value_of(PostedStep, row, commit=row.commit_sha))
    return Environments(
        histories={
            key: KnownHistory(
                facts[key], ids=ids[key[0]], flags=flags.get(key, {}), steps=steps[key]
            )
            for key in wanted
        },
        flags={key: frozenset(flags.get(key, {})) for key in wanted},
    )


def register_scope(
    engine: Engine,
    read: Sequence[ReadExperiment],
    environments: Environments,
    *,
    leaders: Mapping[int, int] | None = None,
) -> None:
    """Registers `scope`: which experiments are computed, and which blocks of each.

    Args:
        leaders: By number, the experiment whose exposures an experiment shares; without them each
            has its own.
    """
    leaders = leaders or {}
    rows = (
        _scope_row(
            engine,
            part,
            _SCOPE,
            leader=leaders.get(part.experiment.number, part.experiment.number),
            by_route=part.experiment.routes is not None,
            flagged=bool(
                environments.flags[part.experiment.environment_key] or part.experiment.segments
            ),
            bound_at=microseconds(part.experiment.bound_at),
            **_drawn_flag(part.experiment),
        )
        for part in read
    )
    engine.register("scope", _SCOPE, rows)


def _drawn_flag(experiment: PipelineExperiment) -> dict[str, str | None]:
    """Returns the members of `scope` that say which flag's values the text reads of an event."""
    flag = experiment.flag if experiment.drawn else None
    return {
        "flag": flag and flag.name,
        "flag_treatment": flag and flag.treatment,
        "flag_control": flag and flag.control,
        "treatment_too": flag and spellings(flag.treatment)[1],
        "control_too": flag and spellings(flag.control or flag.treatment)[1],
    }


def _scope_row(
    engine: Engine, read: "ReadExperiment | ReadOutcomes", columns: Iterable[str], **given: object
) -> tuple[Any, ...]:
    """Returns a row of `scope`; the other members are those of the reading or its experiment."""
    experiment = read.experiment
    given["experiment"] = engine.experiment_key(experiment.number, experiment.experiment_id)
    row: list[Any] = []
    for name in columns:
        of = read if name in _OF_READING else experiment
        value = given[name] if name in given else getattr(of, name)
        row.append(int(value) if isinstance(value, bool) else value)
    return tuple(row)


_FORGOTTEN_NAMES = dict.fromkeys(("environment", "session_id"), "text") | {
    "project_id": "int",
    "trusted": "bool",
    "signed": "bool",
    "received": "bigint",
}
_FORGOTTEN = text(f"""
SELECT {", ".join(_FORGOTTEN_NAMES).replace("received", epoch_microseconds("received_at"))}
FROM forgotten_names WHERE project_id = ANY(:projects)
""")


def register_forgotten_names(
    engine: Engine, connection: Connection, experiments: Iterable[PipelineExperiment]
) -> None:
    """Registers when sessions named somebody who is forgotten since."""
    projects = sorted({experiment.project_id for experiment in experiments if experiment.by_user})
    rows = connection.execute(_FORGOTTEN, {"projects": projects})
    engine.register("forgotten_names", _FORGOTTEN_NAMES, map(tuple, rows))


# --- Flags and assignments ----------------------------------------------------------------------

_CONTEXTS = {"project_id": "int", "environment": "text", "flags": "json", "context": "int"}
_SEGMENT_CONTEXTS = {
    "project_id": "int",
    **dict.fromkeys(("environment", "flag_text", "segments"), "text"),
    "context": "int",
}
_TIED = {"project_id": "int", "environment": "text", "route": "text", "route_rank": "int"}
_ASSIGNMENTS = {
    "number": "int",
    "spot": "int",
    "commit_sha": "text",
    "context": "int",
    "own_value": "int",
    "route_rank": "int",
    "occurred_from": "bigint",
    "occurred_to": "bigint",
    "arm": "int",
    "stratum": "text",
    "resolved": "text",
}
_STRATUM_FLAGS = {"number": "int", "stratum": "text", "lineage": "text", "flags": "json"}
_ARM_NUMBERS = {name: number for number, name in enumerate(ARMS)} | {
    "unassigned": UNASSIGNED,
    AMBIGUOUS: AMBIGUOUS_ARM,
}
Contexts = Mapping[tuple[EnvironmentKey, int], FlagValues]


_EVENT_NAMES = {"event": "text", "name": "bigint"}


def register_assignments(
    engine: Engine,
    connection: Connection,
    read: Sequence[ReadExperiment],
    environments: Environments,
) -> dict[int, Hashable]:
    """Registers names, contexts, assignments and flags of strata, and defines `log` with contexts.

    The cost of assignments grows with the commits and sets of flags that events name, times the
    experiments; never with the events. Returns the assignments by experiment.
    """
    contexts = _register_contexts(
        engine, environments, segments_of(read), drawn=any(part.experiment.drawn for part in read)
    )
    names = sorted(event for (event,) in engine.rows("SELECT DISTINCT event FROM log"))
    engine.register("event_names", _EVENT_NAMES, ((name, at) for at, name in enumerate(names)))
    named = _named_commits(engine)
    flags = _buried_stratum_flags(connection, [part.experiment for part in read])
    rows: dict[int, Sequence[tuple[Any, ...]]] = {}
    for part in read:
        place = part.experiment.environment_key
        ordered = _ordered_assignments(
            part, named.get(place, ()), contexts, environments.histories[place]
        )
        rows[part.experiment.number] = tuple(_assignment_rows(part.experiment, ordered))
        for named_assignment in ordered:
            assigned = named_assignment.assigned
            if assigned.flags:
                flags[part.experiment.number, assigned.stratum] = (
                    assigned.lineage,
                    json.dumps(assigned.flags),
                )
    engine.register(
        "assignments",
        _ASSIGNMENTS,
        ((number, *row) for number, of_experiment in rows.items() for row in of_experiment),
    )
    engine.register(
        "stratum_flags", _STRATUM_FLAGS, ((*key, *contents) for key, contents in flags.items())
    )
    return dict(rows)


# Only the served strata still say which flags a unit carried whose events are gone.
_BURIED_STRATA = text(f"""
SELECT s.experiment_id, s.stratum, s.lineage, s.flags::text AS flags
FROM {SCHEMA}.strata AS s
WHERE s.experiment_id = ANY(:ids) AND s.flags IS NOT NULL AND EXISTS (
    SELECT FROM tombstone_exposures AS t
    WHERE t.experiment_id = s.experiment_id AND t.stratum = s.stratum
)
""")


def _buried_stratum_flags(
    connection: Connection, experiments: Iterable[PipelineExperiment]
) -> dict[tuple[int, str], tuple[str, str]]:
    numbers = {experiment.experiment_id: experiment.number for experiment in experiments}
    return {
        (numbers[row.experiment_id], row.stratum): (row.lineage, row.flags)
        for row in connection.execute(_BURIED_STRATA, {"ids": list(numbers)})
    }


def segments_column(engine: Engine, segments: Sequence[str]) -> str:
    """Returns the SQL of the column `segments` of `log_rows`, nothing where none are read."""
    if not segments:
        return ""
    texts = ", ".join(
        segment_text(engine.dialect.property_text(f"'{name}'", "e")) for name in segments
    )
    return f", concat({texts}) AS segments"


def _register_contexts(
    engine: Engine, environments: Environments, segments: Sequence[str], *, drawn: bool
) -> Contexts:
    """Registers the sets of flags, and of segments where experiments split by some, by number."""
    if not segments and not drawn and not any(environments.flags.values()):
        engine.define("log", LOG_WITHOUT_FLAGS)
        return {}
    numbers: dict[tuple[EnvironmentKey, tuple[tuple[str, str], ...]], int] = {}
    contexts: dict[tuple[EnvironmentKey, int], FlagValues] = {}
    rows: list[tuple[Any, ...]] = []
    for project_id, environment, flags, *texts in engine.rows(
        SEGMENT_SETS if segments else FLAG_SETS
    ):
        key = project_id, environment
        served = tested_values(json.loads(flags or "{}"), environments.flags[key])
        named = zip(segments, texts[0].split(chr(SEGMENT_END)) if texts else (), strict=False)
        values = {**served, **{segment_name(name): value for name, value in named if value}}
        if values:
            number = numbers.setdefault((key, tuple(values.items())), len(numbers) + 1)
            contexts[key, number] = values
            rows.append((project_id, environment, flags, *texts, number))
    engine.register("contexts", _SEGMENT_CONTEXTS if segments else _CONTEXTS, rows)
    log, tied = LOG_WITH_CONTEXTS, LOG_WITH_TIES
    if segments:
        log, tied = with_segments(log), with_segments(tied)
    engine.define("log", log)
    _register_ties(engine, tied)
    return contexts


def _register_ties(engine: Engine, log: str) -> None:
    """Ranks the routes that decide between events of the same moment, an absent route last."""
    routes: dict[EnvironmentKey, set[str]] = defaultdict(set)
    for _ in engine.each_part():
        for project_id, environment, route in engine.rows(TIED_ROUTES):
            routes[project_id, environment].add(route)
    if not routes:
        return
    rows = (
        (*key, route, rank)
        for key, named in routes.items()
        for rank, route in enumerate(sorted(named, key=lambda route: (route == "", route)), 1)
    )
    engine.register("tied_routes", _TIED, rows)
    engine.define("log", log)


@dataclass(frozen=True, kw_only=True)
class _NamedCommit:
    """A commit id that events name with some flags, on routes of these ranks."""

    commit: str
    context: int
    ranks: Sequence[tuple[int, bool]]


def _named_commits(engine: Engine) -> dict[EnvironmentKey, list[_NamedCommit]]:
    ranks: dict[tuple[EnvironmentKey, str, int], list[tuple[int, bool]]] = defaultdict(list)
    for project_id, environment, commit, context, rank, vouched in engine.rows(NAMED_COMMITS):
        ranks[(project_id, environment), commit, context].append((rank, bool(vouched)))
    named: dict[EnvironmentKey, list[_NamedCommit]] = defaultdict(list)
    for (key, commit, context), ranks_of_commit in ranks.items():
        named[key].append(_NamedCommit(commit=commit, context=context, ranks=ranks_of_commit))
    return named


class _NamedAssignment(NamedTuple):
    """An assignment of a commit as events name it, in the order that breaks ties.

    That is by commit, route, arm and stratum: a unit's first event may have others of its moment
    beside it.
    """

    commit: str
    rank: int
    arm: str
    stratum: str
    context: int
    own_value: int
    assigned: Assignment


def _ordered_assignments(
    read: ReadExperiment, named: Iterable[_NamedCommit], contexts: Contexts, history: KnownHistory
) -> list[_NamedAssignment]:
    """Returns an experiment's assignments in the order that breaks ties."""
    experiment = read.experiment
    until = moment_of(read.received_to)
    ordered: list[_NamedAssignment] = []
    for commit in named:
        ranks = [rank for rank, vouched in commit.ranks if vouched or not experiment.signed_only]
        if not ranks:
            continue
        carried = contexts[experiment.environment_key, commit.context] if commit.context else {}
        ordered += [
            _NamedAssignment(
                commit=commit.commit,
                rank=rank,
                arm=assigned.arm,
                stratum=assigned.stratum,
                context=commit.context,
                own_value=own_value,
                assigned=assigned,
            )
            for own_value, own in _own_values(experiment)
            for assigned in history.assignments(
                experiment, commit.commit, values={**carried, **own}, until=until
            )
            for rank in ranks
        ]
    ordered.sort(key=lambda entry: entry[:6])
    if len(ordered) >= SPOTS:
        raise TooManyAssignmentsError(
            f"{experiment.experiment_id} has {len(ordered):,} assignments of commits and sets of"
            f" flags; at most {SPOTS - 1:,} can be numbered"
        )
    return ordered


def _own_values(experiment: PipelineExperiment) -> Iterator[tuple[int, FlagValues]]:
    """Yields the values of the flag under test that the SQL itself sorts events by."""
    yield ABSENT_VALUE, {}
    flag = experiment.flag
    if flag is None or not experiment.drawn:
        return
    yield TREATMENT_VALUE, {flag.name: flag.treatment}
    yield CONTROL_VALUE, {flag.name: flag.control or ""}
    yield FURTHER_VALUE, {flag.name: f"{flag.treatment} {flag.control}"}


def _assignment_rows(
    experiment: PipelineExperiment, ordered: Iterable[_NamedAssignment]
) -> Iterator[tuple[Any, ...]]:
    """Yields the rest of the rows of `assignments`, numbered by `spot`."""
    for spot, entry in enumerate(ordered):
        assigned = entry.assigned
        yield (
            spot,
            entry.commit,
            entry.context,
            entry.own_value,
            entry.rank,
            _first_to_know(experiment, assigned.known_from, default=EARLIEST),
            _first_to_know(experiment, assigned.known_to, default=LATEST),
            _ARM_NUMBERS[assigned.arm],
            assigned.stratum,
            assigned.resolved,
        )


def _first_to_know(experiment: PipelineExperiment, known: datetime | None, *, default: int) -> int:
    """Returns the first block that closes at a time or later, where that is a bound."""
    if known is None or known <= experiment.bound_at:
        return default
    return block_of(microseconds(known) - experiment.grace - 1)


# --- Routes -------------------------------------------------------------------------------------

_ROUTES = {"number": "int", "route": "text", "exposing": "int"}


def register_routes(
    engine: Engine, connection: Connection, experiments: Sequence[PipelineExperiment]
) -> None:
    """Registers `routes`: whether a route that events name exposes, by experiment.

    A route of the graph that does not expose is simply another page: it has no row.
    """
    named: dict[EnvironmentKey, list[str]] = defaultdict(list)
    for project_id, environment, route in engine.rows(NAMED_ROUTES):
        named[project_id, environment].append(route)
    matcher = _RouteMatcher(connection)
    rows = (
        (experiment.number, route, int(exposing))
        for experiment in experiments
        if experiment.routes is not None
        for route, exposing in matcher.matches(experiment, named[experiment.environment_key])
    )
    engine.register("routes", _ROUTES, rows)


class _RouteMatcher:
    """Matches routes to the patterns of frozen graphs; experiments of the same release share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables: dict[tuple[int, str | None], RouteTable] = {}
        self._matches: dict[tuple[Any, ...], list[tuple[str, bool]]] = {}

    def matches(
        self, experiment: PipelineExperiment, routes: Iterable[str]
    ) -> list[tuple[str, bool]]:
        key = (experiment.environment_key, experiment.graph_id, tuple(experiment.routes or ()))
        if key not in self._matches:
            exposing = {canonical_route(pattern) for pattern in experiment.routes or ()}
            table = self._table(experiment.project_id, experiment.graph_id)
            self._matches[key] = [
                (route, pattern is not None)
                for route in routes
                if (pattern := _pattern(route, exposing, table)) is None or pattern in exposing
            ]
        return self._matches[key]

    def _table(self, project_id: int, graph_id: str | None) -> RouteTable:
        key = project_id, graph_id
        if key not in self._tables:
            patterns = (
                [] if graph_id is None else graph_patterns(self._connection, project_id, graph_id)
            )
            self._tables[key] = RouteTable(patterns)
        return self._tables[key]


def _pattern(route: str, exposing: set[str], table: RouteTable) -> str | None:
    path = canonical_route(route)
    return path if path in exposing else table.match(route)


# --- Deploys ------------------------------------------------------------------------------------

_DEPLOYED = dict.fromkeys(("deployed_at", "recorded_at", "withdrawn_at"), "bigint")
_DEPLOY_TIMES = {"project_id": "int", "environment": "text", **_DEPLOYED}
_DEPLOYS = text(f"""
SELECT project_id, environment, commit_sha, allocation, deployed_at, recorded_at, withdrawn_at
FROM deploys WHERE (project_id, environment) {AMONG}
""")


def register_deploy_times(
    engine: Engine, connection: Connection, environments: Iterable[EnvironmentKey]
) -> None:
    """Registers `deploy_times`: when deploys of the environments came, were recorded, withdrawn."""
    wanted = sorted(set(environments))
    rows = (
        (
            row.project_id,
            row.environment,
            microseconds(row.deployed_at),
            microseconds(row.recorded_at),
            LATEST if row.withdrawn_at is None else microseconds(row.withdrawn_at),
        )
        for row in connection.execute(_DEPLOYS, among(wanted))
    )
    engine.register("deploy_times", _DEPLOY_TIMES, rows)


# --- Metrics ------------------------------------------------------------------------------------

_CLOSED = dict.fromkeys(("closed_from", "closed_to"), "bigint")
_METRICS = {"number": "int", "metric": "text", **Metric.COLUMNS, **_CLOSED}
# An amount's factor by currency, and the largest amount that counts whole.
_FACTORS = dict.fromkeys(("factor", "largest"), "bigint")
_RATES = {"number": "int", "metric": "text", "currency": "text", **_FACTORS}
_LARGEST = 2**63 - 1
# `adds`: what an event counts, NULL for its value; without the properties that are asked for it
# counts `otherwise`, and not at all where that is NULL.
_COUNTED = dict.fromkeys(("adds", "otherwise"), "bigint")
_SOURCES = {"number": "int", "metric": "text", "event": "text", **_COUNTED}


@dataclass(frozen=True, kw_only=True)
class ReadOutcomes:
    """An experiment and the outcomes that a computation adds.

    Attributes:
        closed_from: Of each metric, the first block whose cells are not there yet.
    """

    experiment: PipelineExperiment
    from_block: int
    to_block: int
    closed_from: Mapping[str, int]

    @property
    def history_from(self) -> int | None:
        """Since when the history was received that this reading reads; None where it reads none.

        The reading that holds the start reads it, in `_READ_HISTORY` of the text.
        """
        if not self.from_block <= self.experiment.starts_at < self.to_block:
            return None
        since = (metric.history_from for metric in self.experiment.metrics)
        return min((moment for moment in since if moment is not None), default=None)


def register_metrics(
    engine: Engine, read: Sequence[ReadOutcomes], *, leaders: Mapping[int, int] | None = None
) -> None:
    """Registers `scope`, `metrics`, `rates` and `sources` for the steps from outcomes to cells."""
    leaders, columns = leaders or {}, (*_OUTCOME_SCOPE, *_SHARED)
    keys = {
        each.number: engine.experiment_key(each.number, each.experiment_id)
        for each in (part.experiment for part in read)
    }
    rows: list[tuple[Any, ...]] = []
    for part in read:
        leader = leaders.get(part.experiment.number, part.experiment.number)
        rows.append(_scope_row(engine, part, columns, leader=leader, exposures_of=keys[leader]))
    engine.register("scope", {name: _SCOPE.get(name, "experiment") for name in columns}, rows)
    metrics = [(part, metric) for part in read for metric in part.experiment.metrics]
    engine.register(
        "metrics",
        _METRICS,
        (
            (
                *(part.experiment.number, metric.name),
                *(getattr(metric, name) for name in Metric.COLUMNS),
                *(part.closed_from[metric.name], part.to_block - metric.open_for),
            )
            for part, metric in metrics
        ),
    )
    engine.register(
        "rates",
        _RATES,
        (
            (
                *(part.experiment.number, metric.name, currency, factor),
                min(_LARGEST, _LARGEST * RATE_SCALE // factor),
            )
            for part, metric in metrics
            for currency, factor in metric.factors.items()
        ),
    )
    engine.register(
        "sources",
        _SOURCES,
        (
            (part.experiment.number, metric.name, event, *metric.counted(event))
            for part, metric in metrics
            if metric.amounts_of == metric.name
            for event in dict.fromkeys((*metric.sources, *metric.per))
        ),
    )
