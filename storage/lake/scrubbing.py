"""Scrubbing: every file of the lake is looked at, and some are read whole, each in its turn."""

from collections.abc import Sequence
from datetime import date

from sqlalchemy import Connection, text

from storage.lake.comparison import DifferentFile
from storage.lake.lake import Lake
from storage.lake.sealed_hours import FILE, SealedFile, keep_files, note_verified
from storage.lake.verification import lost_files, wrong_files

# Whatever a run reads, it reads what was wrong, or set an experiment aside, once more: that a
# file was put back is known within the hour.
_LISTED = text(f"""
SELECT {FILE}, fault IS NOT NULL
    OR EXISTS (SELECT FROM set_aside AS a WHERE strpos(a.error, file) > 0)
    OR CAST(hour AT TIME ZONE 'UTC' AS date) = ANY(CAST(:days AS date[]))
    OR moved_at IS NOT NULL AND row_number() OVER (
        PARTITION BY moved_at IS NOT NULL ORDER BY verified_at NULLS FIRST, hour, part
    ) <= :limit AS is_due
FROM sealed_hours
WHERE file IS NOT NULL
ORDER BY hour, part
""")


def scrub(
    connection: Connection, lake: Lake, *, days: Sequence[date] = (), limit: int = 8
) -> Sequence[DifferentFile]:
    """Looks at the size of every listed file, reads some whole, and notes the faults of both.

    Args:
        connection: In a transaction of its own.
        limit: How many files are read of those that nothing is known against, and that hold events
            which PostgreSQL holds no longer.
    """
    keep_files(connection)
    listed: list[SealedFile] = []
    due: set[str] = set()
    for row in connection.execute(_LISTED, {"days": list(days), "limit": limit}).mappings():
        columns = dict(row)
        if columns.pop("is_due"):
            due.add(columns["name"])
        listed.append(SealedFile(**columns))
    lost = lost_files(lake, listed)
    read = [file for file in listed if file.name in due and file.name not in lost]
    faults = {**lost, **wrong_files(lake, read)}
    looked_at = [file for file in listed if file.name in due | lost.keys()]
    note_verified(connection, looked_at, faults)
    return [
        DifferentFile(name=file.name, hour=file.hour, reason=faults[file.name])
        for file in listed
        if file.name in faults
    ]
