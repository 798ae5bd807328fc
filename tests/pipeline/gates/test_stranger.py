"""A stranger's past: what the public key sends before a registration decides no verdict.

All is sent now, by the keys that a browser and a server have, and is then moved back by as much as
it should have come earlier.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_args

import pytest
from sqlalchemy import Connection, text

from domain.policy import Member
from storage.schema.partitions import create_days
from tests.pipeline.scenarios.test_poisoning import BLOCK, MINUTES, Event, Siege
from tests.world import A, K

REQUEST = "http.server.request"
BILL = {"kind": "mean", "sources": ["paid"], "window_seconds": 300}
SLOW_PAGE = {"sources": ["page_view"], "over": "p95", "better": "lower"}
GRAPH = {
    "schema_version": 1,
    "routes": [{"route": "/list", "file": "list.ts", "files": ["list.ts"]}],
}
_AGE = text("""
UPDATE runtime_events
SET occurred_at = occurred_at - :by, received_at = received_at - :by, sent_at = sent_at - :by
""")


@pytest.fixture
def shop(service) -> Siege:
    """A project whose hour of grace keeps the last blocks open: nothing is late."""
    service.settings(
        locked=[],
        grace_seconds=3600,
        default_metric="order",
        metrics={"order": {"window_seconds": 300}, "spent": BILL, "slow_page": SLOW_PAGE},
    )
    now = datetime.now(UTC)
    begin = now - (now - datetime(1970, 1, 1, tzinfo=UTC)) % BLOCK - timedelta(minutes=MINUTES)
    return Siege(store=service.store, client=service.client, project=service.project, begin=begin)


def age(shop: Siege, by: timedelta) -> None:
    """Lets all events have come so much earlier."""

    def moved(connection: Connection) -> None:
        days: set[date] = {(datetime.now(UTC) - by - timedelta(days=n)).date() for n in (0, 1, 2)}
        create_days(connection, days | {day - by for day in days})
        connection.execute(_AGE, {"by": by})

    shop.in_store(moved)


def before_the_start(shop: Siege, minutes: int = 5) -> None:
    """Lets all events have come so many minutes before the canary."""
    age(shop, datetime.now(UTC) - shop.begin + timedelta(minutes=minutes))


def at_once(number: int, name: str, **event: Any) -> Iterator[Event]:
    """Events of so many sessions, which occur now."""
    now = datetime.now(UTC).isoformat()
    return ({"session_id": f"{name}-{i}", "occurred_at": now, **event} for i in range(number))


def named(events: Iterator[Event]) -> Iterator[Event]:
    return ({**event, "user_ref": f"of {event['session_id']}"} for event in events)


def sessions(name: str, number: int) -> list[str]:
    return [f"{name}-{i}" for i in range(number)]


@pytest.mark.parametrize("stranger", [False, True], ids=["alone", "with a stranger"])
def test_80_events_of_a_stranger_do_not_make_his_users_the_experiment(shop, stranger) -> None:
    shop.canary(0.1)
    if stranger:
        for minutes in (1, 3):
            visit = {"event": "page_view", "commit": K, "occurred_at": shop.at(minutes)}
            shop.post_events(
                {**visit, "session_id": f"{minutes} {i}", "user_ref": f"x{i}"} for i in range(40)
            )
    shop.experiment = shop.register(treatment_commit=K, guardrails=[])
    assert shop.policy(shop.experiment)["unit"] == "session"
    for name, commit, number, rate in (("a", A, 1440, 0.2), ("k", K, 160, 0.02)):
        real = shop.visits(sessions(name, number), commit, {"order": rate})
        shop.post_events(real, trusted=True)
    if stranger:
        for name, commit, number, rate in (("xa", A, 360, 0.2), ("xk", K, 40, 0.7)):
            shop.post_events(named(shop.visits(sessions(name, number), commit, {"order": rate})))
    # Who is invented in other numbers than the share that is declared gives himself away.
    assert shop.verdict() == ("interacting (sample_ratio)" if stranger else "rollback")
    assert shop.exposed() == ((1800, 280) if stranger else (1440, 160))


def with_requests(events: Iterator[Event], *, slower: float) -> Iterator[Event]:
    """These sessions, each with a request that its server timed."""
    for number, event in enumerate(events):
        yield event
        if event["event"] == "page_view":
            value = 100.0 + number % 100 + slower
            yield {
                **{name: event[name] for name in ("session_id", "commit", "occurred_at")},
                "event": REQUEST,
                "value": value,
            }


@pytest.mark.parametrize("stranger", [False, True], ids=["alone", "with a stranger"])
def test_a_stranger_s_requests_do_not_hide_that_a_change_made_pages_slow(shop, stranger) -> None:
    for number, event in enumerate(at_once(1100, "old", event=REQUEST)):
        shop.events.append({**event, "value": 100.0 + number % 100})
    shop.post_events(shop.events, trusted=True)
    if stranger:
        shop.post_events(at_once(1600, "x", event=REQUEST, value=9e8))
    before_the_start(shop)
    shop.canary()
    shop.experiment = shop.register(treatment_commit=K)
    for name, commit, rate, slower in (("a", A, 0.2, 0), ("k", K, 0.5, 300)):
        visits = shop.visits(sessions(name, 300), commit, {"order": rate})
        shop.post_events(with_requests(visits, slower=slower), trusted=True)
    assert shop.verdict() == "iterate (slow breached)"
    watched = shop.policy(shop.experiment)["guardrails"]
    assert [each["over"] for each in watched if each["name"] != "error"] == [149, 189, 194, 198]


@pytest.mark.parametrize("stranger", [False, True], ids=["alone", "with a stranger"])
def test_a_stranger_s_values_do_not_hide_a_gain(shop, stranger) -> None:
    shop.post_events(at_once(30, "old", event="paid", value=10.0), trusted=True)
    if stranger:
        shop.post_events(at_once(300, "x", event="paid", value=1e9))
    before_the_start(shop)
    shop.canary()
    shop.experiment = shop.register(treatment_commit=K, target_metric="spent", guardrails=[])
    for name, commit, value in (("a", A, 10.0), ("k", K, 30.0)):
        for event in list(shop.visits(sessions(name, 400), commit, {"paid": 0.5})):
            shop.events.append({**event, "value": value} if event["event"] == "paid" else event)
        shop.post_events(shop.events, trusted=True)
        shop.events = []
    if stranger:
        for event in list(shop.visits(sessions("xa", 2), A, {"paid": 1.0})):
            shop.events.append({**event, "value": 1e9} if event["event"] == "paid" else event)
        shop.post_events(shop.events)
    assert shop.verdict() == "keep"
    assert shop.policy(shop.experiment)["target"]["cap"] == 200.0


def visit(shop: Siege, user: int, *, commit: str, paid: float, at: str | None = None) -> None:
    """A new session of a user that sees the page, in so many milliseconds, and pays."""
    (session,) = shop.new_sessions(1)
    named = {"session_id": session, "user_ref": f"u{user}"}
    event = {**named, "occurred_at": at or datetime.now(UTC).isoformat()}
    shop.events += [
        {**event, "event": "page_view", "commit": commit, "route": "/list", "value": 1.0 + user},
        {**event, "event": "paid", "value": paid},
    ]


def browsers_send(shop: Siege) -> None:
    shop.post_events(shop.events)
    shop.events = []


USERS = 1010


def test_a_shop_with_a_public_key_alone_comes_to_its_verdict(shop) -> None:
    shop.settings(default_metric="spent", guardrails=["slow_page"])
    shop.deploy(A, minutes=-20 * 1440, graph=GRAPH)
    shop.deploy("ddddddd4", 0.5, minutes=-12_100, base=A)
    # A router that keeps users came twice to them: once a week ago, and within the day before.
    for earlier in (timedelta(days=8), timedelta()):
        for user in range(USERS):
            visit(shop, user, commit=("ddddddd4", A)[user % 2], paid=1.0 + user)
        browsers_send(shop)
        age(shop, earlier)
    before_the_start(shop, 90)
    shop.deploy("ddddddd4", 0, minutes=-1, base=A)
    diff = {"base_commit": A, "files": [{"filename": "list.ts", "status": "modified"}]}
    shop.deploy(K, 0.5, minutes=0, diff=diff)
    shop.experiment = shop.register(treatment_commit=K)
    for user in range(USERS):
        is_treated = user % 4 < 2
        paid = (1.0 + user) * (2 if is_treated else 1)
        at = shop.at(48 * user / USERS)
        visit(shop, user, commit=K if is_treated else A, paid=paid, at=at)
    browsers_send(shop)
    answer = shop.verdict()
    # It waits until `slow_page` is known not to have got worse.
    assert answer == "power"
    assert shop.answer(shop.experiment, minutes=8 * 1440) == ("keep", None, True)
    read_from = shop.evidence(shop.experiment)["policy"]["read_from"]
    for member in {*get_args(Member)} - {"start"}:
        of_member = [each for each in read_from if each["member"] == member]
        assert of_member, member
        assert all(each["unvouched"] and not each["vouched"] for each in of_member)


# --- A breach that a workflow may act on ----------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "treated", "errors", "by_server", "forged", "by_itself"),
    [
        # Fair errors, of which the forger's units of control dilute the rate.
        (0.5, 200, (0.1, 0.1), False, 3000, False),
        (None, 200, (0.1, 0.1), False, 3000, False),
        # Nobody forges anything.
        (0.5, 200, (0.01, 0.3), False, 0, True),
        # A build that dies and errs, as servers say it.
        (0.5, 60, (0.01, 0.5), True, 0, True),
    ],
)
def test_a_workflow_acts_on_no_breach_that_invented_units_can_have_made(
    shop, share, treated, errors, by_server, forged, by_itself
) -> None:
    shop.send_out(share=share, guardrails=["error"])
    for commit, units, rate in zip((A, K), (200, treated), errors, strict=True):
        visits = [*shop.visits(sessions(commit, units), commit, {"error": rate})]
        for event in ("page_view", "error"):
            trusted = by_server or event == "error"
            own = (each for each in visits if each["event"] == event)
            shop.post_events(own, trusted=trusted)
    shop.forge(shop.visits(sessions("x", forged), A, {}))
    shop.verdict()
    breaches = shop.contract(shop.experiment)["guardrail_breaches"]
    assert "error" in breaches
    assert ("arrival" in breaches) == (treated < 200 or (forged > 0 and share is not None))
    (row,) = shop.get("/v1/reward", params={"pending": True}).json()["experiments"]
    assert (row["action"], row["by_itself"]) == ("roll_back", by_itself)
