"""A commit is a single thing, however much of its id deploys, events and registrations write."""

from typing import Any

import pytest

A, K, L = (
    f"{letter}{digit}".ljust(40, digit)
    for letter, digit in (("aaaaaaa", "1"), ("ccccccc", "3"), ("ddddddd", "5"))
)
# Another commit that begins as K does.
TWIN = f"{K[:9]}{'f' * 31}"


def serve(story, control: str, treatment: str, *, units: int = 20) -> None:
    """Page views of the first block, and then events of which each has a route."""
    story.units_of(control, minutes=1, units=units, converting=2)
    story.units_of(treatment, minutes=1, units=units, converting=4)
    story.send()


def refused(answer: Any) -> str:
    assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous_commit"), answer.text
    return answer.json()["detail"]


BOTH = f"begins 2 commits: {K}, {TWIN}. Send more of it"


@pytest.mark.parametrize(
    ("deployed", "reported", "registered"), [(8, 40, K), (40, 8, K[:8]), (12, 8, K)]
)
def test_deploys_and_events_of_other_lengths_are_of_one_commit(
    story, stratum, registered, deployed, reported
) -> None:
    story.deploy(A[:deployed], minutes=-1440)
    story.deploy(K[:deployed], minutes=0, base=A[:reported], allocation=0.5)
    serve(story, A[:reported], K[:reported])
    experiment = story.register(treatment_commit=registered)
    story.tick()
    assert story.cells(experiment) == [(0, stratum(A[:deployed]), 20, 4, 20, 2)]
    counts = story.evidence(experiment)["counts"]
    assert (counts["in_cells"], counts["unknown_commit"], counts["ambiguous_commit"]) == (40, 0, 0)


def test_an_id_that_goes_on_otherwise_is_another_commit(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    serve(story, A, K)
    story.units_of(TWIN, minutes=1, units=3)
    experiment = story.judged(treatment_commit=K)
    assert story.cells(experiment) == [(0, stratum(A), 20, 4, 20, 2)]
    assert story.evidence(experiment)["counts"]["unknown_commit"] == 3


def test_events_whose_id_begins_two_commits_are_counted_as_ambiguous(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    story.deploy(TWIN, minutes=0, base=A, allocation=0)
    serve(story, A, K)
    story.units_of(K[:8], minutes=1, units=7)
    experiment = story.judged(treatment_commit=K)
    assert story.cells(experiment) == [(0, stratum(A), 20, 4, 20, 2)]
    evidence = story.evidence(experiment)
    assert evidence["counts"]["ambiguous_commit"] == 7
    assert "ambiguous_commit" in evidence["warnings"]


def test_whoever_asks_by_an_id_of_two_commits_is_told_both(story) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    story.deploy(TWIN, minutes=1, base=A, allocation=0.1)
    short, post, get = K[:9], story.post, story.get

    def deploy(**members: Any) -> str:
        body = {"commit": {"sha": L}, "diff": {"base_commit": A, "files": []}, **members}
        return refused(post("/v1/deploys", body))

    assert deploy(commit={"sha": short}) == f"{short} {BOTH}"
    assert deploy(commit={"sha": L, "changes": [short]}) == f"{short} {BOTH}"
    assert deploy(diff={"base_commit": short, "files": []}) == f"{short} {BOTH}"
    for member in ("treatment_commit", "control_commit"):
        asked = {"treatment_commit": K, "target_metric": "order", member: short}
        assert refused(post("/v1/reward/register", asked)) == f"{short} {BOTH}"
    assert refused(get(f"/v1/reward?treatment_commit={short}")) == f"{short} {BOTH}"
    gate = get(f"/v1/reward/gate?treatment_commit={short}").json()
    assert (gate["phase"], gate["sentence"]) == ("Running", f"Hold: {short} {BOTH}.")
    # Nothing of it was stored: more of the id is enough.
    story.register(treatment_commit=K[:10])


def test_a_deploy_may_write_a_change_at_two_lengths(story) -> None:
    other = "d" * 40
    story.deploy(K, 0.5, minutes=0, base=A, commit={"changes": [K, other[:8], other]})
    assert story.bound(story.register(treatment_commit=K))["change"] == [K, other[:8]]


def test_the_id_that_a_commit_had_first_is_ambiguous_too_once_it_begins_another(story) -> None:
    story.deploy(K[:8], minutes=0, allocation=0.5)
    story.deploy(K, minutes=1, allocation=0.6)
    story.deploy(TWIN, minutes=2)
    asked = {"treatment_commit": K[:8], "target_metric": "order"}
    assert refused(story.post("/v1/reward/register", asked)) == f"{K[:8]} {BOTH}"


def test_knowledge_that_comes_after_a_block_closed_leaves_it_as_it_was(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K[:8], minutes=0, base=A, allocation=0.5)
    serve(story, A, K[:8])
    story.units_of(TWIN, minutes=2, units=3)
    story.send()
    experiment = story.register(treatment_commit=K[:8])
    # Until then the twin was nothing but the canary written out.
    story.deploy(K, minutes=30, allocation=0.6)
    story.deploy(TWIN, minutes=31, allocation=0)
    story.tick()
    assert story.cells(experiment) == [(0, stratum(A), 23, 4, 20, 2)]
    counts = story.evidence(experiment)["counts"]
    assert (counts["unknown_commit"], counts["ambiguous_commit"]) == (0, 0)


def test_the_steps_of_a_ramp_may_write_their_commit_each_in_another_way(story) -> None:
    story.deploy(A[:8], minutes=-1440)
    first = story.deploy(K[:8], minutes=0, base=A, allocation=0.1)
    story.deploy(K, minutes=10, allocation=0.5)
    serve(story, A, K)
    experiment = story.register(treatment_commit=K[:20])
    story.tick()
    registration = story.bound(experiment)
    # The declaration counts from its first step.
    assert registration["starts_at"] == first["deployed_at"]
    assert registration["control_commit"] == A[:8]
    assert registration["joint_with"] == []
    story.deploy(K[:12], minutes=60, allocation=1)
    gate = story.get("/v1/reward/gate").json()
    assert "no canary is declared" in gate["sentence"]


def test_a_deploy_again_under_another_length_is_a_replay(story) -> None:
    story.deploy(A, minutes=-1440)
    posted = {
        "commit": {"sha": K[:8], "changes": [K[:8]]},
        "deployed_at": "2026-10-01T00:00:00Z",
        "diff": {"base_commit": A[:8], "files": []},
        "allocation": 0.5,
    }
    first = story.post("/v1/deploys", posted)
    again = {
        **posted,
        "commit": {"sha": K, "changes": [K]},
        "diff": {"base_commit": A, "files": []},
    }
    replay = story.post("/v1/deploys", again)
    assert (first.status_code, replay.status_code) == (201, 200)
    assert replay.headers["Idempotent-Replayed"] == "true"
    assert replay.json()["deploy"] == first.json()["deploy"]
    other = story.post("/v1/deploys", {**again, "allocation": 0.6})
    assert (other.status_code, other.json()["code"]) == (409, "deploy_conflict")


@pytest.mark.parametrize("awaited", [K, K[:8]])
@pytest.mark.parametrize("deployed", [K, K[:8]])
def test_an_experiment_waits_for_its_commit_however_both_write_it(story, awaited, deployed) -> None:
    story.deploy(A, minutes=-1440)
    experiment = story.register(treatment_commit=awaited)
    # The same commit, as long as nothing says otherwise.
    assert story.register(treatment_commit=K[:12]) == experiment
    story.deploy(deployed, minutes=0, base=A, allocation=0.5, environment="staging")
    registration = story.bound(experiment)
    assert registration["waits_for_deploy"]["elsewhere"] == ["staging"]
    story.deploy(deployed, minutes=0, base=A, allocation=0.5)
    registration = story.bound(experiment)
    assert registration["waits_for_deploy"] is None
    listed = story.get(f"/v1/reward?treatment_commit={K[:9]}").json()["experiments"]
    assert [each["experiment_id"] for each in listed] == [experiment]


def test_a_slip_in_a_registration_is_told_by_a_deploy_that_writes_less(story) -> None:
    story.deploy(K[:8], minutes=0)
    experiment = story.register(treatment_commit=f"{K[:6]}8{K[7:]}")
    registration = story.bound(experiment)
    assert registration["waits_for_deploy"]["nearest"] == K[:8]


def test_a_control_may_be_named_by_any_length(story, stratum) -> None:
    story.deploy(A[:8], minutes=-1440)
    story.deploy(L, minutes=-60, base=A)
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    serve(story, A[:30], K)
    experiment = story.register(treatment_commit=K[:8], control_commit=A)
    story.tick()
    assert story.cells(experiment) == [(0, stratum(A[:8]), 20, 4, 20, 2)]


def test_a_deploy_that_was_posted_by_mistake_leaves_no_id_behind(story) -> None:
    story.deploy(K, minutes=0)
    mistaken = story.deploy(TWIN, minutes=1)
    refused(story.post("/v1/deploys", {"commit": {"sha": K[:8]}}))
    withdrawn = story.client.delete(f"/v1/deploys/{mistaken['deploy_id']}", headers=story.write)
    assert withdrawn.status_code == 200, withdrawn.text
    assert story.post("/v1/deploys", {"commit": {"sha": K[:8]}}).status_code == 201
