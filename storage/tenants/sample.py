"""The sample: the units of a project that are measured, by a published hash of the unit.

The hash is SHA-256 with a salt of the project, which no commit and no flag's value can be: who is
in the sample says nothing about the arm. A smaller sample costs power, never validity.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from domain.draw import is_drawn
from storage.schema.policy_columns import BY_USER, SAMPLE_RATE
from storage.tenants.settings import Settings


def salt_of(project_id: int) -> str:
    """Returns what precedes a unit of a project in the hash."""
    return f"sample:{project_id}"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The units of a project whose events are stored now.

    Attributes:
        rates: The share of sessions, of users, or of both, each in (0, 1): an event is stored if
            its session or its user is in the sample.
    """

    salt: str
    rates: Mapping[str, float]

    def takes(self, session_id: str, pseudonym: bytes | None) -> bool:
        """Tells whether an event of a session, and maybe of a user, is stored.

        Where users are sampled, an event that names none goes by its session.
        """
        user = session_id if pseudonym is None else pseudonym.hex()
        return self._holds("session", session_id) or self._holds("user", user)

    def _holds(self, kind: str, unit: str) -> bool:
        if kind not in self.rates:
            return False
        return is_drawn(unit, salt=self.salt, share=self.rates[kind])

    def document(self) -> dict[str, object]:
        """Returns the sample as a document for senders, who may leave out units outside it."""
        return {"salt": self.salt, **self.rates}


_OPEN_RATES = text(f"""
SELECT CASE WHEN {BY_USER} THEN 'user' ELSE 'session' END AS unit,
    max(coalesce(
        {SAMPLE_RATE}, CAST(x.binding #>> '{{settings,sample_rate}}' AS double precision), 1
    )) AS rate
FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE v.project_id = :project_id AND x.bound_at IS NOT NULL
  AND (NOT v.decided OR f.state = 'running')
GROUP BY 1
""")


def read_sample(connection: Connection, project_id: int, settings: Settings) -> Sample | None:
    """Returns the sample that a project's events are held against now; None where all are stored.

    An open experiment needs the events of its units until it is decided. So the rate in force is
    the largest of the setting and of the rates that open experiments froze: a lower setting takes
    effect as they end, a higher share at once.
    """
    if settings.sample_rate >= 1:
        return None
    # Where the unit follows the router, a sample takes sessions, and experiments count sessions.
    unit = "session" if settings.unit in ("auto", "session") else "user"
    rates: dict[str, float] = {unit: settings.sample_rate}
    for row in connection.execute(_OPEN_RATES, {"project_id": project_id}):
        rates[row.unit] = max(float(row.rate), rates.get(row.unit, 0.0))
    if max(rates.values()) >= 1:
        return None
    return Sample(salt=salt_of(project_id), rates=rates)
