"""The metrics of an experiment as rows: what to revise, and what is known to be unharmed."""

from collections.abc import Callable
from typing import Any

import pytest

from domain.evidence.document import evidence_from
from domain.metric import Metric
from mcp_server.explanation import explanation, fits
from orchestration.pipeline.audit import audit
from tests.world import DAY, A, K


@pytest.fixture
def canary(story) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Runs a canary to its decision; returns its contract and its evidence."""

    def run(*, order: float, error: float) -> tuple[dict[str, Any], dict[str, Any]]:
        story.canary()
        story.crowd(A, start=0, minutes=600, units=4000, rates={"order": 0.10, "error": 0.01})
        story.crowd(K, start=0, minutes=600, units=4000, rates={"order": order, "error": error})
        story.send()
        story.goes_on()
        experiment = story.judged(guardrails=["error"], minutes=2 * DAY)
        return story.contract(experiment), story.evidence(experiment)

    return run


@pytest.mark.requirement(
    "verdict.iterate", "transition.keep-to-iterate", "contract.guardrail_breaches.names"
)
def test_the_rows_say_what_an_iterate_is_to_revise(canary) -> None:
    contract, evidence = canary(order=0.14, error=0.05)
    assert (contract["verdict"], contract["guardrail_breaches"]) == ("iterate", ["error"])
    target, error, arrival = evidence["metrics"]
    assert (target["metric"], target["role"], target["state"]) == ("order", "target", "better")
    assert target["control"] == evidence["arms"]["control"]["rate"]
    assert target["treatment"] == evidence["arms"]["treatment"]["rate"]
    assert target["difference"] == evidence["totals"]["lift"]
    assert target["interval"] == evidence["totals"]["ci"]
    assert (error["metric"], error["role"], error["state"]) == ("error", "guardrail", "breached")
    assert error["control"] == pytest.approx(0.01, rel=0.2)
    assert error["treatment"] == pytest.approx(0.05, rel=0.2)
    low, high = error["interval"]
    assert 0 < low < error["difference"] < high
    assert (arrival["metric"], arrival["state"]) == ("arrival", "not_known")
    assert [arrival[name] for name in ("control", "treatment", "difference", "interval")] == (
        [None] * 4
    )
    advice = evidence["advice"][0]
    assert advice.startswith("Don't ship it as it is: it helps order, but harms error (0.98 %")
    assert " → 5" in advice or " → 4" in advice
    explained = explanation(evidence_from(evidence), ())
    rows = explained["evidence"]["metrics"]
    assert [row["state"] for row in rows[:2]] == ["better", "breached"]
    assert fits(explained)


@pytest.mark.nightly
def test_an_unharmed_guardrail_lies_within_its_margin(canary) -> None:
    contract, evidence = canary(order=0.14, error=0.001)
    assert (contract["verdict"], contract["guardrail_breaches"]) == ("keep", [])
    assert "guardrails_unproven" not in evidence["warnings"]
    _, error, _ = evidence["metrics"]
    assert error["state"] == "unharmed"
    # Half a point of a rate of 1 in 100.
    assert error["interval"][1] < 0.005


def test_who_came_back_in_the_window_counts_and_who_came_before_or_after_it_does_not(story) -> None:
    window = {"from": "1d", "to": "2d"}
    story.settings(locked=[], metrics={"return": {"sources": ["order"], "window": window}})
    story.canary()
    for commit, returns in ((A, 60), (K, 240)):
        for minute in range(60):
            # Each orders at once, which is no return; of the others some come a day too late.
            units = story.units_of(commit, minutes=minute, units=10, converting=10)
            for place, session in enumerate(units):
                later = 1.5 if (minute * 10 + place) % 600 < returns else 2.5
                order = {"session_id": session, "commit": commit, "event": "order"}
                story.events.append({**order, "occurred_at": story.at(minute + later * DAY)})
    experiment = story.judged(target_metric="return", guardrails=[], minutes=1.9 * DAY)
    # The cells close by the window's end.
    assert story.evidence(experiment)["arms"]["control"]["units"] == 0
    assert story.answer(experiment, minutes=3 * DAY)[0] == "keep"
    arms = story.evidence(experiment)["arms"]
    for arm, returns in (("control", 60), ("treatment", 240)):
        units = arms[arm]["units"]
        assert arms[arm]["conversions"] == min(units, returns)
    assert audit(story.store.engine, experiment).differences == []


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"from": "7d"}, "window needs from and to: lengths of time as 30m, 12h or 7d"),
        ({"from": "7d", "to": "7 days"}, "window needs from and to"),
        ({"from": "14d", "to": "7d"}, "window: from before to, whole multiples of 5 minutes"),
        ({"from": "7d", "to": "29d"}, "at most 28 days"),
        ({"from": "1m", "to": "7d"}, "whole multiples of 5 minutes"),
    ],
)
def test_a_window_that_cannot_be_is_refused_by_its_rule(window, said) -> None:
    with pytest.raises(ValueError, match=said):
        Metric(window=window)


def test_a_window_that_starts_later_is_a_conversion_s_and_the_only_window() -> None:
    window = {"from": "7d", "to": "14d"}
    with pytest.raises(ValueError, match="name either"):
        Metric(window=window, window_seconds=3600)
    for chosen in ({"kind": "mean"}, {"over": 1.0}):
        with pytest.raises(ValueError, match="needs kind = 'conversion' without over"):
            Metric(window=window, **chosen)
