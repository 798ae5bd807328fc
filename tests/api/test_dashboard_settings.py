"""The settings' pages: who may change what, and what is told beside which field."""

import html
import logging
import re
from typing import Any

import pytest

from storage.keys import KeyKind, is_well_formed, list_keys
from storage.refusal import Invalid
from storage.settings import read_settings
from storage.sign_ins import Role, create_link
from storage.tables import projects

OWN = {"Sec-Fetch-Site": "same-origin"}
GENERAL = "/dashboard/settings"
KEYS = "/dashboard/settings/keys"
METRICS = "/dashboard/settings/metrics"
VALUES = "/dashboard/settings/values"
WEBHOOKS = "/dashboard/settings/webhooks"
PATHS = (GENERAL, KEYS, METRICS, VALUES, WEBHOOKS)
SCRIPT = "<script>alert(1)</script>"


class Owner:
    """Somebody who signed in and fills in forms."""

    def __init__(self, service: Any, role: Role = Role.OWNER) -> None:
        self.service = service
        self.client = service.client
        self.client.follow_redirects = False
        self.sign_in(
            service.in_store(lambda connection: create_link(connection, service.project_id, role))
        )

    def sign_in(self, secret: str) -> None:
        answer = self.client.post("/dashboard/sign-in", data={"secret": secret}, headers=OWN)
        assert answer.status_code == 303

    def page(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200
        return answer.text

    def post(self, path: str, form: dict[str, Any], headers: dict[str, str] = OWN) -> Any:
        return self.client.post(path, data=form, headers=headers)

    def form(self, path: str = GENERAL, number: int = 0) -> dict[str, Any]:
        """What a browser would send of a form on a page, as it stands."""
        return filled(self.page(path), number)

    def save(self, **typed: Any) -> Any:
        return self.post(GENERAL, {**self.form(), **typed})

    def stored(self) -> dict[str, Any]:
        return self.service.in_store(
            lambda connection: (
                connection.execute(
                    projects.select().where(projects.c.project_id == self.service.project_id)
                )
                .one()
                .settings
            )
        )

    def settings(self) -> Any:
        return self.service.in_store(
            lambda connection: read_settings(connection, self.service.project_id)
        )

    def all_keys(self) -> Any:
        return self.service.in_store(
            lambda connection: list_keys(connection, self.service.project_id)
        )


@pytest.fixture
def owner(service: Any) -> Owner:
    return Owner(service)


def forms(page: str) -> list[str]:
    main = page.partition("<main")[2]
    return re.findall(r"<form.*?</form>", main, re.DOTALL)


def attributes(tag: str) -> dict[str, str]:
    found = re.findall(r'([\w-]+)="([^"]*)"', tag)
    return {name: html.unescape(value) for name, value in found}


def filled(page: str, number: int = 0) -> dict[str, Any]:
    """The fields of a page's form with what stands in them."""
    text = forms(page)[number]
    found: dict[str, Any] = {}
    for tag in re.findall(r"<input[^>]*>", text):
        told = attributes(tag)
        if told.get("type") in ("checkbox", "radio"):
            if " checked" in tag:
                found.setdefault(told["name"], []).append(told["value"])
        elif "name" in told:
            found[told["name"]] = told.get("value", "")
    for head, inner in re.findall(r"(<textarea[^>]*>)\n?(.*?)</textarea>", text, re.DOTALL):
        found[attributes(head)["name"]] = html.unescape(inner)
    for head, inner in re.findall(r"(<select[^>]*>)(.*?)</select>", text, re.DOTALL):
        (chosen,) = re.findall(r'value="([^"]*)" selected', inner) or [""]
        found[attributes(head)["name"]] = html.unescape(chosen)
    return found


def faults(page: str) -> dict[str, str]:
    """What stands beside each field, by the field's id."""
    found = re.findall(r'<p class="fault" id="([\w-]+)-fault">(.*?)</p>', page)
    told = {name: html.unescape(text) for name, text in found}
    for name in told:
        # Whoever does not see the page is told by the field itself.
        assert (
            f"{name}-fault" in re.findall(rf'id="{name}"[^>]*aria-describedby="([^"]*)"', page)[0]
        )
    return told


def meanwhile(page: str) -> dict[str, str]:
    found = re.findall(r'id="([\w-]+)-meanwhile">Stored now: <strong>(.*?)</strong>', page)
    return {name: html.unescape(text) for name, text in found}


def alert(page: str) -> str:
    return html.unescape(" ".join(re.findall(r'role="alert">(.*?)</p>', page, re.DOTALL)))


class TestWhoMayChange:
    def test_an_owner_is_led_to_the_settings_and_a_reader_told_how_to_become_one(
        self, service: Any
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

    def test_what_a_reader_posts_changes_nothing(self, service: Any) -> None:
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

    def test_what_another_site_posts_changes_nothing(self, owner: Owner) -> None:
        before, keys = owner.stored(), owner.all_keys()
        for path in PATHS:
            form = {**owner.form(path), "alpha": "0.1", "kind": "write", "action": "create"}
            for told in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
                assert owner.post(path, form, headers=told).status_code == 403
        assert (owner.stored(), owner.all_keys()) == (before, keys)

    def test_nobody_who_is_signed_out_changes_anything(self, owner: Owner) -> None:
        form, before = owner.form(), owner.stored()
        owner.client.cookies.clear()
        answer = owner.post(GENERAL, {**form, "alpha": "0.1"})
        assert answer.status_code == 303
        assert answer.headers["Location"].startswith("/dashboard/sign-in")
        assert owner.stored() == before

    def test_a_project_is_changed_by_its_own_owner_alone(self, service: Any) -> None:
        other = service.new_project("other")
        owner = Owner(service)
        display = other.keys[KeyKind.WRITE][:8]
        answer = owner.post(KEYS, {"action": "revoke", "key": display})
        assert answer.status_code == 409
        theirs = service.in_store(lambda connection: list_keys(connection, other.project_id))
        assert all(key.revoked_at is None for key in theirs)
        assert display not in owner.page(KEYS)


def create(owner: Owner, kind: str, **told: str) -> Any:
    """Sends the form of a new key, the last of its page, as a browser does."""
    page = owner.page(KEYS)
    return owner.post(KEYS, {**filled(page, len(forms(page)) - 1), "kind": kind, **told})


class TestKeys:
    def test_a_new_key_is_shown_once_and_works(
        self, owner: Owner, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        answer = create(owner, "write")
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "no-store"
        (key,) = set(re.findall(r"<code>(wk_\w{40})</code>", answer.text))
        assert is_well_formed(key)
        assert answer.text.count(key) == 2, "by itself, and in the first request to send with it"
        assert "data-copy" in answer.text
        page = owner.page(KEYS)
        assert key not in page
        assert f"{key[:8]}…" in page
        assert key not in caplog.text
        header = {"X-Service-Project-Key": key}
        deploy = {"commit": {"sha": "a" * 8}}
        assert owner.service.post("/v1/deploys", deploy, headers=header).status_code == 201

    @pytest.mark.parametrize(
        ("kind", "use"),
        [
            ("write", r"/v1/deploys \\\n  -H &#34;X-Service-Project-Key: {}&#34;"),
            ("public", r"/sdk\.js&#34;\s+data-key=&#34;{}&#34;"),
            ("project", r"/v1/reward/register \\\n  -H &#34;X-Service-Project-Key: {}&#34;"),
        ],
    )
    def test_a_new_key_stands_in_the_first_request_to_send_with_it(
        self, owner: Owner, kind: str, use: str
    ) -> None:
        text = create(owner, kind).text
        (key,) = set(re.findall(r"<code>([wpr]k_\w{40})</code>", text))
        assert re.search(use.format(key), text)

    def test_a_form_that_is_sent_again_makes_no_second_key_and_shows_none(
        self, owner: Owner
    ) -> None:
        page = owner.page(KEYS)
        form = {**filled(page, len(forms(page)) - 1), "kind": "project"}
        made = owner.post(KEYS, form)
        (key,) = re.findall(r"<code>(rk_\w{40})</code>", made.text)
        before = owner.all_keys()
        for _ in range(2):
            again = owner.post(KEYS, form)
            assert again.status_code == 409
            assert "sent again, as a reload does, makes none" in alert(again.text)
            assert key not in again.text
        assert owner.all_keys() == before
        # The page that says so holds a form that makes one; a key that ends is no hindrance.
        form = {**filled(again.text, len(forms(again.text)) - 1), "kind": "project"}
        assert owner.post(KEYS, {"action": "revoke", "key": key[:8]}).status_code == 303
        assert owner.post(KEYS, form).status_code == 200
        assert len(owner.all_keys()) == len(before) + 1
        assert create(owner, "write", seen="").status_code == 409

    def test_a_kind_is_chosen_from_those_that_there_are(self, owner: Owner) -> None:
        before = owner.all_keys()
        for kind in ("", "admin", SCRIPT):
            answer = owner.post(KEYS, {"action": "create", "kind": kind})
            assert answer.status_code == 422
            assert "Choose what the key is for" in alert(answer.text)
            assert SCRIPT not in answer.text
        assert owner.all_keys() == before

    def test_a_revoked_key_ends_with_the_sign_in_that_came_by_it(self, owner: Owner) -> None:
        key = owner.service.new_key(KeyKind.PROJECT)
        owner_cookies = dict(owner.client.cookies)
        owner.client.cookies.clear()
        owner.sign_in(key)
        reader_cookies = dict(owner.client.cookies)
        owner.client.cookies.clear()
        owner.client.cookies.update(owner_cookies)
        answer = owner.post(KEYS, {"action": "revoke", "key": key[:8]})
        assert (answer.status_code, answer.headers["Location"]) == (303, f"{KEYS}?saved")
        assert "Revoked keys" in owner.page(f"{KEYS}?saved")
        owner.client.cookies.clear()
        owner.client.cookies.update(reader_cookies)
        assert owner.client.get("/dashboard").status_code == 303

    def test_no_key_is_revoked_but_one_that_was_shown(self, owner: Owner) -> None:
        for key in owner.all_keys()[1:]:
            assert owner.post(KEYS, {"action": "revoke", "key": key.display}).status_code == 303
        (last,) = (key for key in owner.all_keys() if key.revoked_at is None)
        for told in ("", last.display[:3], last.display[:7], "wk_%_%__", SCRIPT):
            assert owner.post(KEYS, {"action": "revoke", "key": told}).status_code == 422
        gone = owner.all_keys()[-1].display
        assert owner.post(KEYS, {"action": "revoke", "key": gone}).status_code == 409
        assert [key.display for key in owner.all_keys() if key.revoked_at is None] == [last.display]


# What is typed into a field, and what stands beside it then.
WRONG = {
    "default_metric": ("", "This must not be empty."),
    "guardrails": ("x" * 129, "At most 128 characters."),
    "unit": ("visitor", "This is none of the values that it takes."),
    "alpha": ("1.5", "Less than 1."),
    "futility_margin": ("some", "This is none of the values that it takes."),
    "horizon_days": ("61", "At most 60."),
    "contrast_hours": ("0", "At least 1."),
    "grace_seconds": ("soon", "This must be a whole number."),
    "allowed_origins": ("https://a.example\nb.example/shop", "is no origin"),
    "trusted_proxies": ("10.0.0.0/8\nproxy", "is no network"),
    "assignment_epochs": ("1, 2, 3, 4, 5", "At most 4."),
    "rate_limits.per_key": ("nan", "This must be a whole number."),
}


class TestSimpleSettings:
    def test_what_is_typed_is_stored_and_nothing_else(self, owner: Owner) -> None:
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
            "rate_limits": {"per_key": 100, "per_address": 60_000},
        }
        assert "Saved." in owner.page(f"{GENERAL}?saved")
        # A box that is not ticked is sent by no browser.
        form = owner.form()
        del form["trusted_identity"]
        owner.post(GENERAL, {**form, "guardrails": ""})
        assert (owner.settings().trusted_identity, owner.settings().guardrails) == (False, [])

    def test_a_page_that_is_saved_as_it_stands_changes_nothing(self, owner: Owner) -> None:
        owner.service.settings(
            metrics={"order": {}},
            futility_margin=None,
            guardrails=["\nodd", " names", SCRIPT],
            alpha=0.1,
        )
        before = owner.settings()
        assert owner.save().status_code == 303
        assert owner.settings().metrics == before.metrics
        assert owner.settings().alpha == before.alpha
        assert owner.settings().futility_margin in (None, "none")

    def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(
        self, owner: Owner
    ) -> None:
        before = owner.stored()
        typed = {**owner.form(), "trusted_identity": ["yes"]}
        typed |= {name: text for name, (text, _) in WRONG.items()}
        answer = owner.post(GENERAL, typed)
        assert answer.status_code == 422
        told = faults(answer.text)
        assert told.keys() == {f"settings-{name.replace('.', '-')}" for name in WRONG}
        for name, (_, words) in WRONG.items():
            assert words in told[f"settings-{name.replace('.', '-')}"]
        assert {**filled(answer.text), "unit": "visitor"} == typed
        assert f"{len(WRONG)} fields are wrong" in alert(answer.text)
        assert owner.stored() == before

    def test_each_field_is_refused_by_itself_too(self, owner: Owner) -> None:
        for name, (text, _) in WRONG.items():
            answer = owner.save(**{name: text})
            assert answer.status_code == 422
            assert list(faults(answer.text)) == [f"settings-{name.replace('.', '-')}"]

    def test_settings_that_cannot_stand_together_are_refused_beside_one_of_them(
        self, owner: Owner
    ) -> None:
        answer = owner.save(unit="user", signed_assignments="yes")
        assert answer.status_code == 422
        assert "vouches for sessions" in faults(answer.text)["settings-signed_assignments"]
        assert owner.stored() == {}

    def test_what_somebody_else_changed_meanwhile_is_shown_beside_what_was_typed(
        self, owner: Owner
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

    def test_what_is_changed_on_another_page_meanwhile_is_no_conflict(self, owner: Owner) -> None:
        form = {**owner.form(), "alpha": "0.01"}
        owner.service.settings(metrics={"order": {}})
        assert owner.post(GENERAL, form).status_code == 303
        assert owner.stored() == {"metrics": {"order": {}}, "alpha": 0.01}

    def test_what_was_stored_before_its_rule_stood_is_no_hindrance_until_it_is_changed(
        self, owner: Owner
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

    def test_markup_in_names_is_shown_as_text(self, owner: Owner) -> None:
        names = [SCRIPT, '"><img src=x onerror=alert(1)>', "</textarea><script>alert(1)</script>"]
        owner.service.settings(default_metric=names[1], guardrails=names)
        assert filled(owner.page(GENERAL))["guardrails"].splitlines() == names
        answer = owner.save(allowed_origins="\n".join(names), alpha=names[1])
        assert answer.status_code == 422
        for page in (owner.page(GENERAL), answer.text):
            assert "<script>alert" not in page
            assert "<img" not in page

    def test_a_form_that_no_browser_sends_is_refused(self, owner: Owner) -> None:
        before = owner.stored()
        form = owner.form()
        for told in (
            {**form, "default_metric": "a\x00b"},
            {**form, **{f"f{number}": "x" for number in range(99)}},
        ):
            assert owner.post(GENERAL, told).status_code == 422
        assert owner.post(GENERAL, {"seen": ""}).status_code == 409
        for path in PATHS:
            text = {**OWN, "Content-Type": "text/plain"}
            assert owner.client.post(path, content=b"seen=", headers=text).status_code == 415
        assert owner.stored() == before


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
        "name": ("x" * 129, "At most 128 characters."),
        "window_seconds": ("7", "a whole multiple of 300"),
        "cap": ("much", "This must be a number."),
        "margin": ("cap", "This is none of the values that it takes."),
        "kind": ("median", "This is none of the values that it takes."),
    },
    VALUES: {
        "metric": ("", "This must not be empty."),
        "value_per_conversion": ("-1", "At least 0."),
    },
    WEBHOOKS: {
        "url": ("http://evil.example/x", "its address must be https"),
        "events": ([], "At least one."),
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


@pytest.mark.parametrize("path", NEW)
class TestEntries:
    def test_are_added_edited_and_removed(self, owner: Owner, path: str) -> None:
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

    def test_that_break_a_rule_are_told_beside_the_field(self, owner: Owner, path: str) -> None:
        typed, _, _ = NEW[path]
        for name, (text, words) in BROKEN[path].items():
            answer = add(owner, path, **{**typed, name: text})
            assert answer.status_code == 422
            found = filled(answer.text, len(forms(answer.text)) - 1)
            kept = {key: found.get(key, []) for key in typed}
            (field, told), *_ = faults(answer.text).items()
            place = "url" if name == "format" else name
            assert (field, words in told) == (f"new-{place}", True), told
            expected = {**typed, name: text}
            assert all(
                kept[key] in (expected[key], str(expected[key]).replace("\r", "")) for key in kept
            )
        assert owner.stored() == {}

    def test_of_others_meanwhile_are_never_lost(self, owner: Owner, path: str) -> None:
        typed, member, stored = NEW[path]
        add(owner, path, **typed)
        form, removal = edit(owner, path), {**owner.form(path, 1), "action": "remove"}
        change = {
            METRICS: {"order": {"kind": "mean"}},
            VALUES: [{**stored[0], "value_per_conversion": 1}] if path == VALUES else None,
            WEBHOOKS: [{**stored[0], "events": ["closed"]}] if path == WEBHOOKS else None,
        }[path]
        owner.service.settings(**{member: change})
        answer = owner.post(path, {**form, "currency": "EUR"})
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

    def test_with_markup_in_them_are_shown_as_text(self, owner: Owner, path: str) -> None:
        owner.service.settings(
            metrics={SCRIPT: {"sources": [SCRIPT], "currency": SCRIPT}},
            value_routes=[
                {"metric": SCRIPT, "route": SCRIPT, "value_per_conversion": 1, "currency": SCRIPT}
            ],
        )
        answer = add(owner, path, name=SCRIPT, metric=SCRIPT, url=SCRIPT, events="decided")
        assert answer.status_code == 422
        for page in (owner.page(path), answer.text):
            assert "<script>alert" not in page
        if path != WEBHOOKS:
            assert html.escape(SCRIPT) in owner.page(path)


def test_a_metric_takes_no_name_of_another(owner: Owner) -> None:
    owner.service.settings(metrics={"a": {"cap": 1}, "b": {"cap": 2}})
    for answer in (
        add(owner, METRICS, name="a"),
        owner.post(METRICS, {**edit(owner, METRICS, 1), "name": "a"}),
    ):
        assert answer.status_code == 422
        ((_, told),) = faults(answer.text).items()
        assert "entry of this name" in told
    assert owner.stored()["metrics"] == {"a": {"cap": 1}, "b": {"cap": 2}}


def test_a_metric_that_is_renamed_is_renamed_wherever_the_settings_name_it(owner: Owner) -> None:
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


def test_a_metric_that_defaults_name_is_renamed_there_too(owner: Owner) -> None:
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
    owner: Owner, caplog: pytest.LogCaptureFixture
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
    assert [(one.url, one.format) for one in owner.settings().webhooks] == [(url, "raw")]
    assert "secret-path" not in Owner(owner.service, Role.READ).page(WEBHOOKS)
    assert "secret-path" not in caplog.text


def test_no_more_webhooks_are_taken_than_are_told(owner: Owner) -> None:
    for number in range(10):
        assert add(owner, WEBHOOKS, url=f"https://hooks.example/{number}").status_code == 303
    for url, words in (("https://hooks.example/10", "At most 10."),):
        answer = add(owner, WEBHOOKS, url=url)
        assert answer.status_code == 422
        assert words in alert(answer.text)
    assert len(owner.settings().webhooks) == 10
