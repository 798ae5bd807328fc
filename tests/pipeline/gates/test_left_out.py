"""Outcomes that a mean leaves out, from events to the verdict: counted, said, and held."""

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text

from tests.pipeline.gates.test_channels import WITH_THE_PUBLIC_KEY
from tests.repetition import also_nightly
from tests.world import DAY, A, K

OTHER = "ddddddd4"
USD, JPY = {"value": 3000, "currency": "USD"}, {"value": 4500, "currency": "JPY"}
MEAN = {"kind": "mean", "window_seconds": 3600, "cap": 10_000.0}


def canary(story, *, other: Mapping[str, int], paid: bool, **chosen: Any) -> str:
    """A canary of 3,000 sessions of which 1 in 5 pays 30 dollars, in both arms.

    Args:
        other: Of each commit, 1 in so many payers pays 4,500 yen instead, or by an event without
            a value.
    """
    sources = ["expansion"] if paid else ["paid"]
    story.settings(metrics={"spend": {**MEAN, "sources": sources, "currency": "USD", **chosen}})
    story.canary()
    revenue: list[dict[str, Any]] = []
    for commit in (A, K):
        sessions = story.crowd(commit, start=1, minutes=600, units=1500, user_ref="u")
        seen = {event["session_id"]: event["occurred_at"] for event in story.events}
        for number, session in enumerate(sessions[::5]):
            is_other = commit in other and number % other[commit] == 0
            event = {"user_ref": "u", "occurred_at": seen[session]}
            if not paid:
                worth = {} if is_other else {"value": 30.0}
                story.events.append({**event, "session_id": session, "event": "paid", **worth})
                continue
            event |= {"event": "expansion", "attributes": {"session_id": session}}
            amount = JPY if is_other else USD
            revenue.append({**event, "idempotency_key": session, "amount": amount})
    story.send()
    for begin in range(0, len(revenue), 50):
        batch = {"events": revenue[begin : begin + 50]}
        answer = story.post("/v1/revenue/events?replay=true", batch)
        assert answer.status_code == 200, answer.text
    experiment = story.register(treatment_commit=K, target_metric="spend")
    story.tick(minutes=DAY)
    return experiment


@pytest.mark.parametrize(
    ("paid", "side", "reason", "why", "cure"),
    also_nightly(
        [(True, K, "other_currency", "payments of treatment", "Payments in another currency")],
        [
            (True, A, "other_currency", "payments of control", "Payments in another currency"),
            (False, K, "no_value", "events of treatment", "Events without a value"),
        ],
    ),
)
def test_outcomes_that_one_arm_leaves_out_hold_back_the_answer_that_they_explain(
    story, paid, side, reason, why, cure
) -> None:
    experiment = canary(story, other={side: 2}, paid=paid)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["gates"]["interacting_because"] == [reason]
    assert evidence["gates"]["left_out_e"][reason] > 100
    (row,) = evidence["left_out"]
    assert (row["reason"], row["of"]) == (reason, "outcomes")
    less, more = sorted([row["control"], row["treatment"]])
    # Those of the last units have not closed yet.
    assert (less, more > 140, more == row["treatment" if side == K else "control"]) == (
        0,
        True,
        True,
    )
    assert f"{more} {why}" in evidence["sentence"]
    assert evidence["warnings"] == ["retrospective", "outcomes_left_out"]
    (advice,) = evidence["advice"]
    assert advice.startswith(cure)
    *_, line = story.get("/v1/reward/checklist").json()
    assert (line["check"], line["ok"], line["fix"]) == ("outcomes counted", False, advice)
    assert f"{more} {why}" in line["seen"]


@pytest.mark.nightly
def test_outcomes_that_nobody_vouches_for_hold_back_the_answer_that_they_explain(story) -> None:
    story.settings(signed_assignments=True, locked=[])
    story.canary()
    for commit in (A, K):
        story.crowd(commit, start=1, minutes=600, units=3000, rates={"order": 0.3})
    orders = [event for event in story.events if event["event"] == "order"]
    for number, order in enumerate(orders):
        if order["commit"] == K and number % 3 == 0:
            order["event_id"] = f"page-{number}"
    story.send()
    story.in_store(lambda connection: connection.execute(WITH_THE_PUBLIC_KEY))
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["gates"]["interacting_because"] == ["not_vouched"]
    left = (
        "Left out: 300 outcomes of treatment and no outcomes of control, that nobody vouches for."
    )
    assert left in evidence["sentence"]
    assert "with the write key, or with the router's token" in evidence["advice"][0]
    *_, line = story.get("/v1/reward/checklist").json()
    assert (line["ok"], line["fix"]) == (False, evidence["advice"][0])


def test_outcomes_that_both_arms_leave_out_alike_are_counted_and_hold_nothing_back(story) -> None:
    experiment = canary(story, other={A: 2, K: 2}, paid=True)
    evidence = story.evidence(experiment)
    assert evidence["gates"]["left_out_e"]["other_currency"] < 2
    assert evidence["gates"]["interacting_because"] == []
    (row,) = evidence["left_out"]
    assert min(row["control"], row["treatment"]) > 140
    said = f"{row['treatment']} payments of treatment and {row['control']} payments of control"
    assert f"Left out: {said}, in another currency than USD." in evidence["sentence"]


def test_units_that_an_arm_served_and_that_do_not_count_are_counted_by_arm_and_reason(
    story,
) -> None:
    story.settings(warmup_minutes=30, locked=[])
    story.post("/v1/static-graphs", {"schema_version": "1", "routes": [{"path": "/shop"}]})
    story.canary()
    for commit, control in ((A, 1), (K, 0)):
        before = story.units_of(A, minutes=-9, units=2 + control)
        story.events += [
            {**event, "commit": commit, "route": "/shop", "occurred_at": story.at(40)}
            for event in story.events[-len(before) :]
        ]
        story.units_of(commit, minutes=20, units=4 + control, route="/shop")
        story.units_of(commit, minutes=50, units=6 + control, route="/nowhere")
        story.crowd(commit, start=60, minutes=90, units=100, route="/shop")
    late = story.units_of(A, minutes=55, units=3, route="/shop")
    late += story.units_of(K, minutes=55, units=1, route="/shop")
    story.send()
    story.in_store(
        lambda connection: connection.execute(
            text(
                "UPDATE runtime_events SET received_at = received_at + interval '1 hour'"
                " WHERE session_id = ANY(:late)"
            ),
            {"late": late},
        )
    )
    experiment = story.register(treatment_commit=K, routes=["/shop"])
    story.tick(minutes=DAY)
    left = story.evidence(experiment)["left_out"]
    assert {row.pop("of") for row in left} == {"units"}
    assert {row.pop("reason"): row for row in left} == {
        "in_flight": {"control": 3, "treatment": 2},
        "warming": {"control": 5, "treatment": 4},
        "late": {"control": 3, "treatment": 1},
        "unmatched_route": {"control": 7, "treatment": 6},
    }


def test_a_build_that_is_compared_with_none_is_no_part_of_an_arm(story) -> None:
    story.canary(0.4)
    story.deploy(OTHER, 0.2, minutes=0, base=A)
    for commit, units in ((A, 400), (K, 300), (OTHER, 200)):
        story.crowd(commit, start=1, minutes=58, units=units, rates={"order": 0.25})
    evidence = story.evidence(story.judged(minutes=2 * DAY))
    arms = evidence["arms"].values()
    assert [(arm["units"], arm["rate"]) for arm in arms] == [(400, 0.25), (300, 0.25)]
    assert all(arm["rate"] == arm["conversions"] / arm["units"] for arm in arms)
    assert evidence["sessions"]["accumulated"] == evidence["counts"]["in_cells"] == 700
    beside = {"reason": "compared_with_none", "of": "units", "control": 200, "treatment": 0}
    assert (evidence["counts"]["compared_with_none"], evidence["left_out"]) == (200, [beside])
    assert "700 sessions counted" in evidence["sentence"]
    story.require_the_counts_to_add_up()


@pytest.mark.nightly
def test_payments_in_another_currency_count_at_their_rate(story) -> None:
    evidence = story.evidence(canary(story, other={K: 2}, paid=True, rates={"JPY": 0.0067}))
    assert evidence["left_out"] == []
    assert "Left out" not in evidence["sentence"]
    assert evidence["warnings"] == ["retrospective"]
    assert evidence["gates"]["interacting_because"] == []
    assert evidence["policy"]["target"]["rates"] == {"JPY": 0.0067}
    treatment = evidence["arms"]["treatment"]
    # 4,500 yen are 30.15 dollars: each payment is counted in cents.
    yen = treatment["total"] - 3000 * treatment["conversions"]
    assert (yen / 15) in (treatment["conversions"] // 2, treatment["conversions"] // 2 + 1)
