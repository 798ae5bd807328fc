"""The agent of `examples/agent` against `deploy-reward up`: real processes, time and traffic.

No clock is moved and nothing is replayed: each answer takes a block of 5 minutes and the metric's
window of 5 more. The agent waits as `Retry-After` says.
"""

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.pipeline.agents.example import loaded_agent
from tests.processes.api_process import eventually, port_of_our_own
from tests.processes.server_folder import server_folder
from tests.processes.up_process import UpProcess

pytestmark = [pytest.mark.process, pytest.mark.deep, pytest.mark.timeout(5400)]

BASE = "0" * 40
METRIC, RATE, SESSIONS_A_SECOND = "order_placed", 0.3, 10
KINDS = {"nagging": 0.5, "speed": 1.6}
SETTINGS = f"""
guardrails = []
grace_seconds = 30

[metrics.{METRIC}]
window_seconds = 300
"""


@dataclass(kw_only=True)
class Shop:
    """A product whose users never stop coming; whoever draws the canary gets it.

    Attributes:
        url: Where their browsers send events.
        key: The public key.
    """

    url: str
    key: str
    factors: dict[str, float] = field(default_factory=lambda: {BASE: 1.0})
    base: str = BASE
    canary: tuple[str, float] | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    refused: list[str] = field(default_factory=list[str])

    def make(self, kind: str) -> str:
        commit = f"{len(self.factors):040x}"
        self.factors[commit] = self.factors[self.base] * KINDS[kind]
        return commit

    def serve(self, commit: str, share: float) -> None:
        if share == 1:
            self.base = commit
        self.canary = (commit, share) if 0 < share < 1 else None

    def open(self) -> None:
        """Lets users come, a batch a second, until it is closed."""
        chance, header = random.Random(1), {"X-Service-Project-Key": self.key}
        with httpx2.Client(base_url=self.url, headers=header, timeout=60) as client:
            while not self.closed.wait(1):
                answer = client.post("/v1/events", json={"events": self._events(chance)})
                if answer.status_code != 202:
                    self.refused.append(answer.text)

    def _events(self, chance: random.Random) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        canary = self.canary
        for _ in range(SESSIONS_A_SECOND):
            commit = canary[0] if canary is not None and chance.random() < canary[1] else self.base
            event = {"session_id": f"{chance.getrandbits(64):x}", "commit": commit}
            events.append({**event, "event": "page_view"})
            if chance.random() < RATE * self.factors[commit]:
                events.append({**event, "event": METRIC})
        return events


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a service that `up` started, and the keys that it printed."""
    with server_folder() as folder, port_of_our_own() as port:
        process = UpProcess(data_dir=folder / "data", log=tmp_path / "up.log", port=port)
        process.start()
        try:
            printed = re.findall(r"export (.*)", process.log.read_text())
            keys = dict(pair.split("=", 1) for line in printed for pair in line.split())
            file = tmp_path / "settings.toml"
            file.write_text(SETTINGS)
            words = ["settings", "apply", str(file), "--data-dir", str(process.data_dir)]
            subprocess.run([sys.executable, "-m", "cli", *words], check=True, capture_output=True)
            yield keys["SERVICE_API_URL"], keys
        finally:
            process.kill()


def test_an_agent_ships_what_pays_and_takes_back_what_does_not(
    up: tuple[str, dict[str, str]],
) -> None:
    url, keys = up
    module = loaded_agent()
    service = module.Service(url=url, write_key=keys["WRITE_KEY"], project_key=keys["PROJECT_KEY"])
    service.deploy(BASE, base="f" * 40, share=None, at=time.time())
    shop = Shop(url=url, key=keys["PUBLIC_KEY"])
    users = threading.Thread(target=shop.open)
    users.start()
    agent = module.Agent(
        service=service,
        workshop=shop,
        base=BASE,
        metric=METRIC,
        beliefs={kind: module.Belief(precision=0.1**-2) for kind in KINDS},
        chance=random.Random(2),
    )
    shipped: list[dict[str, Any]] = []
    try:
        while {line["kind"] for line in shipped} != KINDS.keys():
            begun = time.monotonic()
            shipped.append(agent.ship())
            took = round((time.monotonic() - begun) / 60, 1)
            line = {"at": f"{datetime.now(UTC):%H:%M:%S}", "minutes": took, **shipped[-1]}
            print(json.dumps(line), flush=True)  # noqa: T201  # the transcript
            assert len(shipped) < 6
    finally:
        shop.closed.set()
        users.join()
    assert shop.refused == []
    answers = {(line["kind"], line["verdict"]) for line in shipped}
    assert answers == {("speed", "keep"), ("nagging", "rollback")}
    eventually(lambda: agent.learn() or not agent.unlearned, seconds=1200)
    assert max(agent.beliefs, key=lambda kind: agent.beliefs[kind].mean) == "speed"
    assert agent.base == shop.base
    assert shop.canary is None
