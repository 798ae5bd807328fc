"""`withdraw` takes back a deploy that was a mistake, and no verdict that has read it changes."""

from datetime import UTC, datetime, timedelta

import pytest

from storage.tenants.keys import KeyKind

A, K, MISTAKE = "aaaaaaa", "bbbbbbb", "ccccccc"
# Of late, so that the experiments are open and their evidence can be computed anew.
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=20)


@pytest.fixture
def mistake(stored) -> str:
    """A deploy amid two hours of a canary, which cuts its analysis blocks."""
    stored.begin = START
    stored.deploy(A, minutes=-1440)
    stored.deploy(K, minutes=0, base=A)
    mistake = stored.deploy(MISTAKE, minutes=50)["deploy_id"]
    for commit in (A, K):
        stored.crowd(commit, start=0, minutes=120, units=60, rates={"order": 0.34})
    stored.send()
    return mistake


def test_a_withdrawn_deploy_changes_nothing_that_a_verdict_has_read(
    command, stored, mistake
) -> None:
    def as_of_then() -> str:
        then = (START + timedelta(hours=2)).isoformat()
        result = command("evaluate", "--as-of", then, "--json")
        assert result.exit_code == 0, result.output
        return result.stdout

    before_it = stored.register(treatment_commit=K, target_metric="order")
    stored.tick()
    read, then = stored.evidence(before_it), as_of_then()
    result = command("withdraw", mistake, "-p", "shop")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"Withdrew the deploy of commit {MISTAKE} in production.\n"
    after_it = stored.register(treatment_commit=K, target_metric="sale")
    # Computed anew it is what it was, and so a later look builds on the same past.
    stored.tick()
    assert stored.evidence(before_it) == read
    assert then.strip("[]\n ") in as_of_then()
    for experiment_id in (before_it, after_it):
        audit = command("audit", experiment_id)
        assert (audit.exit_code, audit.output[-18:]) == (0, "equal to the byte.\n"[-18:])
    # It cuts the analysis blocks of the first, and never was for the other.
    (before, after) = (stored.evidence(each)["looks"] for each in (before_it, after_it))
    assert {look["at"] for look in before} - {look["at"] for look in after}


def test_the_service_is_asked_where_one_is_named(command, served, monkeypatch) -> None:
    deploy_id = served.deploy(A)["deploy_id"]
    monkeypatch.setenv("SERVICE_PROJECT_KEY", served.project.keys[KeyKind.WRITE])
    assert command("withdraw", deploy_id).stdout.startswith("Withdrew the deploy of commit aaaaaaa")
    assert served.get("/v1/deploys/last").status_code == 404
    unknown = command("withdraw", "dep_00000000000000000000")
    assert unknown.exit_code == 1
    advice = "SERVICE_PROJECT_KEY may hold another project's key"
    assert unknown.stderr == f"Error: there is no such deploy in this project; {advice}\n"


@pytest.mark.usefixtures("stored")
def test_an_unknown_deploy_is_told_in_which_project(command) -> None:
    unknown = command("withdraw", "dep_00000000000000000000", "-p", "shop")
    assert unknown.exit_code == 1
    advice = "--project names another"
    assert unknown.stderr == f"Error: there is no such deploy in project 'shop': {advice}\n"
