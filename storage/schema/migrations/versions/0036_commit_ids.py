"""A commit is one thing, however much of its id somebody writes."""

from alembic import op

revision = "0036"
down_revision = "0035"

_TABLE = """
CREATE TABLE commit_ids (
    project_id INTEGER NOT NULL,
    commit_sha TEXT NOT NULL,
    id TEXT NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_commit_ids PRIMARY KEY (project_id, id),
    CONSTRAINT fk_commit_ids_project_id FOREIGN KEY (project_id) REFERENCES projects (project_id)
);
-- Ids of one commit that were recorded as several commits stay several: units were placed by them.
INSERT INTO commit_ids
SELECT project_id, id, id, min(recorded_at)
FROM (
    SELECT project_id, commit_sha AS id, recorded_at FROM commits
    UNION ALL
    SELECT project_id, base, base_recorded_at FROM commits WHERE base IS NOT NULL
    UNION ALL
    SELECT project_id, unnest(changes), recorded_at FROM commits
) AS recorded
GROUP BY project_id, id
"""
_KINDS = """
ALTER TABLE sightings DROP CONSTRAINT ck_sightings_kind;
ALTER TABLE sightings ADD CONSTRAINT ck_sightings_kind CHECK (
    kind IN ('in_flight', 'unknown_commit', 'late', 'unmatched_route', 'crossover', 'unsigned',
        'ambiguous_commit')
)
"""


def upgrade() -> None:
    """Makes the table of ids, and room for units whose commit is ambiguous."""
    op.execute(_TABLE)
    op.execute(_KINDS)
