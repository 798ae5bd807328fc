"""Admissions: counts of each project's requests and events, by outcome, as the API saw them."""

from collections.abc import Mapping
from dataclasses import asdict, fields

from sqlalchemy import Connection, text

from domain.checklist.admissions import Admissions

# The checklist asks for a quarter of an hour; a little more, so that a line turns back by itself.
_KEPT = "30 minutes"
NEWEST = ("reason", "lacking")
COUNTED = [field.name for field in fields(Admissions) if field.name not in NEWEST]

_ADD = text(f"""
INSERT INTO admissions AS a (project_id, minute, {", ".join([*NEWEST, *COUNTED])})
VALUES (
    :project_id, date_trunc('minute', clock_timestamp()), :{", :".join([*NEWEST, *COUNTED])}
)
ON CONFLICT (project_id, minute) DO UPDATE
SET {", ".join(f"{name} = coalesce(excluded.{name}, a.{name})" for name in NEWEST)},
    {", ".join(f"{name} = a.{name} + excluded.{name}" for name in COUNTED)}
""")


def add_admissions(connection: Connection, counted: Mapping[int, Admissions]) -> None:
    """Adds a process's counts, by project, to those of this minute, and deletes older counts."""
    # Sorted, so that no two processes wait for each other.
    rows = [
        {"project_id": id_, **asdict(admissions)} for id_, admissions in sorted(counted.items())
    ]
    connection.execute(_PRUNE, rows)
    connection.execute(_ADD, rows)


_PRUNE = text(f"""
DELETE FROM admissions
WHERE project_id = :project_id AND minute < statement_timestamp() - interval '{_KEPT}'
""")
