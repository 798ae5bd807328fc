"""Day check: which experiments it computes anew, and their verdicts against those served."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from storage.pipeline.comparison import Days
from storage.pipeline.moments import moment_of
from storage.postgres.engine import SCHEMA
from storage.schema.tables import DERIVED

# How many events of the log, each counted for every experiment that reads it, the open experiments
# of a check may read: half a minute of CPU. The first is checked, however much it reads.
AFFORDED = 30_000_000


@dataclass(frozen=True, kw_only=True)
class DayExperiments:
    """The experiments that read some days as they came.

    Attributes:
        checked: The ids of those that a check computes: all that are decided, and of the open ones
            as many as it can afford, others on each day.
        decided: The ids of those of them that were decided on the days.
        left: How many open ones are left for another day.
    """

    checked: Sequence[str]
    decided: Sequence[str]
    left: int


_READ_DAYS = text(f"""
SELECT x.experiment_id, v.decided, v.decided AND v.as_of >= :from_block AND v.as_of < :to_block
        AS decided_then,
    (
        SELECT coalesce(sum(h.rows), 0)::bigint FROM {SCHEMA}.sealed_hours AS h
        WHERE h.hour >= x.starts_at AND h.hour < :to_block
    ) AS events
FROM {SCHEMA}.experiments AS x
JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
JOIN {SCHEMA}.cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
WHERE x.bound_at IS NOT NULL AND x.starts_at < :to_block AND c.at > :from_block
  -- Its days were never added one after another, and their units are not stored.
  AND NOT EXISTS (SELECT FROM {SCHEMA}.whole_lives AS w WHERE w.experiment_id = x.experiment_id)
  -- An experiment that is set aside cannot be computed here either.
  AND NOT EXISTS (SELECT FROM {SCHEMA}.set_aside AS s WHERE s.experiment_id = x.experiment_id)
ORDER BY v.decided DESC, md5(x.experiment_id || CAST(:from_block AS text)), x.experiment_id
""")


def experiments_of_days(connection: Connection, days: Days) -> DayExperiments:
    """Returns the experiments that have read some of these days as they came."""
    blocks = {"from_block": moment_of(days.from_block), "to_block": moment_of(days.to_block)}
    rows = connection.execute(_READ_DAYS, blocks).all()
    checked = [row.experiment_id for row in rows if row.decided]
    still_open, events = [row for row in rows if not row.decided], 0
    for row in still_open:
        events += row.events
        if events > AFFORDED and row is not still_open[0]:
            break
        checked.append(row.experiment_id)
    return DayExperiments(
        checked=sorted(checked),
        decided=[row.experiment_id for row in rows if row.decided_then],
        left=len(rows) - len(checked),
    )


# An older verdict was compared while it was new, and the database refuses to rewrite it. A day is
# checked within hours of the check before: this leaves room for a missed check.
_FRESH = "2 days"

_OLD = text(f"""
INSERT INTO verdicts (
    experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at
)
SELECT experiment_id, project_id, '{{}}', 'abstain', 'power', true, clock_timestamp()
FROM {SCHEMA}.verdicts
WHERE decided AND published_at < clock_timestamp() - interval '{_FRESH}'
  AND experiment_id <> ALL(:checked)
""")


def read_served_tables(separate: Connection, *, checked: Sequence[str]) -> None:
    """Lets a separate reading read the served tables, with verdicts and evidence of its own.

    Args:
        separate: The reading. Of the decided verdicts it holds those alone that are old.
        checked: The experiments whose verdicts are computed even where they are old.
    """
    for table in DERIVED:
        if table.name not in ("evidence", "verdicts"):
            separate.execute(text(f"DROP TABLE pg_temp.{table.name}"))
    separate.execute(_OLD, {"checked": list(checked)})


_DIFFERING_VERDICTS = text(f"""
-- At the same look the bytes must be the same; a decided one stands at its own look for good.
SELECT rebuilt.experiment_id
FROM pg_temp.evidence AS rebuilt
JOIN {SCHEMA}.verdicts AS served USING (experiment_id)
WHERE (served.decided OR served.as_of = rebuilt.as_of)
  -- A verdict that was decided while its experiment was set aside was not computed.
  AND NOT coalesce(jsonb_exists(served.evidence::jsonb -> 'warnings', 'set_aside'), false)
  AND (served.contract::text, served.evidence::text)
      IS DISTINCT FROM (rebuilt.contract::text, rebuilt.document::text)
ORDER BY rebuilt.experiment_id
""")


def differing_verdicts(separate: Connection) -> list[str]:
    """Returns the ids of experiments whose served verdict differs from the staged verdict."""
    return list(separate.execute(_DIFFERING_VERDICTS).scalars())
