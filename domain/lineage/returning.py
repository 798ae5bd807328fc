"""Visitors who come back: whether the router gives them the build that they had."""

from dataclasses import dataclass
from typing import Literal

from domain.cause import FEWEST_RETURNING, KEPT_HALF_WAY, MANY_RETURNING


@dataclass(frozen=True, kw_only=True)
class ReturningVisitors:
    """Visitors of a build who came back, and what they got.

    Attributes:
        users: Those with a second session.
        vouched: Whether the users are those of the write key alone.
    """

    users: int = 0
    kept: int = 0
    expected: float = 0.0
    sessions: int = 0
    named: int = 0
    vouched: bool = False

    @property
    def unit(self) -> Literal["session", "user"] | None:
        """The unit that fits the router; None where too few have come back.

        Users that came with the public key are the unit only where half of the sessions name a
        user. Else the other sessions would not count, and a stranger's users would decide.
        """
        room = self.users - self.expected
        if self.users < FEWEST_RETURNING or self.users * room < MANY_RETURNING * self.expected:
            return None
        is_kept = self.kept - self.expected >= KEPT_HALF_WAY * room
        is_named = self.vouched or 2 * self.named >= self.sessions
        return "user" if is_kept and is_named else "session"
