"""The verdict contract: ten members in the seed's order, the same wherever it is read."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from domain.document import Document, Interval
from domain.words import AbstainReason, Cadence, Verdict


class PowerState(Document, frozen=True, kw_only=True):
    """Whether the verdict is final."""

    clock: Annotated[
        Literal["open", "decided"], Meta(description="open: still running; decided: final.")
    ]
    decided: Annotated[bool, Meta(description="True when the verdict is final.")]


class Contract(Document, frozen=True, kw_only=True):
    """The verdict contract: ten members, in this order."""

    experiment_id: Annotated[str, Meta(description="The experiment.")]
    lift: Annotated[
        float | None, Meta(description="Treatment's rate minus control's; null while abstaining.")
    ]
    confidence: Annotated[
        float | None,
        Meta(description="1 minus the least always-valid p-value so far; null while abstaining."),
    ]
    ci: Annotated[
        Interval | None,
        Meta(description="The ends of the always-valid interval; null while abstaining."),
    ]
    verdict: Annotated[
        Verdict,
        Meta(description="keep: ship. rollback: revert. iterate: revise. abstain: wait or log."),
    ]
    abstain_reason: Annotated[
        AbstainReason | None,
        Meta(description="Why there is no verdict; null unless verdict is abstain."),
    ]
    value_at_risk: Annotated[
        float | None,
        Meta(
            description="Dollars a day, signed; null without a value per conversion, and while"
            " abstaining."
        ),
    ]
    cadence: Annotated[
        Cadence | None,
        Meta(description="Which lifts the test that fired, or may fire in time, expects."),
    ]
    power_state: Annotated[PowerState, Meta(description="Poll until its decided is true.")]
    guardrail_breaches: Annotated[
        tuple[str, ...], Meta(description="Names of breached guardrails, with any verdict.")
    ]

    @property
    def decided(self) -> bool:
        """Whether the verdict is final."""
        return self.power_state.decided


def contract(
    experiment_id: str,
    *,
    verdict: Verdict,
    abstain_reason: AbstainReason | None,
    decided: bool,
    lift: float | None = None,
    confidence: float | None = None,
    ci: Interval | None = None,
    value_at_risk: float | None = None,
    cadence: Cadence | None = None,
    guardrail_breaches: Sequence[str] = (),
) -> Contract:
    """Returns the contract of an experiment.

    Raises:
        ValueError: The members contradict each other; such a verdict must not be published.
    """
    if verdict == "keep" and guardrail_breaches:
        raise ValueError(f"keep with breaches {list(guardrail_breaches)}: that is iterate")
    if (verdict == "abstain") != (abstain_reason is not None):
        raise ValueError(f"{verdict} with abstain_reason {abstain_reason}")
    if verdict == "abstain" and (lift, confidence, ci) != (None, None, None):
        raise ValueError("an abstention carries neither lift nor confidence nor ci")
    return Contract(
        experiment_id=experiment_id,
        lift=lift,
        confidence=confidence,
        ci=ci,
        verdict=verdict,
        abstain_reason=abstain_reason,
        value_at_risk=value_at_risk,
        cadence=cadence,
        power_state=PowerState(clock="decided" if decided else "open", decided=decided),
        guardrail_breaches=tuple(guardrail_breaches),
    )


def waiting_contract(experiment_id: str, *, decided: bool = False) -> Contract:
    """Returns the contract of an experiment of which nothing is known yet."""
    return contract(
        experiment_id, verdict=Verdict.ABSTAIN, abstain_reason=AbstainReason.POWER, decided=decided
    )


_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)


def is_fair(contract: Contract) -> bool:
    """Tells whether the change alone can explain a difference between the arms."""
    return contract.abstain_reason not in _UNFAIR


_DECODER = msgspec.json.Decoder(Contract)


def contract_of(text: str | bytes) -> Contract:
    """Returns the contract that was published as this text.

    Raises:
        msgspec.MsgspecError: It is no contract.
    """
    return _DECODER.decode(text)
