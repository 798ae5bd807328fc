"""Gone events: dropped days of the log, and the verdicts that can be computed anew no longer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from storage.pipeline.steps import LOOK_BACK
from storage.postgres.engine import SCHEMA
from storage.postgres.refusal import Refusal
from storage.postgres.rows import value_of
from storage.schema.policy_columns import SEEN_FROM

_LOOK_BACK = f"{LOOK_BACK // 1_000_000} seconds"

# From when on a rebuild or an audit reads the log of an experiment; a decided experiment has read
# it up to its last look.
READ = f"""
SELECT x.experiment_id, x.bound_at, x.frozen_at, v.decided, v.as_of, v.published_at,
    NOT v.decided OR coalesce(f.state = 'running', false) AS is_read,
    coalesce({SEEN_FROM}, x.registered_at) AS counts_from,
    coalesce({SEEN_FROM}, x.registered_at) - interval '{_LOOK_BACK}' AS reads_from,
    CASE WHEN v.decided THEN greatest(v.as_of, x.closed_at, x.starts_at, f.read_to)
        ELSE 'infinity' END AS reads_to
FROM {SCHEMA}.experiments AS x JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
LEFT JOIN {SCHEMA}.follow_ups AS f USING (experiment_id)
"""


_GONE = text(f"""
SELECT x.experiment_id, array_agg(d.day ORDER BY d.day) AS days
FROM ({READ}) AS x
-- What went before it was bound it never read: history is sent before the registration.
JOIN {SCHEMA}.dropped_days AS d
  ON d.dropped_at >= x.bound_at
 AND d.day + 1 > x.reads_from AND d.day <= x.reads_to
WHERE CAST(:only AS text) IS NULL OR x.experiment_id = :only
GROUP BY x.experiment_id
ORDER BY x.experiment_id
""")


def days_dropped(
    connection: Connection, *, experiment_id: str | None = None
) -> dict[str, list[date]]:
    """Returns the dropped days whose events a verdict rests on, by experiment.

    Args:
        experiment_id: Of which alone; by default of all.

    Returns:
        Only those of which a day is gone: they can be neither rebuilt nor audited.
    """
    rows = connection.execute(_GONE, {"only": experiment_id})
    return {row.experiment_id: row.days for row in rows}


class EventsGone(Refusal):
    """The raw events that something rests on were dropped after their retention."""

    def __init__(self, gone: Mapping[str, Sequence[date]]) -> None:
        """Names the experiments and the first and last day that are gone of each."""
        super().__init__("events_gone", _told(gone))


_NAMED = 20


def _told(gone: Mapping[str, Sequence[date]]) -> str:
    named = [
        f"{experiment_id} (gone: {_span(days)})"
        for experiment_id, days in sorted(gone.items())[:_NAMED]
    ]
    more = len(gone) - len(named)
    rest = [f"and {more:,} more"] if more else []
    return f"raw events are gone of {', '.join([*named, *rest])}"


def _span(days: Sequence[date]) -> str:
    first, last = min(days), max(days)
    return first.isoformat() if first == last else f"{first.isoformat()} to {last.isoformat()}"


def require_raw_events(connection: Connection) -> None:
    """Refuses where raw events are gone that any verdict rests on, and lets no day go meanwhile.

    Raises:
        EventsGone: By the experiments' names, with the days.
    """
    # Whoever drops a day needs the whole log to himself; who writes it does not.
    connection.execute(text(f"LOCK TABLE {SCHEMA}.runtime_events IN ACCESS SHARE MODE"))
    if gone := days_dropped(connection):
        raise EventsGone(gone)


@dataclass(frozen=True, kw_only=True)
class DecidedVerdict:
    """A decided verdict as it is served, to the byte."""

    experiment_id: str
    contract: str
    evidence: str | None


_SET_ASIDE = text(f"""
INSERT INTO pg_temp.verdicts (
    experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at
)
SELECT experiment_id, project_id, '{{}}', 'abstain', 'power', true, clock_timestamp()
FROM {SCHEMA}.experiments WHERE experiment_id = ANY(:gone)
ON CONFLICT DO NOTHING
""")


_SERVED = text(f"""
SELECT x.experiment_id, x.starts_at, v.decided AND v.as_of <= :as_of AS stands,
    v.contract::text AS contract, v.evidence::text AS evidence
FROM {SCHEMA}.experiments AS x JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
WHERE x.experiment_id = ANY(:gone) AND x.starts_at < :as_of
ORDER BY x.experiment_id
""")


def decided_without_events(separate: Connection, *, as_of: datetime) -> list[DecidedVerdict]:
    """Keeps a separate reading from what can't be computed anew but stood already at a time.

    A verdict decided by then equals a computed verdict, since nothing later changes it.

    Raises:
        EventsGone: Something was open at that time, and its raw events are gone.
    """
    gone = {
        experiment_id: before
        for experiment_id, days in days_dropped(separate).items()
        if (before := [day for day in days if day <= as_of.date()])
    }
    rows = separate.execute(_SERVED, {"gone": list(gone), "as_of": as_of}).all()
    if unknown := {row.experiment_id: gone[row.experiment_id] for row in rows if not row.stands}:
        raise EventsGone(unknown)
    separate.execute(_SET_ASIDE, {"gone": [row.experiment_id for row in rows]})
    return [value_of(DecidedVerdict, row) for row in rows]
