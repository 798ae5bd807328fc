"""The dashboard's door: who is let in, for how long, and what no other site can do."""

import re
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from api.dashboard.pages import router
from api.runtime.settings import ApiSettings
from storage.schema.annex_tables import sign_in_links, sign_ins
from storage.schema.tables import projects
from storage.tenants.keys import KeyKind, Role
from storage.tenants.projects import new_key
from storage.tenants.sign_ins import create_link
from tests.world import World

OWN = {"Sec-Fetch-Site": "same-origin"}
SIGN_IN = "/dashboard/sign-in"
LINK_GONE = "was used before"


@pytest.fixture
def door(service) -> Any:
    """The client of a browser, which follows no redirect by itself."""
    service.client.follow_redirects = False
    return service.client


def link(service: Any, role: Role = Role.READ) -> str:
    return service.in_store(lambda connection: create_link(connection, service.project_id, role))


def key(service: Any, kind: KeyKind = KeyKind.PROJECT) -> str:
    return service.project.keys[kind]


def sign_in(client: Any, secret: str, **options: Any) -> Any:
    form = {"secret": secret, "next": options.pop("next", "")}
    return client.post(SIGN_IN, data=form, headers=OWN, **options)


def is_in(client: Any) -> bool:
    return client.get("/dashboard").status_code == 200


class TestSigningIn:
    def test_says_what_a_key_lets_one_do_and_who_is_in_already(self, service, door) -> None:
        asked = door.get(SIGN_IN).text
        assert "A key signs in to read. To change settings, ask for an owner’s link." in asked
        assert "You are signed in to" not in asked
        sign_in(door, key(service))
        again = door.get(SIGN_IN).text
        assert "You are signed in to <strong>shop</strong>." in again
        assert '<a href="/dashboard">Go on</a>' in again

    def test_by_a_link_is_over_after_its_minutes(self, service, door) -> None:
        code = link(service)
        service.in_store(
            lambda connection: connection.execute(
                sign_in_links.update().values(expires_at=text("clock_timestamp()"))
            )
        )
        assert LINK_GONE in sign_in(door, code).text

    def test_by_anything_else_is_refused_in_words_that_never_quote_it(self, door) -> None:
        for secret, each in {
            "": "no project key",
            "rk_" + "0" * 40: "no project key",
            "in_short": "no project key",
            "in_" + "0" * 43: LINK_GONE,
            "<script>alert(1)</script>": "no project key",
        }.items():
            answer = sign_in(door, secret)
            assert answer.status_code in (403, 422)
            assert each in answer.text
            assert not secret or secret not in answer.text
            assert not is_in(door)

    def test_by_a_key_that_sends_data_is_refused(self, service, door) -> None:
        for kind in (KeyKind.WRITE, KeyKind.PUBLIC):
            answer = sign_in(door, key(service, kind))
            assert answer.status_code == 422
            assert "sends data" in answer.text
            assert key(service, kind) not in answer.text

    def test_leads_to_a_page_of_ours_alone(self, service, door) -> None:
        for asked, led in {
            "/dashboard/experiments/exp_1": "/dashboard/experiments/exp_1",
            "https://evil.example/": "/dashboard",
            "//evil.example/dashboard": "/dashboard",
            "/\\evil.example": "/dashboard",
            "/dashboard/../v1": "/dashboard",
            "/dashboard//evil.example": "/dashboard",
            "/dashboard\r\nSet-Cookie: a=b": "/dashboard",
            "javascript:alert(1)": "/dashboard",
        }.items():
            answer = sign_in(door, key(service), next=asked)
            assert answer.headers["Location"] == led
            assert f'value="{led}"' in door.get(SIGN_IN, params={"next": asked}).text

    def test_is_kept_as_a_digest_alone(self, service, door) -> None:
        code = link(service)
        sign_in(door, code)
        (token,) = door.cookies.values()
        for table in ("sign_ins", "sign_in_links"):
            rows = service.in_store(
                lambda connection, name=table: connection.execute(
                    text(f"SELECT string_agg(t::text, ' ') FROM {name} AS t")
                ).scalar()
            )
            assert token not in (rows or "")
            assert code not in (rows or "")


class TestTheCookie:
    def test_is_out_of_reach_of_scripts_and_other_sites(self, service, door) -> None:
        cookie = sign_in(door, key(service)).headers["Set-Cookie"]
        assert re.match(
            r"deploy_reward=[\w-]{43}; HttpOnly; Max-Age=\d+; Path=/; SameSite=lax", cookie
        )

    def test_goes_over_https_alone_where_there_is_https(self, store, service) -> None:
        settings = ApiSettings(
            database_url=store.url, secret=b"-", public_url="https://reward.example"
        )
        with TestClient(
            create_app(settings), base_url="https://testserver", follow_redirects=False
        ) as client:
            cookie = sign_in(client, key(service)).headers["Set-Cookie"]
            assert cookie.startswith("__Host-deploy_reward=")
            assert "Secure" in cookie
            assert is_in(client)

    def test_ends_when_its_time_is_over(self, service, door) -> None:
        sign_in(door, link(service))
        service.in_store(
            lambda connection: connection.execute(
                sign_ins.update().values(expires_at=text("clock_timestamp()"))
            )
        )
        assert not is_in(door)

    def test_ends_by_signing_out_whatever_the_browser_keeps(self, service, door) -> None:
        sign_in(door, link(service))
        kept = dict(door.cookies)
        assert door.post("/dashboard/sign-out", headers=OWN).headers["Location"] == SIGN_IN
        assert not door.cookies
        door.cookies.update(kept)
        assert not is_in(door)

    def test_is_another_one_after_each_sign_in(self, service, door) -> None:
        sign_in(door, key(service))
        (first,) = door.cookies.values()
        sign_in(door, key(service))
        (second,) = door.cookies.values()
        assert first != second
        door.cookies.clear()
        door.cookies.set("deploy_reward", first)
        assert not is_in(door)

    def test_that_we_never_gave_lets_nobody_in(self, door) -> None:
        for token in ("", "x", "0" * 43, "é" * 10, "0" * 4000):
            answer = door.get("/dashboard", headers={"Cookie": f"deploy_reward={token}".encode()})
            assert answer.status_code == 303


class TestGuessing:
    def test_is_refused_by_address_and_told_when_to_go_on(self, service, door) -> None:
        for _ in range(60):
            assert sign_in(door, "rk_" + "0" * 40).status_code == 422
        answer = sign_in(door, key(service))
        assert answer.status_code == 429
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        seconds = int(answer.headers["Retry-After"])
        assert 0 < seconds <= 60
        assert f"Try again in {seconds} second" in answer.text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "Set-Cookie" not in answer.headers

    @pytest.mark.nightly
    def test_is_refused_from_however_many_addresses_once_the_store_was_asked_enough(
        self, store, service
    ) -> None:
        settings = ApiSettings(database_url=store.url, secret=b"-")
        app = create_app(settings)
        with TestClient(app, follow_redirects=False) as door:
            for address in range(10):
                door._transport.client = (f"192.0.2.{address}", 1)
                # What is no key asks nobody, and counts for its address alone.
                assert sign_in(door, "rk_" + "0" * 40).status_code == 422
                for _ in range(59):
                    assert sign_in(door, new_key(KeyKind.PROJECT)).status_code == 403
            door._transport.client = ("192.0.2.99", 1)
            for _ in range(10):
                assert sign_in(door, new_key(KeyKind.PROJECT)).status_code == 403
            answer = sign_in(door, key(service))
            assert answer.status_code == 429
            assert "by all together" in answer.text
            assert sign_in(door, "rk_" + "0" * 40).status_code == 422


FOREIGN: list[dict[str, str]] = [
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "null"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://testserver.evil.example"},
    {"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"},
]


def test_a_post_of_another_site_is_refused(service, door) -> None:
    sign_in(door, key(service))
    code = link(service)
    for each in FOREIGN:
        for path in (SIGN_IN, "/dashboard/sign-out", "/dashboard/settings"):
            answer = door.post(path, data={"secret": code}, headers=each)
            assert answer.status_code == 403, each
            assert "Set-Cookie" not in answer.headers
    assert is_in(door)
    assert sign_in(door, code).status_code == 303


def test_a_post_that_tells_its_origin_is_taken_from_our_own(service, door) -> None:
    answer = door.post(
        SIGN_IN, data={"secret": key(service)}, headers={"Origin": "http://testserver"}
    )
    assert answer.status_code == 303


PAGES = [
    "/dashboard",
    "/dashboard/deploys",
    "/dashboard/deploys/dep_00000000000000000000",
    "/dashboard/experiments",
    "/dashboard/experiments/exp_1",
    "/dashboard/ledger",
    "/dashboard/portfolio",
    "/dashboard/settings",
    "/dashboard/settings/audit-trail",
    "/dashboard/settings/deliveries",
    "/dashboard/settings/keys",
    "/dashboard/settings/metrics",
    "/dashboard/settings/values",
    "/dashboard/settings/webhooks",
    "/dashboard/experiments/exp_1/live",
    "/dashboard/experiments/exp_1/evidence",
]


def test_every_page_that_tells_of_a_project_is_listed_here() -> None:
    paths = {re.sub(r"\{\w+_id\}", "*", route.path) for route in router.routes}
    listed = {re.sub(r"(dep|exp)_\w+", "*", path) for path in PAGES}
    assert paths - listed == {
        "/dashboard/sign-in",
        "/dashboard/sign-out",
        "/dashboard/static/{digest}/{name}",
        "/dashboard/{rest:path}",
        # A button alone leads there.
        "/dashboard/deploys/*/register",
    }


def test_a_page_leads_through_the_sign_in_back_to_it(door) -> None:
    for path in PAGES:
        answer = door.get(path)
        assert answer.status_code == 303
        asking = door.get(answer.headers["Location"])
        assert asking.status_code == 200
        data = path.endswith(("/live", "/evidence"))
        # What only a script reads is nowhere to lead to.
        assert (f'value="{path}"' in asking.text) is not data


def test_a_script_that_is_signed_out_is_told_so_rather_than_led_away(door) -> None:
    answer = door.get(PAGES[-2], headers={"Accept": "application/json"})
    assert answer.status_code == 401


class TestAPage:
    def test_of_another_project_is_answered_as_one_that_does_not_exist(self, service, door) -> None:
        other = World.new(service.store, service.client, "other")
        deploy, experiment = other.deploy("a" * 8), other.register()
        sign_in(door, key(service))
        real = (f"deploys/{deploy['deploy_id']}", f"experiments/{experiment}")
        none = ("deploys/dep_" + "0" * 20, "experiments/exp_" + "0" * 20)
        for each, another in zip(real, none, strict=True):
            result, missing = (door.get(f"/dashboard/{path}") for path in (each, another))
            assert result.status_code == missing.status_code == 404
            assert result.text == missing.text
        for data in ("live", "evidence"):
            assert door.get(f"/dashboard/experiments/{experiment}/{data}").status_code == 404

    def test_that_cannot_be_is_a_page_that_says_so(self, service, door) -> None:
        sign_in(door, key(service))
        for path in (
            "deploys/%00",
            "deploys/dep_%F0%9F%92%A9",
            "experiments/%00",
            "experiments/..%2f..",
            "deploys?before=%00",
            "experiments?before=%00",
            "deploys?before=dep_1",
            "nowhere",
            "static/0000/dashboard.css",
            "static/x/..%2fpages.py",
        ):
            answer = door.get(f"/dashboard/{path}")
            assert answer.status_code == 404, path
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"

    def test_forbids_whatever_is_not_its_own(self, service, door) -> None:
        sign_in(door, key(service))
        for path in ("/dashboard", SIGN_IN, "/dashboard/nowhere"):
            headers = door.get(path).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "same-origin"
            assert headers["Cache-Control"] == "no-store"

    def test_tells_an_empty_project_what_to_send_first(self, service, door) -> None:
        sign_in(door, key(service))
        page = door.get("/dashboard").text
        assert "curl -X POST http://testserver/v1/deploys" in page
        assert "wk_" in page
        service.post("/v1/deploys", {"commit": {"sha": "a" * 8}})
        page = door.get("/dashboard").text
        assert "curl -X POST http://testserver/v1/reward/register" in page
        assert "http://testserver/sdk.js" in page

    def test_names_a_ramp_as_the_commit_of_its_first_step_was_named(self, service, door) -> None:
        sign_in(door, key(service))
        named = {"sha": "a" * 8, "message": "Order in one step"}
        service.post("/v1/deploys", {"commit": named, "allocation": 0.1})
        service.post("/v1/deploys", {"commit": {"sha": "a" * 8}, "allocation": 0.5})
        for path in ("/dashboard", "/dashboard/deploys"):
            assert door.get(path).text.count("Order in one step") == 1

    def test_that_breaks_says_so_and_tells_the_log_alone_what_broke(
        self, service, door, caplog
    ) -> None:
        sign_in(door, key(service))
        # As a newer version might have stored it, of which this version knows nothing.
        result = {"a_setting_of_tomorrow": "s3cret"}
        service.in_store(
            lambda connection: connection.execute(projects.update(), {"settings": result})
        )
        answer = door.get("/dashboard/settings?saved")
        assert answer.status_code == 500
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert 'href="/dashboard/settings?saved"' in answer.text
        assert answer.headers["X-Request-Id"] in answer.text
        assert answer.headers["X-Request-Id"] in caplog.text
        assert "a_setting_of_tomorrow" not in answer.text + caplog.text

    def test_of_a_store_that_lacks_a_table_says_that_the_service_cannot_answer_now(
        self, service, door
    ) -> None:
        sign_in(door, key(service))
        service.in_store(
            lambda connection: connection.execute(text("ALTER TABLE sign_ins RENAME TO gone"))
        )
        answer = door.get("/dashboard")
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert '<a class="primary" href="/dashboard">Try again</a>' in answer.text
        posted = door.post("/dashboard/settings", data={"alpha": "0.1"}, headers=OWN)
        assert posted.status_code == 503
        assert "Reload this page to send the form again" in posted.text

    def test_that_takes_no_form_answers_it_by_a_page(self, door) -> None:
        for path in ("/dashboard/nowhere", "/dashboard/deploys", "/dashboard"):
            browser = {**OWN, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
            answer = door.post(path, data={"a": "b"}, headers=browser)
            assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "Nothing was done." in answer.text
            result = door.post(path, json={}, headers={"Accept": "application/json"})
            assert (result.status_code, result.json()["code"]) == (405, "method_not_allowed")
        assert door.post("/v1/nowhere", headers=browser).json()["code"] == "not_found"

    def test_with_a_slash_at_its_end_leads_to_the_one_without(self, service, door) -> None:
        sign_in(door, key(service))
        for path in ("/dashboard", "/dashboard/settings/keys"):
            assert door.get(f"{path}/").headers["Location"] == path

    def test_says_that_the_store_is_away_and_what_to_do(self) -> None:
        settings = ApiSettings(
            database_url="postgresql://nobody@127.0.0.1:1/none", secret=b"a secret"
        )
        with TestClient(create_app(settings), follow_redirects=False) as client:
            client.cookies.set("deploy_reward", "0" * 43)
            answer = client.get("/dashboard")
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "Try again" in answer.text


def test_what_pages_load_never_changes_under_its_name(door) -> None:
    page = door.get(SIGN_IN).text
    paths = re.findall(r'(?:href|src)="(/dashboard/static/[^"]+)"', page)
    assert len(paths) == 3
    for path in paths:
        answer = door.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
        again = door.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304
    assert not re.findall(r"""(?:href|src)=["']?(?:https?:)?//""", page)
