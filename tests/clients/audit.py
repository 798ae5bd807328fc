"""The audit: what is in the store, against what was sent and acknowledged."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select

from storage.schema.tables import deploys, revenue_events, runtime_events
from tests.clients.delivery import DEPLOYS, INVOICES, Delivery
from tests.clients.load import Load
from tests.clients.shop import Shop

Row = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What became of a load; `lost` rows were acknowledged and are not in the store."""

    deliveries: int
    rows: int
    lost: int
    phantoms: int
    copies: int
    excess: int
    accepted_again: int


def require_all_kept(shop: Shop, load: Load, *, times: int, cuts: int | None = None) -> None:
    """Holds that the store has what was acknowledged, whole, once each, and nothing else."""
    result = audit(shop.engine, load)
    print(  # noqa: T201 - the counts that `pytest -rP` shows
        f"{times} times: {result}, answers {dict(load.statuses)}, cut off {len(load.cuts)}"
    )
    assert load.faults == []
    assert result.deliveries == len(load.deliveries)
    assert (result.lost, result.phantoms, result.excess, result.accepted_again) == (0, 0, 0, 0)
    assert cuts is None or len(load.cuts) <= cuts, load.cuts


def audit(engine: Engine, load: Load) -> Audit:
    """Returns what became of a load, all of it by then answered."""
    # The server that these connections were to is gone.
    engine.dispose()
    with engine.begin() as connection:
        stored = Counter(_stored(connection))
    sent: Counter[Row] = Counter()
    for delivery in load.deliveries:
        # Events alone may stand there once for each attempt.
        most = delivery.attempts if delivery.kind.path == "/v1/events" else 1
        sent.update(dict.fromkeys(_rows(delivery), most))
    acknowledged = [row for each in load.deliveries if each.acknowledged for row in _rows(each)]
    return Audit(
        deliveries=sum(delivery.acknowledged for delivery in load.deliveries),
        rows=len(acknowledged),
        lost=sum(row not in stored for row in acknowledged),
        phantoms=sum(row not in sent for row in stored),
        copies=sum(count - 1 for count in stored.values()),
        excess=sum(max(0, count - sent[row]) for row, count in stored.items() if row in sent),
        accepted_again=sum(count > 1 for count in load.accepted.values()),
    )


def _rows(delivery: Delivery) -> Sequence[Row]:
    return [_row(delivery, part) for part in delivery.parts]


def _row(delivery: Delivery, part: dict[str, object]) -> Row:
    if delivery.kind is DEPLOYS:
        [name] = delivery.names
        return ("deploy", name, name)
    if delivery.kind is INVOICES:
        amount = part["amount"]
        assert isinstance(amount, dict)
        return ("invoice", part["idempotency_key"], amount["value"])
    names = ("event", "session_id", "event_id", "commit")
    value = part.get("value")
    # The store keeps whole millionths.
    stored = round(1_000_000 * value) if isinstance(value, int | float) else None
    return ("event", *(part.get(name) for name in names), stored)


def _stored(connection: Connection) -> Iterator[Row]:
    e, r, d = runtime_events.c, revenue_events.c, deploys.c
    events = select(e.event, e.session_id, e.event_id, e.commit_sha, e.value)
    for row in connection.execute(events):
        yield ("event", *row)
    for row in connection.execute(select(r.idempotency_key, r.amount_value)):
        yield ("invoice", *row)
    # The deploys that are no client's serve production.
    for row in connection.execute(
        select(d.commit_sha, d.environment).where(d.environment != "production")
    ):
        yield ("deploy", *row)
