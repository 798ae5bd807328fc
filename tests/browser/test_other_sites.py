"""A page of another site, in a browser of an owner who is signed in, against every port we open."""

import http.client
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from playwright.sync_api import BrowserContext, Page

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.postgres.data_dir import running_url
from storage.postgres.engine import connection_string, open_engine
from storage.tenants.keys import Role
from storage.tenants.projects import create_project
from storage.tenants.sign_ins import create_link
from tests.browser.other_site import EVIL, REBOUND, other_site
from tests.clients.owner import GENERAL, KEYS, WEBHOOKS, filled
from tests.conftest import fresh_store
from tests.processes.api_process import port_of_our_own
from tests.processes.dagster_web import PAUSE, dagster_web
from tests.processes.served import Served
from tests.processes.server_folder import server_folder
from tests.processes.up_process import UpProcess

pytestmark = pytest.mark.process

FORMS = (GENERAL, KEYS, WEBHOOKS)
ENDPOINTS = ("/v1/deploys", "/v1/reward/register", "/v1/revenue/events", "/v1/static-graphs")
STATE = """{
  instance { autoMaterializePaused }
  workspaceOrError { ... on Workspace { locationEntries {
    updatedTimestamp
    locationOrLoadError { ... on RepositoryLocation { id repositories {
      sensors { sensorState { id status } } schedules { scheduleState { id status } }
    } } }
  } } }
}"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The ports of a service: the API with its dashboard, Dagster's pages, and any others."""

    store: str
    api: str
    dagster: str
    others: Sequence[str] = ()

    def state(self) -> tuple[Any, Any]:
        """All that is stored, and what Dagster says of itself."""
        return stored(self.store), self.dagster_state()

    def dagster_state(self) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.dagster).netloc, timeout=30)
        try:
            body = json.dumps({"query": STATE})
            connection.request("POST", "/graphql", body, {"Content-Type": "application/json"})
            return json.load(connection.getresponse())["data"]
        finally:
            connection.close()

    def mutations(self) -> Iterator[str]:
        """What would stop the service, by ids that the other site is supposed to have learnt."""
        state = self.dagster_state()
        paused = state["instance"]["autoMaterializePaused"]
        yield PAUSE % str(not paused).lower()
        for entry in state["workspaceOrError"]["locationEntries"]:
            location = entry["locationOrLoadError"]
            for name in re.findall(r"'sensorState': {'id': '([^']+)'", str(location)):
                yield f'mutation {{ stopSensor(id: "{name}") {{ __typename }} }}'
            shut = 'shutdownRepositoryLocation(repositoryLocationName: "deploy_reward")'
            yield f"mutation {{ {shut} {{ __typename }} }}"


def stored(url: str) -> dict[str, Any]:
    """The number of rows in each of our tables and a digest of them."""
    with psycopg.connect(connection_string(url)) as connection:
        tables = connection.execute(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'deploy_reward'"
            # What ticks and gauges write, whoever looks on.
            " AND tablename NOT IN ('pipeline_steps', 'ticks',"
            " 'cursors', 'next_looks', 'publication_progress')"
        ).fetchall()
        connection.execute("SET search_path = deploy_reward")
        return {
            table: connection.execute(
                f"SELECT count(*), md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {table} AS t"
            ).fetchone()
            for (table,) in tables
        }


@contextmanager
def parts(server: str, template: str, folder: Path) -> Iterator[Opened]:
    with fresh_store(server, template) as store:
        settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
        with Served(app=create_app(settings)) as api, dagster_web(folder) as dagster:
            yield Opened(store=store.url, api=api.url, dagster=dagster)


@contextmanager
def whole(_server: str, _template: str, folder: Path) -> Iterator[Opened]:
    with server_folder() as data, port_of_our_own() as port:
        up = UpProcess(data_dir=data / "data", log=folder / "up.log", port=port)
        try:
            up.start()
            match = re.search(r"Dagster\s+(http://\S+)", up.log.read_text())
            store = running_url(up.data_dir)
            assert match is not None
            assert store is not None
            workspace = yaml.safe_load((up.data_dir / "dagster/workspace.yaml").read_text())
            code = workspace["load_from"][0]["grpc_server"]["port"]
            yield Opened(
                store=store,
                api=f"http://127.0.0.1:{port}",
                dagster=match[1],
                others=[f"http://127.0.0.1:{code}"],
            )
        finally:
            up.kill()


@pytest.fixture(scope="module", params=[parts, pytest.param(whole, marks=pytest.mark.deep)])
def opened(request, postgres_url, migrated_template, tmp_path_factory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("opened")
    with request.param(postgres_url, migrated_template, folder) as ports:
        yield ports


@pytest.fixture
def owner(opened, new_context) -> BrowserContext:
    """A browser in which an owner is signed in to the dashboard."""
    engine = open_engine(opened.store, pool_size=1)
    with engine.begin() as connection:
        project = create_project(connection, secrets.token_hex(6))
        code = create_link(connection, project.project_id, Role.OWNER)
    engine.dispose()
    context = new_context()
    page = context.new_page()
    page.goto(f"{opened.api}/dashboard/sign-in")
    page.goto(f"{opened.api}/dashboard/sign-in#{code}")
    page.wait_for_url(f"{opened.api}/dashboard")
    return context


def targets(opened: Opened, owner: BrowserContext) -> Iterator[tuple[str, str, dict[str, str]]]:
    for mutation in opened.mutations():
        yield f"{opened.dagster}/graphql", mutation, {"query": mutation}
    page = owner.new_page()
    for path in FORMS:
        page.goto(opened.api + path)
        fields = {name: str(value) for name, value in filled(page.content(), 0).items()}
        yield opened.api + path, "{}", {**fields, "kind": "project", "default_metric": "stolen"}
    for path in (*ENDPOINTS, "/dashboard/sign-out"):
        yield opened.api + path, "{}", {"commit": "4f2a9c1d"}
    for other in opened.others:
        yield f"{other}/graphql", "{}", {}


def told_by(page: Page) -> list[tuple[str, str, str]]:
    page.wait_for_function("document.title == 'Done'", timeout=240_000)
    rows = page.locator("tbody tr").all()
    return [tuple(cell.inner_text() for cell in row.locator("td").all()) for row in rows]  # pyright: ignore[reportReturnType]


def test_a_page_of_another_site_changes_nothing(opened, owner) -> None:
    site = other_site(list(targets(opened, owner)))
    before = opened.state()
    with Served(app=site) as evil:
        # Another site; and another port of this machine, which browsers hold for the same site.
        for name in (EVIL, "127.0.0.1"):
            page = owner.new_page()
            page.goto(f"http://{name}:{evil.port}/")
            for address, means, answer in told_by(page):
                assert not answer.startswith(("told:", "answered: cors")), (address, means, answer)
    assert opened.state() == before


def test_a_name_that_was_made_to_resolve_here_reads_and_changes_nothing(opened, owner) -> None:
    before = opened.state()
    page = owner.new_page()
    asked = """async ([path, body]) => {
      const answer = await fetch(path, {
        method: 'POST', credentials: 'include', body, headers: {'Content-Type': 'application/json'},
      });
      return [answer.status, await answer.text()];
    }"""
    server = f"http://{REBOUND}:{urlsplit(opened.dagster).port}"
    assert page.goto(f"{server}/server_info").text().startswith('Refused: the Host "rebind.example')  # pyright: ignore[reportOptionalMemberAccess]
    for query in ("{ version }", *opened.mutations()):
        status, text = page.evaluate(asked, ["/graphql", json.dumps({"query": query})])
        assert (status, text[:9]) == (403, "Refused: ")
    server = f"http://{REBOUND}:{urlsplit(opened.api).port}"
    page.goto(f"{server}/healthz")
    for path in (*FORMS, *ENDPOINTS):
        status, _ = page.evaluate(asked, [path, "{}"])
        assert status in {401, 403, 415}, path
    assert opened.state() == before
