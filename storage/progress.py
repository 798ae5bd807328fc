"""Progress: how far each experiment was walked to the end, and which answers no run has shown."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from storage.verdicts import Published

_NOTE_STAGED = text("""
-- What was staged is worth the cells that it was computed from, however far others read since.
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'staged', c.experiment_id, c.at
FROM cursors AS c
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN cursors AS s ON s.stage = 'staged' AND s.experiment_id = c.experiment_id
WHERE c.stage = 'conversions' AND NOT v.decided AND s.at IS DISTINCT FROM c.at
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = excluded.at
""")

_NOTE_PUBLISHED = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'published', s.experiment_id, s.at
FROM cursors AS s
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN cursors AS p ON p.stage = 'published' AND p.experiment_id = s.experiment_id
WHERE s.stage = 'staged' AND NOT v.decided AND p.at IS DISTINCT FROM s.at
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = excluded.at
""")

_NOTE_TURNED = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'turned', experiment_id, clock_timestamp() FROM unnest(CAST(:ids AS text[])) AS experiment_id
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = excluded.at
""")


def note_staged(connection: Connection) -> None:
    """Keeps how far the cells reached from which the evidence was computed that is staged now.

    Args:
        connection: In the transaction that staged it.
    """
    connection.execute(_NOTE_STAGED)


def note_published(connection: Connection, published: Sequence[Published]) -> None:
    """Keeps that what is staged is published, and which of the answers turned by that.

    Args:
        connection: In the transaction that published it.
        published: What that changed.
    """
    connection.execute(_NOTE_PUBLISHED)
    if turned := [one.experiment_id for one in published if one.turned]:
        connection.execute(_NOTE_TURNED, {"ids": turned})


_LAST_TURN = text("SELECT max(at) FROM cursors WHERE stage = 'turned'")


def last_turn(connection: Connection) -> datetime | None:
    """Returns when the last answer turned of those that no run has shown; None without such."""
    return connection.execute(_LAST_TURN).scalar_one()


_TAKE_TURNED = text("""
WITH taken AS (DELETE FROM cursors WHERE stage = 'turned' RETURNING experiment_id)
SELECT v.contract FROM taken JOIN verdicts AS v USING (experiment_id) ORDER BY v.experiment_id
""")


def take_turned(connection: Connection) -> list[dict[str, Any]]:
    """Returns the contracts that turned since the last run, whoever walked, and counts them shown.

    Args:
        connection: In a transaction that is the only writer of derived tables.
    """
    return list(connection.execute(_TAKE_TURNED).scalars())
