"""Attempts: who tries a change again, under whatever commit, needs stronger evidence."""

from typing import Any

import pytest
from sqlalchemy import text

pytestmark = pytest.mark.shared_store


A, K, L = "aaaaaaa1", "ccccccc3", "ddddddd4"
PATCH = "0123456789abcdef0123456789abcdef01234567"
SHARED = ("main", "master", "develop", "release/2026-11", "trunk")


def canary(story: Any, sha: str, *, minutes: float, **commit: Any) -> None:
    story.deploy(sha, 0.5, minutes=minutes, base=A, commit=commit)


def frozen(story: Any, experiment: str) -> Any:
    story.freeze()
    statement = text("SELECT policy, starts_at FROM experiments WHERE experiment_id = :id")
    return story.in_store(lambda c: c.execute(statement, {"id": experiment}).one())


def attempt(story: Any, experiment: str) -> int:
    return frozen(story, experiment).policy["attempt"]


def tried(story: Any, first: dict[str, Any], again: dict[str, Any]) -> tuple[str, str]:
    """Two experiments: of a canary, and of another commit after it."""
    story.deploy(A, minutes=0)
    canary(story, K, minutes=10, **first)
    earlier = story.register(treatment_commit=K)
    canary(story, L, minutes=20, **again)
    return earlier, story.register(treatment_commit=L)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"patch_id": PATCH}, {"patch_id": PATCH}),
        ({"pull_request": 7}, {"pull_request": "https://git.example/shop/pull/7"}),
        ({"branch": "faster-cart"}, {"branch": "faster-cart"}),
        ({"changes": [K]}, {"changes": [K, L]}),
    ],
    ids=["patch", "pull request", "branch", "change"],
)
def test_a_change_that_comes_back_under_another_commit_is_a_second_attempt(
    story, first, again
) -> None:
    earlier, experiment = tried(story, first, again)
    assert attempt(story, earlier) == 1
    policy = frozen(story, experiment).policy
    assert (policy["attempt"], policy["earlier_attempts"]) == (2, [earlier])


@pytest.mark.parametrize("branch", SHARED)
def test_commits_of_a_shared_branch_are_first_attempts(story, branch) -> None:
    assert attempt(story, tried(story, {"branch": branch}, {"branch": branch})[1]) == 1


def test_a_branch_of_many_commits_is_shared(story) -> None:
    story.deploy(A, minutes=0)
    for number in range(1, 22):
        canary(story, f"{number:040x}", minutes=number, branch="team")
    experiments = [story.register(treatment_commit=f"{number:040x}") for number in (1, 2)]
    assert attempt(story, experiments[1]) == 1


def test_other_changes_are_first_attempts(story) -> None:
    first = {"patch_id": PATCH, "pull_request": 7, "branch": "faster-cart"}
    again = {"patch_id": PATCH[::-1], "pull_request": 8, "branch": "slower-cart"}
    assert attempt(story, tried(story, first, again)[1]) == 1


def test_the_answer_of_a_second_attempt_is_as_sure_as_its_stricter_level(story) -> None:
    story.deploy(A, minutes=-1440)
    canary(story, K, minutes=0)
    for commit, rate in ((A, 0.10), (K, 0.16)):
        rates = {"order": rate, "basket": rate}
        story.crowd(commit, start=0, minutes=600, units=4000, rates=rates)
    story.send()
    experiments = [
        story.register(treatment_commit=K, target_metric=name) for name in ("order", "basket")
    ]
    story.tick(minutes=1440)
    first, second = (story.evidence(experiment)["sentence"] for experiment in experiments)
    assert "; 95 % sure: " in first
    assert "; 98.75 % sure: " in second


def test_flags_of_one_build_are_first_attempts_each(story) -> None:
    story.post("/v1/deploys", {"commit": {"sha": A, "pull_request": 7}})
    flags = [{"name": name, "treatment": True} for name in ("cart", "search")]
    experiments = [story.register(treatment_flag=flag) for flag in flags]
    assert [attempt(story, experiment) for experiment in experiments] == [1, 1]


@pytest.mark.parametrize("ticks", [False, True])
def test_an_attempt_that_ended_before_anything_was_compared_does_not_count(story, ticks) -> None:
    story.deploy(A, minutes=0)
    canary(story, K, minutes=10)
    first = story.register(treatment_commit=K)
    story.post(f"/v1/reward/{first}/close", {})
    # Who corrects a setting at once need not wait for the pipeline.
    if ticks:
        story.tick()
    assert story.contract(first)["power_state"]["decided"] is ticks
    assert attempt(story, story.register(treatment_commit=K)) == 1
