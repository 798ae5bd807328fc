"""Signatures: which events a project's router vouches for, by the tokens that they hand on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.wire.meters import Meters
from storage.tenants.secret import Assignments, assignment_message


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """Tells whether tokens hold, and counts how many do."""

    assignments: Assignments
    meters: Meters

    def hold(
        self,
        token: str,
        *,
        project_id: int,
        epochs: Sequence[int],
        environment: str,
        session_id: str,
        commit: str | None,
        flags: Mapping[str, str | bool] | None,
    ) -> bool:
        """Tells whether a token vouches for the session that its event claims.

        Args:
            commit: The event's, in lower case; an event without it claims no arm.
        """
        holds = commit is not None and self.assignments.is_signed(
            project_id,
            token,
            assignment_message(
                environment=environment, session_id=session_id, commit=commit, flags=flags
            ),
            epochs=epochs,
        )
        (self.meters.valid_tokens if holds else self.meters.invalid_tokens).inc()
        return holds
