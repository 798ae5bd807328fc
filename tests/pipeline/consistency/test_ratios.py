"""Ratios of two counts of a unit: failed requests over requests, as target and as guardrail."""

import pytest

from domain.evidence.document import evidence_from
from domain.wording.metrics import metric_rows
from orchestration.pipeline.audit import audit
from tests.world import DAY, A, K

ERRORS = {
    "kind": "ratio",
    "sources": ["request"],
    "per": ["request", "retry"],
    "where": {"failed": "true"},
    "better": "lower",
    "window_seconds": 300,
}
UNITS = 800


def requested(story, *, each: int, fails_of_ten: int, commit: str, orders: float) -> None:
    """Sessions of a build, each with some requests; a share of these, in tenths, fails."""
    rates = {"order": orders}
    story.crowd(commit, start=0, minutes=600, units=UNITS, rates=rates)
    visits = [event for event in story.events if event["event"] == "page_view"][-UNITS:]
    for number, visit in enumerate(visits):
        for place in range(number * each, (number + 1) * each):
            failed = place * 7919 % 10 < fails_of_ten
            name = "request" if failed or place % 3 else "retry"
            story.events.append({**visit, "event": name, "properties": {"failed": failed}})
            # Another delivery of the same event counts no more.
            story.events[-1]["event_id"] = f"{commit}-{place}"
    story.events.append(story.events[-1])


@pytest.mark.parametrize(
    ("each", "fails_of_ten", "as_target", "as_guardrail"),
    [
        (6, (1, 1), ("abstain", []), ("keep", [])),  # twice the requests, as many errors in each
        (3, (1, 2), ("rollback", []), ("iterate", ["errors"])),
        (3, (0, 1), ("rollback", []), ("iterate", ["errors"])),
    ],
)
@pytest.mark.parametrize("is_target", [True, False])
def test_a_change_of_a_ratio_is_told_from_more_requests(
    story, each, fails_of_ten, as_target, as_guardrail, *, is_target
) -> None:
    before, after = fails_of_ten
    story.settings(metrics={"errors": ERRORS})
    story.canary()
    requested(story, each=3, fails_of_ten=before, commit=A, orders=0.1)
    requested(story, each=each, fails_of_ten=after, commit=K, orders=0.3)
    chosen = {"target_metric": "errors"} if is_target else {"guardrails": ["errors"]}
    experiment = story.judged(**chosen, minutes=3 * DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    expected = as_target if is_target else as_guardrail
    assert (contract["verdict"], contract["guardrail_breaches"]) == expected
    row = next(row for row in evidence["metrics"] if row["metric"] == "errors")
    assert (row["control"], row["treatment"]) == pytest.approx((before / 10, after / 10), abs=0.01)
    assert row["interval"][0] < row["difference"] < row["interval"][1]
    shown = next(r for r in metric_rows(evidence_from(evidence)) if r.metric == "errors")
    assert shown.change == f"{100 * row['control']:.2f} % → {100 * row['treatment']:.2f} %"
    assert shown.difference.endswith(" points")
    if is_target and contract["verdict"] == "abstain":
        arm = evidence["arms"]["treatment"]
        assert (arm["units"], arm["per"]) == (UNITS, each * UNITS)
        assert arm["total"] == each * UNITS * after / 10
        assert arm["mean"] == row["treatment"]
    if is_target:
        # Where control has none, there is nothing that an effect is relative to.
        effect = evidence["effect"]
        assert (effect["estimate"] > 0.005, effect["relative"] is None) == (
            after > before,
            not before,
        )
    assert audit(story.store.engine, experiment).equal


@pytest.mark.parametrize(
    ("metric", "value", "code"),
    [
        ("errors", 3.0, "ratio_has_no_value"),
        ("order", -3, "negative_value"),
        # Of what is better the less of it there is, an event may cost.
        ("error", -3, None),
    ],
)
def test_a_value_that_a_metric_s_event_cannot_have_is_refused_by_name(
    story, metric, value, code
) -> None:
    story.settings(metrics={"errors": ERRORS})
    target = {"name": metric, "value_per_conversion": value}
    answer = story.post("/v1/reward/register", {"treatment_commit": K, "target_metric": target})
    errors = [(each["code"], each["pointer"]) for each in answer.json().get("errors", ())]
    assert answer.status_code == (201 if code is None else 422)
    assert errors == ([] if code is None else [(code, "/target_metric/value_per_conversion")])


@pytest.mark.parametrize(
    ("refused", "word"),
    [
        ({"per": []}, "needs per"),
        ({"kind": "mean"}, "needs per"),
        ({"currency": "USD"}, "no cap and no currency"),
        ({"over": 3}, "over needs kind = 'conversion'"),
    ],
)
def test_what_a_ratio_has_not_is_refused_by_name(story, refused, word) -> None:
    with pytest.raises(Exception, match=word):
        story.settings(metrics={"errors": {**ERRORS, **refused}})
