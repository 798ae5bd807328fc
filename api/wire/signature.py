"""Signatures: which events a project's router vouches for, by the tokens that they hand on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.wire.meters import Meters
from domain.lineage.flag import signed_value
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
        # As the event spells them; and as the service signs, whose 10 an event may print as 10.0.
        spelled = {name: signed_value(value) for name, value in (flags or {}).items()}
        holds = commit is not None and any(
            self.assignments.is_signed(
                project_id,
                token,
                assignment_message(
                    environment=environment, session_id=session_id, commit=commit, flags=each
                ),
                epochs=epochs,
            )
            for each in (flags, *([] if spelled == flags else [spelled]))
        )
        (self.meters.valid_tokens if holds else self.meters.invalid_tokens).inc()
        return holds
