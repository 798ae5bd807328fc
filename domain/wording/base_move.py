"""Sentences on a build that took the control's place, or the canary's, the same in every face."""

from collections.abc import Sequence

from domain.figures import first_names
from domain.lineage.takeover import Takeover

_SHOWN, _NAMED = 12, 5


def base_move_sentence(rebase_on: str) -> str:
    """Returns the sentence on an experiment whose control left users' traffic."""
    return (
        f"Users now have {rebase_on[:_SHOWN]}, which this change is not built on: what comes from"
        " now on has nothing to be compared with."
    )


def base_move_advice(rebase_on: str, changes: Sequence[str], *, continues: bool) -> list[str]:
    """Returns the steps that give a change whose base moved something to be compared with."""
    named = " ".join(f"--change {change}" for change in changes)
    command = f"deploy-reward deploy NEW --base {rebase_on} {named} --allocation SHARE"
    rebase = f"Rebase the change on {rebase_on[:_SHOWN]}, and give the new commit the old's share"
    steps = [
        f"{rebase}: {command}.",
        "Then withdraw the old commit: deploy-reward deploy OLD --allocation 0.",
    ]
    if continues:
        return [*steps, "The same experiment goes on: what was measured so far counts."]
    return [*steps, "This experiment cannot go on with it: register the new commit."]


def promotion_clause(takeover: Takeover) -> str:
    """Returns the other commit by which everybody got the change, and its further changes."""
    if takeover.commit is None:
        return ""
    others = first_names([change[:_SHOWN] for change in takeover.beside], _NAMED)
    with_others = f", which also brings {others}" if others else ""
    return f", by commit {takeover.commit[:_SHOWN]}{with_others}"
