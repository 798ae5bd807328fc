"""The builds of users: those that were seen in each block, and bases that were only assumed."""

from alembic import op

revision = "0039"
down_revision = "0038"

_TABLES = """
CREATE TABLE seen_commits (
    project_id INTEGER NOT NULL,
    environment TEXT NOT NULL,
    block TIMESTAMP WITH TIME ZONE NOT NULL,
    commit_sha TEXT NOT NULL,
    sessions INTEGER NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_seen_commits PRIMARY KEY (project_id, environment, block, commit_sha),
    CONSTRAINT fk_seen_commits_project_id FOREIGN KEY (project_id) REFERENCES projects (project_id)
);
CREATE TABLE seen_marks (
    place INTEGER DEFAULT 1 NOT NULL,
    read_to TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_seen_marks PRIMARY KEY (place),
    CONSTRAINT ck_seen_marks_one CHECK (place = 1)
);
ALTER TABLE commits ADD COLUMN assumed_base TEXT, ADD COLUMN assumed_at TIMESTAMP WITH TIME ZONE;
"""
# Bases that nobody named were recorded as if somebody had.
_ASSUMED = """
UPDATE commits AS c
SET assumed_base = c.base, assumed_at = c.base_recorded_at, base = NULL, base_recorded_at = NULL
WHERE c.base IS NOT NULL AND (
    SELECT d.base_assumed FROM deploys AS d
    WHERE d.project_id = c.project_id AND d.environment = c.environment
      AND d.commit_sha = c.commit_sha AND d.base_commit = c.base
    ORDER BY d.recorded_at LIMIT 1
)
"""


def upgrade() -> None:
    """Makes the tables and columns, and tells assumed bases from named ones."""
    op.execute(_TABLES)
    op.execute(_ASSUMED)
