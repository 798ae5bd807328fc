"""A person is forgotten, and everything that was counted still adds up.

The random worlds of `tests/pipeline/engines/` forget people between ticks too.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from orchestration.pipeline.recompute import evaluate_as_of
from storage.log.events import note_history
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.postgres.refusal import Conflict
from storage.schema.clock import DERIVED_LOCK, claim_derived_tables
from storage.schema.partitions import create_days
from storage.upkeep.forgetting import Forgotten, TooManyUsers, forget_person
from storage.upkeep.reading import separate_reading
from storage.verdicts.set_aside import bound_experiments
from tests.pipeline.engines.rows import oracle_rows, stored_rows
from tests.pipeline.engines.test_engines import differences
from tests.repetition import also_nightly
from tests.stores.barrier import await_waiting
from tests.stores.derived import served_of
from tests.stores.emptied import empty_derived_tables
from tests.world import A, K, T, World

PLACE = "the kiosk in the hall"
# When everything has closed, in minutes and as a time.
NIGHT = 720.0
CLOSED = T + timedelta(minutes=NIGHT)
# Units of each arm, and those with an order.
OTHERS = 60, 20
METRICS = {
    "spend": {"sources": ["paid"], "kind": "mean", "cap": 30.0},
    "revenue": {
        "sources": ["trial_to_paid"],
        "kind": "mean",
        "cap": 5000.0,
        "currency": "EUR",
        "window_seconds": 3600,
    },
}
METRICS["takings"] = METRICS["revenue"]


def pseudonym(number: int) -> bytes:
    return f"pseudonym of {number:04}".encode()


@dataclass(kw_only=True)
class Shop(World):
    """A canary's traffic of some hours, stored as though it came then, and its experiments."""

    ids: Sequence[str] = ()
    revenue: list[dict[str, Any]] = field(default_factory=list)

    def others(self) -> None:
        """A hundred and twenty users with a session each, which a look needs; see OTHERS."""
        for number in range(120):
            served = {"commit_sha": K if number % 2 else A, "pseudonym": pseudonym(1000 + number)}
            for event in ("page_view", "order") if number % 3 == 0 else ("page_view",):
                self.seen(f"other {number}", 2 * number, event=event, **served)

    @property
    def engine(self) -> Engine:
        return self.store.engine

    def open(self) -> None:
        """Stores the log, and registers three experiments on it."""
        self.in_store(self.append)
        self.canary()
        self.ids = [
            self.measure("order", unit="session"),
            self.measure("revenue", unit="user"),
            self.measure("spend", unit="session", trusted_identity=True),
        ]

    def measure(self, target: str, **chosen: Any) -> str:
        self.settings(**{"metrics": METRICS, "locked": [], "trusted_identity": False, **chosen})
        guardrails = [name for name in ("error", "spend", "order") if name != target]
        return self.register(treatment_commit=K, target_metric=target, guardrails=guardrails)

    def seen(self, session: str, minutes: float, **members: Any) -> None:
        """Adds an event that came as it occurred, unless its members say otherwise."""
        occurred = T + timedelta(minutes=minutes)
        event = {
            "event": "page_view",
            "session_id": session,
            "occurred_at": occurred,
            "received_at": occurred,
            "commit_sha": K,
            "pseudonym": None,
            "trusted": True,
            "value": None,
            "properties": None,
        }
        self.events.append({**event, **members})

    def paid(self, user: int, minutes: float, **members: Any) -> None:
        occurred = T + timedelta(minutes=minutes)
        payment = {
            "idempotency_key": f"k{len(self.revenue)}",
            "event": "trial_to_paid",
            "occurred_at": occurred,
            "received_at": occurred,
            "amount_value": 1900,
            "pseudonym": pseudonym(user),
            "session_id": None,
        }
        self.revenue.append({**payment, **members})

    def append(self, connection: Connection) -> None:
        """Stores its events and payments as they were received."""
        create_days(connection, {event["received_at"].date() for event in self.events})
        connection.execute(
            text(
                "INSERT INTO runtime_events (project_id, environment, event, session_id,"
                " occurred_at, received_at, commit_sha, pseudonym, trusted, value, properties)"
                f" VALUES ({self.project_id}, 'production', :event, :session_id, :occurred_at,"
                " :received_at, :commit_sha, :pseudonym, :trusted, :value, :properties)"
            ),
            self.events,
        )
        moments = [("production", event["occurred_at"]) for event in self.events]
        note_history(connection, self.project_id, moments)
        if not self.revenue:
            return
        connection.execute(
            text(
                "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
                " received_at, amount_value, amount_currency, pseudonym, session_id, digest)"
                f" VALUES ({self.project_id}, :idempotency_key, :event, :occurred_at,"
                " :received_at, :amount_value, 'EUR', :pseudonym, :session_id, '')"
            ),
            self.revenue,
        )

    def forget(self, *, user: int | None = None, session: str | None = None) -> Forgotten:
        with self.engine.begin() as connection:
            person = (session or "") if user is None else pseudonym(user)
            return forget_person(connection, self.project_id, person)

    # --- What readers get of it ------------------------------------------------------------------

    def served(self) -> dict[str, list[str]]:
        return {experiment: documents for experiment, *documents in served_of(self.engine)}

    def read_at_once(self) -> dict[str, list[str]]:
        """The answers of a reading of the log at once, tombstones included."""
        with separate_reading(self.engine) as connection:
            return documents_of(connection)

    def rows(self) -> Iterator[str]:
        """Every row of every table, as text."""
        with self.engine.begin() as connection:
            names = connection.execute(
                text("SELECT tablename FROM pg_tables WHERE schemaname = 'deploy_reward'")
            )
            for name in names.scalars().all():
                yield from connection.execute(text(f"SELECT t::text FROM {name} AS t")).scalars()

    def holds(self, *names: str) -> set[str]:
        """Those of some names that stand anywhere in the store."""
        rows = list(self.rows())
        return {name for name in names if any(name in row for row in rows)}

    def counts(self, experiment: int = 0) -> tuple[int, int, int, int]:
        """(n1, x1, n0, x0) of the target of an experiment, the others of all shops left out."""
        with self.engine.begin() as connection:
            row = connection.execute(
                text(
                    "SELECT sum(n1)::int, sum(x1)::int, sum(n0)::int, sum(x0)::int FROM cells"
                    " JOIN experiments USING (experiment_id)"
                    " WHERE metric = target_metric AND experiment_id = :id"
                ),
                {"id": self.ids[experiment]},
            ).one()
        units, conversions = OTHERS if experiment == 0 else (OTHERS[0], 0)
        return row[0] - units, row[1] - conversions, row[2] - units, row[3] - conversions

    def adds_up(self) -> bool:
        """Whether no unit is counted twice or missed, and a reading gives what is served."""
        looked = text("SELECT bool_and(as_of IS NOT NULL) FROM verdicts")
        assert self.in_store(lambda connection: connection.execute(looked).scalar_one())
        self.require_the_counts_to_add_up()
        return self.read_at_once() == self.served()


def documents_of(separate: Connection) -> dict[str, list[str]]:
    """Contract and evidence of each experiment when everything has closed."""
    drafts = [entry.draft for entry in evaluate_as_of(separate, as_of=CLOSED)]
    return {draft.experiment_id: [draft.contract, draft.document] for draft in drafts}


@pytest.fixture
def shop(service) -> Shop:
    shop = Shop(store=service.store, client=service.client, project=service.project)
    shop.others()
    return shop


def hexed(*users: int) -> list[str]:
    """The pseudonyms of users as a dump shows them."""
    return [pseudonym(user).hex() for user in users]


def test_who_shares_a_session_is_one_person(shop) -> None:
    shop.seen("tablet", 10, pseudonym=pseudonym(2))
    shop.seen("tablet", 11, pseudonym=pseudonym(1))
    shop.seen("phone", 20, commit_sha=A, pseudonym=pseudonym(2))
    shop.paid(2, 25)
    shop.paid(2, 26, session_id="laptop")
    shop.seen("laptop", 22)
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    forgotten = shop.forget(user=1)
    assert (forgotten.users, forgotten.sessions) == (2, 3)
    assert not shop.holds("tablet", "phone", "laptop", *hexed(1, 2))
    assert shop.served() == before
    assert shop.adds_up()


@pytest.mark.nightly
def test_a_session_of_many_users_is_a_place_that_outlasts_them(shop) -> None:
    users = range(6)
    for user in users:
        shop.seen(PLACE, 10 + user, pseudonym=pseudonym(user))
        shop.seen(f"phone of {user}", 10, commit_sha=A, pseudonym=pseudonym(user))
    shop.seen(PLACE, 14, event="order", pseudonym=pseudonym(0))
    shop.open()
    shop.tick(minutes=NIGHT)
    before, counted = shop.served(), shop.counts()
    with pytest.raises(Conflict, match="nobody's own"):
        shop.forget(session=PLACE)
    forgotten = shop.forget(user=0)
    assert (forgotten.users, forgotten.sessions, forgotten.runtime_events) == (1, 1, 3)
    assert not shop.holds("phone of 0", *hexed(0))
    assert shop.holds(PLACE, *hexed(*users)) == {PLACE, *hexed(*users[1:])}
    assert shop.served() == before
    assert shop.adds_up()
    # Once few enough are left, it is theirs, and goes with them.
    shop.forget(user=1)
    assert not shop.holds(PLACE, *hexed(*users))
    assert shop.served() == before
    assert shop.counts() == counted
    assert shop.adds_up()


@pytest.mark.nightly
def test_an_outcome_a_moment_too_late_stays_too_late(shop) -> None:
    # The cell of the first block closes after 5 minutes, the window of 30 and a grace of 2.
    close = T + timedelta(minutes=37)
    for session, after in (("in time", 0), ("too late", 0.25)):
        shop.seen(session, 1)
        received = close + timedelta(seconds=after)
        shop.seen(session, 3, event="order", received_at=received)
    shop.open()
    shop.tick(minutes=NIGHT)
    assert shop.counts()[:2] == (2, 1)
    before = shop.served()
    for session in ("in time", "too late"):
        shop.forget(session=session)
    assert shop.served() == before
    assert shop.adds_up()


def test_of_whom_is_forgotten_no_time_is_kept_but_what_counts_ask_for(shop) -> None:
    exact = T + timedelta(minutes=11, seconds=13, microseconds=170_003)
    shop.seen("mine", 0, occurred_at=exact, received_at=exact)
    for minutes in (12.0123, 200.0123):
        shop.seen("mine", minutes, event="order", pseudonym=pseudonym(1))
    shop.open()
    shop.tick(minutes=NIGHT)
    shop.forget(session="mine")
    assert not [row for row in shop.rows() if "00:11:13" in row or "00:12:00.7" in row]


@pytest.mark.nightly
def test_who_comes_back_is_a_new_unit(shop) -> None:
    shop.seen("mine", 10, pseudonym=pseudonym(1))
    shop.open()
    shop.tick(minutes=60)
    shop.forget(user=1)
    shop.events = []
    shop.seen("mine", 100, pseudonym=pseudonym(1))
    shop.seen("mine", 101, event="order", pseudonym=pseudonym(1))
    shop.in_store(shop.append)
    shop.tick(minutes=NIGHT)
    assert shop.counts() == (2, 1, 0, 0)
    assert shop.adds_up()


@pytest.mark.nightly
def test_an_experiment_that_is_registered_afterwards_never_met_them(shop) -> None:
    shop.seen("mine", 10)
    shop.seen("another", 10)
    shop.open()
    shop.tick(minutes=NIGHT)
    shop.forget(session="mine")
    later = shop.measure("signup", unit="session")
    shop.ids = [*shop.ids, later]
    shop.tick(minutes=NIGHT)
    assert [shop.counts(number) for number in (0, 3)] == [(2, 0, 0, 0), (1, 0, 0, 0)]
    assert shop.adds_up()


def test_where_the_events_are_gone_the_name_goes_all_the_same(shop) -> None:
    shop.seen("mine", 10, pseudonym=pseudonym(1))
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    with shop.engine.begin() as connection:
        connection.execute(text("DROP TABLE runtime_events_20261001"))
    forgotten = shop.forget(user=1)
    assert (forgotten.runtime_events, forgotten.exposures) == (0, 3)
    assert not shop.holds("mine", *hexed(1))
    assert shop.served() == before


@pytest.mark.nightly
def test_a_forgetting_waits_for_the_step_under_way(shop) -> None:
    shop.seen("mine", 10, pseudonym=pseudonym(1))
    shop.open()
    shop.in_store(lambda connection: extend_exposures(connection, as_of=CLOSED))
    with ThreadPoolExecutor(1) as pool:
        with shop.engine.begin() as connection:
            claim_derived_tables(connection)
            forgetting = pool.submit(shop.forget, user=1)
            await_waiting(shop.engine, DERIVED_LOCK)
            extend_cells(connection)
        assert forgetting.result(timeout=60).exposures == 3
    shop.tick(minutes=NIGHT)
    assert shop.adds_up()


def test_a_reading_under_way_sees_the_log_as_it_was(shop) -> None:
    shop.seen("mine", 10, pseudonym=pseudonym(1))
    shop.seen("mine", 12, event="order")
    shop.open()
    shop.tick(minutes=NIGHT)
    with separate_reading(shop.engine) as connection:
        assert bound_experiments(connection)
        shop.forget(user=1)
        computed = documents_of(connection)
    assert computed == shop.served()


# --- What the public key ties --------------------------------------------------------------------


def by_public_key(shop: Shop, session: str, minutes: float, user: int, **members: Any) -> None:
    shop.seen(session, minutes, trusted=False, pseudonym=pseudonym(user), **members)


def test_a_stranger_s_chain_of_references_erases_nobody(shop) -> None:
    customers = range(40)
    for user in customers:
        for order in range(5):
            shop.paid(user, 20 + order)
    # Each of ten sessions names five customers, a customer of them as the next session does.
    for number in range(10):
        for user in range(4 * number, 4 * number + 5):
            by_public_key(shop, f"foreign {number}", 10, user % 40)
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    forgotten = shop.forget(session="foreign 0")
    assert (forgotten.users, forgotten.sessions, forgotten.revenue_events) == (0, 1, 0)
    assert (forgotten.runtime_events, forgotten.kept_sessions) == (5, 0)
    assert shop.holds("foreign 0") == set()
    assert shop.holds(*hexed(*customers)) == set(hexed(*customers))
    forgotten = shop.forget(user=1)
    assert (forgotten.users, forgotten.sessions, forgotten.revenue_events) == (1, 0, 5)
    assert shop.served() == before
    assert shop.adds_up()


def test_a_stranger_s_references_do_not_keep_a_session_from_being_erased(shop) -> None:
    shop.seen("mine", 10, pseudonym=pseudonym(1))
    shop.seen("phone", 10, commit_sha=A, pseudonym=pseudonym(1))
    shop.paid(1, 14)
    shop.paid(2, 14)
    for user in range(2, 9):
        by_public_key(shop, "mine", 11, user)
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    forgotten = shop.forget(session="mine")
    assert (forgotten.users, forgotten.sessions, forgotten.runtime_events) == (1, 2, 9)
    assert forgotten.revenue_events == 1
    assert not shop.holds("mine", "phone", *hexed(1))
    assert shop.holds(*hexed(2)) == set(hexed(2))
    assert shop.served() == before
    assert shop.adds_up()


def test_of_a_session_that_claims_a_user_the_public_key_s_events_go_alone(shop) -> None:
    for session in ("browser", "server too"):
        shop.seen(session, 10, trusted=False)
        by_public_key(shop, session, 12, 1, event="login")
    shop.seen("server too", 13, event="order")
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    forgotten = shop.forget(user=1)
    assert (forgotten.sessions, forgotten.kept_sessions, forgotten.runtime_events) == (2, 1, 4)
    assert shop.holds("browser", "server too", *hexed(1)) == {"server too"}
    assert shop.served() == before
    assert shop.adds_up()
    with shop.engine.begin() as connection:
        stays = connection.execute(
            text("SELECT event, trusted FROM runtime_events WHERE session_id = 'server too'")
        )
        assert [tuple(row) for row in stays] == [("order", True)]


@pytest.mark.parametrize("key", also_nightly(["public"], ["write"]))
def test_who_names_himself_in_another_s_session_later_erases_nothing_of_it(shop, key) -> None:
    shop.seen("hers", 10, trusted=False)
    shop.seen("hers", 11, event="login", trusted=key == "write", pseudonym=pseudonym(1))
    # He may say that it was earlier, not that it was received earlier.
    occurred = T + timedelta(minutes=9)
    by_public_key(shop, "hers", 20, 2, occurred_at=occurred)
    shop.open()
    shop.tick(minutes=NIGHT)
    before = shop.served()
    forgotten = shop.forget(user=2)
    assert (forgotten.users, forgotten.sessions, forgotten.runtime_events) == (1, 0, 1)
    assert shop.holds("hers", *hexed(1, 2)) == {"hers", *hexed(1)}
    assert shop.served() == before
    assert shop.adds_up()


def test_the_revenue_of_whom_a_session_only_claims_stays_and_counts_as_it_did(shop) -> None:
    shop.seen("claiming", 10, trusted=False)
    by_public_key(shop, "claiming", 10, 2)
    shop.seen("hers", 11, pseudonym=pseudonym(2))
    shop.paid(2, 12)
    shop.open()
    by_session = shop.measure("takings", unit="session")
    shop.ids = [*shop.ids, by_session]
    shop.tick(minutes=NIGHT)
    before, counted = shop.served(), shop.counts(3)
    assert counted == (2, 1, 0, 0)
    forgotten = shop.forget(session="claiming")
    assert (forgotten.users, forgotten.revenue_events, forgotten.runtime_events) == (0, 0, 2)
    assert forgotten.exposures == 3
    assert shop.holds("claiming", "hers", *hexed(2)) == {"hers", *hexed(2)}
    assert shop.adds_up()
    shop.in_store(empty_derived_tables)
    shop.tick(minutes=NIGHT)
    assert (shop.served(), shop.counts(3)) == (before, counted)


def test_a_user_in_flight_stays_so_after_another_of_the_session_is_forgotten(shop) -> None:
    shop.seen("his", -10, pseudonym=pseudonym(1))
    by_public_key(shop, "his", -9, 2)
    shop.seen("hers", 100, pseudonym=pseudonym(2))
    shop.open()
    shop.tick(minutes=60)
    assert shop.forget(user=1).runtime_events == 2
    shop.tick(minutes=NIGHT)
    by_user = shop.ids[1]
    before, counts = shop.served(), shop.evidence(by_user)["counts"]
    assert (counts["in_flight"], shop.counts(1)) == (1, (0, 0, 0, 0))
    assert shop.adds_up()
    with shop.engine.begin() as connection:
        stored = stored_rows(connection, by_user)
        assert differences(stored, oracle_rows(connection, by_user, until=CLOSED)) == {}
    shop.in_store(empty_derived_tables)
    shop.tick(minutes=NIGHT)
    assert shop.served() == before


def test_more_users_than_were_agreed_to_are_not_erased(shop) -> None:
    for user in range(4):
        shop.seen(f"tablet {user}", 10, pseudonym=pseudonym(user))
        shop.seen(f"tablet {user}", 11, pseudonym=pseudonym(user + 1))
        shop.paid(user, 14)
    shop.open()
    shop.tick(minutes=NIGHT)
    rows = sorted(shop.rows())
    with shop.engine.begin() as connection, pytest.raises(TooManyUsers, match="4 revenue events"):
        forget_person(connection, shop.project_id, "tablet 0", limit=4)
    assert sorted(shop.rows()) == rows
    with shop.engine.begin() as connection:
        assert forget_person(connection, shop.project_id, "tablet 0", limit=5).users == 5
