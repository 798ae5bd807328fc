"""The page of an experiment has words for whatever the engine can say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs, to_builtins

from api.dashboard.page.figures import first_line, money, signs, web_address
from api.dashboard.verdict import reason_of, value_of
from domain.cause import Cause
from domain.contract import Contract, contract
from domain.evidence.document import Evidence, ValueRange
from domain.lineage.control_state import ControlState
from domain.measure import measure_of
from domain.wording.headline import ABSTENTIONS, headline_of
from domain.wording.situation import situation
from domain.wording.warnings import WARNINGS
from domain.words import AbstainReason, EndedBecause
from domain.words import Verdict as Word
from mcp_server.advice import advice as for_agents
from orchestration.pipeline import document as documents
from orchestration.pipeline.members.effect import value_between
from orchestration.pipeline.set_aside import WARNING as SET_ASIDE
from stats.decision.evidence import (
    ALLOCATION_UNDECLARED,
    DAY_UNEQUAL,
    FADING,
    FEWER_SO_FAR,
    GUARDRAILS_UNPROVEN,
    SESSIONS_CUT,
    TURNOVER_UNSEEN,
    TWIN_UNKNOWN,
    UNVERIFIED,
    WHO_CAME,
)
from stats.gates.gate import Reading
from stats.gates.readings import GATES
from tests.stores.example import example_evidence
from tests.world import T


def served(verdict: str, *, reason: str | None = None, decided: bool = True, **known: Any) -> Any:
    why = None if reason is None else AbstainReason(reason)
    return contract("exp_1", verdict=Word(verdict), abstain_reason=why, decided=decided, **known)


def advice(contract: Contract, evidence: Any, **more: Any) -> tuple[str, ...]:
    return situation(contract, evidence, ControlState(), now=T, **more).advice


def reason(contract: Contract, evidence: Any) -> str:
    return reason_of(
        contract, evidence.reason, situation(contract, evidence, ControlState(), now=T)
    )


def document(**members: Any) -> Evidence:
    return example_evidence(
        **{
            "sentence": "Can't say yet on spent: 200 units so far.",
            "reason": "On spent: 200 units so far.",
            "policy": {"target": {"name": "spent"}},
            "arms": {"control": {"rate": 0.1}, "treatment": {"rate": 0.12}},
            "totals": {"lift": 0.02, "ci": [-0.01, 0.05]},
            "sessions": {"accumulated": 200, "per_day": 1000.0},
            **members,
        }
    )


@pytest.mark.parametrize(
    "members",
    [
        {"verdict": "keep", "lift": 0.02, "confidence": 0.96, "ci": [0.01, 0.03]},
        {"verdict": "rollback", "lift": -0.02, "confidence": 0.96, "ci": [-0.03, -0.01]},
        {"verdict": "iterate", "lift": 0.02, "confidence": 0.96, "ci": [0.01, 0.03]},
        *({"verdict": "abstain", "reason": reason} for reason in ABSTENTIONS),
        *({"verdict": "abstain", "reason": reason, "decided": False} for reason in ABSTENTIONS),
    ],
    ids=str,
)
def test_an_agent_reads_the_headline_of_the_page(members) -> None:
    contract = served(**members)
    headline = headline_of(contract).text
    assert for_agents(contract, 60).startswith(headline)


@pytest.mark.parametrize("cause", EndedBecause)
def test_every_end_has_advice_of_its_own(cause) -> None:
    ended = advice(served("abstain", reason="power"), document(ended_because=cause))
    assert ended != advice(served("abstain", reason="power"), None)


CANDIDATE = {
    "at": "2026-10-01T10:00:00Z",
    "lift": 0.02,
    "confidence": 0.96,
    "ci": [0.01, 0.03],
    "cadence": "day",
}


def test_a_candidate_waits_for_what_it_lacks() -> None:
    waiting = served("abstain", reason="power", decided=False)
    lacks = {
        (("error",), True): "until it is sure that error did not get worse.",
        (("error",), False): "did not get worse and the difference is beyond chance",
        ((), False): "until the difference is beyond chance again.",
        ((), True): "until it is sure that its guardrails did not get worse.",
    }
    for (waits_for, holds), words in lacks.items():
        candidate = {**CANDIDATE, "waits_for": list(waits_for), "holds": holds}
        assert words in advice(waiting, document(candidate=candidate))[0]


def test_every_cause_that_forbids_a_comparison_has_its_remedy() -> None:
    alarm = Reading(statistic=np.ones(1), alarm=np.ones(1, dtype=np.bool_))
    checks = [
        gate.check(alarm, 0, holds=True, units=(1, 2)) for gate in GATES if gate.cause is not None
    ]
    gates: dict[str, Any] = {"checks": to_builtins(checks), "aliased_with": []}
    remedies = advice(served("abstain", reason="interacting", decided=False), document(gates=gates))
    # The last: what was counted under most of them stays, so that a new experiment is the way on.
    assert len(set(remedies)) == len(Cause) + 1
    assert "/v1/reward/exp_1/close" in remedies[-1]
    gates["checks"] = [check for check in gates["checks"] if check["cause"] == Cause.INTERACTION]
    (wait,) = advice(served("abstain", reason="interacting", decided=False), document(gates=gates))
    assert "until the other change is decided" in wait


def test_every_warning_is_explained() -> None:
    source = Path(documents.__file__).read_text().partition("def _warnings(")[2]
    known = {word for word in WARNINGS if f'"{word}"' in source.partition("\ndef ")[0]}
    # Those that no list of the document's module names.
    others = {
        GUARDRAILS_UNPROVEN,
        ALLOCATION_UNDECLARED,
        FADING,
        UNVERIFIED,
        SET_ASIDE,
        DAY_UNEQUAL,
        SESSIONS_CUT,
        TURNOVER_UNSEEN,
        WHO_CAME,
        TWIN_UNKNOWN,
        FEWER_SO_FAR,
    }
    assert known | others == WARNINGS.keys()


def test_a_change_whose_arms_came_at_different_times_is_to_get_them_at_the_same_time() -> None:
    aliased = served("abstain", reason="non_identifiable", decided=False)
    alone = document(gates={"aliased_with": ["time"]})
    assert "same time" in advice(aliased, alone)[0]


def test_a_page_says_the_evidence_s_reason_in_print() -> None:
    waiting = served("abstain", reason="power", decided=False)
    assert reason(waiting, document()) == "On spent: 200 units so far."
    kept = served("keep", lift=0.02, confidence=0.96, ci=[-0.01, 0.05])
    known = document(reason="With this change, spent rose by 2.00 points, between -1.00 and 5.")
    assert "\N{MINUS SIGN}1.00" in reason(kept, known)


def test_a_mean_is_told_in_its_own_measure_and_never_in_points() -> None:
    target = {"name": "spent", "kind": "mean"}
    arms = {"control": {"rate": 0.5, "mean": 20.0}, "treatment": {"rate": 0.5, "mean": 25.0}}
    measure = measure_of(document(policy={"target": target}, arms=arms))
    assert measure.difference(5.0) == "+5 per session"
    assert measure.relative(5.0) == "+25 %"
    assert (measure.short(5.0), measure.per) == ("+5", "per session")
    paid = measure_of(document(policy={"target": {**target, "currency": "USD"}}, arms=arms))
    assert paid.difference(1013.0) == "+10.13 USD per session"
    assert (paid.size(-250_000.0), paid.level(5.8)) == ("2,500 USD per session", "0.058")
    for currency, each in {"JPY": "+1,013", "KWD": "+1.013", "CLF": "+0.1013"}.items():
        of = replace(paid, currency=currency)
        assert of.difference(1013.0) == f"{each} {currency} per session"
    assert measure.level(20.0) == "20"
    assert measure.interval(-1.0, 9.0) == "-1 to +9"
    # A rate cannot lose more than all of it; what refunds leave of a mean can.
    rate = measure_of(document())
    assert rate.difference(-0.00003) == "-0.003 points", "an end that excludes zero is no zero"
    assert rate.relative(rate.possible(-0.14)) == "-100 %"
    assert rate.relative(-0.14) == "-140 %"
    assert measure.possible(-50.0) == -50.0


def test_what_a_day_is_worth_is_the_verdict_s_or_what_the_interval_leaves_open() -> None:
    waiting = served("abstain", reason="power", decided=False)
    assert value_between((-0.01, 0.05), None) is None
    low, high = value_between((-0.01, 0.05), 1000.0 * 40.0) or (0.0, 0.0)
    known = structs.replace(document(), value_range=ValueRange(low=low, high=high))
    assert value_of(waiting, known, None) == pytest.approx((-400, 2000))
    kept = served("keep", lift=0.02, confidence=0.96, ci=[0.01, 0.03], value_at_risk=800.0)
    assert value_of(kept, document(), None) == (800, 800)


def test_figures_are_written_as_people_read_them() -> None:
    assert money(-1234.5) == "\N{MINUS SIGN}$1,234"
    assert money(0.5) == "$0.50"
    assert signs("a -5.0 %, not x-5, 2026-10-01") == (
        "a \N{MINUS SIGN}5.0\N{NARROW NO-BREAK SPACE}%, not x-5, 2026-10-01"
    )
    assert first_line("\n one \n two") == "one"
    assert first_line(None) == ""
    assert web_address("javascript:alert(1)") is None
    assert web_address("https://a.example") == "https://a.example"
