"""The advice of a verdict, in at most 300 characters."""

from collections.abc import Sequence

from domain.wording.headline import ABSTENTIONS, headline_of
from mcp_server.contract import Verdict
from mcp_server.registration import note_of, rebase_of, waits_for_deploy

LONGEST = 300
DAY_PACE_SECONDS = 3600
FAST_PACE_SECONDS = 300
# The service looks at new events every 30 seconds: no answer changes sooner.
SOONEST_SECONDS = 30

WAITING = {
    "power": "Leave the canary running and log abstain_reason.",
    "non_identifiable": "Log abstain_reason; give both arms traffic at the same time.",
    "interacting": "Log abstain_reason; call explain to see what to repair.",
}
ACTIONS = {
    "keep": "Ship the treatment.",
    "rollback": "Revert the treatment.",
    "iterate": "Revise the treatment for {breaches}, then register it again.",
}


def advice(verdict: Verdict, retry_after: int | None, registration: object = None) -> str:
    """Says the verdict, the next step, and when to look again.

    Args:
        verdict: The contract.
        retry_after: Seconds until the next look can come, or None where the service said nothing.
        registration: The body of an open experiment's registration, or None.

    Returns:
        One line of at most 300 characters.
    """
    if (need := _need(registration)) is not None:
        return _cut(note_of(registration) or "", need)
    doing = f"{_action(verdict)} {_next_look(verdict, retry_after)}"
    return _cut(_sentence(verdict), doing)


def _need(registration: object) -> str | None:
    """Returns the need of an open experiment that no waiting meets; None where it has none."""
    if waits_for_deploy(registration):
        return "Do not poll until that deploy is posted: no traffic counts before."
    if rebase_of(registration) is not None:
        return "Call explain: rebase says on what, and which changes to post."
    return None


def _cut(sentence: str, doing: str) -> str:
    room = LONGEST - len(doing) - 1
    return f"{sentence if len(sentence) <= room else sentence[: room - 1] + '…'} {doing}"


def _sentence(verdict: Verdict) -> str:
    if verdict.verdict == "abstain":
        reason = verdict.abstain_reason or "power"
        if verdict.power_state.decided:
            return f"{_headline(verdict)} (abstain, {reason}): it ended without a verdict."
        return f"{_headline(verdict)} (abstain, {reason}): {ABSTENTIONS[reason]}."
    return f"{_headline(verdict)}: {_measured(verdict)}."


def _headline(verdict: Verdict) -> str:
    return headline_of(verdict.model_dump()).text


def _measured(verdict: Verdict) -> str:
    if verdict.lift is None or verdict.ci is None or verdict.confidence is None:
        return "the test has fired"
    low, high = verdict.ci
    worth = verdict.value_at_risk
    return (
        f"lift {verdict.lift:+.4g} over control, between {low:+.4g} and {high:+.4g}, "
        f"confidence {verdict.confidence:.4g}"
        f"{'' if worth is None else f', {worth:+,.0f} dollars a day'}"
    )


def _action(verdict: Verdict) -> str:
    if verdict.verdict == "abstain":
        if verdict.power_state.decided:
            return "Log abstain_reason. Call explain to see what ended it."
        return WAITING[verdict.abstain_reason or "power"]
    return ACTIONS[verdict.verdict].format(breaches=_named(verdict.guardrail_breaches))


def _named(breaches: Sequence[str]) -> str:
    """The breached guardrails in a few words; the contract beside this names them all."""
    if not breaches:
        return "its guardrails"
    first = breaches[0] if len(breaches[0]) <= 60 else f"{breaches[0][:59]}…"
    return first if len(breaches) == 1 else f"{first} and {len(breaches) - 1} more"


def _next_look(verdict: Verdict, retry_after: int | None) -> str:
    """The seed's rule: poll until decided, or until the verdict is no abstention."""
    if verdict.power_state.decided or verdict.verdict != "abstain":
        return "No need to look again."
    pace = FAST_PACE_SECONDS if verdict.cadence == "fast" else DAY_PACE_SECONDS
    seconds = pace if retry_after is None else max(retry_after, SOONEST_SECONDS)
    return f"Look again in {span(seconds)}."


def span(seconds: int) -> str:
    """A time in its largest whole unit, rounded up: `5 minutes`."""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            return _counted(-(-seconds // length), unit)
    return _counted(max(seconds, 1), "second")


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}"
