"""Progress: how far each experiment was read by the pipeline's last steps."""

from sqlalchemy import Connection, text

_NOTE_STAGED = text("""
-- What was staged is worth the cells that it was computed from, however far others read since.
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'staged', c.experiment_id, c.at
FROM cursors AS c
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
LEFT JOIN cursors AS s ON s.stage = 'staged' AND s.experiment_id = c.experiment_id
WHERE c.stage = 'conversions' AND (NOT v.decided OR f.state = 'running')
  AND s.at IS DISTINCT FROM c.at
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = excluded.at
""")

_NOTE_PUBLISHED = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'published', s.experiment_id, s.at
FROM cursors AS s
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
LEFT JOIN cursors AS p ON p.stage = 'published' AND p.experiment_id = s.experiment_id
WHERE s.stage = 'staged' AND (NOT v.decided OR f.state = 'running') AND p.at IS DISTINCT FROM s.at
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = excluded.at
""")


def note_staged(connection: Connection) -> None:
    """Keeps how far the cells reached from which the evidence was computed that is staged now.

    Args:
        connection: In the transaction that staged it.
    """
    connection.execute(_NOTE_STAGED)


def note_published(connection: Connection) -> None:
    """Keeps that the staged evidence is published.

    Args:
        connection: In the transaction that published it.
    """
    connection.execute(_NOTE_PUBLISHED)
