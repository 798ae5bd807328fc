"""Day check: which experiments it computes anew, and their verdicts against those served."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from storage.pipeline.moments import Days, moment_of
from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of
from storage.schema.annex_tables import DERIVED
from storage.verdicts.follow_ups import PlannedFollowUp

_READ_DAYS = text(f"""
SELECT x.experiment_id, CASE
    -- A look may come after midnight at which nothing of the new day was read.
    WHEN v.decided THEN (least(v.as_of, c.at - interval '5 minutes') AT TIME ZONE 'UTC')::date
END AS decided
FROM {SCHEMA}.experiments AS x
JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
JOIN {SCHEMA}.cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
WHERE x.frozen_at IS NOT NULL AND x.starts_at < :to_block AND c.at > :from_block
  -- An experiment that is set aside cannot be computed here either.
  AND NOT EXISTS (SELECT FROM {SCHEMA}.set_aside AS s WHERE s.experiment_id = x.experiment_id)
ORDER BY x.experiment_id
""")


def experiments_of_days(connection: Connection, days: Days) -> dict[str, date | None]:
    """Returns the experiments that have read some of these days, and when each was decided."""
    blocks = {"from_block": moment_of(days.from_block), "to_block": moment_of(days.to_block)}
    return {row.experiment_id: row.decided for row in connection.execute(_READ_DAYS, blocks)}


def read_served_tables(separate: Connection) -> None:
    """Lets a separate reading read the served tables, with verdicts and evidence of its own."""
    for table in DERIVED:
        if table.name not in ("evidence", "verdicts"):
            separate.execute(text(f"DROP TABLE pg_temp.{table.name}"))


_DIFFERING_VERDICTS = text(f"""
-- At the same look the bytes must be the same; a decided one stands at its own look for good.
SELECT rebuilt.experiment_id, served.decided, served.contract::text AS served,
    rebuilt.contract::text AS rebuilt
FROM pg_temp.evidence AS rebuilt
JOIN {SCHEMA}.verdicts AS served USING (experiment_id)
WHERE (served.decided OR served.as_of = rebuilt.as_of)
  -- What came while an experiment was set aside, or a day of it unequal, is of other rules.
  AND NOT coalesce(jsonb_exists_any(
      served.evidence::jsonb -> 'warnings', ARRAY['set_aside', 'day_unequal']
  ), false)
  AND (served.contract::text, served.evidence::text)
      IS DISTINCT FROM (rebuilt.contract::text, rebuilt.document::text)
ORDER BY rebuilt.experiment_id
""")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A served verdict that the log does not give again; `rebuilt` is what it gives now."""

    experiment_id: str
    decided: bool
    served: str
    rebuilt: str

    @property
    def in_evidence_alone(self) -> bool:
        """Whether the contract is the same to the byte, and only its evidence differs."""
        return self.served == self.rebuilt


def differing_verdicts(separate: Connection) -> list[Difference]:
    """Returns the served verdicts that differ from those staged in a separate reading."""
    return [value_of(Difference, row) for row in separate.execute(_DIFFERING_VERDICTS)]


@dataclass(frozen=True, kw_only=True)
class ServedFollowUp(PlannedFollowUp):
    """A follow-up as it is served."""

    state: str
    effect: str | None
    log_e: float | None
    as_of: datetime | None
    read_to: datetime | None


_SERVED = text("""
SELECT experiment_id, begins_at, ends_at, state, effect::text AS effect, log_e, as_of, read_to
FROM follow_ups
WHERE (NOT :ended OR state <> 'running' AND read_to IS NOT NULL)
  AND (CAST(:only AS text[]) IS NULL OR experiment_id = ANY(CAST(:only AS text[])))
ORDER BY experiment_id
""")


def read_follow_ups(
    connection: Connection, only: Sequence[str] | None, *, ended: bool = False
) -> list[ServedFollowUp]:
    """Returns the follow-ups of experiments, as they are served.

    Args:
        only: The experiments; None for all.
        ended: Whether to leave out those that have not ended.
    """
    bound = {"only": None if only is None else list(only), "ended": ended}
    return [value_of(ServedFollowUp, row) for row in connection.execute(_SERVED, bound)]
