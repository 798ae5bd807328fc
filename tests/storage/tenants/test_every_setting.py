"""Every setting changes an output: none is taken, shown, and never read.

Each member of the settings, those of their entries too, has a row here: two choices of which a
verdict, its evidence or an answer differs. A new setting without a row fails.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, text

from api.app import create_app
from api.runtime.settings import ApiSettings
from orchestration.outbound.delivery import deliver
from storage.postgres.refusal import Invalid
from storage.schema.partitions import create_days
from storage.schema.tables import histories, revenue_events, runtime_events, seen_names
from storage.tenants.secret import Assignments, assignment_message, assignment_token
from storage.tenants.settings import Settings, frozen_settings
from tests.api.otlp.exports import receipt, sent, span, stored, traces
from tests.clients.receiver import receiving
from tests.conftest import Store, fresh_store, serving_store
from tests.world import DAY, ON_ORDERS, A, K, T, World, at

L = "ddddddd4"
SECRET = b"a secret of the tests, long enough"
Chosen = Mapping[str, Any]


def members(of: Any, path: str = "") -> Iterator[str]:
    """The members of settings, and in their place those of the entries that some hold."""
    for field in msgspec.structs.fields(of):
        name = f"{path}{field.name}"
        entries = [part for part in parts(field.type) if is_struct(part)]
        if entries:
            yield from members(entries[0], f"{name}.")
        else:
            yield name


def parts(of: Any) -> Iterator[Any]:
    yield of
    for part in get_args(of):
        yield from parts(part)


def is_struct(of: Any) -> bool:
    return isinstance(of, type) and issubclass(of, msgspec.Struct)


# --- Of verdicts ----------------------------------------------------------------------------------


def of_order(**chosen: Any) -> Chosen:
    return {"metrics": {"order": chosen}}


def of_spend(**chosen: Any) -> Chosen:
    spend = {"sources": ["expansion"], "kind": "mean", "currency": "USD", "window_seconds": 3600}
    return {"default_metric": "spend", "metrics": {"spend": {**spend, **chosen}}}


def over_other(event: str) -> Chosen:
    return of_order(kind="ratio", per=[event])


def worth(**chosen: Any) -> Chosen:
    return {"value_routes": [{"metric": "order", "value_per_conversion": 5.0, **chosen}]}


BY_USER: Chosen = {"unit": "user"}
# Two choices of each, of which the same traffic has another verdict or evidence.
VERDICTS: Mapping[str, tuple[Chosen, Chosen]] = {
    "default_metric": ({}, {"default_metric": "refund"}),
    "metrics.sources": ({}, of_order(sources=["refund"])),
    "metrics.window_seconds": ({}, of_order(window_seconds=7200)),
    "metrics.window": ({}, of_order(window={"from": "5m", "to": "1h"})),
    "metrics.grace_seconds": ({}, of_order(grace_seconds=14_400)),
    "metrics.better": ({}, of_order(better="lower")),
    "metrics.kind": ({}, of_order(kind="mean")),
    "metrics.per": (over_other("page_view"), over_other("refund")),
    "metrics.cap": (of_spend(cap=100.0), of_spend(cap=2000.0)),
    "metrics.over": ({}, of_order(over=1000)),
    "metrics.margin": ({}, {"metrics": {"error": {"margin": 50.0}}}),
    "metrics.currency": (of_spend(), of_spend(currency="EUR")),
    "metrics.rates": (of_spend(), of_spend(rates={"EUR": 1.08})),
    "metrics.where": (of_order(where={"platform": "ios"}), of_order(where={"platform": "web"})),
    "guardrails": ({}, {"guardrails": ["error", "refund"]}),
    "segments": ({}, {"segments": ["platform"]}),
    "grace_seconds": ({}, {"grace_seconds": 3600}),
    "warmup_minutes": ({}, {"warmup_minutes": 60}),
    "contrast_hours": ({}, {"contrast_hours": 200}),
    "trusted_identity": (BY_USER, {**BY_USER, "trusted_identity": True}),
    "signed_assignments": ({}, {"signed_assignments": True}),
    "value_routes.metric": (worth(), worth(metric="refund")),
    "value_routes.value_per_conversion": (worth(), worth(value_per_conversion=7.0)),
    "value_routes.route": (worth(), worth(route="/nowhere")),
    "unit": ({}, BY_USER),
    "sample_rate": ({}, {"sample_rate": 0.5}),
    "alpha": ({}, {"alpha": 0.2}),
    "typical_lifts": ({}, {"typical_lifts": [0.05]}),
    "futility_margin": ({}, {"futility_margin": 0.9}),
    "horizon_days": ({}, {"horizon_days": 1}),
    "reward_days": ({}, {"reward_days": 1}),
}
# The default by its name, of which nothing differs.
SAME: Chosen = {"guardrails": ["error"]}
# Of the evidence all but what says which settings there were.
ECHOES = {"policy", "digest", "experiment_id"}


def as_text(chosen: Chosen) -> str:
    return json.dumps(chosen, sort_keys=True)


def project(store: Store, client: TestClient) -> World:
    name = f"shop {secrets.token_hex(6)}"
    return World.new(store, client, name, registration=dict(ON_ORDERS))


@pytest.fixture(scope="module")
def verdicts(postgres_url, migrated_template) -> Iterator[Mapping[str, Any]]:
    """Contract and evidence of the same traffic, by each choice of settings; a run makes all."""
    choices = {
        as_text(chosen): chosen for pair in [*VERDICTS.values(), ({}, SAME)] for chosen in pair
    }
    with fresh_store(postgres_url, migrated_template) as store, serving_store(store) as client:
        stories = {name: project(store, client) for name in choices}
        for name, story in stories.items():
            story.settings(**{"default_metric": "order", "locked": [], **choices[name]})
            story.canary()
            story.deploy(K, minutes=602, base=A, allocation=0)
        with store.engine.begin() as connection:
            create_days(connection, [(T + timedelta(days=day)).date() for day in range(4)])
        first, *others = stories.values()
        send_traffic(first)
        with store.engine.begin() as connection:
            for statement in DELAYS:
                connection.execute(text(statement))
            for other in others:
                copy_events(connection, first.project_id, other.project_id)
        registered = {name: register(story) for name, story in stories.items()}
        first.tick(minutes=4 * DAY)
        yield {name: outputs(story, registered[name]) for name, story in stories.items()}


def send_traffic(story: World) -> None:
    """Two days of sessions with all that settings tell apart; the canary has ten hours of them."""
    revenue: list[dict[str, Any]] = []
    for commit, count, start, minutes, converting in (
        (A, 300, 1, 600, 30),
        (K, 300, 1, 600, 38),
        (A, 150, 700, 2200, 30),
    ):
        for number in range(count):
            session, when = f"{commit} {start} {number}", start + minutes * number / count
            ios = number % (5 if commit == A else 2) == 0
            said = {
                "session_id": session,
                "commit": commit,
                # Some users have two sessions, too few to tell what the router keeps.
                "user_ref": f"{commit} {start} {number - (number % 20 == 1)}",
                "properties": {"platform": "ios" if ios else "web"},
            }
            drawn = number * 7919 % 100
            happened = {
                "page_view": 0,
                **({"error": 0} if drawn % 20 == 7 else {}),
                **({"refund": 1} if drawn % 5 == 1 else {}),
                **({"order": 60 if number % 4 == 0 else 1} if drawn < converting else {}),
            }
            story.events += [
                {**said, "event": event, "occurred_at": at(when + later), "value": 1.0 + number % 7}
                for event, later in happened.items()
            ]
            if number % 3 == 0:
                amount = {
                    "value": 500 + 50 * (number % 40),
                    "currency": "EUR" if number % 2 else "USD",
                }
                revenue.append(
                    {
                        "event": "expansion",
                        "occurred_at": at(when + 1),
                        "user_ref": said["user_ref"],
                        "idempotency_key": session,
                        "amount": amount,
                        "attributes": {"session_id": session},
                    }
                )
    story.send()
    for begin in range(0, len(revenue), 50):
        batch = {"events": revenue[begin : begin + 50]}
        answer = story.post("/v1/revenue/events?replay=true", batch)
        assert answer.status_code == 200, answer.text


# Some events came by the public key, some page views after 40 minutes, some orders after 2 hours.
DELAYS = (
    "UPDATE runtime_events SET trusted = false WHERE session_id ~ '[369]$'",
    (
        "UPDATE runtime_events SET received_at = received_at + interval '40 minutes'"
        " WHERE event = 'page_view' AND session_id ~ '7$'"
    ),
    (
        "UPDATE runtime_events SET received_at = received_at + interval '2 hours'"
        " WHERE event = 'order' AND session_id ~ '[24]$'"
    ),
)


def copy_events(connection: Connection, project_id: int, to: int) -> None:
    for table in (runtime_events, revenue_events, histories, seen_names):
        names = ", ".join(column.name for column in table.columns if column.name != "project_id")
        connection.execute(
            text(
                f"INSERT INTO {table.name} (project_id, {names})"
                f" SELECT :to, {names} FROM {table.name} WHERE project_id = :project_id"
            ),
            {"to": to, "project_id": project_id},
        )


def register(story: World) -> str:
    answer = story.post("/v1/reward/register", {"treatment_commit": K})
    assert answer.status_code == 201, answer.text
    return answer.json()["experiment_id"]


def outputs(story: World, experiment: str) -> dict[str, Any]:
    documents = {**story.contract(experiment), **story.evidence(experiment)}
    return {name: value for name, value in documents.items() if name not in ECHOES}


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.nightly
def test_a_setting_changes_the_verdict_or_its_evidence(name, verdicts) -> None:
    first, second = (verdicts[as_text(chosen)] for chosen in VERDICTS[name])
    assert first != second


@pytest.mark.nightly
def test_the_same_settings_give_the_same_verdict_and_evidence(verdicts) -> None:
    assert verdicts[as_text(SAME)] == verdicts[as_text({})]


# --- Of answers -----------------------------------------------------------------------------------

Observe = Callable[[World, Any], Any]


def of_flag_places(story: World, chosen: Any) -> Any:
    story.settings(flag_places=chosen)
    flag = {"name": "cart", "treatment": True}
    return story.post("/v1/places", {"flag": flag}).json()["state"]


def of_locked(service: World, locked: Any) -> int:
    service.settings(locked=locked)
    return service.post("/v1/reward/register", {"routes": ["/cart"]}).status_code


def of_default_branch(service: World, branch: str) -> int:
    service.settings(locked=[], default_branch=branch)
    service.deploy(A, minutes=-DAY)
    for sha in (K, L):
        service.deploy(sha, 0.5, minutes=1, base=A, commit={"branch": "line"})
        experiment = service.register(treatment_commit=sha, **ON_ORDERS)
    return int(frozen(service, experiment, "attempt"))


def of_act_on_unvouched_breaches(service: World, chosen: bool) -> Any:
    service.settings(locked=[], act_on_unvouched_breaches=chosen)
    experiment = breached(service)
    listed = service.get("/v1/reward", params={"pending": True}).json()["experiments"]
    return [row["by_itself"] for row in listed if row["experiment_id"] == experiment]


def breached(service: World) -> str:
    """A canary of which an open experiment says that its errors rose."""
    service.deploy(A)
    service.deploy(K, 0.5, base=A)
    experiment = service.register(treatment_commit=K)
    answer = {"verdict": "abstain", "abstain_reason": "power", "decided": False}
    rail = {"metric": "error", "breached_at": "2026-10-01T10:00:00Z"}
    service.publish(
        experiment, {**answer, "guardrail_breaches": ["error"]}, guardrails=[rail], metrics=[]
    )
    return experiment


def of_policy(service: World, member: str, chosen: Chosen) -> Any:
    service.settings(locked=[], **chosen)
    service.deploy(A, minutes=-DAY)
    service.deploy(K, 0.5, minutes=1, base=A)
    experiment = service.register(treatment_commit=K, **ON_ORDERS)
    return frozen(service, experiment, member)


def of_on_suspicion(service: World, chosen: str) -> str:
    """What the policy says is what the faces do: tests/pipeline/gates/test_surplus.py."""
    return of_policy(service, "on_suspicion", {"on_suspicion": chosen})


def of_keep_when(service: World, chosen: str) -> str:
    """A keep waits by it: tests/pipeline/ledger/test_keep_when.py."""
    return of_policy(service, "keep_when", {"keep_when": chosen})


def of_patience(service: World, chosen: int) -> int:
    """It ends that wait, there too."""
    return of_policy(service, "patience_seconds", {"patience_hours": chosen})


def of_verified_draws(service: World, chosen: bool) -> str:
    service.settings(locked=[], verified_draws=chosen)
    service.deploy(A, minutes=-DAY)
    flag = {"name": "cart", "treatment": True}
    return frozen(service, service.register(treatment_flag=flag, **ON_ORDERS), "drawn")


def frozen(service: World, experiment: str, member: str) -> Any:
    return service.policy(experiment)[member]


def of_origins(service: World, origins: Any) -> int:
    service.settings(allowed_origins=origins)
    headers = {**service.public, "Origin": "https://shop.example"}
    event = {"event": "page_view", "session_id": "s"}
    return service.post("/v1/events", event, headers=headers).status_code


def of_event_limits(service: World, limits: Any) -> list[int]:
    service.settings(rate_limits=limits)
    event = {"event": "page_view", "session_id": "s"}
    return [service.post("/v1/events", event).status_code for _ in range(2)]


def of_registration_limits(service: World, limits: Any) -> list[int]:
    service.settings(rate_limits=limits)
    bodies = [{"target_metric": metric} for metric in ("order", "refund")]
    return [service.post("/v1/reward/register", body).status_code for body in bodies]


def of_ofrep(service: World, who: str) -> int:
    service.settings(ofrep=who)
    asked = {"context": {"targetingKey": "s"}}
    return service.post("/ofrep/v1/evaluate/flags", asked).status_code


def of_epochs(service: World, epochs: Any) -> bool:
    service.settings(assignment_epochs=epochs)
    served = {"session_id": "s", "commit": K, "environment": "production"}
    key = Assignments(SECRET).key(service.project_id, 1)
    event = {**served, "event": "page_view"}
    event["assignment"] = assignment_token(key, assignment_message(**served))
    assert service.post("/v1/events", event, headers=service.public).status_code == 202
    statement = text("SELECT signed FROM runtime_events WHERE project_id = :id")
    return service.in_store(lambda c: c.execute(statement, {"id": service.project_id}).scalar_one())


def of_spans(service: World, chosen: Chosen) -> list[Any]:
    service.settings(**chosen)
    spans = traces([span(session__id="s-1", visitor__id="v-1")])
    assert receipt(sent(service, spans, protobuf=False)) == (0, "")
    return [(event.event, event.session_id) for event in stored(service)]


def of_value_currency(service: World, currency: str) -> str:
    value = {"metric": "order", "value_per_conversion": 5, "currency": currency}
    try:
        service.settings(value_routes=[value])
    except Invalid as refused:
        return str(refused)
    return "taken"


def of_webhooks(service: World, chosen: Any) -> list[Any]:
    with receiving() as receiver:
        path = chosen.get("url", "")
        service.settings(locked=[], webhooks=[{**chosen, "url": receiver.url + path}])
        experiment = service.register(treatment_commit=K, **ON_ORDERS)
        assert service.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
        service.tick()
        deliver(service.store.engine, secret=SECRET, environment={"SERVICE_WEBHOOK_TOKEN_X": "t"})
    return [
        (got.path, got.headers.get("authorization"), sorted(got.document)) for got in receiver.got
    ]


PROXY: Chosen = {
    "trusted_proxies": ["10.0.0.0/8"],
    "owner_groups": ["owners"],
    "reader_groups": ["readers"],
}


def of_proxy(service: World, chosen: Any) -> tuple[bool, bool, bool]:
    """Whether two persons may come in, and which name the page has."""
    service.settings(**{**PROXY, **chosen})
    settings = ApiSettings(database_url=service.store.url, secret=SECRET)
    with TestClient(create_app(settings), client=("10.1.2.3", 50_000)) as client:
        seen = [
            client.get(
                "/dashboard/sign-in",
                headers={
                    "X-Forwarded-Email": "anna@shop.example",
                    "X-Forwarded-Groups": group,
                    "X-Person": "bob@shop.example",
                    "X-Teams": "nobody",
                },
            ).text
            for group in ("owners", "readers")
        ]
    service.settings(trusted_proxies=[])
    return (
        f"{service.project.name}, as owner" in seen[0],
        f"{service.project.name}, to read" in seen[1],
        "anna@shop.example" in seen[0],
    )


ANSWERS: Mapping[str, tuple[Observe, Any, Any]] = {
    "locked": (of_locked, [], ["routes"]),
    "flag_places": (of_flag_places, 1, 0),
    "default_branch": (of_default_branch, "main", "line"),
    "act_on_unvouched_breaches": (of_act_on_unvouched_breaches, False, True),
    "verified_draws": (of_verified_draws, False, True),
    "on_suspicion": (of_on_suspicion, "pause", "roll_back"),
    "keep_when": (of_keep_when, "alone", "stands"),
    "patience_hours": (of_patience, 24, 48),
    "allowed_origins": (of_origins, [], ["https://other.example"]),
    "rate_limits.per_key": (of_event_limits, {}, {"per_key": 1}),
    "rate_limits.per_address": (of_event_limits, {}, {"per_address": 1}),
    "rate_limits.registrations_per_key": (of_registration_limits, {}, {"registrations_per_key": 1}),
    "ofrep": (of_ofrep, "off", "server"),
    "assignment_epochs": (of_epochs, [1], [2]),
    "span_event": (of_spans, {}, {"span_event": "request"}),
    "span_unit": (of_spans, {}, {"span_unit": "visitor.id"}),
    "value_routes.currency": (of_value_currency, "USD", "JPY"),
    "webhooks.url": (of_webhooks, {}, {"url": "/other"}),
    "webhooks.format": (of_webhooks, {}, {"format": "slack"}),
    "webhooks.events": (of_webhooks, {}, {"events": ["breached"]}),
    "webhooks.token_variable": (of_webhooks, {}, {"token_variable": "SERVICE_WEBHOOK_TOKEN_X"}),
    "trusted_proxies": (of_proxy, {}, {"trusted_proxies": ["192.168.0.0/16"]}),
    "owner_groups": (of_proxy, {}, {"owner_groups": ["others"]}),
    "reader_groups": (of_proxy, {}, {"reader_groups": ["others"]}),
    "name_header": (of_proxy, {}, {"name_header": "X-Person"}),
    "groups_header": (of_proxy, {}, {"groups_header": "X-Teams"}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_setting_changes_an_answer(tenant, name) -> None:
    observe, *choices = ANSWERS[name]
    first, second = (observe(project(tenant.store, tenant.client), chosen) for chosen in choices)
    assert first != second


# --- Of policies ----------------------------------------------------------------------------------

# Another choice than the default of each setting that has no row among the verdicts' settings.
OTHERS: Chosen = {
    "locked": [],
    "default_branch": "line",
    "verified_draws": True,
    "act_on_unvouched_breaches": True,
    "on_suspicion": "roll_back",
    "keep_when": "stands",
    "patience_hours": 24,
    "span_event": "request",
    "span_unit": "visitor.id",
    "flag_places": 1,
    "allowed_origins": ["https://other.example"],
    "rate_limits": {"per_key": 1000},
    "ofrep": "server",
    "assignment_epochs": [2],
    "webhooks": [{"url": "https://hooks.example/deploys"}],
    "trusted_proxies": ["192.168.0.0/16"],
    "owner_groups": ["others"],
    "reader_groups": ["others"],
    "name_header": "X-Person",
    "groups_header": "X-Teams",
}


def policies(world: World, chosen: Chosen) -> list[Any]:
    """The policies of a second canary of a branch, and of a flag, under a choice of settings."""
    world.registration = {}
    world.settings(**{"default_metric": "order", **chosen})
    world.deploy(A, minutes=-DAY)
    request = {"event": "http.server.request", "session_id": "s", "commit": A, "value": 99.0}
    assert world.post("/v1/events", request).status_code == 202
    registered: list[str] = []
    for sha in (L, K):
        world.deploy(sha, 0.4, base=A, commit={"branch": "line"})
        registered.append(world.register(treatment_commit=sha))
    flag = {"name": "cart", "treatment": True}
    registered.append(world.register(treatment_flag=flag, guardrails=["refund"]))
    read = text("SELECT policy FROM experiments WHERE experiment_id = ANY(:ids) ORDER BY bound_at")
    world.freeze()
    frozen = world.in_store(lambda c: c.execute(read, {"ids": registered}).scalars().all())
    # Its answers are in its members, but say of which days they are.
    return [
        {**policy, "earlier_attempts": len(policy["earlier_attempts"]), "frozen_from": []}
        for policy in frozen
    ]


@pytest.fixture(scope="module")
def known_policies() -> dict[str, Any]:
    """The policies that were frozen already, by the choice of settings."""
    return {}


@pytest.mark.parametrize("name", [each.name for each in msgspec.structs.fields(Settings)])
def test_a_setting_is_marked_as_frozen_where_a_policy_differs_by_it(
    tenant, known_policies, name
) -> None:
    pairs = [pair for row, pair in VERDICTS.items() if row.split(".")[0] == name]
    pairs = pairs[:2] or [({}, {name: OTHERS[name]})]
    for choice in (choice for pair in pairs for choice in pair):
        if as_text(choice) not in known_policies:
            world = project(tenant.store, tenant.client)
            known_policies[as_text(choice)] = policies(world, choice)
    frozen = [[known_policies[as_text(choice)] for choice in pair] for pair in pairs]
    changes = any(first != second for first, second in frozen)
    assert changes == (name in frozen_settings("whole", "named", "shown"))


def test_every_setting_has_a_row() -> None:
    assert sorted(members(Settings)) == sorted([*VERDICTS, *ANSWERS])
