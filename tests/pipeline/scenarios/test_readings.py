"""Readings of the past: a policy is frozen from vouched events, or says what it rests on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from domain.policy import Policy
from orchestration.pipeline.audit import audit, frozen_again
from storage.lake.comparison import compare_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import open_lake
from storage.lake.sealing import Sealer
from storage.upkeep.forgetting import forget_person
from storage.upkeep.retention import drop_old_days
from tests.world import DAY, A, K

L = "ddddddd4"
REQUEST = "http.server.request"
GRAPH = {
    "schema_version": 1,
    "routes": [
        {"route": route, "file": "list.ts", "files": ["list.ts"]} for route in ("/list", "/hidden")
    ],
}
BILL = {"kind": "mean", "sources": ["paid"]}
SLOW_PAGE = {"sources": ["page_view"], "over": "p95", "better": "lower"}
FIRST, SECOND = -12_000, -85
USERS = 1010


@pytest.fixture
def shop(story) -> Any:
    """A project whose router keeps 600 users on A or on L, and that pays twice."""
    story.begin = datetime.now(UTC) - timedelta(days=1)
    story.settings(default_metric="spent", metrics={"spent": BILL, "slow_page": SLOW_PAGE})
    story.registration = {}
    story.deploy(A, minutes=-20 * DAY, graph=GRAPH)
    story.deploy(L, 0.5, minutes=-12_100, base=A)
    return story


def visit(
    shop, session: str, *, minutes: float, value: float, request: float, **named: Any
) -> None:
    at = {"session_id": session, "occurred_at": shop.at(minutes), **named}
    shop.events += [
        {**at, "event": "page_view", "value": value},
        {**at, "event": "paid", "value": value},
        {**at, "event": REQUEST, "value": request},
    ]


def customers(
    shop, *, users: int = USERS, named: bool = True, each: int = 2, drawn: bool = False
) -> None:
    """Sessions that the router keeps on A, and each so many on L; or that it draws anew."""
    for number in range(users):
        user = {"user_ref": f"u{number}"} if named else {}
        for minutes in (FIRST, SECOND):
            visit(
                *(shop, f"s{number} {minutes}"),
                minutes=minutes + number / 22,
                value=1.0 + number,
                request=100.0 + number % 100,
                commit=L if (number + (drawn and minutes == SECOND)) % each == 1 else A,
                route="/list",
                **user,
            )


def strangers(shop, *, users: int = 400, builds: tuple[str, str] = (A, L)) -> None:
    """Users of these builds in turn, values beyond all bounds, and a route of their own."""
    for number in range(users):
        for minutes, commit in zip((FIRST, SECOND), builds, strict=True):
            visit(
                *(shop, f"stranger {number} {minutes}"),
                minutes=minutes + number / 22,
                value=9e8 if number % 2 else 1e-6,
                request=9e8,
                commit=commit,
                user_ref=f"x{number}",
                **({"route": "/hidden"} if number < 5 else {}),
            )


def registered(shop, *, unvouched: str) -> str:
    """The experiment of a canary, where some sessions sent with the public key."""
    shop.send(live=True)
    public = text("UPDATE runtime_events SET trusted = false WHERE session_id LIKE :sessions")
    shop.in_store(lambda connection: connection.execute(public, {"sessions": unvouched}))
    diff = {"base_commit": A, "files": [{"filename": "list.ts", "status": "modified"}]}
    shop.deploy(K, 0.5, minutes=0, diff=diff)
    return shop.register(guardrails=["slow_page", "error"], treatment_commit=K)


def frozen(shop, experiment: str) -> dict[str, Any]:
    """What was frozen of the past, and how many vouched and unvouched values it rests on."""
    policy = shop.policy(experiment)
    metrics = [policy["target"], *policy["guardrails"], *policy["companions"]]
    return {
        **{name: policy[name] for name in ("unit", "routes")},
        "cap": policy["target"]["cap"],
        "over": {each["name"]: each["over"] for each in metrics if "over" in each},
        "adjusted": any("received" in each for each in metrics),
        "read": {
            f"{each['member']} {each.get('metric', '')}".strip(): (
                each["vouched"],
                each["unvouched"],
            )
            for each in policy["read_from"]
        },
    }


SLOW = {"slow": 149.0, "slow p90": 189.0, "slow p95": 194.0, "slow p99": 198.0}
HONEST = {
    "unit": "user",
    "routes": ["/list"],
    "cap": 1000.0,
    "over": {"slow_page": 960.0, **SLOW},
    "adjusted": True,
}
READ = {
    "unit": USERS // 2,
    "routes": USERS,
    "cap spent": 2 * USERS,
    "thresholds slow_page": USERS,
    "history spent": USERS,
}


def test_where_vouched_events_are_enough_a_stranger_moves_no_member(shop) -> None:
    customers(shop)
    strangers(shop)
    read = {name: (count, 0) for name, count in READ.items()}
    read |= {"thresholds slow": (USERS, 0), "routes": (USERS, 5)}
    experiment = registered(shop, unvouched="stranger%")
    assert frozen(shop, experiment) == {**HONEST, "read": read}


def test_a_shop_that_sends_with_its_public_key_alone_gets_the_same_and_is_told(shop) -> None:
    customers(shop)
    experiment = registered(shop, unvouched="%")
    # But for a server's spans, which come with the write key.
    read = {name: (0, count) for name, count in READ.items()}
    over = {"slow_page": HONEST["over"]["slow_page"]}
    assert frozen(shop, experiment) == {**HONEST, "over": over, "read": read}
    shop.tick()
    read_from = shop.evidence(experiment)["policy"]["read_from"]
    assert all(each["unvouched"] and not each["vouched"] for each in read_from)


def test_a_stranger_s_users_are_not_the_unit_of_sessions_that_name_none(shop) -> None:
    customers(shop, users=100, named=False, each=10)
    strangers(shop, users=40, builds=(L, L))
    assert frozen(shop, registered(shop, unvouched="stranger%"))["unit"] == "session"


def test_a_stranger_s_sessions_do_not_make_a_router_that_draws_one_that_keeps(shop) -> None:
    customers(shop, users=310, each=10, drawn=True)
    # Beside so many of a third build A is the second: whoever began there is mostly there again.
    strangers(shop, builds=("fffffff6", "fffffff6"))
    assert frozen(shop, registered(shop, unvouched="stranger%"))["unit"] == "session"


def audited(shop, experiment: str) -> tuple[list[str], list[str]]:
    """The readings of a policy that differ by now, and those that are not compared."""
    result = audit(shop.store.engine, experiment)
    return [line.split(" (")[0] for line in result.differences], [*result.touched]


def test_a_policy_is_audited_by_its_kept_answers_and_by_the_log(shop) -> None:
    customers(shop)
    experiment = registered(shop, unvouched="stranger%")
    shop.tick()
    assert audited(shop, experiment) == ([], [])
    # Yesterday's prior, of a run that went on over midnight.
    late = text("INSERT INTO learned_priors VALUES (:id, current_date - 1, '[[0.1, 1.0]]')")
    shop.in_store(lambda connection: connection.execute(late, {"id": shop.project_id}))
    assert audited(shop, experiment) == ([], [])
    gone = text("DELETE FROM runtime_events WHERE event = 'paid' AND session_id LIKE 's1_ %'")
    shop.in_store(lambda connection: connection.execute(gone))
    assert audited(shop, experiment) == (["cap of spent", "history of spent"], [])
    shop.in_store(lambda connection: forget_person(connection, shop.project_id, f"s5 {FIRST}"))
    differences, touched = audited(shop, experiment)
    assert differences == []
    assert {"cap of spent", "history of spent"} <= {line.split(":")[0] for line in touched}
    changed = text("""UPDATE experiments SET policy = policy || '{"alpha": 0.06}'""")
    shop.in_store(lambda connection: connection.execute(changed))
    assert "policy.alpha: served 0.06, raw 0.05" in audited(shop, experiment)[0]


def test_what_comes_after_the_binding_changes_no_policy_and_no_audit_of_it(shop) -> None:
    # A flag that OFREP hands out starts at its freeze, and is bound before.
    shop.settings(ofrep="server")
    customers(shop)
    shop.send(live=True)
    flag = {"name": "cart", "treatment": True, "control": False}
    experiment = shop.register(treatment_flag=flag, guardrails=["slow_page", "error"])

    def come(name: str) -> None:
        for number in range(160):
            visit(shop, f"{name} {number}", minutes=0, value=9e8, request=9e8, commit=L)
            shop.events[-3]["user_ref"] = f"{name} {number // 2}"
        now = datetime.now(UTC).isoformat()
        events = [{**event, "occurred_at": now} for event in shop.events]
        assert shop.post("/v1/events", {"events": events}).json()["accepted"] == len(events)
        shop.events = []

    come("bound")
    members = frozen(shop, experiment)
    over = {"slow_page": HONEST["over"]["slow_page"]}
    expected = {**HONEST, "routes": None, "adjusted": False, "over": over}
    assert {name: members[name] for name in expected} == expected
    kept = shop.policy(experiment)
    come("frozen")
    shop.tick()
    assert shop.policy(experiment) == kept
    assert audited(shop, experiment) == ([], [])


def erased(shop) -> set[str]:
    """Forgets a session of the first day; nobody keeps of which days its events were."""
    shop.in_store(lambda connection: forget_person(connection, shop.project_id, f"s5 {FIRST}"))
    return {"forgotten"}


def replayed(shop) -> set[str]:
    """Brings payments of five days before, which lie before the start."""
    for number in range(60):
        shop.events.append(
            {
                "event": "paid",
                "session_id": f"new {number}",
                "value": 9e6,
                "occurred_at": shop.at(-5 * DAY),
            }
        )
    shop.send()
    return {f"{shop.begin - timedelta(days=5):%Y-%m-%d} were brought"}


def expired(shop) -> set[str]:
    """Drops the first day, once the experiment is decided, as the retention does."""
    shop.in_store(lambda connection: connection.execute(text("DELETE FROM replayed_days")))
    decided = text("UPDATE verdicts SET decided = true, as_of = published_at")
    shop.in_store(lambda connection: connection.execute(decided))
    assert drop_old_days(shop.store.engine, as_of=datetime.now(UTC), retention_days=8).dropped
    return {f"{shop.begin + timedelta(minutes=FIRST):%Y-%m-%d} were dropped"}


@pytest.mark.parametrize("touch", [erased, replayed, expired])
def test_an_audit_names_the_days_that_were_touched_and_compares_all_else(shop, touch) -> None:
    customers(shop, named=False)
    experiment = registered(shop, unvouched="nobody")
    shop.tick()
    assert audited(shop, experiment) == ([], [])
    days = touch(shop)
    differences, touched = audited(shop, experiment)
    assert differences == []
    assert "cap of spent" in {line.split(":")[0] for line in touched}
    for each in days:
        assert all(each in line for line in touched)
    # Of the hour before its start nothing was touched.
    gone = text("DELETE FROM runtime_events WHERE event = :event AND received_at > :since")
    since = {"event": REQUEST, "since": shop.begin - timedelta(hours=2)}
    shop.in_store(lambda connection: connection.execute(gone, since))
    differences, _ = audited(shop, experiment)
    assert (differences == ["slow"]) == (touch is not erased)


# --- Days that are in the lake alone --------------------------------------------------------------


def sealed(shop) -> None:
    """Seals and compares what has come, and moves the days of before a week."""
    engine, lake = shop.store.engine, open_lake()
    assert Sealer(engine=engine, lake=lake).seal() is not None
    with engine.begin() as connection:
        assert compare_files(connection, lake).different == []
        connection.execute(text("DELETE FROM replayed_days"))
    assert move_old_days(engine, lake, as_of=datetime.now(UTC), hot_days=7).moved


UNFROZEN = text("UPDATE experiments SET policy = NULL, frozen_at = NULL, starts_at = NULL")
ONLINE = {
    **BILL,
    "sources": ["paid", "expansion"],
    "currency": "USD",
    "rates": {"EUR": 1.08234567},
    "where": {"plan": ["7", "x"]},
}


@pytest.mark.parametrize(
    ("named", "lacking"),
    [
        (True, {"unit"}),
        (False, {"unit", "cap of spent", "thresholds of slow", "thresholds of slow_page"}),
    ],
    ids=["users", "sessions"],
)
def test_a_policy_is_the_same_where_its_days_are_in_files_by_now(
    shop, monkeypatch, tmp_path, named, lacking
) -> None:
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    shop.settings(metrics={"spent": ONLINE, "slow_page": SLOW_PAGE})
    customers(shop, named=named)
    for number in range(60):
        minutes = FIRST + number / 22
        visit(shop, f"none {number}", minutes=minutes, value=0, request=0, commit=A, route="/list")
    for number, event in enumerate(shop.events):
        event["properties"] = {"plan": (7, "x", 7.5, "y")[number % 4]}
    revenue = [
        {
            "event": "expansion",
            "occurred_at": shop.at(FIRST),
            "amount": {"value": 1999 + number, "currency": ("USD", "EUR", "CHF")[number % 3]},
            "user_ref": f"u{number}",
            "idempotency_key": f"k{number}",
            "attributes": {"plan": 7},
        }
        for number in range(50)
    ]
    answer = shop.post("/v1/revenue/events?replay=true", {"events": revenue})
    assert answer.json()["accepted"] == 50
    experiment = registered(shop, unvouched="s1%")
    kept = shop.policy(experiment)
    sealed(shop)

    def read(connection: Connection) -> set[str]:
        """The readings that PostgreSQL alone answers otherwise."""
        _, by_kept, by_log = frozen_again(connection, experiment)
        assert by_kept == kept
        both = zip(Policy.of(kept).frozen_from, by_log, strict=True)
        return {before.question for before, now in both if before != now}

    assert shop.in_store(read) == lacking
    shop.in_store(lambda connection: connection.execute(UNFROZEN))
    shop.tick()
    assert shop.policy(experiment) == kept
    assert audited(shop, experiment) == ([], [])


# --- The cap of a mean: so that no whale hides a change -------------------------------------------


def capped(story, values: list[float], *, cap: float | None = None) -> str:
    """An experiment on what sessions spend; these were spent before its start."""
    spent = {"kind": "mean", "sources": ["paid"], **({} if cap is None else {"cap": cap})}
    story.settings(metrics={"spent": spent})
    story.deploy(A, minutes=-DAY)
    for value, session in zip(
        values, story.units_of(A, minutes=-300, units=len(values)), strict=True
    ):
        paid = next(e for e in story.events if e["session_id"] == session)
        story.events.append({**paid, "event": "paid", "value": value})
    story.deploy(K, minutes=0, base=A)
    for commit in (A, K):
        for number, session in enumerate(story.units_of(commit, minutes=10, units=60)):
            paid = next(e for e in story.events if e["session_id"] == session)
            story.events.append({**paid, "event": "paid", "value": -1e9 if number else 1e9})
    return story.judged(target_metric="spent", minutes=DAY)


@pytest.mark.parametrize(
    ("values", "cap"),
    [
        ([10.0] * 19, None),
        ([0.0] * 50, None),
        ([10.0] * 19 + [500_000.0], 200.0),
        ([1.0] * 90 + [300.0] * 10, 300.0),
        ([-10.0] * 20, 200.0),
        ([float(value) for value in range(1, 1001)], 990.0),
    ],
)
def test_a_cap_is_chosen_from_the_values_before_the_start(story, values, cap) -> None:
    evidence = story.evidence(capped(story, values))
    assert evidence["policy"]["target"]["cap"] == cap
    assert ("uncapped" in evidence["warnings"]) == (cap is None)


def test_a_value_is_clipped_on_both_sides_and_a_named_cap_is_kept(story) -> None:
    evidence = story.evidence(capped(story, [10.0] * 30, cap=7.0))
    assert evidence["policy"]["target"]["cap"] == 7.0
    for arm in evidence["arms"].values():
        assert arm["total"] == 7.0 - 59 * 7.0
    # All units paid, in both arms: the yes/no twin stands beside the mean.
    assert evidence["yes_no"]["lift"] == 0.0
    assert evidence["yes_no"]["e_value"] <= 1
