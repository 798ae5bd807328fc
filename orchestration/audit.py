"""The audit: a served verdict and all that it rests on, against the raw events."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from orchestration.attribution import IDENTITY, IN_FLIGHT, Attribution, Attributor
from orchestration.calendar import Calendar
from orchestration.document import evidence_document
from orchestration.evidence import evidence_contract
from orchestration.raw_reading import (
    cells_of,
    reading_of,
    stratum_contents,
    units_beside_cells,
    users_who_returned,
)
from orchestration.series import series_of
from orchestration.standings import Standings, route_test
from stats.evidence import evaluate
from storage.contract import document_text, waiting_contract
from storage.evidence import ExperimentReading
from storage.graphs import graph_patterns
from storage.histories import read_facts, read_flags
from storage.pipeline.moments import microseconds, moment_of
from storage.raw_events import (
    FrozenExperiment,
    RawLog,
    ServedTables,
    ServedVerdict,
    days_gone,
    read_derived,
    read_frozen,
    read_served,
)
from storage.tombstones import read_tombstones

_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        experiment_id: The experiment.
        as_of: The look of the served verdict; None before the first.
        events: How many raw events were read.
        gone: Days whose raw events are there no longer; where there are any, nothing is compared.
        differences: What is told otherwise than from the raw events, in words.
    """

    experiment_id: str
    as_of: datetime | None
    events: int
    gone: Sequence[str]
    differences: Sequence[str]

    @property
    def equal(self) -> bool:
        """Whether everything was compared, and nothing differs in a byte."""
        return not self.gone and not self.differences


def audit(connection: Connection, experiment_id: str) -> Audit:
    """Works a served verdict out from the raw events and compares all that led to it.

    Args:
        connection: To the store, in a transaction whose reads see one state of it.
        experiment_id: The experiment.

    Raises:
        Missing: There is no such experiment.
    """
    served = read_served(connection, experiment_id)
    if not served.bound:
        return _audit_unbound(experiment_id, served)
    experiment = read_frozen(connection, experiment_id)
    until = _read_until(experiment, served)
    if gone := days_gone(connection, experiment, until=until):
        return Audit(
            experiment_id=experiment_id, as_of=served.as_of, events=0, gone=gone, differences=()
        )
    raw = _worked_out(connection, experiment, until=until)
    differences = _different_answers(experiment, served, raw)
    if served.as_of is not None:
        tables = read_derived(connection, experiment, until=served.as_of)
        differences += _different_rows(raw, tables, look=served.as_of)
    return Audit(
        experiment_id=experiment_id,
        as_of=served.as_of,
        events=raw.events,
        gone=(),
        differences=differences,
    )


def _audit_unbound(experiment_id: str, served: ServedVerdict) -> Audit:
    """An experiment that no deploy came for rests on no event."""
    answer = document_text(waiting_contract(experiment_id, decided=served.decided))
    return Audit(
        experiment_id=experiment_id,
        as_of=None,
        events=0,
        gone=(),
        differences=_different_texts("contract", _compact(served.contract), answer),
    )


def _read_until(experiment: FrozenExperiment, served: ServedVerdict) -> datetime:
    """Returns how far the log is read: to the verdict's look, and to where it was closed by hand.

    Between looks nothing changes, so that nothing else of the pipeline's progress need be known.
    """
    look = served.as_of or experiment.starts_at
    if served.decided and experiment.closed_at is not None:
        return max(look, experiment.closed_at)
    return look


@dataclass(frozen=True, kw_only=True)
class _Raw:
    """What the raw events say."""

    events: int
    calendar: Calendar
    told: Attribution
    reading: ExperimentReading
    contract: str
    evidence: str


def _worked_out(connection: Connection, experiment: FrozenExperiment, *, until: datetime) -> _Raw:
    calendar = Calendar.of(experiment, until=microseconds(until))
    log = RawLog(
        connection=connection,
        project_id=experiment.project_id,
        environment=experiment.environment,
        since=experiment.starts_at - IN_FLIGHT,
        until=until,
    )
    events, deploys = list(log.events()), log.deploys(bound_at=experiment.bound_at)
    attributor = Attributor(
        experiment,
        calendar,
        standings=_standings(connection, experiment),
        exposes=route_test(experiment.policy["routes"], _patterns(connection, experiment)),
        deploys=deploys,
    )
    told = attributor.attribution(
        events,
        log.revenue(),
        log.sightings(
            since=experiment.starts_at - IDENTITY,
            trusted_only=experiment.policy["trusted_identity"],
        ),
        read_tombstones(
            connection,
            experiment.experiment_id,
            until=until,
            grace_seconds=experiment.policy["grace_seconds"],
        ),
    )
    reading = reading_of(experiment, told, calendar=calendar, deploys=deploys)
    (found,) = evaluate([series_of(reading)])
    look = (found.as_of or 0) * _SECOND
    document = evidence_document(
        reading,
        found,
        counts=units_beside_cells(told, calendar, look=look),
        changes=stratum_contents(told),
        returning=users_who_returned(told, calendar, look=look),
    )
    return _Raw(
        events=len(events),
        calendar=calendar,
        told=told,
        reading=reading,
        contract=document_text(evidence_contract(experiment.experiment_id, found)),
        evidence=document_text(document),
    )


def _standings(connection: Connection, experiment: FrozenExperiment) -> Standings:
    place = experiment.project_id, experiment.environment
    facts, flags = read_facts(connection, [place]), read_flags(connection, [place])
    since = {name: microseconds(moment) for name, moment in flags.get(place, {}).items()}
    return Standings(experiment, facts[place], since)


def _patterns(connection: Connection, experiment: FrozenExperiment) -> list[str]:
    graph_id = experiment.policy["graph_id"]
    if graph_id is None:
        return []
    return graph_patterns(connection, experiment.project_id, graph_id)


# --- Comparison --------------------------------------------------------------------------------

_AROUND = 60


def _different_answers(experiment: FrozenExperiment, served: ServedVerdict, raw: _Raw) -> list[str]:
    if served.evidence is None:
        # Nothing was published yet but the answer that every experiment begins with.
        waiting = document_text(waiting_contract(experiment.experiment_id))
        return _different_texts("contract", _compact(served.contract), waiting)
    return [
        *_different_texts("contract", served.contract, raw.contract),
        *_different_texts("evidence", served.evidence, raw.evidence),
    ]


def _compact(text: str) -> str:
    """Returns a contract that was not yet written by the walk in the walk's own form."""
    return document_text(json.loads(text))


def _different_texts(name: str, served: str, raw: str) -> list[str]:
    """Returns the members in which two documents differ, or the first byte where none does."""
    if served == raw:
        return []
    members = list(_different_members(name, json.loads(served), json.loads(raw)))
    if members:
        return members
    unlike = (at for at, (a, b) in enumerate(zip(served, raw, strict=False)) if a != b)
    at = next(unlike, min(len(served), len(raw)))
    return [f"{name}, byte {at}: served {served[at : at + _AROUND]}, raw {raw[at : at + _AROUND]}"]


def _different_members(path: str, served: Any, raw: Any) -> Iterable[str]:  # noqa: ANN401 - JSON
    if isinstance(served, dict) and isinstance(raw, dict):
        for name in dict.fromkeys([*served, *raw]):
            yield from _different_members(f"{path}.{name}", served.get(name), raw.get(name))
    elif isinstance(served, list) and isinstance(raw, list) and len(served) == len(raw):
        for number, (one, other) in enumerate(zip(served, raw, strict=True)):
            yield from _different_members(f"{path}[{number}]", one, other)
    elif served != raw:
        yield f"{path}: served {_short(served)}, raw {_short(raw)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _AROUND else f"{text[:_AROUND]}..."


Table = Mapping[Any, tuple[Any, ...]]


def _different_rows(raw: _Raw, served: ServedTables, *, look: datetime) -> Iterable[str]:
    """Yields the rows of the derived tables that the raw events tell otherwise, by name."""
    until = microseconds(look)
    yield from _unlike("exposure", served.exposures, _exposures(raw, until))
    yield from _unlike("sighting", served.sightings, _sightings(raw, until))
    yield from _unlike("conversion", served.conversions, _conversions(raw, until))
    yield from _unlike("amounts", served.amounts, _amounts(raw, until))
    yield from _unlike("cell", _closed(served.cells, raw, until), _cells(raw, until))


def _unlike(kind: str, served: Table, raw: Table) -> Iterable[str]:
    for name in sorted(served.keys() | raw.keys(), key=_words):
        if served.get(name) != raw.get(name):
            sides = _words(served.get(name)), _words(raw.get(name))
            yield f"{kind} {_words(name)}: served {sides[0]}, raw {sides[1]}"


def _words(value: object) -> str:
    match value:
        case None:
            return "none"
        case tuple() | list():
            return " ".join("-" if part is None else _words(part) for part in value)
        case bytes():
            return value.hex()[:12]
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def _exposures(raw: _Raw, until: int) -> Table:
    return {
        unit: (moment_of(one.at), one.arm, one.standing.stratum, one.standing.commit, one.pseudonym)
        for unit, one in raw.told.exposures.items()
        if raw.calendar.closes(one.block) <= until
    }


def _sightings(raw: _Raw, until: int) -> Table:
    told, calendar = raw.told, raw.calendar
    unknown = {unit: calendar.closes(block) for unit, block in told.unknown.items()}
    known = {**told.sightings, "unknown_commit": unknown}
    return {
        (kind, unit): (moment_of(at),)
        for kind, units in known.items()
        for unit, at in units.items()
        if at <= until
    }


def _conversions(raw: _Raw, until: int) -> Table:
    return {
        (outcomes.metric.name, unit): (moment_of(received),)
        for outcomes in raw.told.outcomes
        for unit, received in outcomes.received.items()
        if received <= until
    }


def _amounts(raw: _Raw, until: int) -> Table:
    found = {
        (outcomes.metric.name, unit): sorted(
            value for received, value in values.values() if received <= until
        )
        for outcomes in raw.told.outcomes
        for unit, values in outcomes.values.items()
    }
    return {name: (values,) for name, values in found.items() if values}


def _cells(raw: _Raw, until: int) -> Table:
    rows = {
        (outcomes.metric.name, cell.block, cell.stratum): (
            *(cell.n1, cell.x1, cell.n0, cell.x0),
            *(cell.y1, cell.yy1, cell.y0, cell.yy0),
        )
        for outcomes in raw.told.outcomes
        for cell in cells_of(raw.told, outcomes, calendar=raw.calendar)
    }
    return _closed(rows, raw, until)


def _closed(cells: Table, raw: _Raw, until: int) -> Table:
    """Returns the cells whose outcomes had closed."""
    windows = {one.metric.name: one.metric.window for one in raw.told.outcomes}
    return {
        name: counts
        for name, counts in cells.items()
        if raw.calendar.closes(microseconds(name[1]), windows.get(name[0], 0)) <= until
    }
