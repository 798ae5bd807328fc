"""Verdict check: served verdicts against verdicts computed anew from the served tables."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from domain.published_evidence import holds
from storage.postgres.engine import SCHEMA
from storage.schema.tables import DERIVED

# An older verdict was compared while it was new, and the database refuses to rewrite it. A day is
# checked within hours of the one before: this leaves room for one that was missed.
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
SELECT rebuilt.experiment_id, served.contract::text = rebuilt.contract::text AS same_contract,
    served.evidence AS served, rebuilt.document AS rebuilt
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
    """Returns the ids of experiments whose served verdict is not the one that a reading staged."""
    return [
        row.experiment_id
        for row in separate.execute(_DIFFERING_VERDICTS)
        if not (row.same_contract and holds(row.served, row.rebuilt))
    ]
