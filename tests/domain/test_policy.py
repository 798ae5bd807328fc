"""The policy: how it leaves the store, and the level of each attempt."""

import json
import math
from typing import Any

import msgspec
import pytest

from domain.document import document_text
from domain.metric import metric_definition
from domain.policy import LATER, Numbers, Policy, UnreadablePolicyError

FROZEN = Policy(
    **dict.fromkeys(("routes", "graph_id", "flag")),
    **dict.fromkeys(("guardrails", "companions", "unwatched", "read_from", "unread"), ()),
    **dict.fromkeys(("frozen_from", "earlier_attempts", "segments"), ()),
    **dict.fromkeys(("drawn", "trusted_identity", "signed_assignments"), False),
    **dict.fromkeys(("portfolio", "retrospective"), False),
    target=metric_definition("order", {}),
    environment="production",
    routes_because="all",
    unit="session",
    on_suspicion="pause",
    warmup_seconds=0,
)
STORED: dict[str, Any] = msgspec.to_builtins(FROZEN)


def test_a_policy_leaves_the_store_as_it_was_frozen() -> None:
    assert Policy.of(STORED) == FROZEN
    assert msgspec.to_builtins(Policy.of(STORED)) == STORED


@pytest.mark.parametrize("member", LATER)
def test_a_policy_that_was_frozen_before_a_member_came_is_read_with_its_default(member) -> None:
    earlier = {each: STORED[each] for each in STORED if each != member}
    assert Policy.of(earlier) == FROZEN
    assert json.loads(document_text(Policy.completed(earlier))) == json.loads(document_text(FROZEN))


@pytest.mark.parametrize("member", sorted({*STORED} - {*LATER}))
def test_a_policy_without_a_member_is_refused_by_its_name(member) -> None:
    with pytest.raises(UnreadablePolicyError, match=member):
        Policy.of({each: STORED[each] for each in STORED if each != member})


@pytest.mark.parametrize(
    "other",
    [
        *({"alpha": value} for value in ("0.05", None, 1.0)),
        *({"attempt": value} for value in (1.5, True, 0)),
        {"better": "faster"},
        {"rho_day": 0.0},
        {"version": 2},
    ],
)
def test_a_member_of_another_type_or_range_is_refused_by_its_name(other) -> None:
    with pytest.raises(UnreadablePolicyError, match=next(iter(other))):
        Policy.of({**STORED, **other})


def test_each_further_attempt_tests_at_alpha_over_its_square() -> None:
    assert Numbers(attempt=2).level == 0.05 / 4
    assert Numbers(attempt=3).log_threshold == pytest.approx(math.log(9 / 0.05))
