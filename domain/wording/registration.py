"""Sentences on a registration: waiting, without its control, or measured with other changes."""

from collections.abc import Sequence
from datetime import UTC, datetime

from domain.contract import Contract
from domain.figures import first_names, length_of_time
from domain.lineage.serving import MissingControl
from domain.registration import MissingDeploy, ReceivedEvents, RegistrationAnswer
from domain.words import State

_NEXT_CANARY = (
    "Nothing to do. Deploy the next change as a canary: deploy-reward deploy COMMIT --allocation"
    " SHARE."
)
# A first look that is further away than this is announced as far.
FAR_SECONDS = 7200
FAR = "For an earlier figure name another metric, or give this a shorter `window_seconds`."
# An id of a commit is shown so far, and so many of a list are.
_SHOWN, _NAMED = 12, 5


# Said of imported or replayed events, and of a registration after the last outcome had closed.
HISTORY = "It is on history: take it as a hint, and train nothing on it."


def registration_note(registration: RegistrationAnswer, *, looked_at: bool = False) -> str | None:
    """Returns the sentences of a registration; None where there is nothing to say."""
    situation = registration.situation
    is_said = looked_at or situation.state is State.ARRIVING
    said = None if is_said else situation.sentence
    joint = joint_sentence(registration.joint_with) if registration.joint_with else None
    return " ".join(filter(None, [said, late_start_sentence(registration), joint])) or None


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
    """Returns of which metrics no event ever came, and the cost of that; None of none."""
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


# Advice for a guardrail whose event never came.
SEND_OR_DROP = "Send it, or drop it in the settings: `guardrails`."


def unseen_guardrails(names: Sequence[str]) -> str:
    """Returns the cost to each keep while events of guardrails never came."""
    shown = first_names([named(name) for name in names], _NAMED)
    return f"{shown} {'was' if len(names) == 1 else 'were'} never received: a keep will wait a day."


def received_sentence(registration: RegistrationAnswer) -> str | None:
    """Returns which events come, and how often; None where none came lately."""
    received = registration.received
    return f"Received: {received_text(received)}." if received else None


def received_text(received: Sequence[ReceivedEvents]) -> str:
    """Returns the names of events, each with its rate."""
    return first_names([f"{named(each.event)} {rate_text(each)}" for each in received], _NAMED)


def rate_text(received: ReceivedEvents) -> str:
    """Returns a rate in whole events an hour, or a day where they are few."""
    if received.per_hour >= 1:
        return f"{received.per_hour:,.0f} an hour"
    return f"{max(1, round(24 * received.per_hour))} a day"


def named(name: str) -> str:
    """Returns a name that others invented, as it can stand in a line of a terminal."""
    return f"`{name if name.isprintable() else ascii(name)}`"


def late_start_sentence(registration: RegistrationAnswer) -> str | None:
    """Returns why units count from the registration alone; None where its canary's all count."""
    if (declared := registration.declared_at) is None:
        return None
    return (
        "Its units count from the registration on, and those seen before do not: its canary runs"
        f" since {declared:%Y-%m-%d %H:%M} UTC, so what it measures could be chosen by the numbers."
        " Register with the deploy, or let the project's settings choose."
    )


def first_look_sentence(
    registration: RegistrationAnswer, contract: Contract | None = None
) -> str | None:
    """Returns when the target can be looked at first; None where no look is to come, or it came.

    Args:
        contract: The experiment's verdict contract; None where it was registered just now.
    """
    at = registration.first_look_at
    decided = contract is not None and contract.decided
    if at is None or decided or registration.nothing_to_compare is not None:
        return None
    if (seconds := (at - datetime.now(UTC)).total_seconds()) <= 0:
        return None
    said = (
        f"The first look at {registration.metric} can come at {at:%Y-%m-%d %H:%M} UTC, in"
        f" {length_of_time(seconds)}: the first units have so long to bring their outcomes."
    )
    return f"{said} {FAR}" if seconds > FAR_SECONDS else said


def awaited_sentence(awaited: MissingDeploy, environment: str) -> str:
    """Returns which deploy an experiment waits for."""
    commit, elsewhere, nearest = awaited.commit, awaited.elsewhere, awaited.nearest
    if commit is None:
        return f"It starts with the next deploy to {environment}."
    so_far = f"; so far it is deployed to {', '.join(elsewhere)}" if elsewhere else ""
    meant = "" if nearest is None else f" Did you mean {nearest[:_SHOWN]}, which is deployed?"
    return (
        f"It starts with the deploy of {commit[:_SHOWN]} to {environment}, which is not recorded"
        f" yet{so_far}.{meant}"
    )


def nothing_to_compare_sentence(alone: MissingControl) -> str:
    """Returns that an experiment has nothing to be compared with, and what else was seen."""
    commit, part = alone.unknown_commit, alone.part
    if commit is None or part is None:
        return "No build without this change is served, so there is nothing to compare it with."
    return (
        "No known build without this change is served, so there is nothing to compare it with:"
        f" {100 * part:.0f} % of the sessions name {commit[:_SHOWN]}, of which no deploy is"
        " recorded."
    )


def nothing_to_compare_advice(alone: MissingControl) -> list[str]:
    """Returns the steps that give a build something to be compared with."""
    commit = alone.unknown_commit
    if commit is not None:
        record = f"Record what users have: deploy-reward deploy {commit[:_SHOWN]}."
        return [record, "Then close this experiment, and register the change again."]
    return [_NEXT_CANARY]


def joint_sentence(changes: Sequence[str]) -> str:
    """Returns which other changes an effect is measured together with."""
    named = first_names([change[:_SHOWN] for change in changes], _NAMED)
    return f"Its effect is measured together with that of {named}: the control lacks them too."
