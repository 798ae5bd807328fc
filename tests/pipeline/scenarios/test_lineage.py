"""Deploys of every kind, posted over REST, with the cells that they must make.

A cell is written (minutes after the canary's deploy, stratum, n1, x1, n0, x0).
"""

import pytest

from tests.world import DAY, A, K

B, L = "bbbbbbb2", "ddddddd4"


def test_a_first_canary_is_compared_with_the_base_that_nobody_recorded(story, stratum) -> None:
    # As the README shows it: three requests, none of which says what users have.
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    story.units_of(A, minutes=1, units=5, converting=2)
    story.units_of(K, minutes=2, units=4, converting=3)
    experiment = story.judged()
    assert story.cells(experiment) == [(0, stratum(A), 4, 3, 5, 2)]
    bound = story.bound(experiment)
    assert (bound["control_commit"], bound["change"], bound["joint_with"]) == (A, [K], [])


def test_a_canary_on_a_canary_is_compared_with_it_while_both_are_served(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=-600, base=A, allocation=0.3)
    story.deploy(L, minutes=0, base=K, allocation=0.3)
    story.units_of(A, minutes=1, units=6, converting=1)
    story.units_of(L, minutes=2, units=3, converting=2)
    story.units_of(K, minutes=3, units=2, converting=2)
    experiment = story.judged(treatment_commit=L)
    assert story.cells(experiment) == sorted(
        [(0, stratum(A, K), 3, 2, 2, 2), (0, stratum(A), 0, 0, 6, 1)]
    )
    bound = story.bound(experiment)
    assert (bound["control_commit"], bound["change"], bound["joint_with"]) == (K, [L], [])


def test_a_canary_that_replaces_another_is_judged_with_both_changes(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=-600, base=A, allocation=0.1)
    story.deploy(K, minutes=-1, allocation=0)
    story.deploy(L, minutes=0, base=K, allocation=0.1)
    story.units_of(A, minutes=1, units=6, converting=1)
    story.units_of(L, minutes=2, units=3, converting=2)
    # Still on the canary that was replaced: neither without the change nor with the whole of it.
    story.units_of(K, minutes=3, units=2, converting=2)
    experiment = story.judged(treatment_commit=L)
    assert story.cells(experiment) == [(0, stratum(A), 3, 2, 6, 1)]
    evidence = story.evidence(experiment)
    assert evidence["change"] == [K, L]
    assert evidence["counts"]["partial"] == 2


def test_a_parallel_canary_without_a_base_is_not_taken_for_a_stack(story, stratum) -> None:
    story.deploy(A, minutes=-1440)
    story.deploy(K, minutes=-600, base=A, allocation=0.1)
    deploy = story.deploy(L, minutes=0, allocation=0.1)
    assert (deploy["base_commit"], deploy["base_assumed"]) == (A, True)
    story.units_of(A, minutes=1, units=6, converting=1)
    story.units_of(K, minutes=2, units=3, converting=3)
    story.units_of(L, minutes=3, units=2, converting=1)
    experiment = story.judged(treatment_commit=L)
    # K's units are without the change, but in a stratum of their own: never compared with L's.
    assert story.cells(experiment) == sorted(
        [(0, stratum(A), 2, 1, 6, 1), (0, stratum(A, K), 0, 0, 3, 3)]
    )
    evidence = story.evidence(experiment)
    assert evidence["change"] == [L]
    assert "base_assumed" in evidence["warnings"]


def test_a_deploy_posted_after_its_traffic_began_counts_if_the_binding_knew_it(
    story, stratum
) -> None:
    story.deploy(A, minutes=-1440)
    story.units_of(A, minutes=1, units=3)
    story.units_of(K, minutes=2, units=2, converting=1)
    story.units_of(K, minutes=12, units=2)
    story.send()
    # Ten minutes late by its own clock: what it served before it says is in mid-flight.
    story.deploy(K, minutes=10, base=A, allocation=0.4)
    experiment = story.register(treatment_commit=K)
    story.tick()
    assert story.cells(experiment) == [(10, stratum(A), 2, 0, 0, 0)]


def test_a_rebased_change_is_compared_on_both_bases(story, stratum) -> None:
    story.canary()
    story.deploy(B, minutes=10, base=A)
    story.deploy(L, minutes=10, base=B, commit={"changes": [K]}, allocation=0.5)
    story.units_of(A, minutes=1, units=3)
    story.units_of(K, minutes=2, units=3, converting=1)
    story.units_of(B, minutes=11, units=4, converting=1)
    story.units_of(L, minutes=12, units=5, converting=2)
    experiment = story.judged()
    assert story.cells(experiment) == [(0, stratum(A), 3, 1, 3, 0), (10, stratum(A, B), 5, 2, 4, 1)]


def test_sessions_in_mid_flight_at_the_start_are_left_out_and_counted(story, stratum) -> None:
    story.canary()
    old = story.units_of(A, minutes=-20, units=2)
    for session in old:
        view = {"session_id": session, "commit": A, "event": "page_view"}
        story.events.append(
            {**view, "occurred_at": story.events[0]["occurred_at"].replace("23:40", "23:59")}
        )
    story.units_of(A, minutes=-31, units=1)
    story.units_of(A, minutes=1, units=3)
    story.units_of(K, minutes=1, units=3)
    for session in (*old, "s2"):
        view = {"session_id": session, "commit": A, "event": "page_view"}
        story.events.append({**view, "occurred_at": "2026-10-01T00:02:00+00:00"})
    experiment = story.judged()
    # s2 was last seen 31 minutes before the start: a unit like any other.
    assert story.cells(experiment) == [(0, stratum(A), 3, 0, 4, 0)]
    assert story.evidence(experiment)["counts"]["in_flight"] == 2


@pytest.mark.nightly
def test_a_third_build_beside_both_is_in_the_level_of_neither(story) -> None:
    story.canary(0.3)
    third = "d" * 40
    story.deploy(third, 0.3, minutes=0, base=A)
    for commit, rate in ((A, 0.3), (K, 0.1), (third, 0.02)):
        rates = {"order": rate, "error": rate / 2}
        story.crowd(commit, start=0, minutes=300, units=1500, rates=rates)
    story.send()
    experiment = story.register(treatment_commit=K, guardrails=["error"])
    assert story.answer(experiment, minutes=DAY)[0] == "rollback"
    seen = story.evidence(experiment)
    # Its units are stored as control's, in a stratum of their own that holds no treatment.
    assert seen["arms"]["control"]["units"] > 1.5 * seen["arms"]["treatment"]["units"]
    assert seen["arms"]["control"]["rate"] == pytest.approx(0.3, abs=0.01)
    assert "of control's 30." in seen["sentence"] or "of control's 29." in seen["sentence"]
    (error,) = (row for row in seen["metrics"] if row["metric"] == "error")
    assert (error["control"], error["treatment"]) == pytest.approx((0.15, 0.05), abs=0.005)


PATCH, FULL = "a" * 40, "ddddddd4"


@pytest.mark.parametrize(
    ("commit", "allocation", "because", "said"),
    [
        # A squash or a rebase has another id, a merge brings the commit.
        ({"patch_id": PATCH}, None, "promoted", f"by commit {FULL}, so"),
        ({"patch_id": PATCH}, 1, "promoted", f"by commit {FULL}, so"),
        ({"changes": [K]}, None, "promoted", f"by commit {FULL}, so"),
        ({"changes": [K, FULL, "c0ffee11"]}, 1, "promoted", "which also brings c0ffee11, so"),
        # A change and its revert together bring nothing.
        ({"changes": [K, "c0ffee11"], "reverts": ["c0ffee11"]}, 1, "promoted", f"{FULL}, so"),
        ({"changes": [K, "c0ffee11"], "reverts": [K]}, None, "withdrawn", "was withdrawn"),
        ({"pull_request": 7}, None, "superseded", "another change took over"),
        ({"patch_id": "b" * 40}, 1, "superseded", "another change took over"),
    ],
)
def test_a_deploy_to_everybody_promotes_a_canary_where_it_brings_its_patch(
    story, commit, allocation, because, said
) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(K, 0.5, minutes=0, base=A, commit={"patch_id": PATCH, "pull_request": 7})
    for build in (A, K):
        story.crowd(build, start=0, minutes=1200, units=300, rates={"order": 0.2})
    story.deploy(FULL, allocation, minutes=1200, base=A, commit=commit)
    story.crowd(FULL, start=1200, minutes=1600, units=1500, rates={"order": 0.2})
    experiment = story.judged(control_commit=A, minutes=1300)
    state = {"promoted": "promoted", "withdrawn": "withdrawn", "superseded": "base_gone"}[because]
    assert story.bound(experiment)["situation"]["state"] == state
    story.tick(minutes=1200 + 3 * DAY)
    evidence = story.evidence(experiment)
    assert evidence["ended_because"] == because
    assert said in evidence["sentence"]
    assert [evidence["arms"][arm]["units"] for arm in ("control", "treatment")] == [300, 300]
