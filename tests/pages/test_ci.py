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

from storage.releases.freeze import freeze, unfreeze
from storage.tenants.keys import KeyKind
from tests.cli.changes.test_report import ENDS, whole
from tests.cli.changes.test_wait import ABSTAIN, FOUND, published
from tests.cli.conftest import serving
from tests.conftest import Service

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "jq"))), reason="bash, curl or jq is not here"
    ),
]

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
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
def service(tenant: Service) -> Service:
    """A project of the test's own."""
    return tenant


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
    deployed(service, BASE)
    return canary(service, SHA)


def deployed(service: Any, sha: str, share: float | None = None, **members: Any) -> None:
    body = {"commit": {"sha": sha}, **members, **({} if share is None else {"allocation": share})}
    assert service.post("/v1/deploys", body).status_code == 201


def canary(service: Any, sha: str, metric: str = "activation") -> str:
    """A canary as the first workflow makes one."""
    deployed(service, sha, 0.1)
    body = {"treatment_commit": sha, "target_metric": metric}
    return service.post("/v1/reward/register", body).json()["experiment_id"]


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


def keys_of(service: Any) -> dict[str, str]:
    return {
        "WRITE_KEY": service.project.keys[KeyKind.WRITE],
        "PROJECT_KEY": service.project.keys[KeyKind.PROJECT],
        "SERVICE_PROJECT_KEY": service.project.keys[KeyKind.PROJECT],
    }


def second_workflow() -> str:
    (step,) = (step for step in job("verdicts")["steps"] if "curl" in step.get("run", ""))
    assert step["env"] == {"WRITE_KEY": "${{ secrets.REWARD_WRITE_KEY }}"}
    return step["run"]


def curl_and_jq() -> str:
    first, second = (block for block in blocks("sh") if "ask " in block)
    return first[first.index("ask()") : first.index("jq --arg")] + second


# The workflow starts the command line some times a run: seconds of a processor.
@pytest.fixture(params=[curl_and_jq, pytest.param(second_workflow, marks=pytest.mark.deep)])
def act(request: pytest.FixtureRequest, service: Any, run: Callable[..., str]) -> Any:
    """Runs what a schedule runs, of the page's both forms, and returns what the scripts did."""
    script = request.param()

    def act() -> list[str]:
        done = run(script, **keys_of(service)).splitlines()
        return [line for line in done if line.startswith(("promote ", "roll-back "))]

    return act


KEEP, ROLLBACK = {"verdict": "keep", **FOUND}, {"verdict": "rollback", **FOUND}
HOTFIX = "d0" * 20
C1, C2, C3 = "c1" * 20, "c2" * 20, "c3" * 20


def decided(service: Any, experiment: str, answer: dict[str, Any]) -> None:
    published(service, experiment, {**answer, "decided": True}, whole())


@pytest.mark.parametrize(("answer", "code"), DECIDED, ids=lambda found: str(found)[:8])
def test_the_second_workflow_acts_on_each_end_by_its_exit_code(
    service: Any, run: Callable[..., str], tmp_path: Path, answer: dict[str, Any], code: int
) -> None:
    experiment = registered(service)
    decided(service, experiment, answer)
    told = run(second_workflow(), **keys_of(service))

    acted = {0: f"promote {SHA}", 10: f"roll-back {SHA}", 13: f"roll-back {SHA}"}
    assert told.splitlines()[-1] == acted.get(
        code, f"{experiment} ended with {code}: nothing is done by itself"
    )
    assert (tmp_path / "summary.md").read_text().startswith("## ")
    suite = ET.parse(tmp_path / f"verdict-{experiment}.xml").getroot()  # noqa: S314 (ours)
    assert suite.get("tests") == "1"
    if code in (0, 10):
        assert run(second_workflow(), **keys_of(service)) == ""


def test_what_is_not_decided_is_left_alone(service: Any, act: Any) -> None:
    published(service, registered(service), ABSTAIN, whole())
    assert act() == []


def test_a_keep_after_a_rollback_and_a_rollback_after_a_keep_are_each_acted_on_once(
    service: Any, act: Any
) -> None:
    deployed(service, BASE)
    decided(service, canary(service, C1), ROLLBACK)
    decided(service, canary(service, C2), KEEP)
    assert act() == [f"roll-back {C1}", f"promote {C2}"]
    # Whatever the next runs remember of the last one, which is nothing.
    assert act() == []
    third = canary(service, C3)
    assert act() == []
    decided(service, third, ROLLBACK)
    assert act() == [f"roll-back {C3}"]
    assert act() == []
    shares = {
        sha: service.get("/v1/reward", params={"treatment_commit": sha}).json()["experiments"][0][
            "allocation"
        ]
        for sha in (C1, C2, C3)
    }
    assert shares == {C1: 0, C2: 1, C3: 0}


def test_what_was_acted_on_is_not_acted_on_again_when_the_commit_is_deployed_again(
    service: Any, act: Any
) -> None:
    deployed(service, BASE)
    decided(service, canary(service, C1), KEEP)
    decided(service, canary(service, C2), KEEP)
    # The older one never: users would lose the newer.
    assert act() == [f"promote {C2}"]
    deployed(service, C1, 0.2)
    deployed(service, C2, 0.5)
    assert act() == []


@pytest.mark.parametrize(
    ("sha", "share"), [(HOTFIX, None), (HOTFIX, 1), (BASE, None), (BASE, 1), (HOTFIX, 0.1)]
)
def test_a_canary_is_not_promoted_over_what_came_after_it_but_is_rolled_back(
    service: Any, act: Any, sha: str, share: float | None
) -> None:
    deployed(service, BASE)
    helps = canary(service, C1)
    deployed(service, sha, share)
    # A later step of its ramp makes the canary no newer.
    deployed(service, C1, 0.5)
    decided(service, helps, KEEP)
    assert act() == []
    (listed,) = service.get("/v1/reward", params={"pending": True}).json()["experiments"]
    assert (listed["experiment_id"], listed["superseded_by"]) == (helps, sha)
    harms = canary(service, C1, "signup_completed")
    decided(service, harms, ROLLBACK)
    assert act() == [f"roll-back {C1}"]


def test_a_canary_withdrawn_beside_it_is_nothing_that_came_after(service: Any, act: Any) -> None:
    deployed(service, BASE)
    first = canary(service, C1)
    second = canary(service, C2)
    decided(service, first, KEEP)
    decided(service, second, ROLLBACK)
    assert act() == [f"roll-back {C2}"]
    assert act() == [f"promote {C1}"]
    assert act() == []


def test_what_was_promoted_or_withdrawn_by_hand_is_left_alone(service: Any, act: Any) -> None:
    deployed(service, BASE)
    for sha, share, answer in ((C1, 0, ROLLBACK), (C2, 1, KEEP), (C3, 0, KEEP)):
        decided(service, canary(service, sha), answer)
        deployed(service, sha, share)
    assert act() == []


def test_a_keep_on_one_metric_promotes_nothing_that_another_rolls_back(
    service: Any, act: Any
) -> None:
    deployed(service, BASE)
    decided(service, canary(service, C1), KEEP)
    decided(service, canary(service, C1, "signup_completed"), ROLLBACK)
    assert act() == [f"roll-back {C1}"]
    assert act() == []


def test_while_frozen_nothing_is_acted_on_and_later_it_is(service: Any, act: Any) -> None:
    deployed(service, BASE)
    decided(service, canary(service, C1), KEEP)
    service.in_store(lambda connection: freeze(connection, "an incident"))
    assert act() == []
    service.in_store(unfreeze)
    assert act() == [f"promote {C1}"]


def test_a_decision_is_pending_for_as_long_as_no_schedule_came(service: Any, act: Any) -> None:
    deployed(service, BASE, deployed_at="2026-08-01T00:00:00Z")
    experiment = canary(service, C1)
    decided(service, experiment, KEEP)
    service.in_store(
        lambda connection: connection.exec_driver_sql(
            "UPDATE deploys SET deployed_at = deployed_at - interval '9 days'"
            f" WHERE allocation > 0 AND project_id = {service.project_id}"
        )
    )
    assert act() == [f"promote {C1}"]


def test_a_script_that_fails_is_run_again_by_the_next_schedule(
    service: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    deployed(service, BASE)
    decided(service, canary(service, C1), KEEP)
    script = tmp_path / "promote.sh"
    works = script.read_text()
    script.write_text("#!/bin/bash\nexit 1\n")
    with pytest.raises(AssertionError):
        run(second_workflow(), **keys_of(service))
    script.write_text(works)
    assert run(second_workflow(), **keys_of(service)).endswith(f"promote {C1}\n")


def test_curl_and_jq_alone_are_enough(service: Any, run: Callable[..., str]) -> None:
    service.post("/v1/deploys", {"commit": {"sha": BASE}})
    (script,) = (block for block in blocks("sh") if "ask()" in block)
    keys = keys_of(service)
    assert run(script, BASE=BASE, SHA=SHA, **keys) == "abstain\n"
    (experiment,) = service.get("/v1/reward").json()["experiments"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (SHA, BASE)
    published(
        service, experiment["experiment_id"], {**ABSTAIN, "guardrail_breaches": ["error"]}, whole()
    )
    assert run(script, BASE=BASE, SHA=SHA, **keys) == "breached\n"
