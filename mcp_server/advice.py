"""The advice of a verdict, in at most 300 characters."""

import textwrap
from collections.abc import Sequence

from domain.contract import Contract
from domain.figures import length_of_time
from domain.registration import RegistrationAnswer
from domain.wording.headline import ABSTENTIONS, headline_of
from domain.wording.registration import HISTORY
from domain.wording.situation import is_awaited
from domain.words import State, Verdict

LONGEST = 300
DAY_PACE_SECONDS = 3600
FAST_PACE_SECONDS = 300
# The service looks at new events every 30 seconds: no answer changes sooner.
SOONEST_SECONDS = 30

ACTIONS = {
    Verdict.KEEP: "Ship the treatment.",
    Verdict.ROLLBACK: "Revert the treatment.",
    Verdict.ITERATE: "Revise the treatment for {breaches}, then register it again.",
}


def advice(
    contract: Contract, retry_after: int | None, registration: RegistrationAnswer | None = None
) -> str:
    """Says the verdict, the next step, and when to look again.

    Args:
        retry_after: Seconds until the next look can come, or None where the service said nothing.
        registration: None where it could not be read.

    Returns:
        A line of at most 300 characters.
    """
    situation = None if registration is None else registration.situation
    history = f"{HISTORY} " if registration is not None and registration.retrospective else ""
    if situation is None:
        return _cut(_sentence(contract), f"{_action(contract)} {_next_look(contract, retry_after)}")
    step = next(iter(situation.advice), "Call explain to see what to repair.")
    step = textwrap.shorten(step, LONGEST // 2, placeholder="…")
    if contract.abstain_reason is None:
        doing = f"{history}{step} {_next_look(contract, retry_after)}"
        return _cut(" ".join(filter(None, [_sentence(contract), situation.sentence])), doing)
    if situation.state is State.WAITS_FOR_DEPLOY:
        doing = "Do not poll until that deploy is posted: no traffic counts before."
    elif situation.state is State.BASE_GONE:
        doing = "Call explain: rebase says on what, and which changes to post."
    else:
        doing = f"{history}{step} Log abstain_reason. {_next_look(contract, retry_after)}"
    said = situation.sentence
    if is_awaited(situation):
        # The sentence says why a keep waits, and needs the room of the contract's words.
        is_almost = situation.state is State.ALMOST and said
        first = f"{situation.headline}:" if is_almost else _sentence(contract)
        said = " ".join(filter(None, [first, said]))
    return _cut(said or _sentence(contract), doing)


def _cut(sentence: str, doing: str) -> str:
    room = LONGEST - len(doing) - 1
    return f"{sentence if len(sentence) <= room else sentence[: room - 1] + '…'} {doing}"


def _sentence(contract: Contract) -> str:
    headline, reason = headline_of(contract).text, contract.abstain_reason
    if reason is None:
        return f"{headline}: {_measured(contract)}."
    why = "it ended without a verdict" if contract.decided else ABSTENTIONS[reason]
    return f"{headline} (abstain, {reason}): {why}."


def _measured(contract: Contract) -> str:
    if contract.lift is None or contract.ci is None or contract.confidence is None:
        return "the test has fired"
    low, high = contract.ci
    worth, sure = contract.value_at_risk, contract.confidence
    return (
        f"lift {contract.lift:+.4g} over control, between {low:+.4g} and {high:+.4g}, "
        f"confidence {'over 0.999' if sure > 0.999 else f'{sure:.4g}'}"
        f"{'' if worth is None else f', {worth:+,.0f} dollars a day'}"
    )


def _action(contract: Contract) -> str:
    if contract.abstain_reason is not None:
        ended = " what ended it" if contract.decided else ""
        return f"Log abstain_reason. Call explain to see{ended or ' what to do'}."
    return ACTIONS[contract.verdict].format(breaches=_named(contract.guardrail_breaches))


def _named(breaches: Sequence[str]) -> str:
    """The breached guardrails in a few words; the contract beside this names them all."""
    if not breaches:
        return "its guardrails"
    first = breaches[0] if len(breaches[0]) <= 60 else f"{breaches[0][:59]}…"
    return first if len(breaches) == 1 else f"{first} and {len(breaches) - 1} more"


def _next_look(contract: Contract, retry_after: int | None) -> str:
    """The seed's rule: poll until decided, or until the verdict is no abstention."""
    if contract.decided or contract.verdict is not Verdict.ABSTAIN:
        return "No need to look again."
    pace = FAST_PACE_SECONDS if contract.cadence == "fast" else DAY_PACE_SECONDS
    seconds = pace if retry_after is None else max(retry_after, SOONEST_SECONDS)
    return f"Look again in {length_of_time(seconds)}."
