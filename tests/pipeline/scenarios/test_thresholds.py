"""A tail that grows is a guardrail: slower than most requests of the days before."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Any

import pytest

from tests.world import A, K

REQUEST = "http.server.request"


def slow_for(story, commit: str, *, start: float, units: int, every: int = 0) -> None:
    """Sends sessions of two requests; of every so many the first takes ten times as long."""
    story.crowd(commit, start=start, minutes=300, units=units, rates={"order": 0.3})
    visits = [event for event in story.events if event["event"] == "page_view"]
    for place, visit in enumerate(visits):
        # Log-normal durations, whose quantiles are reached evenly.
        usual = 200 * math.exp(NormalDist(0, 0.8).inv_cdf((place * 0.618034 + 0.5) % 1))
        slow = usual * 10 if every and place % every == 0 else usual
        later = datetime.fromisoformat(visit["occurred_at"]) + timedelta(seconds=1)
        request = {**visit, "event": REQUEST}
        story.events.append({**request, "value": slow})
        # A second request of the unit never counts, however slow it is.
        story.events.append({**request, "occurred_at": later.isoformat(), "value": 10**6})
    story.send()


@pytest.fixture
def canary(story) -> Callable[..., str]:
    def run(*, every: int = 0, units: int = 4000, past: int = 2500, **settings: Any) -> str:
        if settings:
            story.settings(**settings)
        story.canary()
        slow_for(story, A, start=-310, units=past)
        slow_for(story, A, start=0, units=units)
        slow_for(story, K, start=0, units=units, every=every)
        return story.register(treatment_commit=K, guardrails=None)

    return run


def test_a_tail_that_grows_breaches_the_quantile_of_the_days_before(story, canary) -> None:
    slow = {"sources": [REQUEST], "over": "p90", "better": "lower", "window_seconds": 300}
    experiment = canary(every=10, metrics={"slow": slow}, guardrails=["slow"])
    story.tick(minutes=400)
    (frozen,) = story.decoded(experiment).policy.guardrails
    # The quantile of the first requests, by whichever session they were sent.
    assert (frozen.quantile, frozen.over) == ("p90", pytest.approx(557, rel=0.03))
    row = next(row for row in story.decoded(experiment).metrics if row.metric == "slow")
    assert (row.state, row.control) == ("breached", pytest.approx(0.1, abs=0.005))
    # Nine tenths as usual, and a tenth ten times as slow.
    assert row.treatment == pytest.approx(0.19, abs=0.01)
    story.require_the_counts_to_add_up(experiment)


SLOW = {"sources": [REQUEST], "over": "p99.9", "better": "lower"}


@pytest.mark.parametrize(
    ("past", "unwatched"),
    [
        (900, ["slow is not watched yet: 900 units had a value in the 28 days before, and its"]),
        (2500, ["slow p99.9 is not watched: 0.08 % exceeded"]),
    ],
)
def test_a_threshold_that_cannot_be_frozen_is_left_out_by_name(
    story, canary, past, unwatched
) -> None:
    chosen = {"metrics": {"slow": SLOW}, "guardrails": ["slow", "error"]}
    experiment = canary(units=400, past=past, **chosen)
    story.tick(minutes=400)
    evidence = story.decoded(experiment)
    assert "unwatched" in evidence.warnings
    for sentence, begin in zip(evidence.policy.unwatched, unwatched, strict=True):
        assert sentence.startswith(begin)


def test_a_target_needs_a_threshold_that_its_history_gives(story) -> None:
    story.settings(metrics={"slow": {**SLOW, "over": "p95"}, "big": {**SLOW, "over": 5}})
    story.canary()
    refused = story.post("/v1/reward/register", {"treatment_commit": K, "target_metric": "slow"})
    assert (refused.status_code, refused.json()["code"]) == (409, "no_threshold")
    story.register(treatment_commit=K, target_metric="big")
    for wrong, rule in (
        ({"over": "p0"}, "p0.1 to p99.9"),
        ({"kind": "mean"}, "kind = 'conversion"),
    ):
        with pytest.raises(Exception, match=rule):
            story.settings(metrics={"slow": {**SLOW, **wrong}})
