"""An explanation fits into a kilobyte whatever the evidence holds."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.explanation import LONGEST_BYTES, explanation

LONG = st.text(max_size=400) | st.just("“é”" * 300) | st.just('"\\' * 400)
CHECKS = st.lists(
    st.fixed_dictionaries({"check": LONG, "ok": st.booleans(), "fix": LONG}), max_size=12
)
ANYTHING = st.none() | st.booleans() | st.integers() | LONG | st.lists(LONG, max_size=5)
EFFECTS = st.fixed_dictionaries(
    {
        name: st.none() | st.floats(allow_nan=False, allow_infinity=False)
        for name in ("estimate", "standard_error", "relative")
    }
    | {"final": st.booleans()}
)
ROWS = st.fixed_dictionaries(
    {name: ANYTHING | st.floats() for name in ("metric", "state", "control", "treatment")}
    | {"interval": ANYTHING | st.lists(st.floats(), max_size=3)}
)


@given(
    sentence=ANYTHING,
    known=ANYTHING | st.fixed_dictionaries({"sentence": ANYTHING}),
    sessions=ANYTHING,
    effect=ANYTHING | EFFECTS,
    metrics=ANYTHING | st.lists(ROWS, max_size=8),
    warnings=ANYTHING,
    checklist=CHECKS | ANYTHING,
)
def test_it_is_never_longer_than_a_kilobyte(
    sentence: Any,
    known: Any,
    sessions: Any,
    effect: Any,
    metrics: Any,
    warnings: Any,
    checklist: Any,
) -> None:
    evidence = {"sentence": sentence, "known": known, "sessions": sessions, "warnings": warnings}
    evidence |= {"effect": effect, "metrics": metrics}
    told = explanation("exp_1", evidence, checklist)
    text = json.dumps(told.model_dump(), ensure_ascii=False)
    assert len(text.encode("utf-8", "replace")) <= LONGEST_BYTES


@given(checklist=CHECKS)
def test_what_is_left_out_is_counted(checklist: list[dict[str, Any]]) -> None:
    told = explanation("exp_1", {}, checklist)
    assert told.faults is not None
    assert len(told.faults) + told.left_out == sum(not check["ok"] for check in checklist)


def test_sessions_are_counted_in_whole_numbers() -> None:
    sessions = {"accumulated": 800, "required": 15604.97, "per_day": 3840.0}
    progress = explanation("exp_1", {"sessions": sessions}, []).progress
    assert (progress.accumulated, progress.required, progress.per_day) == (800, 15605, 3840)
    assert isinstance(progress.per_day, int)


def test_the_effect_is_told_as_numbers_and_never_of_an_unfair_split() -> None:
    effect = {"estimate": 0.01234567891, "standard_error": 0.004, "relative": None, "final": True}
    effect |= {"basis": "at_decision"}
    shown = explanation("exp_1", {"effect": effect}, []).effect
    assert shown is not None
    assert shown.model_dump() == {**effect, "estimate": 0.0123457}
    unfair = dict.fromkeys(effect)
    assert explanation("exp_1", {"effect": unfair}, []).effect is None
    assert explanation("exp_1", {}, []).effect is None


def test_an_unharmed_guardrail_makes_room_before_a_warning_and_a_breached_one_after() -> None:
    row = {"control": 0.01, "treatment": 0.02, "interval": [0.004, 0.016]}
    metrics = [
        {**row, "metric": "order", "state": "better"},
        *({**row, "metric": f"calm {n}", "state": "unharmed"} for n in range(6)),
        {**row, "metric": "error", "state": "breached"},
    ]
    evidence = {"sentence": "word " * 60, "metrics": metrics, "warnings": ["unsigned"]}
    told = explanation("exp_1", evidence, [])
    assert [row.metric for row in told.metrics][:2] == ["order", "error"]
    assert 2 <= len(told.metrics) < 8
    assert told.warnings == ["unsigned"]
    assert told.left_out == 8 - len(told.metrics)


def test_a_sentence_that_fits_is_whole() -> None:
    told = explanation("exp_1", {"sentence": "A loss beyond 12 % is excluded."}, [])
    assert told.sentence == "A loss beyond 12 % is excluded."


def test_a_sentence_that_does_not_fit_ends_in_an_ellipsis() -> None:
    told = explanation("exp_1", {"sentence": "word " * 100}, [])
    assert told.sentence is not None
    assert told.sentence.startswith("word word")
    assert told.sentence.endswith("…")
