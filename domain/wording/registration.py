"""Sentences on a registration: waiting, without its control, or measured with other changes."""

from collections.abc import Sequence

from domain.figures import first_names
from domain.lineage.serving import MissingControl
from domain.registration import MissingDeploy, RegistrationAnswer
from domain.words import State

_NEXT_CANARY = (
    "Nothing to do. Deploy the next change as a canary: deploy-reward deploy COMMIT --allocation"
    " SHARE."
)
# An id of a commit is shown so far, and so many of a list are.
_SHOWN, MOST_NAMED = 12, 5


# Said of imported or replayed events, and of a registration after the last outcome had closed.
HISTORY = "It is on history: take it as a hint, and train nothing on it."


def registration_note(registration: RegistrationAnswer, *, looked_at: bool = False) -> str | None:
    """Returns the sentences of a registration; None where there is nothing to say."""
    situation = registration.situation
    is_said = looked_at or situation.state is State.ARRIVING
    said = None if is_said else situation.sentence
    joint = joint_sentence(registration.joint_with) if registration.joint_with else None
    return " ".join(filter(None, [said, late_start_sentence(registration), joint])) or None


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


def awaited_sentence(awaited: MissingDeploy, environment: str) -> str:
    """Returns which deploy an experiment waits for."""
    commit, elsewhere, nearest = awaited.commit, awaited.elsewhere, awaited.nearest
    if awaited.unshared:
        return "It has no share of the traffic yet. It starts with its first."
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
    named = first_names([change[:_SHOWN] for change in changes], MOST_NAMED)
    return f"Its effect is measured together with that of {named}: the control lacks them too."
