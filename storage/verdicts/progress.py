"""Publication progress: up to which block each experiment's evidence was computed and published."""

from sqlalchemy import Connection, text

_NOTE_STAGED = text("""
-- What was staged is worth the cells that it was computed from, however far others read since.
INSERT INTO publication_progress (experiment_id, staged_to)
SELECT c.experiment_id, c.at
FROM cursors AS c
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
LEFT JOIN publication_progress AS p USING (experiment_id)
WHERE c.stage = 'conversions' AND (NOT v.decided OR f.state = 'running')
  AND p.staged_to IS DISTINCT FROM c.at
ON CONFLICT (experiment_id) DO UPDATE SET staged_to = excluded.staged_to
""")

_NOTE_PUBLISHED = text("""
UPDATE publication_progress AS p
SET published_to = p.staged_to
FROM verdicts AS v
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE v.experiment_id = p.experiment_id AND (NOT v.decided OR f.state = 'running')
  AND p.published_to IS DISTINCT FROM p.staged_to
""")


def note_staged(connection: Connection) -> None:
    """Keeps how far the cells reached from which the evidence was computed that is staged now."""
    connection.execute(_NOTE_STAGED)


def note_published(connection: Connection) -> None:
    """Keeps that the staged evidence is published."""
    connection.execute(_NOTE_PUBLISHED)
