"""Records of keeps: a row a project and day, by which a candidate of that day stands.

The first look of a day makes the row. None is made of a day that is over, and none changes, so that
whoever reads the looks again reads the same.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, text

from domain.policy import RECORD_DAYS, KeepRecord
from storage.schema.policy_columns import IS_HISTORY, IS_PORTFOLIO, KEEP_WHEN

# What is measured could be chosen by the answer.
IS_RETROSPECTIVE = f"({IS_HISTORY} OR v.as_of <= x.registered_at)"
_NOTE = text(f"""
INSERT INTO keep_records (project_id, day, judged, kept)
SELECT open.project_id, open.day, seen.judged, seen.kept
FROM (
    SELECT DISTINCT x.project_id, (clock_timestamp() AT TIME ZONE 'UTC')::date AS day
    FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
    WHERE x.frozen_at IS NOT NULL AND NOT coalesce(v.decided, false) AND {KEEP_WHEN} = 'stands'
) AS open
CROSS JOIN LATERAL (
    SELECT count(*) AS judged,
        count(*) FILTER (WHERE v.verdict = 'keep' AND {KEEP_WHEN} = 'stands') AS kept
    FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
    WHERE v.project_id = open.project_id AND NOT {IS_PORTFOLIO} AND NOT {IS_RETROSPECTIVE}
      AND v.as_of > clock_timestamp() - interval '{RECORD_DAYS} days'
) AS seen
WHERE NOT EXISTS (
    SELECT FROM keep_records AS r WHERE r.project_id = open.project_id AND r.day = open.day
)
ON CONFLICT DO NOTHING
""")
_READ = text("""
SELECT project_id, day, judged, kept FROM keep_records
WHERE project_id = ANY(:projects) ORDER BY project_id, day
""")


def note_keep_records(connection: Connection) -> None:
    """Notes today's record of the projects of which an open experiment has to stand."""
    connection.execute(_NOTE)


def read_keep_records(
    connection: Connection, projects: Collection[int]
) -> Mapping[int, list[KeepRecord]]:
    """Returns the records of these projects, by day."""
    records = defaultdict[int, list[KeepRecord]](list)
    if projects:
        for row in connection.execute(_READ, {"projects": list(projects)}):
            records[row.project_id].append(
                KeepRecord(day=row.day, judged=row.judged, kept=row.kept)
            )
    return records
