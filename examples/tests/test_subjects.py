"""Agents as subjects: runs of two versions of a tool, registered and read by the MCP client."""

import asyncio
import importlib.util
import re
import tomllib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from benchmarks.repository.private_service import private_service
from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server
from orchestration.pipeline.audit import audit
from storage.tenants.keys import KeyKind
from tests.processes.api_process import eventually
from tests.world import A

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
A_DAY, DAYS = 200, 8


def example() -> Any:
    program = ROOT / "examples" / "subjects" / "runs.py"
    spec = importlib.util.spec_from_file_location("runs", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings_of_the_page() -> dict[str, Any]:
    page = (ROOT / "docs" / "agents-as-subjects.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    return tomllib.loads(block)


def test_the_better_version_of_a_tool_is_kept_by_what_its_runs_brought() -> None:
    runs = example()
    now = datetime.now(UTC).replace(second=0, microsecond=0, minute=0) - timedelta(days=DAYS + 1)
    with private_service(now, **settings_of_the_page()) as service:
        service.deploy({"commit": {"sha": A}})
        url, keys = str(service.client.base_url).rstrip("/"), service.project.keys
        harness = runs.Service(url=url, write_key=keys[KeyKind.WRITE])

        def asked(session: Callable[[Client], Awaitable[Any]]) -> Any:
            async def connected() -> Any:
                address = Address(url=url, key=keys[KeyKind.PROJECT])
                api = RewardApi(address, answer_seconds=30)
                async with Client(reward_server(api)) as client:
                    return (await session(client)).structured_content

            return asyncio.run(connected())

        flag = {"name": runs.FLAG, "treatment": "v2", "control": "v1"}
        experiment = asked(
            lambda client: client.call_tool("register_experiment", {"treatment_flag": flag})
        )
        # Until the experiment has begun every run gets control.
        assert harness.version("early") == "v1"
        service.look()
        # The service remembers a flag for half a second; these runs send no event.
        eventually(lambda: "v2" in {harness.version(f"early-{number}") for number in range(20)})
        verdict, versions = {"verdict": "abstain"}, dict[str, str]()
        for day in range(DAYS):
            for number in range(day * A_DAY, (day + 1) * A_DAY):
                run = f"run-{number}"
                versions[run] = harness.version(run)
                events = list(runs.events_of(run, versions[run], commit=A))
                assert harness.send(events) == len(events)
            now += timedelta(days=1)
            service.clock.move(now)
            service.look()
            verdict = asked(lambda client: client.call_tool("get_verdict", experiment))
            if verdict["verdict"] != "abstain":
                break
        evidence = service.evidence(experiment["experiment_id"])
        assert evidence is not None
        assert verdict["verdict"] == "keep", evidence.sentence
        assert evidence.policy.unit == "run"
        arms = evidence.arms
        assert arms.treatment.units + arms.control.units <= len(versions)
        # The better tool's answers are all merged.
        assert (arms.treatment.rate or 0) > 0.9
        assert (arms.control.rate or 1) < 0.6
        assert audit(service.engine, experiment["experiment_id"]).differences == []
