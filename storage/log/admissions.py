"""Admissions: counts of each project's requests and events, by outcome, as the API saw them."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

from domain.checklist.setup import Admissions
from storage.postgres.rows import value_of

# The checklist asks for a quarter of an hour; a little more, so that a line turns back by itself.
_KEPT = "30 minutes"
WINDOW = "15 minutes"

_ADD = text("""
INSERT INTO admissions AS a (
    project_id, minute, requests, limited, accepted, late, rejected, sampled_out, reason
)
SELECT n.project_id, date_trunc('minute', clock_timestamp()), n.requests, n.limited, n.accepted,
    n.late, n.rejected, n.sampled_out, nullif(n.reason, '')
FROM unnest(
    CAST(:ids AS int[]), CAST(:requests AS bigint[]), CAST(:limited AS bigint[]),
    CAST(:accepted AS bigint[]), CAST(:late AS bigint[]), CAST(:rejected AS bigint[]),
    CAST(:sampled_out AS bigint[]), CAST(:reasons AS text[])
) AS n (project_id, requests, limited, accepted, late, rejected, sampled_out, reason)
ON CONFLICT (project_id, minute) DO UPDATE
SET requests = a.requests + excluded.requests, limited = a.limited + excluded.limited,
    accepted = a.accepted + excluded.accepted, late = a.late + excluded.late,
    rejected = a.rejected + excluded.rejected,
    sampled_out = a.sampled_out + excluded.sampled_out, reason = coalesce(excluded.reason, a.reason)
""")


def add_admissions(connection: Connection, counted: Mapping[int, Admissions]) -> None:
    """Adds a process's counts, by project, to those of this minute, and deletes old counts."""
    connection.execute(_PRUNE)
    # Sorted, so that no two processes wait for each other.
    rows = sorted(counted.items())
    connection.execute(
        _ADD,
        {
            "ids": [project_id for project_id, _ in rows],
            "requests": [admissions.requests for _, admissions in rows],
            "limited": [admissions.limited for _, admissions in rows],
            "accepted": [admissions.accepted for _, admissions in rows],
            "late": [admissions.late for _, admissions in rows],
            "rejected": [admissions.rejected for _, admissions in rows],
            "sampled_out": [admissions.sampled_out for _, admissions in rows],
            "reasons": [admissions.reason or "" for _, admissions in rows],
        },
    )


_PRUNE = text(f"""
DELETE FROM admissions WHERE minute < statement_timestamp() - interval '{_KEPT}'
""")

_READ = text(f"""
SELECT sum(requests)::bigint AS requests, sum(limited)::bigint AS limited,
    sum(accepted)::bigint AS accepted, sum(late)::bigint AS late,
    sum(rejected)::bigint AS rejected, sum(sampled_out)::bigint AS sampled_out,
    (array_agg(reason ORDER BY minute DESC) FILTER (WHERE reason IS NOT NULL))[1] AS reason
FROM admissions
WHERE project_id = :project_id AND minute > statement_timestamp() - interval '{WINDOW}'
HAVING count(*) > 0
""")


def read_admissions(connection: Connection, project_id: int) -> Admissions | None:
    """Returns the counts of a project in the last quarter of an hour; None of a silent project."""
    row = connection.execute(_READ, {"project_id": project_id}).one_or_none()
    return None if row is None else value_of(Admissions, row)
