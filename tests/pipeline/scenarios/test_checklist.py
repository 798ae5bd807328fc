"""The checklist: each way to set a project up wrong turns its line red, and the right way none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any

import pytest
from sqlalchemy import Connection, text
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from domain.checklist.lines import APART, CHECKS, DIVIDED, MATCHED, NAMED, READ, SAYING
from storage.schema.partitions import create_days
from storage.upkeep.forgetting import forget_person
from tests.api.otlp.exports import span, traces
from tests.conftest import fresh_store, serving_store
from tests.stores.pipeline_run import run_pipeline
from tests.world import World

A, K, NEVER_DEPLOYED = "aaaaaaa1", "ccccccc3", "b" * 40
GRAPH = {"schema_version": "1", "routes": [{"path": "/checkout/[id]"}, {"path": "/"}]}


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


@dataclass(kw_only=True)
class Shop(World):
    """A project that is set up right, but for what a test makes wrong of its members."""

    # What the page views of now say.
    page_view: dict[str, Any] = field(
        default_factory=lambda: {
            "event": "page_view",
            "commit": K,
            "route": "/checkout/7",
            "user_ref": "user-1",
        }
    )
    # The builds that served the units of half an hour ago, in turn.
    builds: Sequence[str] = (A, K)
    outcome: str = "order"
    guardrails: Sequence[str] = ("error",)
    customer: str = "user-{}"
    users_named: bool = True
    sticky: bool = True

    def posted(self, path: str, body: Any) -> None:
        answer = self.post(path, body)
        assert answer.status_code in (200, 201, 202), answer.text

    def send_out(self) -> None:
        self.posted("/v1/static-graphs", GRAPH)
        self.deploy(A, deployed_at=ago(days=1))
        self.deploy(K, 0.5, base=A, deployed_at=ago(hours=1))

    def send_past(self) -> None:
        """What was half an hour ago: forty units, and six payments."""
        events: list[dict[str, Any]] = []
        for unit in range(40):
            seen = {**self.page_view, "session_id": f"s{unit}", "user_ref": f"user-{unit}"}
            seen |= {"commit": self.builds[unit % 2], "occurred_at": ago(minutes=30)}
            if not self.users_named:
                del seen["user_ref"]
            events.append(seen)
            if not self.sticky:
                other = self.builds[(unit + 1) % 2]
                events.append({**seen, "commit": other, "occurred_at": ago(minutes=29)})
        events += [{**events[0], "event": name} for name in self.guardrails]
        self.posted("/v1/events?replay=true", {"events": events})
        payments = [
            {
                "event": "trial_to_paid",
                "occurred_at": ago(minutes=20),
                "amount": {"value": 4900, "currency": "USD"},
                "user_ref": self.customer.format(number),
                "idempotency_key": f"invoice-{number}",
            }
            for number in range(6)
        ]
        self.posted("/v1/revenue/events?replay=true", {"events": payments})

    def send_present(self) -> None:
        events = [{**self.page_view, "session_id": f"n{number}"} for number in range(20)]
        events.append({**self.page_view, "event": self.outcome, "session_id": "n1"})
        self.posted("/v1/events", {"events": events})

    def send_orders(self, **properties: Any) -> None:
        order = {**self.page_view, "event": "order", "properties": properties}
        orders = [{**order, "session_id": f"n{number}"} for number in range(20)]
        self.posted("/v1/events", {"events": orders})

    def live(self) -> None:
        self.send_out()
        self.send_past()
        self.register(target_metric="order")
        self.send_present()

    def lines(self) -> dict[str, dict[str, Any]]:
        answer = self.get("/v1/reward/checklist")
        assert answer.status_code == 200, answer.text
        assert [line["check"] for line in answer.json()][: len(CHECKS)] == list(CHECKS)
        members = {"check", "ok", "seen", "fix"}
        assert all(line.keys() - {"experiment_id"} == members for line in answer.json())
        return {line["check"]: line for line in answer.json()}

    def line(self, check: str) -> dict[str, Any]:
        return self.lines()[check]

    def age(self, *, minutes: float) -> None:
        self.in_store(lambda connection: age(connection, self.project_id, minutes=minutes))

    def execute(self, statement: str) -> None:
        self.in_store(lambda connection: connection.execute(text(statement)))


def age(connection: Connection, project_id: int, *, minutes: float) -> None:
    """Lets a project's live events have come so much earlier, and nothing since."""
    create_days(connection, [(datetime.now(UTC) - timedelta(minutes=minutes)).date()])
    earlier = "{0} = {0} - make_interval(mins => :minutes)".format
    events = f"{earlier('received_at')}, {earlier('occurred_at')}"
    for statement in (
        f"UPDATE runtime_events SET {events} WHERE project_id = :id AND received_at <> occurred_at",
        f"UPDATE seen_names SET {earlier('newest_at')} WHERE project_id = :id",
    ):
        connection.execute(text(statement), {"id": project_id, "minutes": minutes})


# --- Ways to set a project up wrong: two or so for each line --------------------------


def nothing_is_sent(shop: Shop) -> None:
    shop.send_out()


def sending_stopped(shop: Shop) -> None:
    shop.outcome = "page_view"
    shop.live()
    # However long the other stories take, it is as many hours ago.
    shop.age(minutes=310)


def another_environment_is_named(shop: Shop) -> None:
    shop.page_view["environment"] = "prod"
    shop.send_out()
    shop.send_present()


def no_commit_is_named(shop: Shop) -> None:
    del shop.page_view["commit"]
    shop.live()


def one_build_is_not_recorded(shop: Shop) -> None:
    shop.live()
    canary = {**shop.page_view, "commit": NEVER_DEPLOYED, "session_id": "n1"}
    shop.posted("/v1/events", canary)


def a_commit_is_written_too_short(shop: Shop) -> None:
    for last in "45":
        shop.deploy(f"eeeeeee{last}", 0)
    shop.page_view["commit"] = "eeeeeee"
    shop.live()


def no_deploy_is_recorded(shop: Shop) -> None:
    shop.send_present()


def routes_are_of_another_app(shop: Shop) -> None:
    shop.page_view["route"] = "/kasse/7"
    shop.live()


def no_route_is_named(shop: Shop) -> None:
    del shop.page_view["route"]
    shop.live()


def everybody_gets_the_canary(shop: Shop) -> None:
    shop.builds = (K, K)
    shop.live()


def nobody_gets_the_canary(shop: Shop) -> None:
    shop.builds = (A, A)
    shop.live()


def outcomes_are_late_within_their_grace(shop: Shop) -> None:
    shop.settings(metrics={"returned": {"window_seconds": 86_400, "grace_seconds": 259_200}})
    shop.live()
    returned = [
        {"event": "returned", "session_id": f"r{number}", "occurred_at": ago(hours=20)}
        for number in range(60)
    ]
    shop.posted("/v1/events", {"events": returned})


def the_metric_has_another_name(shop: Shop) -> None:
    shop.outcome = "purchase"
    shop.live()


def no_guardrail_is_sent(shop: Shop) -> None:
    shop.guardrails = ()
    shop.live()


def payments_name_other_users(shop: Shop) -> None:
    shop.customer = "customer-{}"
    shop.live()


def sessions_name_no_user(shop: Shop) -> None:
    del shop.page_view["user_ref"]
    shop.users_named = False
    shop.live()


def a_clock_is_an_hour_behind(shop: Shop) -> None:
    shop.page_view["occurred_at"] = ago(hours=1)
    shop.live()


def the_router_forgets(shop: Shop) -> None:
    shop.sticky = False
    shop.live()


def events_break_a_rule(shop: Shop) -> None:
    shop.live()
    wrong = {**shop.page_view, "session_id": "n1", "occurred_at": "yesterday"}
    right = {**shop.page_view, "session_id": "n1"}
    assert shop.post("/v1/events", {"events": [wrong, wrong, right]}).status_code == 202


def the_site_is_not_allowed(shop: Shop) -> None:
    shop.settings(allowed_origins=["https://shop.example"])
    shop.live()
    origin = {**shop.public, "Origin": "https://www.shop.example"}
    for _ in range(3):
        event = {**shop.page_view, "session_id": "n1"}
        assert shop.post("/v1/events", event, headers=origin).status_code == 403


def requests_are_too_many(shop: Shop) -> None:
    shop.settings(rate_limits={"per_key": 3, "per_address": 60_000})
    shop.live()
    answers = [shop.post("/v1/events", {**shop.page_view, "session_id": "n1"}) for _ in range(4)]
    assert answers[-1].status_code == 429


def events_come_too_late(shop: Shop) -> None:
    shop.live()
    old = [
        {**shop.page_view, "session_id": f"o{number}", "occurred_at": ago(days=35)}
        for number in range(10)
    ]
    shop.posted("/v1/events", {"events": old})


def spans_name_no_unit(shop: Shop) -> None:
    shop.live()
    spans = traces([span(number) for number in range(1, 4)])
    assert shop.client.post("/v1/traces", json=spans, headers=shop.write).status_code == 200


def spans_are_no_whole_requests(shop: Shop) -> None:
    shop.live()
    alone = {"flags": 0x101, "parentSpanId": f"{99:016x}", "session__id": "s-1"}
    spans = [span(number, **alone) for number in range(1, 4)]
    spans += [span(number, session__id="s-1", http__route="^a|b$") for number in (4, 5)]
    began = time_ns()
    for each in spans:
        each |= {"startTimeUnixNano": str(began), "endTimeUnixNano": str(began + 10**8)}
    assert shop.client.post("/v1/traces", json=traces(spans), headers=shop.write).is_success


def a_payment_and_a_page_view_say_nothing(shop: Shop) -> None:
    shop.live()
    named = {**shop.page_view, "session_id": "n1", "commit": "0" * 40}
    nameless = {**shop.page_view, "session_id": "undefined"}
    shop.posted("/v1/events", {"events": [named, nameless]})
    payment = {"event": "activation", "occurred_at": ago(), "user_ref": "user-1"}
    assert shop.post("/v1/revenue/events", {**payment, "idempotency_key": "None"}).is_client_error


def all_guests_are_one_session(shop: Shop) -> None:
    shop.live()
    for build in (A, K):
        seen = {**shop.page_view, "commit": build, "user_ref": f"of-{build}"}
        guests = [{**seen, "session_id": "guest"} for _ in range(20)]
        others = [{**seen, "session_id": f"{build}-{number}"} for number in range(80)]
        shop.posted("/v1/events", {"events": guests + others})


def a_ratio_is_over_no_event(shop: Shop) -> None:
    shop.settings(metrics={"errors": {"kind": "ratio", "sources": ["order"], "per": ["request"]}})
    shop.live()
    shop.send_orders()


def a_metric_asks_for_a_property_that_no_event_has(shop: Shop) -> None:
    shop.settings(metrics={"order": {"where": {"plan": "pro", "x": "1"}}})
    shop.live()
    shop.send_orders(x=1)


def half_is_measured(shop: Shop) -> None:
    shop.settings(sample_rate=0.5)
    shop.live()
    shop.send_orders()


Wrong = Callable[[Shop], None]
WAYS: Sequence[tuple[Wrong, str, str, str]] = (
    (nothing_is_sent, "events", "No event", "POST /v1/events"),
    (sending_stopped, "events", "5 hours ago", "does it run"),
    (another_environment_is_named, "events", "some of prod", "Leave `environment` out"),
    (no_commit_is_named, "commit on events", "0 of 20 page views", "Send `commit`"),
    (one_build_is_not_recorded, "commit known", "bbbbbbbbbbb… (1)", "deploy-reward deploy bbbbb"),
    (a_commit_is_written_too_short, "commit known", "eeeeeee (20)", "Send the whole sha"),
    (no_deploy_is_recorded, "commit known", "No deploy is recorded", "deploy-reward deploy"),
    (routes_are_of_another_app, "routes matched", "/kasse/7 (20)", "POST /v1/static-graphs"),
    (no_route_is_named, "routes matched", "0 of 20 page views name", "Send `route`"),
    (
        everybody_gets_the_canary,
        "canary and control both get traffic",
        "0 of control",
        "control a share",
    ),
    (
        nobody_gets_the_canary,
        "canary and control both get traffic",
        "0 units of treatment",
        "above 0",
    ),
    (the_metric_has_another_name, "target seen", "purchase", '{"event": "order"'),
    (
        no_guardrail_is_sent,
        "guardrails seen",
        "`error` was never received",
        "drop it in the settings",
    ),
    (payments_name_other_users, "revenue joinable", "0 of the last 6", "same `user_ref`"),
    (sessions_name_no_user, "revenue joinable", "0 of 21 runtime events", "Send `user_ref`"),
    (a_clock_is_an_hour_behind, "clock skew", "60 minutes before", "`sent_at`"),
    (the_router_forgets, "crossover", "40 of 40 units", "sticky"),
    (events_break_a_rule, CHECKS[-1], "2 of 24 events rejected", "invalid_time (occurred_at)"),
    (the_site_is_not_allowed, CHECKS[-1], "3 of 24", "`allowed_origins`"),
    (requests_are_too_many, CHECKS[-1], "requests limited", "`rate_limits`"),
    (events_come_too_late, CHECKS[-1], "10 late", "Send events when they occur"),
    (spans_name_no_unit, NAMED, "3 of 24 events and spans named no unit", "`span_unit`"),
    (spans_are_no_whole_requests, READ, "Of 26 events in 15 minutes 3 are of a", "`url.path`"),
    (
        a_metric_asks_for_a_property_that_no_event_has,
        MATCHED,
        "None of the newest 21 events of `order`",
        "Send `plan` in `properties`",
    ),
    (a_payment_and_a_page_view_say_nothing, SAYING, "3 values in 15 minutes", "leave the member"),
    (all_guests_are_one_session, APART, "session `guest` has 40 of 221", "a session of its own"),
    (a_ratio_is_over_no_event, DIVIDED, "`errors` is taken over: request.", "correct `per`"),
)
NAMES = [way[0].__name__ for way in WAYS]
# What else cannot be right then.
ALSO_RED = {
    "sending_stopped": {"target seen"},
    "events_come_too_late": {"clock skew"},
    "a_payment_and_a_page_view_say_nothing": {"commit on events"},
}


@pytest.fixture(scope="module")
def shops(postgres_url, migrated_template) -> Iterator[dict[str, Shop]]:
    """Every project of this page in a store: each lives its story, then the pipeline runs."""
    with fresh_store(postgres_url, migrated_template) as store:
        by_story: dict[str, Shop] = {}
        # When the API ends, what it refused is noted.
        with serving_store(store) as client:
            right = (Shop.live, half_is_measured, outcomes_are_late_within_their_grace)
            for live in (*right, *(way[0] for way in WAYS)):
                by_story[live.__name__] = Shop.new(store, client, live.__name__)
                live(by_story[live.__name__])
        run_pipeline(store.engine)
        with serving_store(store) as client:
            for shop in by_story.values():
                shop.client = client
            yield by_story


@pytest.mark.parametrize(
    "story", ["live", "half_is_measured", "outcomes_are_late_within_their_grace"]
)
def test_a_project_that_is_set_up_right_is_green_in_every_line(shops, story) -> None:
    lines = shops[story].lines()
    assert [line for line in lines.values() if line["ok"] is not True] == []
    assert {line["fix"] for line in lines.values()} == {""}
    assert ("outside the sample" in lines[CHECKS[-1]]["seen"]) == (story == "half_is_measured")


@pytest.mark.parametrize(("wrong", "check", "seen", "fix"), WAYS, ids=NAMES)
def test_each_way_to_set_it_up_wrong_is_named_with_its_fix(shops, wrong, check, seen, fix) -> None:
    lines = shops[wrong.__name__].lines()
    red = {name for name, line in lines.items() if line["ok"] is False}
    assert red == {check, *ALSO_RED.get(wrong.__name__, ())}, lines
    assert seen in lines[check]["seen"]
    assert fix in lines[check]["fix"]
    of_experiments = {
        *("canary and control both get traffic", "target seen", "guardrails seen", "crossover")
    }
    assert {name for name in red if "experiment_id" in lines[name]} == red & of_experiments


def test_every_line_has_a_way_to_turn_red() -> None:
    assert {way[1] for way in WAYS} == {*CHECKS, NAMED, SAYING, READ, APART, MATCHED, DIVIDED}


def test_no_line_is_longer_than_a_glance_takes(shops) -> None:
    for shop in shops.values():
        for line in shop.lines().values():
            assert len(line["seen"]) <= 200, line
            assert len(line["fix"]) <= 120, line


# --- In time --------------------------------------------------------------------------------------


@pytest.fixture
def shop(service) -> Shop:
    return Shop(store=service.store, client=service.client, project=service.project)


def test_a_line_turns_green_with_its_fix(shop) -> None:
    shop.send_present()
    assert shop.line("commit known")["ok"] is False
    shop.send_out()
    assert shop.line("commit known")["ok"] is True
    assert shop.line("routes matched")["ok"] is True


def test_a_checklist_is_computed_once_a_minute_however_many_ask(shop) -> None:
    settings = ApiSettings(
        database_url=shop.store.url, secret=b"a secret of the tests, long enough"
    )
    with TestClient(create_app(settings)) as client:
        shop.client = client
        before = shop.lines()
        shop.send_present()
        assert shop.lines() == before
        assert int(shop.get("/v1/reward/checklist").headers["Age"]) >= 0


def test_a_filter_of_other_values_is_shown_beside_those_that_come_until_an_event_has_it(
    shop,
) -> None:
    shop.settings(metrics={"order": {"where": {"plan": ["pro", "team"]}}})
    shop.send_orders(plan="Pro")
    line = shop.line(MATCHED)
    assert line["ok"] is None
    assert line["seen"].endswith("Most that have `plan` have Pro.")
    shop.send_orders(plan="team")
    assert MATCHED not in shop.lines()


def test_events_may_write_more_of_a_commit_than_its_deploy(shop) -> None:
    whole = {A: A.ljust(40, "9"), K: K.ljust(40, "9")}
    shop.builds = tuple(whole.values())
    shop.page_view["commit"] = whole[K]
    shop.live()
    shop.tick()
    lines = shop.lines()
    assert all(
        lines[check]["ok"] for check in ("commit known", "canary and control both get traffic")
    ), lines


def test_history_alone_is_said_and_no_fault(shop) -> None:
    shop.send_past()
    assert shop.line("events")["seen"] == "History alone came."
    assert shop.line("events")["ok"] is True
    shop.send_out()
    shop.register(target_metric="order")
    shop.tick()
    assert shop.line("events")["ok"] is None
    assert shop.line("events")["seen"].startswith("History alone came, with units up to ")
    shop.execute("UPDATE verdicts SET decided = true")
    assert shop.line("events")["ok"] is True
    # Nor is silence, where no experiment is open.
    shop.send_present()
    shop.age(minutes=1200)
    assert shop.line("events")["ok"] is True
    assert shop.line("events")["seen"] == (
        "The last event came 20 hours ago; no experiment waits for any."
    )


def test_where_nothing_ticks_the_first_line_says_since_when(shop) -> None:
    shop.live()
    assert shop.line("events")["ok"] is True
    shop.execute("UPDATE projects SET created_at = created_at - interval '11 minutes'")
    stopped = shop.line("events")
    assert stopped["seen"] == "No verdict is computed: no tick ever came."
    assert "deploy-reward up" in stopped["fix"]
    shop.tick()
    assert shop.line("events")["ok"] is True
    shop.execute("UPDATE ticks SET succeeded_at = succeeded_at - interval '11 minutes'")
    stopped = shop.line("events")
    assert stopped["ok"] is False
    assert stopped["seen"].startswith("No verdict is computed: no tick ended well since ")
    assert shop.line("commit known")["ok"] is True


def test_the_paths_of_whoever_is_forgotten_are_forgotten(shop) -> None:
    shop.live()
    member = {**shop.page_view, "route": "/members/jane", "session_id": "n2"}
    shop.posted("/v1/events", {"events": [member] * 9})
    assert "/members/jane" in shop.line("routes matched")["seen"]
    shop.in_store(lambda connection: forget_person(connection, shop.project_id, "n2"))
    assert "jane" not in str(shop.lines())
