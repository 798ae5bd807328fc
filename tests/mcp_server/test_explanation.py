"""An explanation fits into a kilobyte whatever the evidence holds."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.evidence.document import ClosedExperiment
from mcp_server.contract import Explanation, shown
from mcp_server.explanation import LONGEST_BYTES, explanation
from tests.stores.example import example_evidence

LONG = st.text(max_size=400) | st.just("“é”" * 300) | st.just('"\\' * 400)
CHECKS = st.lists(
    st.fixed_dictionaries({"check": LONG, "ok": st.booleans(), "fix": LONG}), max_size=12
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.none() | FLOATS
LIKELIHOODS = st.fixed_dictionaries(dict.fromkeys(("estimate", "standard_error"), FLOATS))
EFFECTS = st.fixed_dictionaries(
    dict.fromkeys(("estimate", "standard_error", "relative"), NUMBERS)
    | {"final": st.booleans(), "likelihood": st.none() | LIKELIHOODS}
)
ROWS = st.fixed_dictionaries(
    {"metric": LONG, "control": NUMBERS, "treatment": NUMBERS}
    | {"state": st.sampled_from(["better", "breached", "unharmed", "not_known"])}
    | {"interval": st.none() | st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))}
)


def explained(checklist: Any = None, **members: Any) -> Explanation:
    return explanation(example_evidence(**members), checklist)


@given(
    sentence=LONG,
    known=LONG,
    effect=EFFECTS,
    metrics=st.lists(ROWS, max_size=8),
    warnings=st.lists(LONG, max_size=5),
    checklist=CHECKS | st.none() | LONG,
)
def test_it_is_never_longer_than_a_kilobyte(
    sentence: str, known: str, checklist: Any, **members: Any
) -> None:
    answer = explained(checklist, sentence=sentence, known={"sentence": known}, **members)
    text = json.dumps(shown(answer), ensure_ascii=False)
    assert len(text.encode("utf-8", "replace")) <= LONGEST_BYTES


def test_sessions_are_counted_in_whole_numbers() -> None:
    sessions = {"accumulated": 800, "required": 15604.97, "per_day": 3840.0}
    progress = explained(sessions=sessions).progress
    assert (progress.accumulated, progress.required, progress.per_day) == (800, 15605, 3840)
    assert isinstance(progress.per_day, int)


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
    assert explanation(closed, None).progress is None


def test_the_effect_is_told_as_numbers_and_never_of_an_unfair_split() -> None:
    effect = {"estimate": 0.01234567891, "standard_error": 0.004, "relative": None, "final": True}
    effect |= {"trainable": True, "reward_at": "2026-10-08T00:00:00Z"}
    effect |= {"likelihood": {"estimate": 0.09, "standard_error": 0.03}}
    answer = explained(effect=effect)
    assert shown(answer.effect) == {**effect, "estimate": 0.0123457}
    assert explained(effect={"estimate": None, "standard_error": None}).effect is None
    assert explained(effect=None).effect is None


def test_an_unharmed_guardrail_makes_room_before_a_warning_and_a_breached_one_after() -> None:
    row = {"control": 0.01, "treatment": 0.02, "interval": [0.004, 0.016]}
    metrics = [
        {**row, "metric": "order", "state": "better"},
        *({**row, "metric": f"calm {n}", "state": "unharmed"} for n in range(6)),
        {**row, "metric": "error", "state": "breached"},
    ]
    answer = explained([], sentence="word " * 60, metrics=metrics, warnings=["unsigned"])
    assert [row.metric for row in answer.metrics][:2] == ["order", "error"]
    assert 2 <= len(answer.metrics) < 8
    assert answer.warnings == ("unsigned",)
    assert answer.left_out == 8 - len(answer.metrics)


def test_a_sentence_that_does_not_fit_ends_in_an_ellipsis() -> None:
    answer = explained(sentence="word " * 100)
    assert answer.sentence is not None
    assert answer.sentence.startswith("word word")
    assert answer.sentence.endswith("…")
