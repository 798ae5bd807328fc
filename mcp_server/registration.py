"""A registration as the tools say it: waiting, without its control, or measured with others."""

from collections.abc import Mapping
from typing import Any

from domain.wording.registration import registration_note
from mcp_server.contract import BaseMove

# The evidence names all of them.
_MOST_CHANGES = 3


def note_of(registration: object) -> str | None:
    """Returns the note of `GET /v1/reward/{id}/registration`; None where there is none.

    A service of an earlier release answers something else, and then nothing is added.
    """
    try:
        return None if not isinstance(registration, Mapping) else registration_note(registration)
    except (KeyError, TypeError):
        return None


def waits_for_deploy(registration: object) -> bool:
    """Whether an experiment has no deploy yet."""
    return isinstance(registration, Mapping) and registration.get("waits_for_deploy") is not None


def rebase_of(registration: object) -> BaseMove | None:
    """Returns the rebase of an experiment whose base moved; None of any other."""
    moved: Any = registration.get("base_moved") if isinstance(registration, Mapping) else None
    if not isinstance(moved, Mapping) or not isinstance(moved.get("changes"), list):
        return None
    return BaseMove(
        on=str(moved.get("rebase_on", ""))[:64],
        changes=[str(change)[:64] for change in moved["changes"][:_MOST_CHANGES]],
        continues=moved.get("continues") is True,
    )
