"""The second text block: what a verdict asks of its reader."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contract import Contract
from mcp_server.advice import LONGEST, advice
from tests.mcp_server.contracts import KEEP, WAITING

DECIDED, OPEN = KEEP["power_state"], WAITING["power_state"]


def verdict(word: str, **members: object) -> Contract:
    whole = WAITING if word == "abstain" else KEEP
    return msgspec.convert(whole | {"verdict": word} | members, Contract)


@pytest.mark.requirement(
    "mcp.action.keep", "mcp.action.rollback", "mcp.action.iterate", "mcp.poll.until"
)
@pytest.mark.parametrize(
    ("word", "action"), [("keep", "Ship"), ("rollback", "Revert"), ("iterate", "Revise")]
)
def test_each_verdict_names_its_action_and_needs_no_further_look(word, action) -> None:
    for power_state in (DECIDED, OPEN):
        line = advice(verdict(word, power_state=power_state), 60)
        assert action in line
        assert "No need to look again" in line


@pytest.mark.requirement("mcp.action.iterate")
def test_iterate_names_the_breached_guardrails() -> None:
    assert "error and 1 more" in advice(verdict("iterate", guardrail_breaches=["error", "slow"]), 9)


@pytest.mark.requirement("mcp.poll.until", "mcp.action.abstain")
@pytest.mark.parametrize("reason", ["power", "non_identifiable", "interacting"])
def test_an_open_abstention_names_its_reason_and_the_next_look(reason) -> None:
    line = advice(verdict("abstain", abstain_reason=reason), 45)
    assert reason in line
    assert "log abstain_reason" in line.lower()
    assert "Look again in 45 seconds" in line


def test_a_look_that_is_overdue_is_no_reason_to_hurry() -> None:
    assert "Look again in 30 seconds" in advice(verdict("abstain"), 1)


@pytest.mark.requirement("mcp.poll.until", "mcp.action.abstain")
def test_a_final_abstention_asks_for_no_further_look() -> None:
    line = advice(verdict("abstain", power_state=DECIDED), 45)
    assert "Log abstain_reason." in line
    assert "No need to look again" in line


@pytest.mark.requirement("mcp.poll.pace")
@pytest.mark.parametrize(("cadence", "pace"), [("day", "1 hour"), ("fast", "5 minutes")])
def test_without_a_word_of_the_service_the_cadence_sets_the_pace(cadence, pace) -> None:
    assert f"Look again in {pace}." in advice(verdict("abstain", cadence=cadence), None)


@given(
    word=st.sampled_from(["keep", "rollback", "iterate", "abstain"]),
    number=st.floats(allow_nan=False, allow_infinity=False),
    breaches=st.lists(st.text(max_size=200), max_size=5),
    wait=st.none() | st.integers(min_value=0, max_value=10**9),
)
def test_no_verdict_needs_more_than_300_characters(word, number, breaches, wait) -> None:
    numbers = {"lift": number, "ci": (number, number), "value_at_risk": number}
    line = advice(verdict(word, guardrail_breaches=breaches, **numbers), wait)
    assert len(line) <= LONGEST
    assert line.endswith(".")
