"""Admissions: counts of each project's requests and events, by outcome, as the API saw them."""

from collections.abc import Mapping
from dataclasses import asdict, fields

from sqlalchemy import Connection, text

from domain.checklist.admissions import Admissions
from storage.postgres.rows import value_of

# The checklist asks for a quarter of an hour; a little more, so that a line turns back by itself.
_KEPT = "30 minutes"
WINDOW = "15 minutes"
_NEWEST = ("reason", "lacking")
_COUNTS = [field.name for field in fields(Admissions) if field.name not in _NEWEST]

_ADD = text(f"""
INSERT INTO admissions AS a (project_id, minute, {", ".join([*_NEWEST, *_COUNTS])})
VALUES (
    :project_id, date_trunc('minute', clock_timestamp()), :{", :".join([*_NEWEST, *_COUNTS])}
)
ON CONFLICT (project_id, minute) DO UPDATE
SET {", ".join(f"{name} = coalesce(excluded.{name}, a.{name})" for name in _NEWEST)},
    {", ".join(f"{name} = a.{name} + excluded.{name}" for name in _COUNTS)}
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

_LAST = "(array_agg({0} ORDER BY minute DESC) FILTER (WHERE {0} IS NOT NULL))[1]"
_READ = text(f"""
SELECT {", ".join(f"sum({name})::bigint AS {name}" for name in _COUNTS)},
    {", ".join(f"{_LAST.format(name)} AS {name}" for name in _NEWEST)}
FROM admissions
WHERE project_id = :project_id AND minute > statement_timestamp() - interval '{WINDOW}'
HAVING count(*) > 0
""")


def read_admissions(connection: Connection, project_id: int) -> Admissions | None:
    """Returns the counts of a project in the last quarter of an hour; None of a silent project."""
    row = connection.execute(_READ, {"project_id": project_id}).one_or_none()
    return None if row is None else value_of(Admissions, row)
