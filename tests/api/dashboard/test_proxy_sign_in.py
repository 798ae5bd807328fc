"""Sign-in by an authenticating proxy: whom it names comes in, and nobody else by its headers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.postgres.engine import open_engine
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from storage.views.audit_trail import read_trail
from tests.clients.owner import Owner, filled
from tests.processes.api_process import ApiProcess
from tests.processes.nginx import nginx_in_front
from tests.processes.served import serving_routes
from tests.world import World

OWN = {"Sec-Fetch-Site": "same-origin"}
SIGN_IN = "/dashboard/sign-in"
TRAIL = "/dashboard/settings/audit-trail"
PROXY = "10.1.2.3"
CONF = Path(__file__).parents[3] / "docs/operations/deployment"
CHOSEN: dict[str, Any] = {
    "trusted_proxies": ["10.0.0.0/8"],
    "owner_groups": ["shop-owners"],
    "reader_groups": ["engineering", "shop people"],
}


def person(groups: str, name: str = "anna@shop.example") -> dict[str, str]:
    return {"X-Forwarded-Email": name, "X-Forwarded-Groups": groups}


OWNER, READER = person("all, shop-owners"), person("engineering")


@pytest.fixture
def shop(service) -> Any:
    service.settings(**CHOSEN)
    return service


Browsers = Callable[..., TestClient]


@pytest.fixture
def browser(store) -> Iterator[Browsers]:
    """Makes browsers, whose requests come from an address."""
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    with ExitStack() as open_browsers:

        def browse(address: str = PROXY) -> TestClient:
            client = TestClient(create_app(settings), client=(address, 50_000))
            client.follow_redirects = False
            return open_browsers.enter_context(client)

        yield browse


def sign_in(client: Any, project: Any, headers: Any) -> Any:
    return client.post(
        SIGN_IN, data={"project": str(project)}, headers=[*OWN.items(), *pairs(headers)]
    )


def pairs(headers: Any) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, dict) else headers


class TestAPersonOfAGroup:
    @pytest.mark.parametrize(
        ("headers", "role", "status"),
        [
            (OWNER, "as owner", 200),
            (READER, "to read", 403),
            (person(" shop people ,x"), "to read", 403),
            (person("engineering,shop-owners"), "as owner", 200),
        ],
    )
    def test_comes_in_with_the_role_of_the_group(
        self, shop, browser, headers, role, status
    ) -> None:
        client = browser()
        page = client.get(SIGN_IN, headers=headers).text
        assert "anna@shop.example" in page
        assert f"Sign in to shop, {role}" in page
        assert sign_in(client, shop.project_id, headers).status_code == 303
        assert client.get("/dashboard", headers=headers).status_code == 200
        assert client.get(TRAIL, headers=headers).status_code == status

    def test_is_named_at_the_top_of_each_page(self, shop, browser) -> None:
        for name, shown in (("anna@shop.example", "anna@shop.example"), ("<b>x", "&lt;b&gt;x")):
            client, headers = browser(), person("shop-owners", name)
            sign_in(client, shop.project_id, headers)
            for path in ("/dashboard", TRAIL, "/dashboard/nowhere"):
                top = client.get(path, headers=headers).text.split("</header>")[0]
                assert f">{shown}</span>" in top
        # Who came in by a link has no name.
        assert 'class="person"' not in Owner(shop).page("/dashboard")

    def test_is_named_in_the_audit_trail(self, shop, browser) -> None:
        client = browser()
        sign_in(client, shop.project_id, OWNER)
        page = client.get("/dashboard/settings", headers=OWNER).text
        form = {**filled(page), "alpha": "0.1"}
        saved = client.post("/dashboard/settings", data=form, headers={**OWN, **OWNER})
        assert saved.status_code == 303
        entry = client.get(TRAIL, headers=OWNER).text
        assert "settings changed" in entry
        assert "anna@shop.example" in entry

    def test_is_offered_the_projects_of_the_groups_alone(self, shop, browser) -> None:
        other, third = (World.new(shop.store, shop.client, name) for name in ("other", "third"))
        other.settings(**{**CHOSEN, "owner_groups": ["other-owners"]})
        client = browser()
        page = client.get(SIGN_IN, headers=OWNER).text
        assert "Sign in to shop" in page
        assert "Sign in to other" not in page
        for number in (other.project_id, third.project_id, 0, "x"):
            refused = sign_in(client, number, OWNER)
            assert refused.status_code == 403
            assert "No group of yours" in refused.text
            assert not client.cookies

    def test_is_out_or_reads_once_the_proxy_says_so(self, shop, browser) -> None:
        client = browser()
        sign_in(client, shop.project_id, OWNER)
        assert client.get(TRAIL, headers=OWNER).status_code == 200
        assert client.get(TRAIL, headers=READER).status_code == 403
        for headers in ({}, person("strangers"), person("shop-owners", "eve@shop.example")):
            assert client.get("/dashboard", headers=headers).status_code == 303
        # Signed in to read, nobody becomes an owner by a group alone.
        reader = browser()
        sign_in(reader, shop.project_id, READER)
        assert reader.get(TRAIL, headers=OWNER).status_code == 403


class TestHeaders:
    @pytest.mark.parametrize("address", ["192.0.2.1", "testclient", "::1"])
    def test_from_an_address_that_is_not_trusted_are_nothing(self, shop, browser, address) -> None:
        client = browser(address)
        # Whoever it says it comes for: the connection itself counts.
        headers = {**OWNER, "X-Forwarded-For": PROXY}
        assert "Sign in to shop" not in client.get(SIGN_IN, headers=headers).text
        assert sign_in(client, shop.project_id, headers).status_code == 403
        signed = browser()
        sign_in(signed, shop.project_id, OWNER)
        client.cookies.update(signed.cookies)
        assert client.get("/dashboard", headers=headers).status_code == 303

    @pytest.mark.parametrize(
        "headers",
        [
            [*OWNER.items(), ("X-Forwarded-Groups", "shop-owners")],
            [*OWNER.items(), ("X-Forwarded-Email", "eve@shop.example")],
            [("X-Forwarded-Email", "anna@shop.example")],
            [("X-Forwarded-Groups", "shop-owners")],
            [("X-Forwarded-Groups", "shop-owners"), ("X-Forwarded-Email", " ")],
            [("X-Forwarded-Groups", "shop-owners"), ("X-Forwarded-Email", "a" * 257)],
            [("X-Forwarded-Groups", ""), ("X-Forwarded-Email", "anna")],
            [("X-Forwarded-Groups", "Shop-Owners"), ("X-Forwarded-Email", "anna")],
        ],
    )
    def test_that_are_missing_or_there_twice_let_nobody_in(self, shop, browser, headers) -> None:
        assert sign_in(browser(), shop.project_id, headers).status_code == 403

    def test_are_those_that_the_settings_name(self, shop, browser) -> None:
        shop.settings(name_header="X-Person", groups_header="X-Teams")
        client = browser()
        assert sign_in(client, shop.project_id, OWNER).status_code == 403
        named = {"X-Person": "<b>anna</b>", "X-Teams": "shop-owners"}
        page = client.get(SIGN_IN, headers=named).text
        assert "<b>anna" not in page
        assert "&lt;b&gt;anna" in page
        assert sign_in(client, shop.project_id, named).status_code == 303

    def test_do_nothing_in_a_project_that_names_no_group(self, shop, browser) -> None:
        shop.settings(owner_groups=[], reader_groups=[])
        for groups in ("shop-owners", "", ","):
            assert sign_in(browser(), shop.project_id, person(groups)).status_code == 403


# --- With a real nginx --------------------------------------------------------------------------


async def oauth2_proxy(request: Request) -> PlainTextResponse:
    """As oauth2-proxy answers nginx with `--set-xauthrequest`, its session a name in a cookie."""
    name = request.cookies.get("_oauth2_proxy")
    if request.url.path.startswith("/oauth2/sign_in"):
        return PlainTextResponse("the provider's page", 403)
    if name is None:
        return PlainTextResponse("", 401)
    groups = "shop-owners,engineering" if name == "anna" else "engineering"
    named = {"X-Auth-Request-Email": f"{name}@shop.example", "X-Auth-Request-Groups": groups}
    return PlainTextResponse("", 202, named)


def test_the_configuration_of_nginx_tells_who_is_there_and_passes_on_nobodys_own_word(
    safe_postgres, tmp_path
) -> None:
    engine = open_engine(safe_postgres.url, pool_size=1)
    with engine.begin() as connection:
        project = create_project(connection, "behind nginx").project_id
        apply_settings(connection, project, {**CHOSEN, "trusted_proxies": ["127.0.0.1"]})
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        provider = stack.enter_context(serving_routes(oauth2_proxy))
        api = stack.enter_context(
            ApiProcess(log=tmp_path / "api.log", database_url=safe_postgres.url)
        )
        api.start()
        include = CONF.joinpath("sign-in.conf").read_text()
        changes = {
            "# include /etc/nginx/sign-in.conf;": include,
            "127.0.0.1:4180": urlsplit(provider).netloc,
        }
        port = stack.enter_context(nginx_in_front(tmp_path, api, changes))
        client = stack.enter_context(
            httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers={"Host": "reward.example"})
        )
        forged = {**person("shop-owners"), **OWN}
        asked = {"project": str(project)}
        # Nobody: the provider's page, whatever the headers say.
        assert "provider" in client.get("/dashboard", headers=forged).text
        # A reader, who says to be an owner.
        client.cookies.set("_oauth2_proxy", "ben")
        page = client.get(SIGN_IN, headers=forged).text
        assert "ben@shop.example" in page
        assert "Sign in to behind nginx, to read" in page
        assert client.post(SIGN_IN, data=asked, headers=forged).status_code == 303
        assert client.get("/dashboard", headers=forged).status_code == 200
        assert client.get(TRAIL, headers=forged).status_code == 403
        # An owner.
        client.cookies.set("_oauth2_proxy", "anna")
        assert client.post(SIGN_IN, data=asked, headers=OWN).status_code == 303
        assert client.get(TRAIL).status_code == 200
        # Paths that keys open pass no word of anybody.
        assert client.get("/sdk.js", headers=forged).status_code == 200
        with engine.begin() as connection:
            assert read_trail(connection, project, limit=1)
