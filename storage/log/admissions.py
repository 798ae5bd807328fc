"""Admissions: counts of each project's requests and events, by outcome, as the API saw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

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


@dataclass(frozen=True, kw_only=True)
class Admissions:
    """What became of requests and events.

    Attributes:
        requests: To `/v1/events`, with a live key of the project.
        limited: Of these, beyond a rate limit.
        accepted: Events.
        late: Of these, too old for any verdict to count.
        rejected: Events that broke a rule; of a request refused whole, one.
        sampled_out: Valid events outside the project's sample, which are not stored.
        reason: Why the last one was rejected; None where none was.
    """

    requests: int = 0
    limited: int = 0
    accepted: int = 0
    late: int = 0
    rejected: int = 0
    sampled_out: int = 0
    reason: str | None = None


def add_admissions(connection: Connection, counted: Mapping[int, Admissions]) -> None:
    """Adds a process's counts, by project, to those stored for this minute."""
    # In one order, so that no two processes wait for one another.
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


_COUNTED_LATELY = text("SELECT DISTINCT project_id FROM admissions")
_PRUNE = text(f"""
DELETE FROM admissions WHERE minute < statement_timestamp() - interval '{_KEPT}'
""")


def counted_lately(connection: Connection) -> frozenset[int]:
    """Returns the projects with counts within half an hour; deletes older counts.

    Args:
        connection: In a transaction, of which only one is under way at a time.
    """
    connection.execute(_PRUNE)
    return frozenset(connection.execute(_COUNTED_LATELY).scalars())


_READ = text(f"""
SELECT project_id, sum(requests)::bigint AS requests, sum(limited)::bigint AS limited,
    sum(accepted)::bigint AS accepted, sum(late)::bigint AS late,
    sum(rejected)::bigint AS rejected, sum(sampled_out)::bigint AS sampled_out,
    (array_agg(reason ORDER BY minute DESC) FILTER (WHERE reason IS NOT NULL))[1] AS reason
FROM admissions
WHERE project_id = ANY(:ids) AND minute > statement_timestamp() - interval '{WINDOW}'
GROUP BY project_id
""")


def read_admissions(connection: Connection, ids: Sequence[int]) -> dict[int, Admissions]:
    """Returns the counts of projects in the last quarter of an hour, none of the silent."""
    return {
        row.project_id: value_of(Admissions, row)
        for row in connection.execute(_READ, {"ids": list(ids)})
    }
