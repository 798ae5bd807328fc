"""Sentences after a registration: the attempt, the events received, and the first look."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from domain.contract import Contract
from domain.figures import first_names, length_of_time
from domain.registration import ReceivedEvents, RegistrationAnswer
from domain.wording.registration import MOST_NAMED, named

# A first look that is further away than this is announced as far.
FAR_SECONDS = 7200
# A look at few units waits for more of them for a day.
_LONGEST_ANALYSIS_BLOCK = timedelta(days=1)
FAR = "For an earlier figure name another metric, or give this a shorter `window_seconds`."
# Advice for a guardrail whose event never came.
SEND_OR_DROP = "Send it, or drop it in the settings: `guardrails`."


def attempt_sentence(registration: RegistrationAnswer) -> str | None:
    """Returns how much stronger a further attempt has to be; None of a first attempt."""
    attempt, fires_at = registration.attempt, registration.fires_at
    if attempt == 1 or fires_at is None:
        return None
    return (
        f"It is attempt {attempt} at this change: it fires at an e-value of {fires_at:,.0f}, where"
        f" a first attempt fires at {fires_at / attempt**2:,.0f}."
    )


def unseen_sentence(registration: RegistrationAnswer) -> str | None:
    """Returns the metrics without any event, and the cost of that; None where each has some."""
    target, unseen = registration.metric, registration.never_received
    guardrails = [name for name in unseen if name != target]
    # Before any event comes this is true of every target.
    silent = (
        f"No {named(target)} event was ever received: without any there is no answer."
        if target in unseen and registration.received
        else None
    )
    waited = f"{unseen_guardrails(guardrails)} {SEND_OR_DROP}" if guardrails else None
    return " ".join(filter(None, (silent, waited))) or None


def unseen_guardrails(names: Sequence[str]) -> str:
    """Returns the cost to each keep while events of guardrails never came."""
    shown = first_names([named(name) for name in names], MOST_NAMED)
    return f"{shown} {'was' if len(names) == 1 else 'were'} never received: a keep will wait a day."


def received_sentence(registration: RegistrationAnswer) -> str | None:
    """Returns which events come, and how often; None where none came lately."""
    received = registration.received
    return f"Received: {received_text(received)}." if received else None


def received_text(received: Sequence[ReceivedEvents]) -> str:
    """Returns the names of events, each with its rate."""
    return first_names([f"{named(each.event)} {rate_text(each)}" for each in received], MOST_NAMED)


def rate_text(received: ReceivedEvents) -> str:
    """Returns a rate in whole events an hour, or a day where they are few."""
    if received.per_hour >= 1:
        return f"{received.per_hour:,.0f} an hour"
    return f"{max(1, round(24 * received.per_hour))} a day"


def first_look_sentence(
    registration: RegistrationAnswer, contract: Contract | None = None
) -> str | None:
    """Returns when the target can be looked at first, or is at the latest; None where never.

    Args:
        contract: The experiment's verdict contract; None where it was registered just now.
    """
    at = registration.first_look_at
    decided = contract is not None and contract.decided
    if at is None or decided or registration.nothing_to_compare is not None:
        return None
    now = datetime.now(UTC)
    if (seconds := (at - now).total_seconds()) <= 0:
        latest = at + _LONGEST_ANALYSIS_BLOCK
        by = f", or by {latest:%Y-%m-%d %H:%M} UTC at the latest" if latest > now else ""
        return f"The first look at {registration.metric} comes once it has enough units{by}."
    said = (
        f"The first look at {registration.metric} can come at {at:%Y-%m-%d %H:%M} UTC, in"
        f" {length_of_time(seconds)}: the first units have so long to bring their outcomes."
    )
    return f"{said} {FAR}" if seconds > FAR_SECONDS else said
