"""The list of sealed hours: which files hold which events, and whom readers must leave out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, text

from storage.log.parts import HOUR, hour_of
from storage.schema.partitions import present_days


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file that is in the lake, whole."""

    name: str
    rows: int
    size: int
    sha256: bytes


@dataclass(frozen=True, kw_only=True)
class SealedFile(Written):
    """A file of the lake that is listed.

    Attributes:
        hour: When its hour of receipt begins.
        last_erasure: The newest erasure that was carried out before its rows were read.
        is_moved: Whether PostgreSQL does not hold its events any more.
    """

    hour: datetime
    part: int
    last_erasure: int
    is_moved: bool
    keeps_named: bool


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """An identity that was forgotten: a session, or a user's pseudonym.

    Its events in files with an older `last_erasure` are no events any more; of a session perhaps
    those alone that came with the public key.
    """

    erasure_id: int
    project_id: int
    session_id: str | None
    public_only: bool
    pseudonym: bytes | None


@dataclass(frozen=True, kw_only=True)
class UnsealedRange:
    """Events of a part, received from `begins` to just before `ends`, that no file holds."""

    part: int
    begins: datetime
    ends: datetime

    @property
    def condition(self) -> str:
        """SQL that holds for these events of the log alone."""
        part = "part IS NULL" if self.part == 0 else f"part = {self.part}"
        return (
            f"(received_at >= '{self.begins.isoformat()}'"
            f" AND received_at < '{self.ends.isoformat()}' AND {part})"
        )


# For so long beyond the hot days PostgreSQL keeps every event of a moved day that names a user: as
# long as sessions look for theirs, with whole days at both ends.
NAMED_DAYS = 30

# The columns of a file, as `SealedFile` names them.
FILE = f"""
hour, part, file AS name, rows, bytes AS size, sha256, last_erasure,
    moved_at IS NOT NULL AS is_moved,
    coalesce(moved_at < hour + interval '{NAMED_DAYS} days', true) AS keeps_named
"""
# Whether an hour may hold events received between two times.
_WITHIN = "hour > CAST(:received_from AS timestamptz) - interval '1 hour' AND hour <= :received_to"

_ERASURES = text("""
SELECT erasure_id, project_id, session_id, public_only, pseudonym FROM erasures ORDER BY 1
""")

_SEALED_LIVE = text(f"""
SELECT hour FROM sealed_hours WHERE part = 0 AND sealed_at IS NOT NULL AND {_WITHIN}
""")

_UNSEALED_PARTS = text(f"""
SELECT hour, part FROM replayed_hours AS r
WHERE {_WITHIN}
  AND NOT EXISTS (
      SELECT FROM sealed_hours AS s
      WHERE s.hour = r.hour AND s.part = r.part AND s.sealed_at IS NOT NULL
  )
UNION
SELECT hour, part FROM sealed_hours WHERE sealed_at IS NULL AND part > 0 AND {_WITHIN}
ORDER BY 1, 2
""")


def keep_files(connection: Connection) -> None:
    """Keeps files that are listed now from being deleted until this transaction ends.

    Args:
        connection: Before it reads the list, and before its snapshot where it has a snapshot for
            good, which a lock of a table does not take.
    """
    connection.execute(text("LOCK TABLE unlisted_files IN ACCESS SHARE MODE"))


def claim_files(connection: Connection) -> None:
    """Keeps files from being read until this transaction ends.

    `pg_dump` counts as a reader: the files of its list stay until it has ended.

    Raises:
        sqlalchemy.exc.OperationalError: Somebody does (SQLSTATE 55P03).
    """
    connection.execute(text("LOCK TABLE unlisted_files IN ACCESS EXCLUSIVE MODE NOWAIT"))


def sealed_files(
    connection: Connection, received_from: datetime, received_to: datetime
) -> list[SealedFile]:
    """Returns the listed files that may hold events received between two times, in order."""
    return listed_files(connection, _WITHIN, received_from=received_from, received_to=received_to)


def listed_files(
    connection: Connection, condition: str, *, limit: int | None = None, **bound: object
) -> list[SealedFile]:
    """Returns the listed files, in order, that meet SQL on the columns of `sealed_hours AS s`."""
    query = text(f"""
SELECT {FILE} FROM sealed_hours AS s WHERE file IS NOT NULL AND ({condition})
ORDER BY hour, part LIMIT :limit
""")
    rows = connection.execute(query, {"limit": limit, **bound}).mappings()
    return [SealedFile(**row) for row in rows]


_NOTE_VERIFIED = text("""
UPDATE sealed_hours AS s SET fault = v.fault, verified_at = clock_timestamp()
FROM unnest(CAST(:files AS text[]), CAST(:faults AS text[])) AS v (file, fault)
WHERE s.file = v.file
""")


def note_verified(
    connection: Connection, files: Sequence[SealedFile], faults: Mapping[str, str]
) -> None:
    """Notes that files were read whole, and the faults of those that have any."""
    names = [file.name for file in files]
    noted = {"files": names, "faults": [faults.get(name) for name in names]}
    connection.execute(_NOTE_VERIFIED, noted)


_MOVED_TO = text("""
SELECT max(hour) + interval '1 hour' FROM sealed_hours WHERE moved_at IS NOT NULL
""")


def moved_to(connection: Connection) -> datetime | None:
    """Returns when the newest hour ends that was moved: PostgreSQL lacks events before, or None."""
    return connection.execute(_MOVED_TO).scalar_one()


def read_erasures(connection: Connection) -> list[Erasure]:
    """Returns the erasures that some listed file may not have been rewritten for, in order."""
    return [Erasure(**row) for row in connection.execute(_ERASURES).mappings()]


def unsealed_ranges(
    connection: Connection,
    received_from: datetime,
    received_to: datetime,
    *,
    unread: Iterable[SealedFile] = (),
) -> list[UnsealedRange]:
    """Returns the ranges read from PostgreSQL of events received between two times, both included.

    Args:
        unread: Files that are not read, whose events PostgreSQL holds as well.
    """
    bounds = {"received_from": received_from, "received_to": received_to}
    sealed = {hour.astimezone(UTC) for hour in connection.execute(_SEALED_LIVE, bounds).scalars()}
    parts = {(file.hour.astimezone(UTC), file.part) for file in unread}
    sealed -= {hour for hour, part in parts if part == 0}
    last = received_to + timedelta(microseconds=1)
    hours = [
        (hour, 0)
        for day in present_days(connection)
        for hour in hours_of_day(day)
        if hour + HOUR > received_from and hour < last and hour not in sealed
    ]
    hours += [
        (row.hour.astimezone(UTC), row.part) for row in connection.execute(_UNSEALED_PARTS, bounds)
    ]
    hours += [(hour, part) for hour, part in parts if part > 0]
    return _joined(hours, received_from, last)


def hours_of_day(day: date) -> Sequence[datetime]:
    """Returns the hours of a day, in UTC."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return [midnight + number * HOUR for number in range(24)]


def _joined(
    hours: Sequence[tuple[datetime, int]], first: datetime, last: datetime
) -> list[UnsealedRange]:
    ranges: list[UnsealedRange] = []
    for hour, part in sorted(hours, key=lambda written: (written[1], written[0])):
        begins, ends = max(hour, first), min(hour_of(hour) + HOUR, last)
        before = ranges[-1] if ranges else None
        if before is not None and before.part == part and before.ends == begins:
            ranges[-1] = UnsealedRange(part=part, begins=before.begins, ends=ends)
        else:
            ranges.append(UnsealedRange(part=part, begins=begins, ends=ends))
    return ranges
