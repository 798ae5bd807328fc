"""A portfolio as an agent reads it: in a kilobyte, whatever it holds, and the whole first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.explanation import LONGEST_BYTES, as_json
from mcp_server.portfolio import portfolio
from tests.repetition import examples

SHAS = st.from_regex(r"[0-9a-f]{7,64}", fullmatch=True) | st.just("4f2a9c1d" * 8)
LIFTS = st.none() | st.floats(-0.99, 30)
MEASUREMENTS = st.fixed_dictionaries(
    {
        "experiment_id": st.from_regex(r"exp_[0-9a-f]{20}", fullmatch=True),
        "change": st.lists(SHAS, min_size=1, max_size=3),
        "verdict": st.sampled_from(["keep", "rollback", "iterate", "abstain"]),
        "decided": st.booleans(),
        "claimed": LIFTS,
        "effect": LIFTS,
        "basis": st.none() | st.just("after_decision"),
        "counted": st.booleans(),
    }
)
SHARES = st.fixed_dictionaries(
    {
        "share": st.sampled_from([0.05, 0.1, 0.2]),
        "lift": st.floats(0.001, 3),
        "days": st.none() | st.floats(0.01, 1e6),
    }
)
EFFECTS = st.fixed_dictionaries(
    {
        "relative": LIFTS,
        "interval": st.none() | st.tuples(st.floats(-1, 1), st.floats(1, 9)).map(list),
        "basis": st.sampled_from(["open", "at_decision", "after_decision"]),
    }
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    begun, hold_back = draw(st.booleans()), draw(SHAS)
    return {
        "hold_back": hold_back,
        "hold_back_share": draw(st.none() | st.sampled_from([0.0, 0.1, 1.0])),
        "treatment": draw(SHAS),
        "standing": draw(SHAS),
        "standing_deploy": "dep_0123456789abcdef0123",
        "metric": draw(st.from_regex(r"[a-z0-9_]{1,64}", fullmatch=True)),
        "share": draw(SHARES),
        "moved_on": begun and draw(st.booleans()),
        "attempt": 1,
        "changes": draw(st.integers(1, 10**6)),
        "unmeasured": [],
        "measurements": draw(st.lists(MEASUREMENTS, max_size=12)),
        "kept": draw(st.integers(0, 12)),
        "claimed": draw(st.floats(-1, 99)),
        "expected": draw(st.floats(-1, 99)),
        "experiment_id": "exp_0123456789abcdef0123" if begun else None,
        "decided": draw(st.booleans()) if begun else None,
        "follow_up": draw(st.sampled_from([None, "running", "final"])) if begun else None,
        "effect": draw(st.none() | EFFECTS) if begun else None,
    }


@examples(gate=40, deep=1000)
@given(document=documents())
def test_it_is_at_most_a_kilobyte_and_single_changes_are_left_out_first(
    document: dict[str, Any],
) -> None:
    found = portfolio(document)
    assert len(as_json(found.model_dump())) <= LONGEST_BYTES
    steps = len(portfolio({**document, "measurements": []}).steps)
    assert (found.begin is None) == (document["experiment_id"] is not None)
    assert len(found.changes) + len(found.steps) + found.left_out >= len(document["measurements"])
    assert not found.changes or len(found.steps) == steps


@pytest.mark.parametrize("body", [[], {}, {"hold_back": None}])
def test_what_is_no_portfolio_is_said_to_be_foreign(service: Any, call: Any, body: object) -> None:
    service.answers_with("/v1/reward/portfolio", body)
    result = call("portfolio")
    assert result.is_error
    assert "is not the service's" in result.content[0].text


def test_its_path_is_no_experiment_to_poll(service: Any, call: Any) -> None:
    for name in ("portfolio", "ledger", "freeze"):
        assert call("get_verdict", {"experiment_id": name}).is_error
    assert service.requests == []
