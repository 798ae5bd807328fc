"""The settings' lists: metrics, values and webhooks are added, edited and removed."""

import html
import logging
import re
from typing import Any

import pytest

from api.dashboard.settings import kinds
from domain.metric import Metric
from storage.tenants.keys import Role
from storage.tenants.settings import ValueRoute
from storage.tenants.webhook import Webhook
from tests.clients.owner import (
    GENERAL,
    METRICS,
    VALUES,
    WEBHOOKS,
    Owner,
    alert,
    faults,
    filled,
    forms,
    meanwhile,
)
from tests.processes.api_process import eventually

# A new entry of each kind, and what is stored of it.
NEW = {
    METRICS: (
        {"name": "order", "sources": "order_placed\r\nrenewal", "window_seconds": "3600"},
        "metrics",
        {
            "order": {
                "kind": "conversion",
                "sources": ["order_placed", "renewal"],
                "window_seconds": 3600,
            }
        },
    ),
    VALUES: (
        {"metric": "order", "route": "/checkout/[id]", "value_per_conversion": "40.5"},
        "value_routes",
        [
            {
                "metric": "order",
                "route": "/checkout/[id]",
                "value_per_conversion": 40.5,
                "currency": "USD",
            }
        ],
    ),
    WEBHOOKS: (
        {"url": "https://hooks.example/secret-path", "events": ["decided", "breached"]},
        "webhooks",
        [
            {
                "url": "https://hooks.example/secret-path",
                "format": "raw",
                "events": ["decided", "breached"],
            }
        ],
    ),
}
BROKEN = {
    METRICS: {
        "name": ("x" * 129, "A name must be a text of 1 to 128 characters."),
        "window_seconds": ("7", "a whole multiple of 300"),
        "cap": ("much", 'This must be a number, not "much".'),
        "margin": ("cap", 'This must be a number or "default" or "none", not "cap".'),
        "kind": ("median", 'This must be "conversion", "mean" or "ratio", not "median".'),
    },
    VALUES: {
        "metric": ("", "This must not be empty."),
        "value_per_conversion": ("-1", "This must be a number of at least 0, not -1."),
        "currency": ("JPY", "give the value in dollars (USD)"),
    },
    WEBHOOKS: {
        "url": ("http://evil.example/x", "its address must be https"),
        "events": ([], "This must be a list of 1 or more entries, not of 0."),
        "format": ("github", "OWNER/REPO/dispatches"),
        "token_variable": ("PATH", "must begin SERVICE_WEBHOOK_TOKEN_"),
    },
}


def edit(owner: Owner, path: str, number: int = 0) -> dict[str, Any]:
    """The form of an entry: of each there are two, the second removes it."""
    return {**owner.form(path, 2 * number), "action": "save"}


def add(owner: Owner, path: str, **typed: Any) -> Any:
    page = owner.page(path)
    return owner.post(path, {**filled(page, len(forms(page)) - 1), "action": "save", **typed})


@pytest.mark.parametrize(
    ("kind", "stored"),
    [(kinds.METRICS, Metric), (kinds.VALUES, ValueRoute), (kinds.WEBHOOKS, Webhook)],
)
def test_a_form_has_a_field_for_every_member_so_that_saving_loses_none(kind, stored) -> None:
    named = {"name"} if kind.is_named else set[str]()
    assert {field.name for field in kind.fields} == named | set(stored.__struct_fields__)


@pytest.mark.parametrize("path", NEW)
class TestEntries:
    def test_are_added_edited_and_removed(self, owner, path) -> None:
        owner.service.settings(alpha=0.1)
        typed, member, stored = NEW[path]
        answer = add(owner, path, **typed)
        assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?saved")
        assert owner.stored() == {"alpha": 0.1, member: stored}
        assert owner.post(path, edit(owner, path)).status_code == 303
        assert owner.stored() == {"alpha": 0.1, member: stored}
        changed = {
            METRICS: {"name": "paid", "better": "lower", "sources": ""},
            VALUES: {"value_per_conversion": "7", "route": ""},
            WEBHOOKS: {"events": "closed"},
        }[path]
        assert owner.post(path, {**edit(owner, path), **changed}).status_code == 303
        assert (
            owner.stored()[member]
            == {
                METRICS: {
                    "paid": {"kind": "conversion", "window_seconds": 3600, "better": "lower"}
                },
                VALUES: [{"metric": "order", "value_per_conversion": 7.0, "currency": "USD"}],
                WEBHOOKS: [
                    {
                        "url": "https://hooks.example/secret-path",
                        "format": "raw",
                        "events": ["closed"],
                    }
                ],
            }[path]
        )
        removal = {**owner.form(path, 1), "action": "remove"}
        assert owner.post(path, removal).status_code == 303
        assert owner.stored() == {"alpha": 0.1, member: type(stored)()}

    def test_that_are_sent_again_are_there_once(self, owner, path) -> None:
        typed, member, _ = NEW[path]

        def sent(form: dict[str, Any]) -> list[Any]:
            assert owner.post(path, form).status_code == 303
            return list(owner.stored()[member])

        new = {**filled(owner.page(path), -1), "action": "save", **typed}
        assert sent(new) == sent(new)
        assert len(sent(new)) == 1
        # The first field makes an entry another.
        (name, text), *_ = typed.items()
        edited = {**edit(owner, path), name: f"{text}2"}
        assert sent(edited) == sent(edited)
        assert len(sent(edited)) == 1
        assert len(sent(new)) == 2

    def test_that_break_a_rule_are_told_beside_the_field(self, owner, path) -> None:
        typed, _, _ = NEW[path]
        for name, (text, words) in BROKEN[path].items():
            answer = add(owner, path, **{**typed, name: text})
            assert answer.status_code == 422
            result = filled(answer.text, len(forms(answer.text)) - 1)
            kept = {key: result.get(key, []) for key in typed}
            (field, reply), *_ = faults(answer.text).items()
            place = "url" if name == "format" else name
            assert (field, words in reply) == (f"new-{place}", True), reply
            expected = {**typed, name: text}
            assert all(
                kept[key] in (expected[key], str(expected[key]).replace("\r", "")) for key in kept
            )
        assert owner.stored() == {}

    def test_of_others_meanwhile_are_never_lost(self, owner, path) -> None:
        typed, member, stored = NEW[path]
        add(owner, path, **typed)
        form, removal = edit(owner, path), {**owner.form(path, 1), "action": "remove"}
        change = {
            METRICS: {"order": {"kind": "mean"}},
            VALUES: [{**stored[0], "value_per_conversion": 1}] if path == VALUES else None,
            WEBHOOKS: [{**stored[0], "events": ["closed"]}] if path == WEBHOOKS else None,
        }[path]
        owner.service.settings(**{member: change})
        typing = {"currency": "EUR"} if path == METRICS else {"route": "/cart"}
        answer = owner.post(path, {**form, **typing})
        assert answer.status_code == 409
        assert "somebody changed" in alert(answer.text)
        if path == METRICS:
            assert meanwhile(answer.text)["entry-1-kind"] == "mean"
            assert meanwhile(answer.text)["entry-1-window_seconds"] == "nothing"
        if path == WEBHOOKS:
            assert meanwhile(answer.text) == {"entry-1-events": "closed"}
        assert owner.post(path, removal).status_code == 409
        assert owner.stored()[member] == change
        # What was typed stands in the form, and is stored when it is sent again.
        number = 0 if path != VALUES else len(forms(answer.text)) - 1
        again = {**filled(answer.text, number), "action": "save"}
        assert owner.post(path, again).status_code == 303
        rows = owner.stored()[member]
        assert len(rows) == (2 if path == VALUES else 1)
        owner.service.settings(**{member: type(stored)()})
        answer = owner.post(path, form)
        assert (answer.status_code, owner.stored()[member]) == (409, type(stored)())
        assert "as a new entry" in alert(answer.text)


def test_a_metric_takes_no_name_of_another(owner) -> None:
    owner.service.settings(metrics={"a": {"cap": 1}, "b": {"cap": 2}})
    for answer in (
        add(owner, METRICS, name="a"),
        owner.post(METRICS, {**edit(owner, METRICS, 1), "name": "a"}),
    ):
        assert answer.status_code == 422
        ((_, result),) = faults(answer.text).items()
        assert "entry of this name" in result
    assert owner.stored()["metrics"] == {"a": {"cap": 1}, "b": {"cap": 2}}


def test_a_metric_that_is_renamed_is_renamed_wherever_the_settings_name_it(owner) -> None:
    other = {"metric": "other", "value_per_conversion": 1}
    value = {"metric": "order", "value_per_conversion": 40, "route": "/cart"}
    owner.service.settings(
        metrics={"order": {"cap": 1}, "error": {"cap": 2}},
        default_metric="order",
        guardrails=["order", "latency", "paid"],
        value_routes=[value, other],
    )
    assert "renames it in default metric" in owner.page(METRICS)
    assert owner.post(METRICS, {**edit(owner, METRICS, 1), "name": " paid "}).status_code == 303
    stored = owner.stored()
    assert sorted(stored["metrics"]) == ["error", "paid"]
    assert stored["default_metric"] == "paid"
    assert stored["guardrails"] == ["paid", "latency"]
    assert stored["value_routes"] == [{**value, "metric": "paid"}, other]
    # What cannot be is refused beside the name, and nothing is renamed.
    answer = owner.post(METRICS, {**edit(owner, METRICS, 1), "name": "x" * 129})
    assert (answer.status_code, list(faults(answer.text))) == (422, ["entry-2-name"])
    assert owner.stored() == stored


def test_a_metric_that_defaults_name_is_renamed_there_too(owner) -> None:
    owner.service.settings(metrics={"activation": {"cap": 1}, "error": {"cap": 1}})
    assert owner.post(METRICS, {**edit(owner, METRICS, 0), "name": "signup"}).status_code == 303
    assert owner.stored()["default_metric"] == "signup"
    assert "guardrails" not in owner.stored()
    assert owner.post(METRICS, {**edit(owner, METRICS, 0), "name": "fault"}).status_code == 303
    assert owner.stored()["guardrails"] == ["fault"]
    removal = {**owner.form(METRICS, 1), "action": "remove"}
    assert owner.post(METRICS, removal).status_code == 303
    assert owner.stored()["guardrails"] == ["fault"]


def test_an_address_of_a_webhook_is_shown_to_nobody_and_kept_when_it_is_edited(
    owner, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    url = "https://hooks.example/T0/secret-path"
    assert add(owner, WEBHOOKS, url=url, format="slack").status_code == 303
    page = owner.page(WEBHOOKS)
    assert "https://hooks.example/…" in page
    assert "secret-path" not in page
    answer = owner.post(WEBHOOKS, {**edit(owner, WEBHOOKS), "token_variable": "PATH"})
    assert answer.status_code == 422
    assert "secret-path" not in answer.text
    assert owner.post(WEBHOOKS, {**edit(owner, WEBHOOKS), "format": "raw"}).status_code == 303
    assert [(each.url, each.format) for each in owner.settings().webhooks] == [(url, "raw")]
    assert "secret-path" not in Owner(owner.service, Role.READ).page(WEBHOOKS)
    assert "secret-path" not in caplog.text


def test_no_more_webhooks_are_taken_than_are_told(owner) -> None:
    for number in range(10):
        assert add(owner, WEBHOOKS, url=f"https://hooks.example/{number}").status_code == 303
    answer = add(owner, WEBHOOKS, url="https://hooks.example/10")
    assert answer.status_code == 422
    assert "This must be a list of at most 10 entries, not of 11." in alert(answer.text)
    assert len(owner.settings().webhooks) == 10


def test_names_of_events_that_came_are_offered(owner) -> None:
    event = {"event": "basket", "session_id": "s1", "commit": "a" * 40}
    assert owner.service.post("/v1/events", event).status_code == 202
    # The API notes names every few seconds.
    eventually(lambda: '<option value="basket">' in owner.page(GENERAL))
    for path in (GENERAL, METRICS, VALUES):
        page = owner.page(path)
        assert '<datalist id="events"><option value="basket">' in page
        assert 'list="events"' in page
    assert "Events seen: <code>basket</code>" in owner.page(METRICS)


def advanced(page: str) -> list[tuple[bool, list[str]]]:
    """Of each form, whether its advanced fields are open, and their names."""
    result = re.findall(r'<details class="more" (open)?>(.*?)</details>', page, re.DOTALL)
    return [(bool(opened), re.findall(r' name="([\w.]+)"', text)) for opened, text in result]


def test_a_new_metric_asks_for_the_usual_fields_and_folds_the_others(owner) -> None:
    folded = [
        "window",
        "grace_seconds",
        "kind",
        "per",
        "cap",
        "over",
        "margin",
        "currency",
        "where",
    ]
    folded.append("rates")
    assert advanced(owner.page(METRICS)) == [(False, folded)]
    new = owner.form(METRICS)
    assert set(new) - set(folded) == {
        *("key", "seen"),
        *("name", "sources", "window_seconds", "better"),
    }


def test_advanced_fields_stand_open_where_one_holds_something_or_was_refused(owner) -> None:
    refused = owner.post(METRICS, {**owner.form(METRICS), "name": "order", "cap": "many"})
    assert refused.status_code == 422
    assert [opened for opened, _ in advanced(refused.text)] == [True]
    add(owner, METRICS, name="order")
    add(owner, METRICS, name="spent", kind="mean", cap="90")
    assert [opened for opened, _ in advanced(owner.page(METRICS))] == [False, True, False]


def test_a_filter_is_typed_as_lines_of_a_property_and_its_values(owner) -> None:
    filtered = {"name": "order", "where": "plan pro , team\nstatus 500"}
    assert add(owner, METRICS, **filtered).status_code == 303
    assert owner.settings().metrics["order"].where == {"plan": ["pro", "team"], "status": ["500"]}
    assert "Only events where: plan pro, team; status 500" in owner.page(METRICS)
    for refused, rule in (
        ("status 1.5", "a whole number of at most 15 digits"),
        ("plan", "1 to 64 characters"),
        ("a 1\nb 1\nc 1\nd 1", "at most 3"),
    ):
        answer = add(owner, METRICS, name="refused", where=refused)
        assert answer.status_code == 422
        assert rule in answer.text


def test_a_webhook_s_form_says_what_each_event_means(owner) -> None:
    page = html.unescape(owner.page(WEBHOOKS))
    shown = dict(re.findall(r'name="events" value="(\w+)" checked> ([^<]+)</label>', page))
    assert shown == {
        "decided": "decided: a verdict stands",
        "closed": "closed: it ended without a verdict",
        "breached": "breached: a guardrail got worse, before any verdict",
        "suspected": "suspected: it is worse, unless units are lost",
        "set_up_fault": "set up fault: the arms cannot be compared",
        "base_moved": "base moved: users got another build than a canary stands on",
        "placed": "placed: a change got its flag or its share",
        "promote": "promote: a change gave its place back, and may go to everybody",
        "withdraw": "withdraw: a change gave its place back, and is to go",
    }
