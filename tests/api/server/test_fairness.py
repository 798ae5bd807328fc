"""A quiet project beside a flood: what the flood costs it, printed, and what it may not."""

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from storage.postgres.engine import open_engine
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from tests.processes.api_process import ApiProcess
from tests.processes.server_folder import migrated_server

pytestmark = [pytest.mark.process, pytest.mark.deep]
SECONDS, FLOODERS, PER_MINUTE = 30, 16, 600
EVENT = {"event": "a", "session_id": "s"}


@pytest.fixture
def flooded() -> Iterator[tuple[ApiProcess, str, str]]:
    """A service, the key of a quiet project, and the key of a project with a small limit."""
    # pytest's tmp_path can be entered by its owner alone, and root's server runs as nobody.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-"))
    folder.chmod(0o711)
    with migrated_server(folder) as postgres:
        engine = open_engine(postgres.url)
        with engine.begin() as connection:
            quiet, loud = (create_project(connection, name) for name in ("quiet", "loud"))
            limits = {"per_key": PER_MINUTE, "per_address": 1_000_000}
            apply_settings(connection, loud.project_id, {"rate_limits": limits})
        engine.dispose()
        with ApiProcess(log=folder / "api.log", database_url=postgres.url) as api:
            api.start()
            yield api, quiet.keys[KeyKind.PUBLIC], loud.keys[KeyKind.PUBLIC]
    shutil.rmtree(folder)


def asked(api: ApiProcess, key: str, seconds: float) -> list[float]:
    """How long each of a quiet project's events took, all of them taken."""
    took: list[float] = []
    end = time.monotonic() + seconds
    with httpx2.Client(headers={"X-Service-Project-Key": key}, timeout=30) as client:
        while time.monotonic() < end:
            began = time.perf_counter()
            assert client.post(f"{api.url}/v1/events", json=EVENT).status_code == 202
            took.append(time.perf_counter() - began)
    return sorted(took)


def flood(url: str, key: str, seconds: float) -> Counter[int]:
    """What a crowd is answered that asks as fast as it can."""
    answer: Counter[int] = Counter()
    end = time.monotonic() + seconds

    def ask() -> None:
        statuses: Counter[int] = Counter()
        with httpx2.Client(headers={"X-Service-Project-Key": key}, timeout=30) as client:
            while time.monotonic() < end:
                statuses[client.post(f"{url}/v1/events", json=EVENT).status_code] += 1
        answer.update(statuses)

    crowd = [threading.Thread(target=ask) for _ in range(FLOODERS)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    return answer


def test_a_flood_is_cut_off_and_the_quiet_neighbour_served(
    flooded: tuple[ApiProcess, str, str],
) -> None:
    api, quiet, loud = flooded
    alone = asked(api, quiet, SECONDS / 2)
    # A process of its own: the quiet client must wait for the service, not for the crowd's threads.
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as elsewhere:
        flooding = elsewhere.submit(flood, api.url, loud, SECONDS)
        beside = asked(api, quiet, SECONDS)
        result = flooding.result()
    for name, took in (("alone", alone), ("beside a flood", beside)):
        median, late = took[len(took) // 2], took[int(len(took) * 0.99)]
        Console().print(f"{name}: median {median * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms")
    Console().print(f"the flood: {dict(result)}")
    assert result.keys() == {202, 429}
    # At most two windows of a minute touch half a window.
    assert result[202] in (PER_MINUTE, 2 * PER_MINUTE)
