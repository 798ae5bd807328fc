"""The policy: its ranges, its level, and how it is read."""

import math

import msgspec
import pytest

from stats.looks.policy import Policy


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
    [
        *({"alpha": value} for value in ("0.05", None, 1.0)),
        *({"attempt": value} for value in (1.5, True, 0)),
        {"better": "faster"},
        {"rho_day": 0.0},
    ],
)
def test_a_document_with_a_member_of_another_type_or_range_is_refused_by_its_name(document) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(document))):
        Policy.from_json(document)


def test_each_further_attempt_tests_at_alpha_over_its_square() -> None:
    assert Policy(attempt=2).level == 0.05 / 4
    assert Policy(attempt=3).log_threshold == pytest.approx(math.log(9 / 0.05))
