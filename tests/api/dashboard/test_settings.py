"""The settings' pages: who may change what, and which message stands beside which field."""

import re

import pytest

from storage.postgres.refusal import Invalid
from storage.schema.tables import projects
from storage.tenants.keys import KeyKind, Role
from storage.tenants.projects import list_keys
from tests.clients.owner import (
    GENERAL,
    KEYS,
    OWN,
    PATHS,
    SCRIPT,
    Owner,
    alert,
    faults,
    filled,
    meanwhile,
)

pytestmark = pytest.mark.shared_store


class TestWhoMayChange:
    def test_an_owner_is_led_to_the_settings_and_a_reader_told_how_to_become_one(
        self, service
    ) -> None:
        overview = Owner(service).page("/dashboard")
        assert f'href="{GENERAL}"' in overview
        reader = Owner(service, Role.READ)
        assert f'href="{GENERAL}"' not in reader.page("/dashboard")
        for path in PATHS:
            page = reader.page(path)
            assert "deploy-reward dashboard --owner --project shop" in page
            assert not re.search(r'<button[^>]*type="submit"', page.partition("<main")[2])
            assert 'name="seen"' not in page

    def test_what_a_reader_posts_changes_nothing(self, service) -> None:
        owner = Owner(service)
        forms = {path: owner.form(path) for path in PATHS}
        before, keys = owner.stored(), owner.all_keys()
        reader = Owner(service, Role.READ)
        for path, form in forms.items():
            for action in ("create", "revoke", "save", "remove"):
                typed = {"alpha": "0.1", "kind": "write", "name": "m", "metric": "m"}
                answer = reader.post(path, {**form, **typed, "action": action})
                assert answer.status_code == 403
                assert "You are signed in to read" in answer.text
        assert (owner.stored(), owner.all_keys()) == (before, keys)

    def test_nobody_who_is_signed_out_changes_anything(self, owner) -> None:
        form, before = owner.form(), owner.stored()
        owner.client.cookies.clear()
        answer = owner.post(GENERAL, {**form, "alpha": "0.1"})
        assert answer.status_code == 303
        assert answer.headers["Location"].startswith("/dashboard/sign-in")
        assert owner.stored() == before

    def test_a_project_is_changed_by_its_own_owner_alone(self, service) -> None:
        other = service.new_project("other")
        owner = Owner(service)
        display = other.keys[KeyKind.WRITE][:8]
        answer = owner.post(KEYS, {"action": "revoke", "key": display})
        assert answer.status_code == 409
        theirs = service.in_store(lambda connection: list_keys(connection, other.project_id))
        assert all(key.revoked_at is None for key in theirs)
        assert display not in owner.page(KEYS)


# What is typed into a field, and what stands beside it then.
WRONG = {
    "default_metric": ("", "This must not be empty."),
    "guardrails": ("x" * 129, "This must be a text of 1 to 128 characters."),
    "locked": ("alpha", '"routes", "target_metric" or "value", not "alpha".'),
    "default_branch": ("", "This must not be empty."),
    "unit": (
        "a visitor",
        "This must be auto, session, user, or the name of a property, of 1 to 64 letters, digits,",
    ),
    "span_unit": ("k8s.pod.uid", "of no trace, span or request, of which a visitor makes many"),
    "segments": ("plan\nno spaces", 'letters, digits, _ and -, not "no spaces".'),
    "alpha": ("1.5", "This must be a number above 0 and below 1, not 1.5."),
    "futility_margin": ("some", 'a number above 0 and below 1 or "none", not "some".'),
    "horizon_days": ("367", "This must be a whole number from 1 to 366, not 367."),
    "warmup_minutes": ("1441", "from 0 to 1,440, not 1441."),
    "contrast_hours": ("0", "This must be a whole number from 1 to 672, not 0."),
    "grace_seconds": ("soon", 'This must be a whole number from 0 to 3,600, not "soon".'),
    "allowed_origins": ("https://a.example\nb.example/shop", "is no origin"),
    "trusted_proxies": ("10.0.0.0/8\nproxy", "is no network"),
    "name_header": ("X Name", 'letters, digits and -, not "X Name".'),
    "ofrep": ("on", 'This must be "browser", "off" or "server", not "on".'),
    "assignment_epochs": ("1, 2, 3, 4, 5", "This must be a list of 1 to 4 entries, not of 5."),
    "rate_limits.per_key": ("nan", 'This must be a whole number of at least 1, not "nan".'),
}


class TestSimpleSettings:
    def test_what_is_typed_is_stored_and_nothing_else(self, owner) -> None:
        answer = owner.save(
            default_metric=" order ",
            guardrails="error\r\n\r\n latency ",
            futility_margin="none",
            allowed_origins="https://shop.example\r\nhttps://www.shop.example",
            trusted_identity="yes",
            assignment_epochs="2, 1",
            **{"rate_limits.per_key": "100"},
        )
        assert (answer.status_code, answer.headers["Location"]) == (303, f"{GENERAL}?saved")
        assert owner.stored() == {
            "default_metric": "order",
            "guardrails": ["error", "latency"],
            "futility_margin": "none",
            "allowed_origins": ["https://shop.example", "https://www.shop.example"],
            "trusted_identity": True,
            "assignment_epochs": [2, 1],
            "rate_limits": {"per_key": 100, "per_address": 60_000, "registrations_per_key": 120},
        }
        assert "Saved." in owner.page(f"{GENERAL}?saved")
        # A box that is not ticked is sent by no browser.
        form = owner.form()
        del form["trusted_identity"]
        owner.post(GENERAL, {**form, "guardrails": ""})
        assert (owner.settings().trusted_identity, owner.settings().guardrails) == (False, [])

    def test_a_page_that_is_saved_as_it_stands_changes_nothing(self, owner) -> None:
        owner.service.settings(
            metrics={"order": {}},
            futility_margin=None,
            guardrails=["odd  names", SCRIPT],
            alpha=0.1,
        )
        before = owner.settings()
        assert owner.save().status_code == 303
        assert owner.settings().metrics == before.metrics
        assert owner.settings().alpha == before.alpha
        assert owner.settings().futility_margin in (None, "none")

    def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(self, owner) -> None:
        before = owner.stored()
        typed = {**owner.form(), "trusted_identity": ["yes"]}
        typed |= {name: text for name, (text, _) in WRONG.items()}
        answer = owner.post(GENERAL, typed)
        assert answer.status_code == 422
        result = faults(answer.text)
        assert result.keys() == {f"settings-{name.replace('.', '-')}" for name in WRONG}
        for name, (_, words) in WRONG.items():
            assert words in result[f"settings-{name.replace('.', '-')}"]
        assert {**filled(answer.text), "unit": "a visitor"} == typed
        assert f"{len(WRONG)} fields are wrong" in alert(answer.text)
        assert owner.stored() == before

    def test_settings_that_cannot_stand_together_are_refused_beside_one_of_them(
        self, owner
    ) -> None:
        answer = owner.save(unit="user", signed_assignments="yes")
        assert answer.status_code == 422
        assert "vouches for sessions" in faults(answer.text)["settings-signed_assignments"]
        assert owner.stored() == {}

    def test_what_somebody_else_changed_meanwhile_is_shown_beside_what_was_typed(
        self, owner
    ) -> None:
        form = {**owner.form(), "alpha": "0.01", "guardrails": "error\nlatency"}
        owner.service.settings(alpha=0.1, trusted_identity=True, default_metric="order")
        answer = owner.post(GENERAL, form)
        assert answer.status_code == 409
        assert "somebody changed these settings" in alert(answer.text)
        assert meanwhile(answer.text) == {
            "settings-alpha": "0.1",
            "settings-guardrails": "error",
            "settings-trusted_identity": "on",
            "settings-default_metric": "order",
        }
        again = filled(answer.text)
        assert {**again, "seen": form["seen"]} == form
        assert owner.settings().alpha == 0.1
        assert owner.post(GENERAL, again).status_code == 303
        assert (owner.settings().alpha, owner.settings().default_metric) == (0.01, "activation")

    def test_what_is_changed_on_another_page_meanwhile_is_no_conflict(self, owner) -> None:
        form = {**owner.form(), "alpha": "0.01"}
        owner.service.settings(metrics={"order": {}})
        assert owner.post(GENERAL, form).status_code == 303
        assert owner.stored() == {"metrics": {"order": {}}, "alpha": 0.01}

    def test_what_was_stored_before_its_rule_stood_is_no_hindrance_until_it_is_changed(
        self, owner
    ) -> None:
        old = {"allowed_origins": ["shop.example"]}
        owner.service.in_store(
            lambda connection: connection.execute(projects.update().values(settings=old))
        )
        assert owner.save(alpha="0.1").status_code == 303
        assert owner.stored() == {**old, "alpha": 0.1}
        with pytest.raises(Invalid) as refused:
            owner.service.settings(allowed_origins=["*", "https://*.shop.example", "null"])
        assert refused.value.pointer == "/allowed_origins/1"
        with pytest.raises(Invalid) as refused:
            owner.service.settings(trusted_proxies=["10.0.0.0/8", "::1", "10.0.0.0/64"])
        assert refused.value.pointer == "/trusted_proxies/2"
        owner.service.settings(allowed_origins=["http://localhost:3000", "http://[::1]:80/"])

    def test_a_form_that_no_browser_sends_is_refused(self, owner) -> None:
        before = owner.stored()
        form = owner.form()
        for each in (
            {**form, "default_metric": "a\x00b"},
            {**form, **{f"f{number}": "x" for number in range(99)}},
        ):
            assert owner.post(GENERAL, each).status_code == 422
        assert owner.post(GENERAL, {"seen": ""}).status_code == 409
        for path in PATHS:
            text = {**OWN, "Content-Type": "text/plain"}
            assert owner.client.post(path, content=b"seen=", headers=text).status_code == 415
        assert owner.stored() == before
