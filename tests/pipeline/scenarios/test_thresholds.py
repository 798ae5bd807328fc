"""A tail that grows is a guardrail: slower than most requests of the days before."""

import asyncio
import json
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from statistics import NormalDist
from typing import Any

import pytest
from sqlalchemy import text

from domain.wording.metrics import metric_rows
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.clients.owner import Owner
from tests.pipeline.changes.test_faces import of_an_agent, written
from tests.repetition import also_nightly
from tests.world import A, K

REQUEST, QUANTILES = "http.server.request", ["p50", "p90", "p95", "p99"]


def slow_for(
    story,
    commit: str,
    *,
    start: float,
    units: int,
    every: int = 0,
    times: float = 10,
    median: float = 200,
    later: float | None = None,
    named: Callable[..., str] | None = None,
) -> None:
    """Sends sessions of two requests; of every so many the first takes so many times as long.

    Args:
        later: How many times as long as the first the second takes; None where it takes very long.
        named: Returns the id of an event, by whether it is the first.
    """
    story.crowd(commit, start=start, minutes=300, units=units, rates={"order": 0.3})
    visits = [event for event in story.events if event["event"] == "page_view"]
    for place, visit in enumerate(visits):
        # Log-normal durations, whose quantiles are reached evenly.
        usual = median * math.exp(NormalDist(0, 0.8).inv_cdf((place * 0.618034 + 0.5) % 1))
        slow = usual * times if every and place % every == 0 else usual
        after = datetime.fromisoformat(visit["occurred_at"]) + timedelta(seconds=1)
        request = {**visit, "event": REQUEST}
        first = {} if named is None else {"event_id": named(first=True)}
        story.events.append({**request, **first, "value": slow})
        # A unit's first value does not count its second request, however slow that is.
        second = {**request, "occurred_at": after.isoformat()}
        second |= {} if named is None else {"event_id": named(first=False)}
        story.events.append({**second, "value": 10**6 if later is None else usual * later})
    story.send()


@pytest.fixture
def canary(story) -> Callable[..., str]:
    def run(
        *, every: int, times: float = 10, units: int = 4000, past: int = 2500, **settings: Any
    ) -> str:
        if settings:
            story.settings(**settings)
        story.canary()
        slow_for(story, A, start=-310, units=past)
        slow_for(story, A, start=0, units=units)
        slow_for(story, K, start=0, units=units, every=every, times=times)
        return story.register(treatment_commit=K, guardrails=None)

    return run


@pytest.mark.parametrize(
    ("every", "times", "change", "interval"),
    also_nightly(
        [(10, 10, "p90 557 ms → 1.02 s", "+298 ms to +647 ms")],
        [(40, 10, "p95 745 → 922 ms", "+36.3 ms to +328 ms")],
    ),
)
@pytest.mark.nightly
def test_a_tail_that_grows_breaches_and_is_read_as_its_quantile(
    story, canary, every, times, change, interval
) -> None:
    experiment = canary(every=every, times=times)
    story.tick(minutes=400)
    evidence = story.decoded(experiment)
    frozen = {each.quantile: each.over for each in evidence.policy.guardrails if each.of == "slow"}
    # The quantiles of the first requests, by whichever session they were sent.
    assert [frozen[each] for each in QUANTILES] == pytest.approx([200, 557, 745, 1285], rel=0.03)
    row = next(row for row in evidence.metrics if row.metric == "slow")
    assert (row.state, [each.quantile for each in row.thresholds]) == ("breached", QUANTILES)
    assert story.contract(experiment)["guardrail_breaches"] == ["slow"]
    by_name = {each.quantile: each for each in row.thresholds}
    assert by_name["p90"].control == pytest.approx(0.1, abs=0.005)
    texts = {row.metric: row for row in metric_rows(evidence)}["slow"]
    assert [texts.change, texts.whole_interval] == [change, interval]
    story.require_the_counts_to_add_up()


def test_a_build_that_is_slow_from_the_second_request_on_is_found_on_each_face(story) -> None:
    """No first request is slower: an event of each unit that is picked by chance tells."""
    story.canary()
    slow_for(story, A, start=-310, units=1500, later=1)
    slow_for(story, A, start=0, units=2500, later=1)
    slow_for(story, K, start=0, units=2500, later=3)
    story.goes_on()
    experiment = story.register(treatment_commit=K, guardrails=None)
    story.tick(minutes=400)
    evidence = story.decoded(experiment)
    row = next(row for row in evidence.metrics if row.metric == "slow")
    assert (row.state, row.picked) == ("breached", True)
    assert story.contract(experiment)["guardrail_breaches"] == ["slow"]
    texts = {row.metric: row for row in metric_rows(evidence)}["slow"]
    assert " of any event " in texts.change
    asked = {"treatment_commit": K, "target_metric": "order", "policy": "no-breach"}
    gate = story.get("/v1/reward/gate", params=asked).json()
    assert gate["phase"] == "Failed"
    page = written(Owner(story).page(f"/dashboard/experiments/{experiment}"))
    with serving(story) as url:
        said = asyncio.run(of_an_agent(url, story.project.keys[KeyKind.PROJECT], experiment))
    faces = [gate["sentence"], page, said["get_verdict"], said["mcp explain"]]
    assert [each for each in faces if f"slow got worse: {texts.change}." not in each] == []
    # Whoever knew by what events are picked could choose ids that never are.
    with story.store.engine.connect() as connection:
        secret = connection.execute(text("SELECT pick_secret FROM installation")).scalar_one()
    assert secret not in json.dumps([story.evidence(experiment), faces])
    story.require_the_counts_to_add_up()


def test_a_build_that_chooses_the_ids_of_its_events_does_not_hide(story) -> None:
    numbers = count()

    def chosen(*, first: bool) -> str:
        """An id by which the first event has the smaller hash in a draw that is published."""
        names = (f"e{number}" for number in numbers)
        return next(
            name for name in names if first == (sha256(f"picked:{name}".encode()).hexdigest() < "1")
        )

    story.canary()
    slow_for(story, A, start=-310, units=1500, later=1)
    slow_for(story, A, start=0, units=1500, later=1)
    slow_for(story, K, start=0, units=1500, later=3, named=chosen)
    experiment = story.register(treatment_commit=K, guardrails=None)
    story.tick(minutes=400)
    assert story.contract(experiment)["guardrail_breaches"] == ["slow"]


@pytest.mark.nightly
def test_equal_speed_is_not_shown_unharmed_before_each_threshold_is(story, canary) -> None:
    experiment = canary(every=0)
    story.tick(minutes=400)
    evidence = story.decoded(experiment)
    guardrail = next(each for each in evidence.guardrails if each.metric == "slow")
    row = next(row for row in evidence.metrics if row.metric == "slow")
    assert (guardrail.breached_at, story.contract(experiment)["guardrail_breaches"]) == (None, [])
    # So many units show that of all but p99.
    assert (row.state, guardrail.non_inferior_at) == ("not_known", None)
    assert guardrail.e_value < max(each.e_value for each in row.thresholds)
    # `error` and `slow`, whose thresholds are a single guardrail.
    assert guardrail.threshold == pytest.approx(2 / 0.05)


SLOW = {"sources": [REQUEST], "over": ["p50", "p99.9"], "better": "lower"}


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
    experiment = canary(every=0, units=400, past=past, **chosen)
    story.tick(minutes=400)
    evidence = story.decoded(experiment)
    assert "unwatched" in evidence.warnings
    for sentence, begin in zip(evidence.policy.unwatched, unwatched, strict=True):
        assert sentence.startswith(begin)
    # Of a single threshold no quantile can be read, but the share.
    texts = {row.metric: row.control for row in metric_rows(evidence)}
    assert texts.get("slow", "over 200 ms: ").startswith("over 200 ms: ")


def test_a_target_needs_a_single_threshold_that_its_history_gives(story) -> None:
    metrics = {"slow": "p95", "big": 5, "both": ["p50", "p95"]}
    story.settings(metrics={name: {**SLOW, "over": over} for name, over in metrics.items()})
    story.canary()
    refused = story.post("/v1/reward/register", {"treatment_commit": K, "target_metric": "both"})
    assert (refused.status_code, refused.json()["code"]) == (409, "no_threshold")
    short = story.register(treatment_commit=K, target_metric="slow")
    assert story.answer(short) == ("abstain", "power", True)
    ended = story.evidence(short)
    assert ended["ended_because"] == "cannot_start"
    assert "0 units had a value in the 28 days before" in ended["sentence"]
    assert (
        "register again once the history is there" in story.bound(short)["situation"]["advice"][0]
    )
    # It was no attempt.
    story.register(treatment_commit=K, target_metric="big")
    (_, again) = story.listed()[::-1]
    assert (story.bound(again["experiment_id"])["attempt"], len(story.listed())) == (1, 2)
    # A list is a guardrail's.
    for over, rule in (("p0", "p0.1 to p99.9"), ([1, 2], "names 2"), ("p50 p60 p70 p80 p90", "5")):
        with pytest.raises(Exception, match=rule):
            story.settings(metrics={"slow": {**SLOW, "over": over}})
