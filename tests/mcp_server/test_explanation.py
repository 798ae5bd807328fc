"""An explanation fits into four kilobytes whatever the evidence holds."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.checklist.line import ChecklistLine
from domain.evidence.document import ClosedExperiment
from mcp_server.explanation import LONGEST_BYTES, explanation
from tests.stores.example import example_evidence

# As long as sentences with the longest names of metrics are.
LONG = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cc", "Cs"]), max_size=300)
CHECKS = st.lists(
    st.builds(ChecklistLine, check=LONG, ok=st.sampled_from([False]), seen=LONG, fix=LONG),
    max_size=12,
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.none() | FLOATS
LIKELIHOODS = st.fixed_dictionaries(
    {"estimate": FLOATS, "standard_error": FLOATS, "trainable": st.booleans()}
)
EFFECTS = st.fixed_dictionaries(
    dict.fromkeys(("estimate", "standard_error", "relative"), NUMBERS)
    | {"final": st.booleans(), "likelihood": st.none() | LIKELIHOODS}
)
ROWS = st.fixed_dictionaries(
    {"metric": LONG, "control": NUMBERS, "treatment": NUMBERS}
    | {"state": st.sampled_from(["better", "breached", "unharmed", "not_known"])}
    | {"interval": st.none() | st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))}
)


def explained(faults: Any = None, **members: Any) -> dict[str, Any]:
    return explanation(example_evidence(**members), faults)


@given(
    sentence=LONG,
    known=LONG,
    effect=EFFECTS,
    metrics=st.lists(ROWS, max_size=8),
    warnings=st.lists(LONG, max_size=5),
    faults=CHECKS.map(tuple) | st.none(),
)
def test_it_is_never_longer_than_four_kilobytes(
    sentence: str, known: str, faults: Any, **members: Any
) -> None:
    answer = explained(faults, sentence=sentence, known={"sentence": known}, **members)
    text = json.dumps(answer, ensure_ascii=False)
    assert len(text.encode("utf-8", "replace")) <= LONGEST_BYTES == 4096


def test_of_an_experiment_that_was_never_computed_no_sessions_are_claimed() -> None:
    # Its data may have broken it: nobody counted how many came.
    closed = ClosedExperiment(
        sentence="No deploy came.",
        headline="Ended",
        reason="No deploy came.",
        advice=(),
        experiment_id="exp_1",
        as_of=None,
    )
    said = explanation(closed, None)["evidence"]
    assert said == {"experiment_id": "exp_1", "sentence": "No deploy came.", "warnings": []}


def test_the_effect_is_told_as_numbers_and_never_of_an_unfair_split() -> None:
    effect = {"estimate": 0.01234567891, "standard_error": 0.004, "relative": None, "final": True}
    effect |= {"trainable": True, "reward_at": "2026-10-08T00:00:00Z"}
    effect |= {"likelihood": {"estimate": 0.09, "standard_error": 0.03, "trainable": True}}
    effect |= {"learned": 0.011, "credible": [-0.01, 0.03]}
    assert explained(effect=effect)["evidence"]["effect"] == effect
    unfair = explained(effect={"estimate": None, "standard_error": None})["evidence"]["effect"]
    assert (unfair["estimate"], unfair["standard_error"]) == (None, None)
    assert explained(effect=None)["evidence"]["effect"] is None


def test_an_unharmed_guardrail_makes_room_before_a_warning_and_a_breached_one_after() -> None:
    row = {"control": 0.01, "treatment": 0.02, "interval": [0.004, 0.016]}
    metrics = [
        {**row, "metric": "order", "role": "target", "state": "better"},
        *({**row, "metric": f"calm {n}", "state": "unharmed"} for n in range(40)),
        {**row, "metric": "error", "state": "breached"},
    ]
    answer = explained((), sentence="word " * 60, metrics=metrics, warnings=["unsigned"])
    said = answer["evidence"]
    assert [row["metric"] for row in said["metrics"]][:2] == ["order", "error"]
    assert 2 <= len(said["metrics"]) < 42
    assert said["warnings"] == ["unsigned"]
    assert answer["left_out"] == 42 - len(said["metrics"])
