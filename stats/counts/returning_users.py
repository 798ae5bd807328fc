"""Users: how many return, in the arm of their first session or not, and how many are unnamed."""

from dataclasses import dataclass

from stats.counts.cell import Ints
from stats.counts.columns import BlockColumns


@dataclass(frozen=True, kw_only=True)
class ReturningUsers(BlockColumns):
    """Units by arm, and users by the block of their second session, an entry a block.

    No deploy lies between a user's two sessions.

    Attributes:
        block: Start of the block, ascending.
        treatment: Units of treatment.
        control: Units of control.
        again_treatment: Users whose first session was in treatment.
        kept_treatment: Those of them whose second is in treatment too.
        again_control: Users whose first session was in control.
        kept_control: Those of them whose second is in control too.
    """

    block: Ints
    treatment: Ints
    control: Ints
    again_treatment: Ints
    kept_treatment: Ints
    again_control: Ints
    kept_control: Ints


@dataclass(frozen=True, kw_only=True)
class NamedUsers(BlockColumns):
    """Users by arm, and sessions that name a build and no user, an entry a block."""

    block: Ints
    treatment: Ints
    control: Ints
    unnamed: Ints
