"""`deploy`, `register` and `close`: the same over HTTP and in the store."""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.tenants.keys import KeyKind
from tests.mcp_server.conftest import answering
from tests.processes.api_process import eventually
from tests.world import World

DEFAULT = "Its target is activation, the project's default.\n"
UNSEEN = (
    "`error` was never received: a keep will wait a day. Send it, or drop it in the settings:"
    " `guardrails`.\n"
)
FIRST_LOOK = (
    re.escape(UNSEEN) + r"The first look at \w+ can come at \d{4}-\d\d-\d\d \d\d:\d\d UTC,"
    r" in (?P<span>\d+) (?:minutes|hours):"
    r" the first units have so long to bring their outcomes\.\n"
)


STARTS = "It starts with the next run of the pipeline. The pipeline has not run yet.\n"


def deployed(service: World, *shas: str) -> None:
    for sha in shas:
        service.deploy(sha)


def test_a_registration_prints_the_id_alone_so_that_a_shell_can_keep_it(stored, command) -> None:
    deployed(stored, "aaaaaaa", "bbbbbbb")
    words = ("register", "--commit", "bbbbbbb", "--metric", "order", "-p", "shop")
    result = command(*words)
    (evidence,) = stored.listed()
    assert (result.exit_code, result.stdout) == (0, f"{evidence['experiment_id']}\n")
    assert (evidence["treatment_commit"], evidence["control_commit"]) == ("bbbbbbb", "aaaaaaa")
    assert result.stderr == STARTS + UNSEEN
    stored.freeze()
    # A block of 5 minutes, the window of 30, and 2 minutes for events that are late.
    said = re.fullmatch(FIRST_LOOK, command(*words).stderr)
    assert said is not None
    assert 32 <= int(said["span"]) <= 37
    assert evidence["metric"] == "order"
    again = command("register", "--metric", "order", "-p", "shop", "--json")
    assert json.loads(again.stdout) == {"experiment_id": evidence["experiment_id"]}


def test_a_registration_says_what_comes_and_what_never_came(stored, command) -> None:
    deployed(stored, "aaaaaaa", "bbbbbbb")
    events = [{"event": "page_view", "session_id": f"s{number}"} for number in range(25)]
    strange = {"event": "red\x1b[31m", "session_id": "s1"}
    assert stored.post("/v1/events", {"events": [*events, strange]}).status_code == 202
    payment = {"occurred_at": datetime.now(UTC).isoformat(), "user_ref": "u", "event": "expansion"}
    payment |= {"amount": {"value": 1, "currency": "USD"}, "idempotency_key": "k"}
    for _ in range(2):
        assert stored.post("/v1/revenue/events", payment).status_code == 200
    words = ("register", "--commit", "bbbbbbb", "-p", "shop")

    def heard() -> bool:
        return "`expansion` 12 an hour" in command(*words, "--metric", "expansion").stderr

    # A process adds its counts to the store every few seconds; a payment sent twice came once.
    eventually(heard, seconds=30)
    assert UNSEEN in command(*words, "--metric", "expansion").stderr
    stored.freeze()
    said = command(*words, "--metric", "expansion").stderr
    assert UNSEEN in said
    assert "Received: `page_view` 300 an hour, `" in said
    # No name of a stranger writes on the terminal.
    assert "\x1b" not in said
    # Fourteen days are far away, and it is said.
    assert "in 14 days: the first units" in said
    assert "name another metric" in said
    stored.register(treatment_commit="bbbbbbb", target_metric="signup")
    stored.freeze()
    assert "No `signup` event was ever received" in command(*words, "--metric", "signup").stderr
    checklist = {line["check"]: line for line in stored.get("/v1/reward/checklist").json()}
    assert "page_view (300 an hour)" in checklist["target seen"]["seen"]
    assert "in 14 days" in checklist["canary and control both get traffic"]["seen"]


def test_before_the_freeze_a_metric_is_looked_for_by_its_events(stored, command) -> None:
    refunds = {"sources": ["refunded"], "better": "lower", "margin": 0.2}
    stored.settings(
        metrics={"paid": {"sources": ["checkout"]}, "refunds": refunds}, guardrails=["refunds"]
    )
    deployed(stored, "aaaaaaa", "bbbbbbb")
    checkout = {"event": "checkout", "session_id": "s1"}
    assert stored.post("/v1/events", {"events": [checkout]}).status_code == 202
    words = ("register", "--commit", "bbbbbbb", "-p", "shop", "--metric", "paid")
    eventually(lambda: "No `paid`" not in command(*words).stderr, seconds=30)
    # As the registration was assigned, whatever the settings say since.
    stored.settings(metrics={"paid": {"sources": ["bought"]}}, guardrails=["error"])
    assert "`refunds` was never received: a keep will wait a day." in command(*words).stderr

    def checks() -> tuple[bool, bool]:
        lines = {line["check"]: line["ok"] for line in stored.get("/v1/reward/checklist").json()}
        return lines["target seen"], lines["guardrails seen"]

    assert checks() == (True, False)
    stored.freeze()
    assert checks() == (True, False)


def test_a_further_attempt_is_named_with_what_it_needs(stored, command) -> None:
    deployed(stored, "aaaaaaa", "bbbbbbb")
    words = ("register", "--commit", "bbbbbbb", "-p", "shop")
    assert "attempt" not in command(*words, "--metric", "order").stderr
    again = command(*words, "--metric", "signup")
    assert (
        "It is attempt 2 at this change: it fires at an e-value of 80, where a first attempt fires"
        " at 20.\n"
    ) in again.stderr


def test_the_list_shows_each_experiment_with_its_verdict_the_newest_first(
    stored, command, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert "deploy-reward register" in command("list", "-p", "shop").stderr
    deployed(stored, "aaaaaaa", "bbbbbbb")
    first, second = (stored.register(target_metric=metric) for metric in ("order", "signup"))
    stored.post(f"/v1/reward/{first}/close", {})
    shown = command("list", "-p", "shop").stdout
    assert shown.index(second) < shown.index(first)
    assert "Can't say yet" in shown
    listed = json.loads(command("list", "-p", "shop", "--limit", "1", "--json").stdout)
    assert [each["experiment_id"] for each in listed["experiments"]] == [second]
    assert "There are more" in command("list", "-p", "shop", "--limit", "1").stderr
    assert second not in command("list", "-p", "shop", "--status", "decided").output


def test_a_registration_that_waits_for_its_deploy_says_so(stored, command) -> None:
    deployed(stored, "aaaaaaa")
    stored.deploy("bbbbbbb", environment="staging")
    result = command("register", "--commit", "bbbbbbb", "-p", "shop", "--json")
    (evidence,) = stored.listed()
    assert json.loads(result.stdout) == {"experiment_id": evidence["experiment_id"]}
    assert result.stderr.startswith(
        "It starts with the deploy of bbbbbbb to production, which is not recorded yet"
    )
    deployed(stored, "bbbbbbb")
    stored.freeze()
    bound = command("register", "--commit", "bbbbbbb", "-p", "shop")
    assert re.fullmatch(DEFAULT + FIRST_LOOK, bound.stderr)


def test_a_canary_that_stands_on_a_withdrawn_one_says_whose_effect_is_joint(
    stored, command
) -> None:
    deployed(stored, "aaaaaaa")
    for sha, base in (("bbbbbbb", "aaaaaaa"), ("ccccccc", "aaaaaaa"), ("ddddddd", "bbbbbbb")):
        stored.deploy(sha, 0.1, base=base)
    stored.deploy("bbbbbbb", 0)
    beside = command("register", "--commit", "ccccccc", "-p", "shop")
    stacked = command("register", "--commit", "ddddddd", "-p", "shop")
    assert (beside.exit_code, beside.stderr) == (0, STARTS + DEFAULT + UNSEEN)
    joint = "Its effect is measured together with that of bbbbbbb: the control lacks them too.\n"
    assert stacked.stderr == f"{STARTS[:-1]} {joint}{DEFAULT}{UNSEEN}"


@pytest.mark.parametrize("status", [404, 503])
def test_a_registration_of_which_nothing_more_can_be_told_prints_its_id(
    command, monkeypatch, status
) -> None:
    with answering() as service:
        service.answers_with("/v1/reward/register", {"experiment_id": "exp_1"}, status=201)
        service.answers_with("/v1/reward?status=open&limit=200", {}, status=status)
        monkeypatch.setenv("SERVICE_API_URL", service.url)
        monkeypatch.setenv("SERVICE_PROJECT_KEY", "rk_1")
        result = command("register")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "exp_1\n", "")


def test_every_option_of_a_registration_reaches_the_experiment(stored, command) -> None:
    deployed(stored, "aaaaaaa", "bbbbbbb", "ccccccc")
    words = ["--metric", "order", "--value", "40", "--control", "aaaaaaa", "--route", "/cart"]
    words += ["--guardrail", "error", "--guardrail", "refund", "--metadata", '{"ticket": 7}']
    assert command("register", *words, "-p", "shop").exit_code == 0
    stored.freeze()
    (result,) = stored.listed()
    with stored.store.engine.connect() as connection:
        request, policy = connection.exec_driver_sql(
            "SELECT request, policy FROM deploy_reward.experiments"
        ).one()
    assert result["control_commit"] == "aaaaaaa"
    assert request["metadata"] == {"ticket": 7}
    assert policy["value_per_conversion"] == 40.0
    assert policy["routes"] == ["/cart"]
    assert [each["name"] for each in policy["guardrails"]] == ["error", "refund"]


def test_a_flag_is_registered_with_both_values_and_no_guardrails(stored, command) -> None:
    deployed(stored, "aaaaaaa")
    stored.settings(locked=[])
    words = ["--flag", "new_cart=true", "--flag-control", "false", "--no-guardrails"]
    result = command("register", *words, "-p", "shop")
    assert result.exit_code == 0, result.output
    stored.freeze()
    with stored.store.engine.connect() as connection:
        change, policy = connection.exec_driver_sql(
            "SELECT change, policy FROM deploy_reward.experiments"
        ).one()
    assert change == ["new_cart=true"]
    assert policy["guardrails"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value", "3"], "give both"),
        (["--flag-control", "off"], "give both"),
        (["--flag", "new_cart"], "NAME=VALUE"),
        (["--guardrail", "error", "--no-guardrails"], "contradict"),
        (["--metadata", "{"], "not JSON"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anyone_is_asked(command, words, said) -> None:
    result = command("register", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_deploy_prints_its_id_and_says_what_was_assumed(stored, command) -> None:
    command("deploy", "aaaaaaa", "-p", "shop")
    result = command("deploy", "BBBBBBB", "--allocation", "0.1", "-p", "shop")
    last = stored.get("/v1/deploys/last").json()["deploy"]
    assert (result.exit_code, result.stdout) == (0, f"{last['deploy_id']}\n")
    assert result.stderr == (
        "Commit bbbbbbb in production; 10 % of units; on aaaaaaa (assumed: name it with --base)\n"
    )


def test_every_option_of_a_deploy_reaches_its_record(stored, command, tmp_path) -> None:
    graph, diff = tmp_path / "graph.json", tmp_path / "diff.json"
    routes = [{"path": "/cart", "files": ["lib/cart.ts"]}]
    graph.write_text(json.dumps({"schema_version": 1, "routes": routes}))
    # GitHub's answer names much that is never stored.
    file = {"filename": "lib/cart.ts", "status": "modified", "patch": "-a\n+b"}
    diff.write_text(json.dumps({"base_commit": {"sha": "ccccccc"}, "files": [file]}))
    words = ["--environment", "staging", "--deployed-at", "2026-01-31T12:00:00Z", "--graph", graph]
    words += ["--diff", diff, "--base", "aaaaaaa", "--change", "bbbbbbb", "--change", "ddddddd"]
    words += ["--message", "Shorter", "--author", "Ada", "--branch", "main", "--json"]
    words += ["--url", "https://git.example/b", "--allocation", "0.5"]
    result = command("deploy", "bbbbbbb", *words, "-p", "shop")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    shown = stored.get("/v1/deploys/last?environment=staging").json()["deploy"]
    assert record == shown
    assert record["commit"] == {
        "sha": "bbbbbbb",
        "message": "Shorter",
        "author": "Ada",
        "branch": "main",
        "url": "https://git.example/b",
        "changes": ["bbbbbbb", "ddddddd"],
    }
    assert (record["base_commit"], record["deployed_at"]) == ("aaaaaaa", "2026-01-31T12:00:00Z")
    assert (record["allocation"], record["affected_routes"]) == (0.5, ["/cart"])


@pytest.mark.usefixtures("stored")
def test_git_lists_the_files_that_changed_since_the_base(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = tmp_path / "graph.json"
    files = {"/cart": "lib/cart.ts", "/pay": "lib/bill.ts", "/old": "old.ts", "/left": "left.ts"}
    routes = [{"path": path, "files": [file]} for path, file in files.items()]
    graph.write_text(json.dumps({"schema_version": 1, "routes": routes}))

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@shop.example"]
        done = subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init")
    for name in files.values():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"{name} " * 20)
    git("add", "lib", "old.ts", "left.ts")
    git("commit", "-m", "first")
    git("mv", "lib/bill.ts", "lib/pay.ts")
    git("rm", "old.ts")
    Path("lib/cart.ts").write_text("other")
    git("commit", "-a", "-m", "second")
    base, commit = git("rev-parse", "HEAD^"), git("rev-parse", "HEAD")
    words = ["deploy", commit, "--graph", graph, "--diff", "git", "--json", "-p", "shop"]
    deployed = command(*words, "--base", base)
    assert json.loads(deployed.stdout)["affected_routes"] == ["/cart", "/old", "/pay"]
    # As GitLab names what stood before a first push.
    first = command(*words, "--base", "0" * 40)
    assert (first.exit_code, json.loads(first.stdout)["affected_routes"]) == (0, [])
    without = command(*words)
    assert (without.exit_code, "--diff git asks for --base" in without.stderr) == (2, True)
    shallow = command(*words, "--base", "abcdef1")
    assert shallow.exit_code == 1
    assert f"git cannot compare abcdef1 and {commit} here" in shallow.stderr


def test_a_diff_that_is_no_json_is_a_wrong_call(command, tmp_path) -> None:
    (tmp_path / "diff").write_text("diff --git")
    result = command("deploy", "aaaaaaa", "--diff", tmp_path / "diff")
    assert result.exit_code == 2
    assert "--diff" in result.stderr


def test_a_deploy_with_the_project_key_is_told_which_key_it_needs(served, command) -> None:
    result = command("deploy", "aaaaaaa")
    assert result.exit_code == 1
    assert "SERVICE_PROJECT_KEY must hold the write key (wk_…)" in result.stderr
    assert served.project.keys[KeyKind.PROJECT] not in result.output


@pytest.mark.usefixtures("served")
def test_a_missing_key_is_named_with_its_kind(command, monkeypatch) -> None:
    monkeypatch.delenv("SERVICE_PROJECT_KEY")
    for words, kind in (
        (["deploy", "aaaaaaa"], "wk_"),
        (["register"], "rk_"),
        (["close", "e"], "rk_"),
    ):
        result = command(*words)
        assert (result.exit_code, kind in result.stderr) == (1, True)


def test_an_address_where_nobody_answers_is_one_line_without_the_key(command, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SERVICE_PROJECT_KEY", "rk_secret")
    for words in (["register"], ["close", "exp_1"], ["explain", "exp_1"], ["wait", "exp_1"]):
        result = command(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            "Error: No connection to the service at http://127.0.0.1:1. Check that it runs"
            " (`deploy-reward up` starts it) and that SERVICE_API_URL is right.\n"
        )


@pytest.mark.parametrize("key", ["rk_\n1", "rk_ 1", "rk_é"])
def test_a_key_that_no_header_holds_is_refused_and_not_shown(command, monkeypatch, key) -> None:
    monkeypatch.setenv("SERVICE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SERVICE_PROJECT_KEY", key)
    result = command("register")
    assert result.exit_code == 1
    assert key not in result.output


def test_a_closed_experiment_says_what_comes_and_closing_again_is_harmless(stored, command) -> None:
    deployed(stored, "aaaaaaa", "bbbbbbb")
    experiment_id = command("register", "-p", "shop").stdout.strip()
    first, again = (command("close", experiment_id) for _ in range(2))
    assert first.exit_code == again.exit_code == 0
    assert first.stdout == (f"{experiment_id} is closed: it will be decided without a verdict.\n")
    contract = json.loads(command("close", experiment_id, "--json").stdout)
    assert contract == stored.get(f"/v1/reward/{experiment_id}").json()


@pytest.mark.usefixtures("served")
def test_an_experiment_that_the_project_lacks_may_be_another_project_s(command) -> None:
    result = command("explain", "exp_" + "0" * 20)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: there is no such experiment in this project; SERVICE_PROJECT_KEY may hold another"
        " project's key\n"
    )
