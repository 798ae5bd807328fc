"""The surplus line through REST: units of one arm that do nothing make no answer."""

import json
from typing import Any

import pytest

from cli.changes.outcome import Exit, Poll, outcome
from domain.contract import contract_of
from domain.evidence.document import evidence_from
from domain.wording.surplus import SUSPICION
from tests.repetition import also_nightly

A, K, OTHER = "aaaaaaa1", "ccccccc3", "ddddddd4"
DAY = 1440.0
KINDS = also_nightly(
    [{"kind": "conversion"}, {"kind": "ratio", "per": ["page_view"]}],
    [{"kind": "mean", "cap": 9.0}],
)


def served(
    story: Any,
    *,
    control: int,
    treatment: int,
    rates: tuple[float, float],
    watched: bool = False,
    **shares: float,
) -> str:
    """A declared canary over ten hours, with so many sessions that order at these rates.

    Orders are its target, or a guardrail that may not rise.
    """
    story.settings(guardrails=[])
    story.deploy(A, minutes=-DAY)
    if "beside" in shares:
        story.deploy(OTHER, minutes=-5, base=A, allocation=shares["beside"])
    story.deploy(K, minutes=0, base=A, allocation=shares.get("own", 0.5))
    for commit, units, rate in ((A, control, rates[0]), (K, treatment, rates[1])):
        visits = {"units": units, "rates": {"order": rate}, "value": 5.0}
        story.crowd(commit, start=0, minutes=600, **visits)
    story.send()
    story.goes_on()
    asked = {"target_metric": "paid", "guardrails": ["order"]} if watched else {}
    return story.register(treatment_commit=K, **asked)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
def test_empty_sessions_of_control_make_no_keep_and_the_page_says_what_it_waits_for(
    story, kind
) -> None:
    # 3,600 orders in each arm, and 360 sessions of control that never order.
    story.settings(metrics={"order": {"sources": ["order"], "window_seconds": 1800, **kind}})
    experiment = served(story, control=6360, treatment=6000, rates=(3600 / 6360, 0.6))
    story.tick(minutes=DAY)
    evidence = story.evidence(experiment)
    assert evidence["totals"]["e_value"] < 20
    assert evidence["gates"]["sample_ratio_e"] < 1000
    assert story.contract(experiment)["abstain_reason"] == "power"
    assert evidence["candidate"] is not None
    assert evidence["surplus"]["holds"] is False
    waits = "the gain is more than empty visits to one arm could explain"
    assert waits in evidence["sentence"]
    assert evidence["advice"][0] == f"Leave the canary running until {waits}."
    story.tick(minutes=29 * DAY)
    ended = story.evidence(experiment)
    assert ended["ended_because"] is not None
    assert f"and waited until {waits}." in ended["sentence"]


@pytest.mark.parametrize(("empty", "breached"), [(360, []), (0, ["order"])])
def test_empty_sessions_of_control_breach_no_guardrail(story, empty, breached) -> None:
    # Treatment orders as often as control's sessions that are not empty, or more often.
    story.settings(metrics={"order": {"better": "lower", "window_seconds": 1800}})
    rates = (3600 / 6360 if empty else 0.55, 0.6)
    experiment = served(story, control=6000 + empty, treatment=6000, rates=rates, watched=True)
    story.tick(minutes=DAY)
    (rail,) = (
        each for each in story.evidence(experiment)["guardrails"] if each["metric"] == "order"
    )
    assert (rail["e_value"] < rail["threshold"]) is bool(empty)
    assert rail["lift"] > 0.03
    assert story.contract(experiment)["guardrail_breaches"] == breached


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
def test_empty_sessions_of_treatment_make_no_rollback(story, kind) -> None:
    story.settings(metrics={"order": {"sources": ["order"], "window_seconds": 1800, **kind}})
    experiment = served(story, control=6000, treatment=6360, rates=(0.6, 3600 / 6360))
    story.tick(minutes=DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    assert not contract["power_state"]["decided"]
    assert evidence["surplus"]["suspected"] is True
    low, high = evidence["totals"]["ci"]
    assert low < evidence["totals"]["lift"] < 0 < high
    assert evidence["sentence"].startswith("Worse, unless units are lost: order is down ")
    situation = story.bound(experiment)["situation"]
    assert (situation["state"], situation["action"]) == ("suspected", "pause")
    gate = story.get(f"/v1/reward/gate?policy=no-breach&treatment_commit={K}").json()
    assert gate["phase"] == "Running"
    assert gate["sentence"].startswith("Hold: worse, unless units are lost")
    assert story.get("/v1/reward?pending=true").json()["experiments"] == []


def test_a_project_may_go_back_on_a_suspicion(story) -> None:
    story.settings(on_suspicion="roll_back")
    experiment = served(story, control=6000, treatment=6360, rates=(0.6, 3600 / 6360))
    story.tick(minutes=DAY)
    situation = story.bound(experiment)["situation"]
    assert (situation["action"], situation["headline"]) == ("roll_back", SUSPICION)
    assert situation["advice"][0].startswith("Take it back:")
    gate = story.get(f"/v1/reward/gate?policy=no-breach&treatment_commit={K}").json()
    assert gate["phase"] == "Failed"
    (listed,) = story.get("/v1/reward?pending=true").json()["experiments"]
    assert (listed["action"], listed["by_itself"]) == ("roll_back", True)
    poll = Poll(
        contract=contract_of(json.dumps(story.contract(experiment))),
        evidence=evidence_from(story.evidence(experiment)),
    )
    ended = outcome(poll, accept_harm=None, waited=0, timeout=0)
    assert ended is not None
    assert ended.exit is Exit.BREACHED


@pytest.mark.parametrize(("orders", "verdict"), [(690, "keep"), (600, "abstain")])
@pytest.mark.nightly
def test_a_canary_beside_it_takes_its_share_from_the_builds_that_are_compared(
    story, orders, verdict
) -> None:
    """Of what the two builds share a ninth is declared for treatment, not a tenth."""
    story.crowd(OTHER, start=0, minutes=600, units=1000, rates={"order": 0.6})
    rates = (0.6, orders / 1000)
    experiment = served(story, control=8000, treatment=1000, rates=rates, own=0.1, beside=0.1)
    story.tick(minutes=DAY)
    assert story.contract(experiment)["verdict"] == verdict
    line = story.evidence(experiment)["surplus"]
    assert line["declared"] == pytest.approx(1 / 9)
    assert line["served"] == pytest.approx(1 / 9, rel=0.03)


@pytest.mark.nightly
def test_a_platform_that_the_router_shares_otherwise_takes_no_part(story) -> None:
    """A fifth of all who have ios get treatment, and four fifths of the few with android."""
    story.settings(segments=["platform"])
    for platform, control, treatment, rates in (
        ("ios", 1200, 300, (0.6, 0.6)),
        ("android", 300, 1200, (0.1, 0.1)),
        ("web", 5000, 5000, (0.55, 0.62)),
    ):
        for commit, units, rate in ((A, control, rates[0]), (K, treatment, rates[1])):
            visits = {
                "units": units,
                "rates": {"order": rate},
                "properties": {"platform": platform},
            }
            story.crowd(commit, start=0, minutes=600, **visits)
    experiment = served(story, control=0, treatment=0, rates=(0, 0))
    story.tick(minutes=DAY)
    assert story.contract(experiment)["verdict"] == "keep"
    line = story.evidence(experiment)["surplus"]
    units = sum(arm["units"] for arm in story.evidence(experiment)["arms"].values())
    assert (line["holds"], line["served"]) == (True, 0.5)
    assert line["units"] == pytest.approx(10_000 / 13_000 * units, rel=0.03)
