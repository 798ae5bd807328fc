"""What docs/ci.md tells pipelines to run does what it says, against a running API."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from storage.releases.freeze import freeze, unfreeze
from storage.tenants.attestations import Attestations
from storage.tenants.keys import KeyKind
from tests.cli.changes.test_report import ENDS, whole
from tests.cli.changes.test_wait import ABSTAIN, FOUND, published
from tests.cli.conftest import serving
from tests.clients.github import REPOSITORY, TOKEN, GitHub, serving_github
from tests.clients.gitlab import PROJECT as GITLAB_PROJECT
from tests.clients.gitlab import TOKEN as GITLAB_TOKEN
from tests.clients.gitlab import serving_gitlab
from tests.clients.page import blocks, example, page
from tests.pipeline.scenarios.test_thresholds import REQUEST, slow_for
from tests.processes.action import ActionRun, run_action, runner_path
from tests.world import DAY, A, K

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "jq"))), reason="bash, curl or jq is not here"
    ),
]

PAGE = page("ci.md")
BASE, SHA = "a" * 40, "b" * 40
PUSH = {"before": BASE, "after": SHA, "ref": "refs/heads/main"}


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load(example(f"{name}.yml"))


def job(name: str) -> dict[str, Any]:
    (only,) = workflow(name)["jobs"].values()
    return only


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A machine that runs a job: a folder, the team's programs, the client, a GitHub."""

    folder: Path
    environment: dict[str, str]
    github: GitHub

    def shell(self, script: str, **variables: str) -> str:
        """Runs a script, which must succeed, and returns what it prints."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def action(self, name: str, *, event: Any, **inputs: str) -> ActionRun:
        return run_action(
            name,
            {key.replace("_", "-"): value for key, value in inputs.items()},
            event=event,
            environment=self.environment,
            token=TOKEN,
            folder=self.folder,
        )


@pytest.fixture
def runner(tenant, tmp_path) -> Iterator[Runner]:
    """A runner beside a team's own programs, which tell of their calls."""
    cli = f'exec {sys.executable} -m cli "$@"'
    arguments = tmp_path / "arguments"
    arguments.touch()
    curl = f'printf "%s\\n" "$@" >> {arguments}; exec {shutil.which("curl")} "$@"'
    path = runner_path(tmp_path / "bin", **{"deploy-reward": cli, "curl": curl})
    for name in ("canary", "promote", "roll-back"):
        script = tmp_path / f"{name}.sh"
        script.write_text(f'#!/bin/bash\necho {name} "$@"\n')
        script.chmod(0o755)
    with serving(tenant) as url, serving_github() as github:
        environment = {
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SERVICE_API_URL": url,
            "GITHUB_API_URL": github.url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "17",
            "GITHUB_SHA": SHA,
            "GITHUB_REF_NAME": "main",
            **keys_of(tenant),
        }
        yield Runner(folder=tmp_path, environment=environment, github=github)
    # Whoever lists the machine's processes reads their arguments.
    shown = arguments.read_text()
    assert not [key for key in (*keys_of(tenant).values(), TOKEN, GITLAB_TOKEN) if key in shown]


def registered(tenant: Any) -> str:
    tenant.deploy(BASE)
    return canary(tenant, SHA)


def canary(tenant: Any, sha: str, metric: str = "activation") -> str:
    tenant.deploy(sha, 0.1)
    return tenant.register(treatment_commit=sha, target_metric=metric)


def canaried(runner: Runner, event: Any = None, **inputs: str) -> ActionRun:
    """Runs the first action, with what the page's workflow gives it."""
    (step,) = (step for step in job("canary")["steps"] if "canary@main" in step.get("uses", ""))
    given = {
        **{name.replace("-", "_"): value for name, value in step["with"].items()},
        **secrets(runner),
        **inputs,
    }
    ran = runner.action("canary", event=event or PUSH, **given)
    assert ran.code == 0, ran.log
    return ran


def secrets(runner: Runner) -> dict[str, str]:
    """What the secrets and variables of a repository hold."""
    return {
        "url": runner.environment["SERVICE_API_URL"],
        "write_key": runner.environment["WRITE_KEY"],
        "project_key": runner.environment["PROJECT_KEY"],
    }


def test_the_first_workflow_records_the_canary_with_its_diff_and_registers_it(
    tenant, runner
) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, message="Order in one step\n\nOf three.", pull=7)
    tenant.deploy(BASE)
    ran = canaried(runner)
    # A step may be run again.
    assert canaried(runner).outputs == ran.outputs

    (experiment,) = tenant.get("/v1/reward").json()["experiments"]
    assert experiment["experiment_id"] == ran.outputs["experiment-id"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (SHA, BASE)
    assert experiment["metric"] == "activation"
    deploy = tenant.get("/v1/deploys/last").json()["deploy"]
    assert deploy["deploy_id"] == ran.outputs["deploy-id"]
    assert (deploy["base_commit"], deploy["allocation"]) == (BASE, 0.1)
    assert deploy["commit"]["message"] == "Order in one step\n\nOf three."
    assert (deploy["commit"]["author"], deploy["commit"]["branch"]) == ("ada", "main")
    assert [file["filename"] for file in deploy["diff"]["files"]] == ["app/page.tsx"]


def test_the_pull_request_and_a_check_say_once_what_is_known_of_the_canary(runner) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, pull=7)
    # Others talk there too.
    runner.github.comments[7] = [{"id": number, "body": "Nice!"} for number in range(1, 131)]
    experiment = canaried(runner).outputs["experiment-id"]
    canaried(runner)
    *_, comment = runner.github.comments[7]
    assert len(runner.github.comments[7]) == 131
    assert comment["body"].startswith(f"<!-- deploy-reward {experiment} -->\n## Can't say yet\n")
    (check,) = runner.github.checks.values()
    assert (check["name"], check["head_sha"]) == ("deploy-reward: activation", SHA)
    assert (check["status"], check["external_id"]) == ("in_progress", experiment)
    assert check["details_url"].endswith(f"/dashboard/experiments/{experiment}")


@pytest.mark.nightly
def test_a_base_that_the_commit_does_not_contain_is_not_named(tenant, runner) -> None:
    runner.github.push(SHA)
    runner.github.push(BASE)
    tenant.deploy(BASE)
    canaried(runner)
    deploy = tenant.get("/v1/deploys/last").json()["deploy"]
    assert (deploy["base_commit"], deploy["base_assumed"]) == (BASE, True)


@pytest.mark.nightly
def test_a_step_of_the_ramp_keeps_its_base(tenant, runner) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA)
    tenant.deploy(BASE)
    first, second = canaried(runner), canaried(runner, allocation="0.5")
    assert first.outputs["experiment-id"] == second.outputs["experiment-id"]
    deploy = tenant.get("/v1/deploys/last").json()["deploy"]
    assert (deploy["base_commit"], deploy["allocation"]) == (BASE, 0.5)


STATUS = {
    "deployment_status": {"id": 21, "state": "success", "created_at": "2026-11-23T09:00:00Z"},
    "deployment": {"id": 20, "sha": SHA, "environment": "Preview", "payload": {"allocation": 0.25}},
}


@pytest.mark.nightly
def test_a_platform_s_deployment_is_recorded_once_it_succeeded(tenant, runner) -> None:
    runner.github.push(SHA)
    assert workflow("deployed")[True] == "deployment_status"  # YAML 1.1 reads `on` as true
    given = {"register": "false", "allocation": "", "metric": ""}
    ran = canaried(runner, STATUS, **given)
    assert ran.outputs["deploy-id"] == canaried(runner, STATUS, **given).outputs["deploy-id"]
    assert ran.outputs["experiment-id"] == ""
    query = {"environment": "preview"}
    deploy = tenant.get("/v1/deploys/last", params=query).json()["deploy"]
    assert (deploy["commit"]["sha"], deploy["allocation"]) == (SHA, 0.25)
    assert tenant.get("/v1/reward").json()["experiments"] == []


@pytest.mark.nightly
def test_a_preview_is_registered_in_its_environment_and_its_comment_says_how_it_stands(
    tenant, runner
) -> None:
    runner.github.push(SHA, pull=7)
    given = {"register": "true", "allocation": "", "metric": "order_placed"}
    experiment = canaried(runner, STATUS, **given).outputs["experiment-id"]
    bound = tenant.get(f"/v1/reward/{experiment}/registration").json()
    assert (bound["environment"], bound["waits_for_deploy"]) == ("preview", None)
    (comment,) = runner.github.comments[7]
    assert bound["situation"]["sentence"] in comment["body"]
    (check,) = runner.github.checks.values()
    assert check["name"] == "deploy-reward: order_placed"


@pytest.mark.parametrize(
    "state",
    [
        "failure",
        *(pytest.param(state, marks=pytest.mark.nightly) for state in ("in_progress", "inactive")),
    ],
)
def test_a_deployment_that_did_not_succeed_is_not_recorded(tenant, runner, state) -> None:
    runner.github.push(SHA)
    status = {**STATUS, "deployment_status": {"id": 22, "state": state}}
    ran = canaried(runner, status, register="false")
    assert (ran.outputs["deploy-id"], f"state is {state}" in ran.log) == ("", True)
    assert tenant.get("/v1/deploys/last").status_code == 404


@pytest.mark.nightly
def test_where_the_token_may_not_write_the_job_warns_and_goes_on(runner) -> None:
    runner.github.push(SHA, pull=7)
    runner.github.refused = ("/check-runs", "/issues")
    ran = canaried(runner)
    assert ran.outputs["experiment-id"]
    assert f"::warning::no check on {SHA}" in ran.log
    assert "::warning::no comment on #7" in ran.log
    assert ran.summary.startswith("## Can't say yet")


ACTS = dict(zip((title for _, title, _ in ENDS), [0, 10, 11, 13, 15, 14, 12], strict=True))
DECIDED = [(answer, ACTS[title]) for answer, title, _ in ENDS if ACTS[title] != 14]


def keys_of(tenant: Any) -> dict[str, str]:
    return {
        "WRITE_KEY": tenant.project.keys[KeyKind.WRITE],
        "PROJECT_KEY": tenant.project.keys[KeyKind.PROJECT],
        "SERVICE_PROJECT_KEY": tenant.project.keys[KeyKind.PROJECT],
    }


def acted(runner: Runner, **inputs: str) -> ActionRun:
    """Runs the second action, with what the page's workflow gives it."""
    (step,) = (step for step in job("verdicts")["steps"] if "verdicts@main" in step.get("uses", ""))
    given = {name.replace("-", "_"): value for name, value in step["with"].items()}
    return runner.action("verdicts", event={}, **{**given, **secrets(runner), **inputs})


def curl_and_jq() -> str:
    (first,) = (block for block in blocks(PAGE, "sh") if "ask()" in block)
    return first[first.index("ask()") : first.index("jq --arg")] + example("verdicts.sh")


def with_curl_and_jq(runner: Runner) -> str:
    return runner.shell(curl_and_jq())


def with_the_action(runner: Runner) -> str:
    ran = acted(runner)
    assert ran.code == 0, ran.log
    return ran.log


# The action starts the command line some times a run: seconds of a processor.
@pytest.fixture(params=[with_curl_and_jq, pytest.param(with_the_action, marks=pytest.mark.deep)])
def act(request, runner) -> Any:
    """Runs what a schedule runs, of the page's both forms, and returns what the scripts did."""

    def act() -> list[str]:
        done = request.param(runner).splitlines()
        return [line for line in done if line.startswith(("promote ", "roll-back "))]

    return act


KEEP, ROLLBACK = {"verdict": "keep", **FOUND}, {"verdict": "rollback", **FOUND}
HOTFIX = "d0" * 20
C1, C2, C3 = "c1" * 20, "c2" * 20, "c3" * 20


def decided(tenant: Any, experiment: str, answer: dict[str, Any]) -> None:
    published(tenant, experiment, {**answer, "decided": True}, whole())


CONCLUSIONS = {
    0: "success",
    10: "failure",
    11: "failure",
    12: "neutral",
    13: "failure",
    15: "action_required",
}


@pytest.mark.parametrize(
    ("answer", "code"),
    [*DECIDED[:2], *(pytest.param(*each, marks=pytest.mark.nightly) for each in DECIDED[2:])],
    ids=lambda each: str(each)[:8],
)
def test_the_second_workflow_acts_on_each_end_by_its_exit_code(
    tenant, runner, answer, code
) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, pull=7)
    experiment = registered(tenant)
    tenant.settings(act_on_unvouched_breaches=True)
    decided(tenant, experiment, answer)
    ran = acted(runner)
    assert ran.code == 0, ran.log

    expected = {0: f"promote {SHA}", 10: f"roll-back {SHA}", 13: f"roll-back {SHA}"}.get(
        code, f"{experiment} ended with {code}: nothing is done by itself"
    )
    assert expected in ran.log.splitlines()
    assert ran.summary.startswith("## ")
    (check,) = runner.github.checks.values()
    assert (check["status"], check["conclusion"]) == ("completed", CONCLUSIONS[code])
    assert check["output"]["summary"] == ran.summary
    (comment,) = runner.github.comments[7]
    assert comment["body"].endswith(ran.summary)
    # Asked for by who withdraws a commit, once.
    reverted = [made["pullRequestId"] for made in runner.github.reverts]
    assert reverted == (["PR_7"] if code in (10, 13) else [])
    again = acted(runner)
    assert again.code == 0, again.log
    assert [made["pullRequestId"] for made in runner.github.reverts] == reverted
    assert len(runner.github.comments[7]) == 1
    if code in (0, 10):
        assert "promote" not in again.log
        assert "roll-back" not in again.log


def test_only_what_the_service_signed_is_promoted_where_an_attestation_is_required(
    tenant, runner
) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, pull=7)
    experiment = registered(tenant)
    decided(tenant, experiment, KEEP)
    required = {"require_attestation": "true"}
    other = Attestations(b"the secret of another service, too").public_key.decode()
    ran = acted(runner, **required, attestation_key=other)
    assert (ran.code, "signed by another service" in ran.log) == (1, True), ran.log
    assert f"::error::{SHA} is not promoted: its verdict is not attested" in ran.log
    assert "\npromote" not in ran.log
    # The canary is pending still; the job's artifact holds the verdict.
    own = tenant.client.get("/.well-known/deploy-reward-key").text
    ran = acted(runner, **required, attestation_key=own, project="another")
    assert (ran.code, "\npromote" in ran.log) == (1, False), ran.log
    assert ", not another" in ran.log
    ran = acted(runner, **required, attestation_key=own)
    assert (ran.code, f"promote {SHA}" in ran.log.splitlines()) == (0, True), ran.log
    envelope = json.loads(ran.artifacts[f"{experiment}.json"])
    (subject,) = json.loads(base64.b64decode(envelope["payload"]))["subject"]
    assert subject["digest"] == {"gitCommit": SHA}


@pytest.mark.nightly
def test_a_revert_is_named_as_its_pull_request_and_carries_the_report(tenant, runner) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, pull=7)
    decided(tenant, registered(tenant), ROLLBACK)
    ran = acted(runner)
    (made,) = runner.github.reverts
    assert made["title"] == 'Revert "Change 7"'
    assert made["body"].startswith("## Roll back: order")
    assert made["body"].endswith("Reverts #7.")
    assert f"Asked for the revert: https://github.example/{REPOSITORY}/pull/900" in ran.log


@pytest.mark.nightly
def test_a_commit_that_came_by_no_pull_request_has_none_to_revert(tenant, runner) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA)
    decided(tenant, registered(tenant), ROLLBACK)
    ran = acted(runner)
    assert ran.code == 0, ran.log
    assert f"roll-back {SHA}" in ran.log
    assert f"{SHA} came by no merged pull request: there is none to revert" in ran.log
    assert runner.github.reverts == []


@pytest.mark.nightly
def test_without_commands_of_the_team_it_reports_and_acts_on_nothing(tenant, runner) -> None:
    runner.github.push(SHA, pull=7)
    experiment = registered(tenant)
    decided(tenant, experiment, ROLLBACK)
    ran = acted(runner, promote="", roll_back="", write_key="")
    assert ran.code == 0, ran.log
    (listed,) = tenant.get("/v1/reward", params={"pending": True}).json()["experiments"]
    assert listed["experiment_id"] == experiment
    assert len(runner.github.comments[7]) == 1


@pytest.mark.nightly
def test_an_open_experiment_is_kept_up_to_date_with_its_picture(tenant, runner) -> None:
    runner.github.push(SHA, pull=7)
    experiment = registered(tenant)
    looks = [
        {
            "at": f"2026-11-23T0{hour}:00:00Z",
            "lift": 0.02,
            "ci": [-0.1 / hour, 0.2 / hour],
            "gated": False,
            "e_value": 1.0,
        }
        for hour in range(1, 6)
    ]
    document = whole(looks=looks)
    document["policy"] |= {"level": 0.05, "unit": "session"}
    published(tenant, experiment, ABSTAIN, document)
    ran = acted(runner)
    assert ran.code == 0, ran.log
    (comment,) = runner.github.comments[7]
    picture = comment["body"].split("```text\n")[1].split("```")[0]
    assert picture.startswith("Treatment minus control, ")
    assert "░ interval" in picture
    (check,) = runner.github.checks.values()
    assert check["status"] == "in_progress"


def got_slower(tenant: Any, base: str = A, sha: str = K) -> str:
    """Lets requests of a canary take longer, and returns its experiment, whose target is open."""
    slow = {"sources": [REQUEST], "over": ["p95", "p99"], "better": "lower"}
    tenant.settings(metrics={"slow": slow}, guardrails=["slow"], default_metric="order")
    tenant.deploy(base, minutes=-DAY)
    tenant.deploy(sha, 0.5, minutes=0, base=base)
    for commit, start, units, times in (
        *((base, -310, 1100, 1), (base, 0, 1500, 1)),
        (sha, 0, 1500, 1.2756),
    ):
        slow_for(tenant, commit, start=start, units=units, every=1, times=times, median=108.1)
    tenant.goes_on()
    experiment = tenant.register(treatment_commit=sha)
    tenant.tick(minutes=400)
    contract = tenant.contract(experiment)
    assert (contract["verdict"], contract["guardrail_breaches"]) == ("abstain", ["slow"])
    said = tenant.evidence(experiment)["sentence"]
    lead = r"slow got worse: p95 404 → 51\d ms\. Take it back\. On order: 3,000 sessions counted\."
    assert re.match(lead, said), said
    return experiment


def test_a_canary_that_got_slower_is_taken_back_while_its_target_is_open(tenant, act) -> None:
    experiment = got_slower(tenant)
    # Its commit is of another repository: GitHub knows nothing of it, and it is taken back once.
    assert act() == [f"roll-back {K}"]
    assert tenant.bound(experiment)["situation"]["state"] == "withdrawn"
    assert act() == []


@pytest.mark.nightly
def test_a_breach_is_said_on_its_commit_and_pull_request_while_its_target_is_open(
    tenant, runner
) -> None:
    runner.github.push(BASE)
    runner.github.push(SHA, pull=7)
    got_slower(tenant, BASE, SHA)
    ran = acted(runner)
    assert (ran.code, f"roll-back {SHA}" in ran.log) == (0, True), ran.log
    (check,) = runner.github.checks.values()
    (comment,) = runner.github.comments[7]
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert "slow got worse" in check["output"]["title"]
    said = (check["output"]["summary"], comment["body"])
    assert all("slow got worse: p95 404 → 51" in text for text in said), said
    assert all("Leave the canary running" not in text for text in said)
    assert [made["pullRequestId"] for made in runner.github.reverts] == ["PR_7"]


def test_a_breach_that_anybody_can_send_is_acted_on_where_the_project_allows_it(
    tenant, act
) -> None:
    tenant.deploy(BASE)
    published(tenant, canary(tenant, C1), {**ABSTAIN, "guardrail_breaches": ["error"]}, whole())
    assert act() == []
    tenant.settings(act_on_unvouched_breaches=True)
    assert act() == [f"roll-back {C1}"]


def test_a_keep_after_a_rollback_and_a_rollback_after_a_keep_are_each_acted_on_once(
    tenant, act
) -> None:
    tenant.deploy(BASE)
    decided(tenant, canary(tenant, C1), ROLLBACK)
    decided(tenant, canary(tenant, C2), KEEP)
    assert act() == [f"roll-back {C1}", f"promote {C2}"]
    # Whatever the next runs remember of the last, which is nothing.
    assert act() == []
    third = canary(tenant, C3)
    assert act() == []
    decided(tenant, third, ROLLBACK)
    assert act() == [f"roll-back {C3}"]
    assert act() == []
    shares = {
        sha: tenant.get("/v1/reward", params={"treatment_commit": sha}).json()["experiments"][0][
            "allocation"
        ]
        for sha in (C1, C2, C3)
    }
    assert shares == {C1: 0, C2: 1, C3: 0}


def test_what_was_acted_on_is_not_acted_on_again_when_the_commit_is_deployed_again(
    tenant, act
) -> None:
    tenant.deploy(BASE)
    decided(tenant, canary(tenant, C1), KEEP)
    decided(tenant, canary(tenant, C2), KEEP)
    # The older never: users would lose the newer.
    assert act() == [f"promote {C2}"]
    tenant.deploy(C1, 0.2)
    tenant.deploy(C2, 0.5)
    assert act() == []


@pytest.mark.parametrize(
    ("sha", "share"), [(HOTFIX, None), (HOTFIX, 1), (BASE, None), (BASE, 1), (HOTFIX, 0.1)]
)
def test_a_canary_is_not_promoted_over_what_came_after_it_but_is_rolled_back(
    tenant, act, sha, share
) -> None:
    tenant.deploy(BASE)
    helps = canary(tenant, C1)
    tenant.deploy(sha, share)
    # A later step of its ramp makes the canary no newer.
    tenant.deploy(C1, 0.5)
    decided(tenant, helps, KEEP)
    assert act() == []
    (listed,) = tenant.get("/v1/reward", params={"pending": True}).json()["experiments"]
    assert (listed["experiment_id"], listed["superseded_by"]) == (helps, sha)
    harms = canary(tenant, C1, "signup_completed")
    decided(tenant, harms, ROLLBACK)
    assert act() == [f"roll-back {C1}"]


def test_a_canary_withdrawn_beside_it_is_nothing_that_came_after(tenant, act) -> None:
    tenant.deploy(BASE)
    first = canary(tenant, C1)
    second = canary(tenant, C2)
    decided(tenant, first, KEEP)
    decided(tenant, second, ROLLBACK)
    assert act() == [f"roll-back {C2}"]
    assert act() == [f"promote {C1}"]
    assert act() == []


def test_what_was_promoted_or_withdrawn_by_hand_is_left_alone(tenant, act) -> None:
    tenant.deploy(BASE)
    for sha, share, answer in ((C1, 0, ROLLBACK), (C2, 1, KEEP), (C3, 0, KEEP)):
        decided(tenant, canary(tenant, sha), answer)
        tenant.deploy(sha, share)
    assert act() == []


def test_a_keep_on_one_metric_promotes_nothing_that_another_rolls_back(tenant, act) -> None:
    tenant.deploy(BASE)
    decided(tenant, canary(tenant, C1), KEEP)
    decided(tenant, canary(tenant, C1, "signup_completed"), ROLLBACK)
    assert act() == [f"roll-back {C1}"]
    assert act() == []


def test_while_frozen_nothing_is_acted_on_and_later_it_is(tenant, act) -> None:
    tenant.deploy(BASE)
    decided(tenant, canary(tenant, C1), KEEP)
    tenant.in_store(lambda connection: freeze(connection, "an incident"))
    assert act() == []
    tenant.in_store(unfreeze)
    assert act() == [f"promote {C1}"]


def test_a_decision_is_pending_for_as_long_as_no_schedule_came(tenant, act) -> None:
    tenant.deploy(BASE, deployed_at="2026-08-01T00:00:00Z")
    experiment = canary(tenant, C1)
    decided(tenant, experiment, KEEP)
    tenant.in_store(
        lambda connection: connection.exec_driver_sql(
            "UPDATE deploys SET deployed_at = deployed_at - interval '9 days'"
            f" WHERE allocation > 0 AND project_id = {tenant.project_id}"
        )
    )
    assert act() == [f"promote {C1}"]


@pytest.mark.nightly
def test_a_script_that_fails_is_run_again_by_the_next_schedule(tenant, runner) -> None:
    tenant.deploy(BASE)
    decided(tenant, canary(tenant, C1), KEEP)
    script = runner.folder / "promote.sh"
    works = script.read_text()
    script.write_text("#!/bin/bash\nexit 1\n")
    assert acted(runner).code == 1
    script.write_text(works)
    assert f"promote {C1}" in acted(runner).log.splitlines()


@pytest.mark.parametrize("merged", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_pipeline_of_gitlab_records_registers_and_notes_it_on_the_merge_request(
    tenant, runner, *, merged
) -> None:
    tenant.deploy(BASE)
    pipeline = yaml.safe_load(example("gitlab-ci.yml"))
    install, *script = pipeline["canary"]["script"]
    assert "deploy-reward-client @ git+" in install
    with serving_gitlab() as gitlab:
        if merged:
            gitlab.merge_requests[SHA] = 5
        runner.shell(
            "\n".join(script),
            CI_API_V4_URL=gitlab.url,
            CI_PROJECT_ID=GITLAB_PROJECT,
            GITLAB_TOKEN=GITLAB_TOKEN,
            CI_COMMIT_SHA=SHA,
            CI_COMMIT_BEFORE_SHA=BASE,
            CI_COMMIT_MESSAGE="Order in one step",
            GITLAB_USER_LOGIN="ada",
            CI_PROJECT_URL="https://gitlab.example/acme/shop",
            CI_PIPELINE_ID="17",
        )
    deploy = tenant.get("/v1/deploys/last").json()["deploy"]
    assert (deploy["base_commit"], deploy["allocation"]) == (BASE, 0.1)
    assert deploy["commit"]["url"] == f"https://gitlab.example/acme/shop/-/commit/{SHA}"
    (experiment,) = tenant.get("/v1/reward").json()["experiments"]
    assert experiment["treatment_commit"] == SHA
    assert ET.parse(runner.folder / "verdict.xml").getroot().get("tests") == "1"  # noqa: S314 (ours)
    notes = gitlab.notes.get(5, [])
    assert len(notes) == int(merged)
    assert all(note.startswith("## Can't say yet") for note in notes)


def test_curl_and_jq_alone_are_enough(tenant, runner) -> None:
    tenant.deploy(BASE)
    (script,) = (block for block in blocks(PAGE, "sh") if "ask()" in block)
    (runner.folder / "compare.json").write_text('{"files": []}')
    assert runner.shell(script, BASE=BASE, SHA=SHA) == "abstain\n"
    (experiment,) = tenant.get("/v1/reward").json()["experiments"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (SHA, BASE)
    published(
        tenant, experiment["experiment_id"], {**ABSTAIN, "guardrail_breaches": ["error"]}, whole()
    )
    assert runner.shell(script, BASE=BASE, SHA=SHA) == "breached\n"
