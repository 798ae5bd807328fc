"""What docs/rollouts.md tells controllers to send is answered as they read it."""

from typing import Any

import pytest

from tests.api.routes.test_release_gate import ABSTAIN, BREACHED, LIFT, published
from tests.clients.rollout_controllers import argo_measurement, flagger_webhooks, resources

A, B = "a" * 40, "b" * 40


@pytest.fixture
def canary(tenant) -> Any:
    tenant.deploy(A)
    tenant.deploy(B, 0.1)
    tenant.register(treatment_commit=B)
    return tenant


ENDS = [
    (ABSTAIN, {}, "Inconclusive", "Successful"),
    (ABSTAIN, {"not_worse_than": -0.1}, "Successful", "Successful"),
    ({**ABSTAIN, "abstain_reason": "interacting"}, {}, "Inconclusive", "Successful"),
    ({**ABSTAIN, **BREACHED}, {}, "Failed", "Failed"),
    ({"verdict": "rollback", **LIFT}, {}, "Failed", "Failed"),
    ({"verdict": "keep", **LIFT}, {}, "Successful", "Successful"),
]


@pytest.mark.parametrize(("answer", "known", "step", "watch"), ENDS)
def test_argo_goes_on_back_or_waits_without_pausing_or_aborting_for_an_abstention(
    *, canary, answer, known, step, watch
) -> None:
    published(canary, answer, **known)
    assert argo_measurement(canary, "may-go-on", B) == step
    assert argo_measurement(canary, "must-go-back", B) == watch
    for template in resources("AnalysisTemplate"):
        (metric,) = template["spec"]["metrics"]
        # More minutes than any experiment is open for.
        assert metric["inconclusiveLimit"] > 28 * 1440
        assert metric["consecutiveErrorLimit"] >= 1440
        assert "count" not in metric


@pytest.mark.parametrize("commit", [B, None])
@pytest.mark.parametrize(("answer", "known", "step", "watch"), ENDS)
def test_flagger_promotes_and_goes_back_by_what_it_can_send(
    *, canary, answer, known, step, watch, commit
) -> None:
    published(canary, answer, **known)
    assert flagger_webhooks(canary, commit) == {
        "confirm-promotion": step == "Successful",
        "rollback": watch == "Failed",
    }


def test_the_rollout_hands_the_same_arguments_to_each_analysis() -> None:
    (rollout,) = resources("Rollout")
    canary = rollout["spec"]["strategy"]["canary"]
    (step,) = (step["analysis"] for step in canary["steps"] if "analysis" in step)
    templates = (*canary["analysis"]["templates"], *step["templates"])
    named = [template["templateName"] for template in templates]
    assert named == ["must-go-back", "may-go-on"]
    assert step["args"] == canary["analysis"]["args"]
