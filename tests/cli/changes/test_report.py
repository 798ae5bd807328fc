"""What `wait` leaves in a pipeline: a summary that people read, a suite that programs count."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.cli.changes.test_wait import ABSTAIN, ENDED, FOUND, evidence, published, registered

pytestmark = pytest.mark.shared_store

RAIL = {"role": "guardrail", "control": 0.01, "treatment": 0.02, "difference": 0.01}
BREACHED = {**RAIL, "metric": "error", "interval": [0.004, 0.016], "state": "breached"}
SOUND = {**RAIL, "metric": "slow_page", "interval": [-0.004, 0.001], "state": "unharmed"}
UNKNOWN = {
    **dict.fromkeys(("control", "treatment", "difference", "interval")),
    "metric": "arrival",
    "role": "guardrail",
    "state": "not_known",
}


def whole(metric: str = "order", **members: Any) -> dict[str, Any]:
    """An evidence document, as far as a report reads it."""
    arms = {
        "control": {"units": 4000, "conversions": 400, "rate": 0.1},
        "treatment": {"units": 4100, "conversions": 533, "rate": 0.13},
    }
    policy = {"target": {"name": metric, "better": "higher"}, "unit": "session"}
    target = {"metric": metric, "role": "target", "control": 0.1, "treatment": 0.13}
    target |= {"difference": 0.03, "interval": [0.01, 0.05], "state": "better"}
    result = {"policy": policy, "arms": arms, "totals": {"ci": [0.01, 0.05]}, "metrics": [target]}
    result["metrics"] = [target, *members.pop("guardrails", ())]
    return evidence(**{**result, **members})


@pytest.fixture
def reported(served, command, tmp_path) -> Any:
    """Waits once, and returns the summary and the suite."""

    def report(answer: dict[str, Any], document: dict[str, Any] | None) -> tuple[str, Any]:
        experiment_id = registered(served)
        if document is not None:
            published(served, experiment_id, answer, document)
        summary, suite = tmp_path / "summary.md", tmp_path / "suite.xml"
        words = ("--timeout", "0", "--summary", summary, "--junit", suite)
        command("wait", experiment_id, *words)
        return summary.read_text(), ET.parse(suite).getroot()  # noqa: S314 (ours)

    return report


ENDS = [
    ({"verdict": "keep", **FOUND}, "Keep: order", None),
    ({"verdict": "rollback", **FOUND}, "Roll back: order", "failure"),
    ({"verdict": "iterate", **FOUND, "guardrail_breaches": ["error"]}, "Iterate: order", "failure"),
    ({**ABSTAIN, "guardrail_breaches": ["error"]}, "error got worse", "failure"),
    ({**ABSTAIN, "abstain_reason": "interacting"}, "The set-up is at fault: order", "error"),
    (ABSTAIN, "Can't say yet: order", "skipped"),
    (ENDED, "No answer: order", "skipped"),
]


@pytest.mark.parametrize(("answer", "title", "kind"), ENDS)
def test_each_end_has_a_title_and_a_place_in_the_suite(reported, answer, title, kind) -> None:
    summary, suite = reported(answer, whole())
    assert summary.startswith(f"## {title}\n")
    (case,) = suite.findall("testcase")
    assert [child.tag for child in case] == ([] if kind is None else [kind])
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {
        "tests": 1,
        "failures": int(kind == "failure"),
        "errors": int(kind == "error"),
        "skipped": int(kind == "skipped"),
    }


def test_the_summary_says_what_was_found_in_figures(reported) -> None:
    summary, _ = reported({"verdict": "keep", **FOUND}, whole(guardrails=[SOUND, UNKNOWN]))
    assert "What is known." in summary
    assert "| treatment | 4,100 | 533 | 13.00 % |" in summary
    assert (
        "| order | 10.00 % | 13.00 % | +3.00 points (+30 %)"
        " | +1.00 to +5.00 points (+10 % to +50 %) | better |"
    ) in summary
    assert "| slow\\_page (guardrail) | 1.00 % | 2.00 % | +1.00 points (+100 %)" in summary
    assert "| arrival (guardrail) |  |  |  |  | no harm seen |" in summary
    assert "You may look as often as you like" in summary


def test_the_summary_says_the_best_estimate_and_its_moment(reported) -> None:
    effect = {"estimate": 0.024, "relative": 0.24, "basis": "at_decision"}
    summary, _ = reported({"verdict": "keep", **FOUND}, whole(effect=effect))
    assert "Best estimate: +2.40 points (+24 %) at the decision.\n" in summary


def test_without_a_fair_comparison_the_summary_has_no_estimate(reported) -> None:
    unknown = {"estimate": None, "basis": "open"}
    assert "Best estimate" not in reported(ABSTAIN, whole(effect=unknown))[0]


def test_each_guardrail_is_a_case_of_its_own(reported) -> None:
    answer = {**ABSTAIN, "guardrail_breaches": ["error"]}
    _, suite = reported(answer, whole(guardrails=[BREACHED, SOUND, UNKNOWN]))
    result = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert result == {
        "order": ["failure"],
        "guardrail error": ["failure"],
        "guardrail slow_page": [],
        "guardrail arrival": ["skipped"],
    }
    (failure,) = suite.findall("testcase")[1]
    assert failure.get("message") == "got worse"
    assert failure.text is not None
    assert "1.00 % → 2.00 %" in failure.text
    assert "true difference +0.40 to +1.60 points" in failure.text


def test_before_any_look_there_is_a_report_as_well(reported) -> None:
    summary, suite = reported(ABSTAIN, None)
    assert summary.startswith("## Can't say yet\n")
    assert "Nothing was measured yet" in summary
    assert [child.tag for child in suite.findall("testcase")[0]] == ["skipped"]


def test_a_metric_s_name_is_neither_markup_nor_broken_xml(reported) -> None:
    name = "<img src=x>|[a](b)\x01&amp;"
    summary, suite = reported({"verdict": "keep", **FOUND}, whole(name))
    assert "\\<img src=x\\>\\|\\[a\\](b)" in summary
    (case,) = suite.findall("testcase")
    assert case.get("name") == name.replace("\x01", "")


def test_a_summary_is_added_to_what_stands_in_its_file(reported, tmp_path) -> None:
    (tmp_path / "summary.md").write_text("# Earlier steps\n")
    summary, _ = reported({"verdict": "keep", **FOUND}, whole())
    assert summary.startswith("# Earlier steps\n## Keep: order\n")
