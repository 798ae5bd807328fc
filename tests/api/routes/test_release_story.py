"""A release beside others, as Argo Rollouts and Flagger live it (quality.md, row 20)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.routes.test_release_gate import (
    ABSTAIN,
    BACK,
    BREACHED,
    ENDED,
    GATE,
    GO,
    HOLD,
    LIFT,
    asked,
    published,
)
from tests.clients.rollout_controllers import argo_measurement, flagger_hook, flagger_webhooks
from tests.repetition import also_nightly
from tests.world import World

BASELINE, CANARY = "a" * 40, "b" * 40
HOTFIX, SERVICE_B, OTHER = "d0" * 20, "5e" * 20, "07" * 20
POLICIES = ("keep", "no-breach", "no-harm:1")


@pytest.fixture
def service(tenant) -> World:
    """A project in whose production a canary gets a tenth of the traffic and is registered."""
    tenant.deploy(BASELINE)
    tenant.deploy(CANARY, 0.1)
    tenant.register(treatment_commit=CANARY)
    return tenant


def what_else_is_posted(service: Any) -> dict[str, Callable[[], object]]:
    """All that comes beside a canary, in the order of a day."""
    return {
        "a hotfix for everybody": lambda: service.deploy(HOTFIX),
        "the hotfix as promoted": lambda: service.deploy(HOTFIX, 1),
        "a second service": lambda: service.deploy(SERVICE_B),
        "the second service again": lambda: service.deploy(SERVICE_B, 1),
        "the baseline again": lambda: service.deploy(BASELINE),
        "a step of the ramp": lambda: service.deploy(CANARY, 0.25),
        "another metric": lambda: service.register(
            treatment_commit=CANARY, target_metric="signup_completed"
        ),
        "the change anew": lambda: service.register(treatment_commit=CANARY),
        "a canary beside it": lambda: service.deploy(OTHER, 0.1),
        "which is registered": lambda: service.register(treatment_commit=OTHER),
        "and promoted": lambda: service.deploy(OTHER, 1),
        "and withdrawn": lambda: service.deploy(OTHER, 0),
        "the canary promoted all the same": lambda: service.deploy(CANARY, 1),
        "the canary withdrawn": lambda: service.deploy(CANARY, 0),
        "the canary given traffic again": lambda: service.deploy(CANARY, 0.1),
    }


def phases(service: Any, **question: str) -> set[str]:
    """The phases that Argo's web metric gets under each policy."""
    return {asked(service, policy=policy, **question)["phase"] for policy in POLICIES}


def hooks(service: Any, **metadata: str) -> dict[str, bool]:
    """Which of Flagger's webhooks pass at each point of a rollout."""
    moments = {
        "confirm-rollout": ("Progressing", GATE),
        "pre-rollout": ("Progressing", GATE),
        "rollout": ("Progressing", GATE),
        "confirm-promotion": ("WaitingPromotion", GATE),
        "rollback": ("Progressing", f"{GATE}?want=rollback"),
    }
    return {
        kind: flagger_hook(service, address, {"policy": "no-breach", **metadata}, phase=phase)[0]
        for kind, (phase, address) in moments.items()
    }


def test_no_gate_goes_on_with_a_canary_that_is_to_be_rolled_back(service) -> None:
    published(service, {"verdict": "rollback", **LIFT})
    assert phases(service) == {BACK}
    for name, post in what_else_is_posted(service).items():
        post()
        assert phases(service, treatment_commit=CANARY) == {BACK}, name
        assert argo_measurement(service, "may-go-on", CANARY) == "Failed", name
        assert argo_measurement(service, "must-go-back", CANARY) == "Failed", name
        expected = {"confirm-promotion": False, "rollback": True}
        assert flagger_webhooks(service, CANARY) == expected, name
        assert hooks(service, treatment_commit=CANARY) == {
            **dict.fromkeys(("confirm-rollout", "pre-rollout", "rollout"), False),
            **expected,
        }, name
        # Who names no commit is expected the same, or to hold while it is not clear which is meant.
        assert phases(service) in ({BACK}, {HOLD}), name
        assert flagger_webhooks(service, None)["confirm-promotion"] is False, name
    # The only declared canary is meant again, whatever was deployed since.
    assert phases(service) == {BACK}
    assert hooks(service)["rollback"]


STATES = [
    ({"verdict": "keep", **LIFT}, {GO}, False),
    ({"verdict": "iterate", **LIFT, **BREACHED}, {BACK}, True),
    (ABSTAIN, {GO, HOLD}, False),
]
OTHER_STATES = [
    ({**ABSTAIN, **BREACHED}, {BACK}, True),
    ({**ENDED, **BREACHED}, {BACK}, True),
    ({**ABSTAIN, "abstain_reason": "non_identifiable"}, {HOLD}, False),
]


@pytest.mark.parametrize(("answer", "expected", "back"), also_nightly(STATES, OTHER_STATES))
def test_what_is_posted_beside_a_canary_changes_no_answer_about_it(
    service, answer, expected, back
) -> None:
    experiment = service.register(treatment_commit=CANARY)
    published(service, answer, experiment=experiment)
    posts = what_else_is_posted(service)
    for name in (
        *("a hotfix for everybody", "a second service", "the baseline again"),
        *("a canary beside it", "and promoted", "and withdrawn", "a step of the ramp"),
    ):
        posts[name]()
        assert phases(service, treatment_commit=CANARY) == expected, name
        assert hooks(service, treatment_commit=CANARY)["rollback"] is back, name
        # While a second canary is declared, nobody can tell which is meant.
        assert phases(service) == ({HOLD} if name == "a canary beside it" else expected), name
