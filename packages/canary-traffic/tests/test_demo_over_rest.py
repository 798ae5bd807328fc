"""The demo and the simulator, against a running API."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from canary_traffic.demo import METRIC, Keys, play
from canary_traffic.posting import answer, connected
from canary_traffic.simulate import simulate
from click.testing import CliRunner
from rich.console import Console
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from storage.tenants.projects import FIRST_KINDS
from tests.cli.conftest import serving

REPLAY = ["--replay", "--hours", "2", "--baseline", "0.2", "--lift", "0.5"]
REPLAY += ["--duplicated", "0.1", "--disordered", "0.2"]
# A second of arrivals, and nobody converts: conversions would come minutes later.
LIVE = ["--live", "--hours", "0.0003", "--baseline", "0.000001", "--sessions-per-day", "10000000"]


@dataclass(frozen=True, kw_only=True)
class Running:
    """A served API, and the keys of its only project."""

    url: str
    keys: Keys

    def read(self, path: str) -> dict[str, Any]:
        with connected(self.url) as client:
            return answer(client, "GET", path, key=self.keys[KeyKind.PROJECT])


@pytest.fixture
def running(service) -> Iterator[Running]:
    with serving(service) as url:
        yield Running(url=url, keys=service.project.keys)


def ending(running: Running) -> tuple[int, str]:
    """The demo's exit code and text, without waiting for a schedule that does not run here."""
    console = Console(file=io.StringIO(), width=100)
    code = play(
        console,
        api_url=running.url,
        dagster_url="http://127.0.0.1:3000",
        keys=running.keys,
        timeout=0,
    )
    return code, console.file.getvalue()


@pytest.mark.nightly
def test_the_demo_registers_a_change_that_is_kept_and_another_that_is_rolled_back(
    service, running
) -> None:
    code, text = ending(running)
    listed = running.read(f"/v1/reward?metric={METRIC}")["experiments"]
    assert len(listed) == 2
    assert code == 1, "nothing is decided where no schedule runs"
    keys = [running.keys[kind] for kind in FIRST_KINDS]
    for part in (f"{running.url}/docs", "http://127.0.0.1:3000", "git rev-parse HEAD", *keys):
        assert part in text

    service.tick()
    # Played before: it is shown again, and nothing is posted.
    code, text = ending(running)
    assert (code, "played on this store before" in text) == (0, True)
    assert "up --demo --data-dir FOLDER" in text
    decided = service.listed()
    ids = {row["experiment_id"] for row in listed}
    assert {row["experiment_id"] for row in decided} == ids
    assert all(experiment_id in text for experiment_id in ids)
    assert {row["contract"]["verdict"] for row in decided} == {"keep", "rollback"}


@pytest.mark.parametrize("chosen", [REPLAY, LIVE], ids=["replay", "live"])
def test_simulated_events_are_all_accepted_and_counted(service, running, chosen) -> None:
    where = ["--api-url", running.url, "--key", running.keys[KeyKind.WRITE], "--deploys", "--json"]
    result = CliRunner().invoke(simulate, [*chosen, *where], catch_exceptions=False)
    summary = json.loads(result.stdout)
    units = sum(arm["units"] for arm in summary["truth"].values())
    assert result.exit_code == 0
    assert summary["events"] == summary["accepted"] >= summary["sessions"] == units > 0
    assert summary["late"] == summary["rejected"] == 0
    # A replay is history: received when it occurred.
    as_history = text("SELECT bool_and(received_at = occurred_at) FROM runtime_events")
    replayed = service.in_store(lambda connection: connection.execute(as_history).scalar_one())
    assert replayed == (chosen is REPLAY)
