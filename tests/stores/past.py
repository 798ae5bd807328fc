"""A shop's past: a day of a canary that is sent as history, and where two readings of it end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, text

from domain.contract import contract_of
from domain.document import document_text
from domain.evidence.document import evidence_of
from domain.registration import PRODUCTION
from orchestration.pipeline.drafts import draft_bound, draft_waited_out
from storage.log.events import RuntimeEvent
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.annex_tables import DERIVED
from storage.schema.clock import claim_derived_tables, closed_instant
from storage.upkeep.reading import separate_reading
from storage.verdicts.publication import publish_verdicts, stage_evidence
from storage.verdicts.situations import read_situations
from tests.clients.delivery import CONTROL, TREATMENT
from tests.stores.derived import Derived, derived

_SESSIONS = 720
_HOURS = 20
# Of each ten in turn, how many order, and what they pay: more money, and nearly as many orders.
_ORDERS = {CONTROL: 3, TREATMENT: 4}
_PAID = {CONTROL: 10, TREATMENT: 13}


def day_of_orders(project_id: int, begin: datetime) -> Iterator[RuntimeEvent]:
    """Sessions spread evenly over some hours, half of them treated; a fifth is delivered twice."""
    for number in range(_SESSIONS):
        commit = (CONTROL, TREATMENT)[number % 2]
        exposed_at = begin + timedelta(hours=_HOURS) * number / _SESSIONS
        ordered = number // 2 * 7 % 10 < _ORDERS[commit]
        for event in ("page_view", "order")[: 1 + ordered]:
            for _ in range(1 + (number % 5 == 0)):
                yield RuntimeEvent(
                    project_id=project_id,
                    environment=PRODUCTION,
                    event=event,
                    session_id=f"s{number}",
                    occurred_at=exposed_at + timedelta(minutes=3 * (event == "order")),
                    commit_sha=commit,
                    event_id=f"{event}-{number}",
                    value=1_000_000 * (_PAID[commit] + number % 9) if event == "order" else None,
                )


@dataclass(frozen=True, kw_only=True)
class Edition:
    """The published documents of an experiment, to the byte."""

    contract: str
    evidence: str | None


Editions = Mapping[str, Edition]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Where an undisturbed walk ends: everything derived, and what readers get of it."""

    derived: Derived
    editions: Editions


def ending(engine: Engine, *, as_of: datetime | None = None) -> Ending:
    """Computes everything beside the served tables at once, undisturbed, now or as of a time."""
    with engine.connect() as connection:
        now = closed_instant(connection)
    with separate_reading(engine) as separate:
        for step in _steps(as_of or now):
            step(separate)
        return Ending(derived=derived(separate), editions=editions(separate))


def editions(connection: Connection) -> Editions:
    rows = connection.execute(text(_PUBLISHED)).all()
    return {row[0]: Edition(contract=row[1], evidence=row[2]) for row in rows}


_PUBLISHED = "SELECT experiment_id, contract::text, evidence::text FROM verdicts"


def as_served(connection: Connection, published: Editions) -> dict[str, str]:
    """The evidence that readers get of editions by the deploys, traffic and time of now."""
    documents = {
        name: (contract_of(each.contract), evidence_of(each.evidence))
        for name, each in published.items()
    }
    current = read_situations(connection, documents)
    return {name: document_text(each.evidence) for name, each in current.items()}


def walk_to(engine: Engine, as_of: datetime) -> None:
    """Walks as a tick did at an earlier time, each step in a transaction of its own."""
    for step in _steps(as_of):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            step(connection)


def _steps(as_of: datetime) -> Sequence[Callable[[Connection], object]]:
    """The steps from the log to the verdicts, of events that were received by a time."""
    return (
        lambda c: extend_exposures(c, as_of=as_of),
        extend_cells,
        lambda c: stage_evidence(c, [each.draft for each in draft_bound(c)]),
        lambda c: stage_evidence(c, [each.draft for each in draft_waited_out(c, as_of=as_of)]),
        publish_verdicts,
    )


class Bookmark:
    """The state of the derived tables at a time, to which a test returns for another attempt."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA bookmark"))
            for table in DERIVED:
                connection.execute(
                    text(f"CREATE TABLE bookmark.{table.name} AS TABLE {table.name}")
                )

    def go_back(self) -> None:
        """Puts everything derived back, as no code of ours ever would."""
        with self._engine.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(f"TRUNCATE {', '.join(table.name for table in DERIVED)}"))
            for table in DERIVED:
                columns = ", ".join(table.c.keys())
                connection.execute(
                    text(
                        f"INSERT INTO {table.name} ({columns})"
                        f" SELECT {columns} FROM bookmark.{table.name}"
                    )
                )
