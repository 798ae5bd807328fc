"""What docs/ci.md tells pipelines to run does what it says, against a running API."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from storage.keys import KeyKind
from tests.cli.conftest import serving
from tests.cli.test_report import ENDS, whole
from tests.cli.test_wait import ABSTAIN, published

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "jq"))), reason="bash, curl or jq is not here"
    ),
]

PAGE = (Path(__file__).parents[1] / "docs" / "ci.md").read_text()
BASE, SHA = "a" * 40, "b" * 40
# As GitHub answers, as far as anybody reads it.
COMPARE = {
    "status": "ahead",
    "base_commit": {"sha": BASE, "commit": {"message": "Open the shop"}},
    "files": [{"filename": "app/page.tsx", "status": "modified", "additions": 3, "sha": "0c"}],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def job(name: str) -> dict[str, Any]:
    """The only job of the workflow of that name."""
    (found,) = (one for one in map(yaml.safe_load, blocks("yaml")) if one["name"] == name)
    (only,) = found["jobs"].values()
    return only


@pytest.fixture
def run(service: Any, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs a script as a runner of GitHub does, beside a team's own programs that tell of calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "compare.json").write_text(json.dumps(COMPARE))
    cli = f'exec {sys.executable} -m cli "$@"'
    for place, script in (
        (programs / "deploy-reward", cli),
        (programs / "gh", f'echo "$@" >> {tmp_path}/gh.log; cat {tmp_path}/compare.json'),
        *((tmp_path / f"{name}.sh", f'echo {name} "$@"') for name in ("promote", "roll-back")),
    ):
        place.write_text(f"#!/bin/bash\n{script}\n")
        place.chmod(0o755)
    with serving(service) as url:

        def run(script: str, **variables: str) -> str:
            environment = {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(sys.path),
                "SERVICE_API_URL": url,
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
                **variables,
            }
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", script],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def registered(service: Any) -> str:
    service.post("/v1/deploys", {"commit": {"sha": BASE}})
    service.post("/v1/deploys", {"commit": {"sha": SHA}})
    return service.post("/v1/reward/register", {}).json()["experiment_id"]


def test_the_first_workflow_records_the_canary_with_its_diff_and_registers_it(
    service: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    service.post("/v1/deploys", {"commit": {"sha": BASE}})
    secrets = {
        "${{ secrets.REWARD_WRITE_KEY }}": service.project.keys[KeyKind.WRITE],
        "${{ secrets.REWARD_PROJECT_KEY }}": service.project.keys[KeyKind.PROJECT],
        "${{ github.event.before }}": BASE,
        "${{ github.event.head_commit.message }}": "Order in one step\n\nOf three.",
        "${{ github.token }}": "gh_1",
    }
    github = {"GITHUB_SHA": SHA, "GITHUB_RUN_ID": "17", "GITHUB_REPOSITORY": "shop/shop"}
    steps = [step for step in job("canary")["steps"] if "deploy-reward " in step.get("run", "")]
    for step in steps:
        given = {name: secrets[value] for name, value in step["env"].items()}
        # A step may be run again.
        assert run(step["run"], **given, **github) == run(step["run"], **given, **github)

    (experiment,) = service.get("/v1/reward").json()["experiments"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (SHA, BASE)
    deploy = service.get("/v1/deploys/last").json()["deploy"]
    assert (deploy["base_commit"], deploy["allocation"]) == (BASE, 0.1)
    assert deploy["commit"]["message"] == "Order in one step\n\nOf three."
    assert [file["filename"] for file in deploy["diff"]["files"]] == ["app/page.tsx"]
    asked = (tmp_path / "gh.log").read_text().splitlines()[0]
    assert asked == f"api repos/shop/shop/compare/{BASE}...{SHA}"


ACTS = dict(zip((title for _, title, _ in ENDS), [0, 10, 11, 13, 15, 14, 12], strict=True))
DECIDED = [(answer, ACTS[title]) for answer, title, _ in ENDS if ACTS[title] != 14]


@pytest.mark.parametrize(("answer", "code"), DECIDED, ids=lambda found: str(found)[:8])
def test_the_second_workflow_acts_on_each_end_by_its_exit_code(
    service: Any, run: Callable[..., str], tmp_path: Path, answer: dict[str, Any], code: int
) -> None:
    experiment = registered(service)
    published(service, experiment, {**answer, "decided": True}, whole())
    (step,) = (step for step in job("verdicts")["steps"] if "curl" in step.get("run", ""))
    told = run(step["run"], SERVICE_PROJECT_KEY=service.project.keys[KeyKind.PROJECT])

    acted = {0: f"promote {SHA}", 10: f"roll-back {SHA}", 13: f"roll-back {SHA}"}
    assert told.splitlines()[-1] == acted.get(
        code, f"{experiment} ended with {code}: nothing is done by itself"
    )
    assert (tmp_path / "summary.md").read_text().startswith("## ")
    suite = ET.parse(tmp_path / f"verdict-{experiment}.xml").getroot()  # noqa: S314 (ours)
    assert suite.get("tests") == "1"


def test_what_is_not_decided_is_left_alone(service: Any, run: Callable[..., str]) -> None:
    published(service, registered(service), ABSTAIN, whole())
    (step,) = (step for step in job("verdicts")["steps"] if "curl" in step.get("run", ""))
    assert run(step["run"], SERVICE_PROJECT_KEY=service.project.keys[KeyKind.PROJECT]) == ""


def test_curl_and_jq_alone_are_enough(service: Any, run: Callable[..., str]) -> None:
    service.post("/v1/deploys", {"commit": {"sha": BASE}})
    (script,) = (block for block in blocks("sh") if "ask()" in block)
    keys = {
        "WRITE_KEY": service.project.keys[KeyKind.WRITE],
        "PROJECT_KEY": service.project.keys[KeyKind.PROJECT],
    }
    assert run(script, BASE=BASE, SHA=SHA, **keys) == "abstain\n"
    (experiment,) = service.get("/v1/reward").json()["experiments"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (SHA, BASE)
    published(
        service, experiment["experiment_id"], {**ABSTAIN, "guardrail_breaches": ["error"]}, whole()
    )
    assert run(script, BASE=BASE, SHA=SHA, **keys) == "breached\n"
