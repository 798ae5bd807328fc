"""The policy: its ranges, its level, and how it is read."""

import math
from typing import Any

import pytest

from stats.looks.policy import Policy


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("alpha", 0.0),
        ("alpha", 1.0),
        ("alpha", math.nan),
        ("attempt", 0),
        ("rho_day", 0.0),
        ("rho_fast", math.inf),
        ("better", "faster"),
        ("window_seconds", 301),
        ("window_seconds", -300),
        ("grace_seconds", -1),
        ("block_seconds", 7 * 60),
        ("block_seconds", 0),
        ("block_min_units", 0),
        ("horizon_seconds", 299),
        ("contrast_seconds", 0),
        ("vif_limit", 0.5),
        ("value_per_conversion", math.nan),
    ],
)
def test_a_policy_out_of_range_cannot_be_built_and_the_error_names_the_value(
    member: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=member) as caught:
        Policy(**{member: value})
    assert repr(value) in str(caught.value)


def test_a_policy_is_read_from_its_document_and_ignores_what_others_read() -> None:
    document = {"alpha": 0.1, "rho_day": 16, "better": "lower", "routes": ["/"], "unit": "session"}
    policy = Policy.from_json(document)
    assert policy == Policy(alpha=0.1, rho_day=16.0, better="lower")
    assert isinstance(policy.rho_day, float)


def test_an_empty_document_is_the_default_policy() -> None:
    assert Policy.from_json({}) == Policy()
    assert Policy.from_json({"value_per_conversion": None}) == Policy()
    assert Policy.from_json({"value_per_conversion": 3}).value_per_conversion == 3.0


@pytest.mark.parametrize(
    "document",
    [{"alpha": "0.05"}, {"attempt": 1.5}, {"attempt": True}, {"better": 1}, {"alpha": None}],
)
def test_a_document_with_a_member_of_another_type_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=next(iter(document))):
        Policy.from_json(document)


def test_each_further_attempt_tests_at_alpha_over_its_square() -> None:
    assert Policy(attempt=2).level == 0.05 / 4
    assert Policy(attempt=3).log_threshold == pytest.approx(math.log(9 / 0.05))
