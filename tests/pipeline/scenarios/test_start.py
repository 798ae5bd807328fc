"""The start: where a ramp began, however late it was registered."""

import pytest

A, B, K, L = "aaaaaaa1", "bbbbbbb2", "ccccccc3", "ddddddd4"
DAY = 1440.0
# Ten units of each arm in each of these hours.
STEPS = ((0, 0.01), (60, 0.05), (120, 0.25), (180, 0.5))


def ramp(story, *, meanwhile=None) -> None:
    """A ramp of four steps, an hour each; something else happens at the third."""
    story.deploy(A, minutes=-DAY)
    for minutes, share in STEPS:
        if minutes == 120 and meanwhile is not None:
            meanwhile(story)
        story.deploy(K, minutes=minutes, base=A, allocation=share)
        story.units_of(A, minutes=minutes + 10, units=10)
        story.units_of(K, minutes=minutes + 10, units=10)
    story.send()


def treated(story, experiment: str) -> int:
    story.tick(minutes=2 * DAY)
    return story.evidence(experiment)["arms"]["treatment"]["units"]


def test_a_ramp_that_is_registered_at_its_last_step_counts_from_its_first(story) -> None:
    ramp(story)
    experiment = story.register(treatment_commit=K)
    assert treated(story, experiment) == 40


def test_a_ramp_that_is_named_by_one_of_its_steps_counts_from_its_first(story) -> None:
    story.deploy(A, minutes=-DAY)
    ids = [
        story.deploy(K, minutes=minutes, base=A, allocation=share)["deploy_id"]
        for minutes, share in STEPS
    ]
    for minutes, _ in STEPS:
        story.units_of(A, minutes=minutes + 10, units=10)
        story.units_of(K, minutes=minutes + 10, units=10)
    story.send()
    assert treated(story, story.register(deploy_id=ids[2])) == 40


@pytest.mark.parametrize(
    ("name", "allocation"), [("withdrawn", 0), ("promoted", 1), ("no longer declared", None)]
)
def test_a_declaration_that_was_broken_begins_again(story, name: str, allocation) -> None:
    ramp(story, meanwhile=lambda world: world.deploy(K, minutes=110, base=A, allocation=allocation))
    assert treated(story, story.register(treatment_commit=K)) == 20, name


def test_another_commit_that_takes_over_breaks_a_declaration(story) -> None:
    ramp(story, meanwhile=lambda world: world.deploy(B, minutes=110, base=A))
    experiment = story.register(treatment_commit=K, control_commit=A)
    assert treated(story, experiment) == 20


def test_a_deploy_that_was_posted_by_mistake_breaks_no_declaration(story) -> None:
    def mistaken(world) -> None:
        deploy = world.deploy(B, minutes=110, base=A)
        path = f"/v1/deploys/{deploy['deploy_id']}"
        answer = world.client.delete(path, headers=world.write)
        assert answer.status_code == 200, answer.text

    ramp(story, meanwhile=mistaken)
    assert treated(story, story.register(treatment_commit=K)) == 40


@pytest.mark.parametrize("share", [0.1, 0])
def test_a_canary_beside_it_or_its_end_breaks_no_declaration(story, share: float) -> None:
    ramp(story, meanwhile=lambda world: world.deploy(L, minutes=110, base=A, allocation=share))
    assert treated(story, story.register(treatment_commit=K)) == 40


def test_a_deploy_without_a_declared_share_starts_with_itself(story) -> None:
    story.deploy(A, minutes=-DAY)
    ids: list[str] = []
    for minutes in (0, 60):
        ids.append(story.deploy(K, minutes=minutes, base=A)["deploy_id"])
        story.units_of(A, minutes=minutes + 10, units=10)
        story.units_of(K, minutes=minutes + 10, units=10)
    story.send()
    assert treated(story, story.register(deploy_id=ids[1])) == 10


@pytest.mark.parametrize("share", [0, 1])
def test_a_ramp_that_is_registered_after_its_end_counts_from_its_first_step(
    story, share: float
) -> None:
    ramp(story)
    story.deploy(K, minutes=300, base=A, allocation=share)
    assert treated(story, story.register(treatment_commit=K)) == 40


def test_a_repeated_registration_after_the_end_counts_from_itself(story) -> None:
    ramp(story)
    first = story.register(treatment_commit=K)
    assert story.post(f"/v1/reward/{first}/close", {}).status_code == 200
    again = story.register(treatment_commit=K)
    assert again != first
    story.tick()
    assert story.contract(again)["verdict"] == "abstain"
    assert story.evidence(again)["as_of"] is None
