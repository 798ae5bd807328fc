"""Forgetting: erases a person's events; their part of the counts stays without a name.

A person is everything that the write key ties together: sessions that name the same user, users
whom the same session names. Anybody can send a tie with the public key: such a tie leads to the
public key's own events of that session, and to nobody else.

Of a unit by name, such as an account, go its events and the sessions that name it alone; nothing
ties it to another.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, text

from domain.metric import BEFORE_CANARY, PICKED
from storage.lake.day_engines import day_engine_settings, open_day_engine
from storage.lake.erasures import note_erasure
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import Extent, read_apart
from storage.lake.sealed_hours import moved_to
from storage.log.file_errors import LakeError
from storage.pipeline.derived import AMOUNTS, UNIT_TABLES
from storage.pipeline.engines.postgres_engine import STORED_EVENT_KEY
from storage.pipeline.log_relations import attach_log
from storage.pipeline.moments import microseconds
from storage.pipeline.recompute import store_rows_of_units
from storage.pipeline.steps import LAST_PLACE, PICK_DIGITS
from storage.postgres.refusal import Conflict
from storage.postgres.rows import value_of
from storage.schema.clock import claim_derived_tables, closed_instant
from storage.schema.encoding import BLOCK, PERSON, TREATMENT, epoch_microseconds
from storage.schema.partitions import share_past_days
from storage.schema.policy_columns import COMPANIONS, GRACE, TARGET_AND_GUARDRAILS, TRUSTED_IDENTITY
from storage.tenants.audit_trail import PROGRAM, Actor, Change, record_action
from storage.tenants.settings import read_settings
from storage.upkeep.passing_error import is_passing
from storage.upkeep.reading import await_rebuild

# A session that names more users than a household has is a place, such as a server that sends
# a single session for all. It ties nobody to anybody, and stays without the person's own events.
MOST_USERS = 5


class TooManyUsers(Conflict):
    """The erasure reaches more users than the caller agreed to."""

    def __init__(self, *, users: int, sessions: int, runtime: int, revenue: int) -> None:
        super().__init__(
            "too_many_users",
            f"this erases {users:,} user references and {sessions:,} sessions that the write key"
            f" ties together, with {runtime:,} runtime events and {revenue:,} revenue events",
        )
        self.users = users


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """The counts of erased rows.

    Attributes:
        kept_sessions: Sessions that the public key alone ties to the person, and of which the write
            key's events stay.
        files: Files of the lake that may hold the person: readers leave the person out from now on,
            and at night those that hold anything are written anew.
        wrong_files: Those of them that are not as they are listed and that PostgreSQL has no events
            of: they cannot be written anew.
        not_computed: Experiments that were over when they were first read and cannot be computed
            any more: if they counted the person, an audit of them misses that unit.
    """

    users: int
    sessions: int
    kept_sessions: int
    runtime_events: int
    revenue_events: int
    exposures: int
    files: int
    wrong_files: int
    not_computed: Sequence[str]
    tables: Sequence[str]


def forget_person(
    connection: Connection,
    project_id: int,
    person: bytes | str,
    *,
    by: Actor = PROGRAM,
    lake: Lake | None = None,
    limit: int | None = None,
    is_unit: bool = False,
) -> Forgotten:
    """Forgets a person.

    Args:
        connection: In a transaction of its own.
        person: The pseudonym of a user reference of the person's, or the identifier of a session.
        is_unit: Whether it is the pseudonym of a unit by name.
        limit: How many user references may go; by default however many are tied together.

    Raises:
        Conflict: The write key names more users in the session than a person can be.
        LakeError: The lake cannot be opened.
        TooManyUsers: There are more user references.
    """
    # Whoever moves a day to the lake copies events meanwhile.
    share_past_days(connection)
    # In this order: a rebuild holds the first, and waits for the second at its end.
    await_rebuild(connection)
    claim_derived_tables(connection)
    if isinstance(person, bytes):
        kind = "unit" if is_unit else "user_ref"
        tied = _person(connection, project_id, users={person}, sessions=set(), is_unit=is_unit)
    else:
        kind, tied = "session", _person(connection, project_id, users=set(), sessions={person})
    if person in tied.places:
        raise Conflict(
            "shared_session",
            f"this session names more than {MOST_USERS} users: it is nobody's own;"
            " forget each of them by user reference",
        )
    _require_few(connection, project_id, tied, limit)
    return _forget(connection, project_id, tied, kind=kind, by=by, lake=lake)


# --- Who it is -----------------------------------------------------------------------------------

# The user of an event whose pseudonym is that of a unit by name.
_PERSON = f"decode(substring({{}} ->> '{PERSON}' FROM '^(?:[0-9a-f][0-9a-f])+$'), 'hex')"
_OF_EVENT, _OF_PAYMENT = _PERSON.format("properties"), _PERSON.format("attributes")


def _tied(members: str, person: str) -> str:
    """Returns SQL for whom an event ties to its session: a user, or where asked its unit."""
    return (
        f"CASE WHEN :is_unit = coalesce({members}::jsonb ? '{PERSON}', false)"
        f" THEN pseudonym WHEN NOT :is_unit THEN {person} END"
    )


# Derived tables outlive the events: an old session may be known from its exposure alone.
_TIES = f"""
    SELECT session_id, pseudonym, vouched, at
    FROM (
        SELECT session_id, {_tied("properties", _OF_EVENT)} AS pseudonym, trusted AS vouched,
            received_at AS at
        FROM runtime_events
        WHERE project_id = :project_id
          AND (pseudonym IS NOT NULL OR :is_named AND properties ? '{PERSON}')
        UNION ALL
        SELECT session_id, {_tied("attributes", _OF_PAYMENT)}, true, received_at
        FROM revenue_events WHERE project_id = :project_id AND session_id IS NOT NULL
    ) AS sent
    WHERE pseudonym IS NOT NULL AND {{of_event}}
    UNION ALL
    SELECT p.unit, p.pseudonym, coalesce({TRUSTED_IDENTITY}, false), 'infinity'
    FROM exposures AS p JOIN experiments AS x USING (experiment_id)
    WHERE x.project_id = :project_id AND p.pseudonym IS NOT NULL AND {{of_unit}}
      AND NOT EXISTS (
          SELECT FROM tombstone_exposures AS t
          WHERE t.experiment_id = p.experiment_id AND t.unit = p.unit
      )
      AND NOT EXISTS (
          SELECT FROM runtime_events AS e
          WHERE e.project_id = :project_id AND e.session_id = p.unit AND NOT :is_unit
            AND e.pseudonym = p.pseudonym AND e.properties ? '{PERSON}'
      )
"""
_SESSIONS_OF_USERS = text(
    "SELECT DISTINCT session_id FROM ("
    + _TIES.format(of_event="pseudonym = ANY(:users)", of_unit="p.pseudonym = ANY(:users)")
    + ") AS ties"
)
_USERS_OF_SESSIONS = text(f"""
SELECT session_id, pseudonym, bool_or(vouched) AS vouched
FROM ({_TIES.format(of_event="session_id = ANY(:sessions)", of_unit="p.unit = ANY(:sessions)")})
    AS ties
GROUP BY session_id, pseudonym
-- Whoever sends a tie chooses when it occurred, not when it is received.
ORDER BY min(at), pseudonym
""")


@dataclass(frozen=True, kw_only=True)
class _NamedUsers:
    """The users whom a session names.

    Attributes:
        claimed: By events with the public key alone, the first received first.
        most: How many a session of somebody's own names.
    """

    most: int
    vouched: list[bytes] = field(default_factory=list[bytes])
    claimed: list[bytes] = field(default_factory=list[bytes])

    @property
    def is_place(self) -> bool:
        return len(self.vouched) > self.most

    def are_of(self, users: Set[bytes]) -> bool:
        """Whether the session is these users' own."""
        return not self.is_place and not users.isdisjoint(self.vouched)

    def claim(self, users: Set[bytes]) -> bool:
        """Whether the session says that it is these users', and nothing contradicts it."""
        return not self.vouched and bool(self.claimed) and self.claimed[0] in users


@dataclass(frozen=True, kw_only=True)
class _Person:
    """Whose events go.

    Attributes:
        places: Sessions that name the person too, and are not the person's.
        neighbours: Units by which revenue finds its sessions: all users whom any of these sessions
            names, and all sessions that name them.
    """

    users: set[bytes]
    sessions: set[str]
    claimed: set[str]
    places: set[str]
    others: set[bytes]
    neighbours: set[str]

    @property
    def units(self) -> set[str]:
        """What experiments may know the person by."""
        return self.sessions | self.claimed | _hex(self.users)


def _hex(users: Iterable[bytes]) -> set[str]:
    return {user.hex() for user in users}


def _person(
    connection: Connection,
    project_id: int,
    *,
    users: set[bytes],
    sessions: set[str],
    is_unit: bool = False,
) -> _Person:
    is_named = read_settings(connection, project_id).unit_property is not None
    bound = {"project_id": project_id, "is_unit": is_unit, "is_named": is_named}
    met: dict[str, _NamedUsers] = {}
    added = users
    while True:
        names = sessions | _sessions_of(connection, bound, added)
        met |= _ties_of(connection, bound, names - met.keys())
        own = {name for name, ties in met.items() if name in sessions or ties.are_of(users)}
        own = {name for name in own if not met[name].is_place}
        added = {user for name in own for user in met[name].vouched} - users
        if not added:
            break
        users = users | added
    claimed = {name for name, ties in met.items() if ties.claim(users)} - own
    others = {user for name in own | claimed for user in met[name].claimed} - users
    strangers = {user for ties in met.values() for user in (*ties.vouched, *ties.claimed)} - users
    return _Person(
        users=users,
        sessions=own,
        claimed=claimed,
        places=met.keys() - own - claimed,
        others=others,
        neighbours=_hex(strangers) | _sessions_of(connection, bound, strangers),
    )


def _sessions_of(
    connection: Connection, bound: Mapping[str, object], users: Set[bytes]
) -> set[str]:
    if not users:
        return set()
    rows = connection.execute(_SESSIONS_OF_USERS, {**bound, "users": list(users)})
    return set(rows.scalars())


def _ties_of(
    connection: Connection, bound: Mapping[str, object], sessions: Set[str]
) -> Mapping[str, _NamedUsers]:
    most = 1 if bound["is_unit"] else MOST_USERS
    ties = {session: _NamedUsers(most=most) for session in sessions}
    if not sessions:
        return ties
    for row in connection.execute(_USERS_OF_SESSIONS, {**bound, "sessions": list(sessions)}):
        of_session = ties[row.session_id]
        (of_session.vouched if row.vouched else of_session.claimed).append(row.pseudonym)
    return ties


_THEIRS = f"(pseudonym = ANY(:users) OR {_OF_EVENT} = ANY(:users))"
_GOING = f"""project_id = :project_id AND (session_id = ANY(:sessions) OR {_THEIRS}
    OR session_id = ANY(:claimed) AND NOT trusted)"""
_GOING_PAYMENTS = f"""project_id = :project_id AND (session_id = ANY(:sessions)
    OR pseudonym = ANY(:users) OR {_OF_PAYMENT} = ANY(:users))"""
_CLOSURE = text(f"""
SELECT (SELECT count(*) FROM runtime_events WHERE {_GOING}) AS runtime,
    (SELECT count(*) FROM revenue_events WHERE {_GOING_PAYMENTS}) AS revenue
""")
# Units by name, of which these are a part.
_NAMED_UNITS = text(f"""
SELECT encode(pseudonym, 'hex') FROM runtime_events
WHERE {_GOING} AND pseudonym <> ALL(:users) AND properties ? '{PERSON}'
UNION
SELECT encode(pseudonym, 'hex') FROM revenue_events
WHERE {_GOING_PAYMENTS} AND pseudonym <> ALL(:users) AND attributes::jsonb ? '{PERSON}'
""")


def _require_few(
    connection: Connection, project_id: int, person: _Person, limit: int | None
) -> None:
    if limit is None or len(person.users) <= limit:
        return
    row = connection.execute(_CLOSURE, _bound(project_id, person)).one()
    raise TooManyUsers(
        users=len(person.users),
        sessions=len(person.sessions),
        runtime=row.runtime,
        revenue=row.revenue,
    )


def _bound(project_id: int, person: _Person) -> dict[str, object]:
    return {
        "project_id": project_id,
        "users": list(person.users),
        "sessions": list(person.sessions),
        "claimed": list(person.claimed),
    }


_BY_WRITE_KEY = text("""
SELECT DISTINCT session_id FROM runtime_events
WHERE project_id = :project_id AND session_id = ANY(:claimed) AND trusted
""")


def _kept_sessions(
    connection: Connection, project_id: int, person: _Person, lake: Lake
) -> Set[str]:
    """Returns the claimed sessions of which the write key sent something: that stays."""
    if not person.claimed:
        return person.claimed
    kept = set(connection.execute(_BY_WRITE_KEY, _bound(project_id, person)).scalars())
    if moved_to(connection) is not None:
        kept |= _by_write_key_in_lake(connection, project_id, person.claimed - kept, lake)
    return kept


def _by_write_key_in_lake(
    connection: Connection, project_id: int, sessions: Set[str], lake: Lake
) -> Set[str]:
    """Returns those of some sessions that the write key sent; all where that is not known."""
    extent = Extent(
        named_from=0,
        received_from=0,
        received_to=microseconds(closed_instant(connection)),
        environments=frozenset({(project_id, "")}),
        units=frozenset(sessions),
    )
    try:
        with (
            read_apart(connection.engine, lake) as log,
            open_day_engine(day_engine_settings(), lake=lake) as engine,
            log.rows(extent) as rows,
        ):
            attach_log(engine, rows)
            named = engine.rows("SELECT DISTINCT e.session_id FROM events AS e WHERE e.trusted")
            return {row[0] for row in named}
    except LakeError:
        return sessions


# --- What goes -----------------------------------------------------------------------------------

_ERASED = text("CREATE TEMP TABLE erased (source text, key text) ON COMMIT DROP")

_KEEP_NAMES = text(f"""
WITH gone AS (
    DELETE FROM forgotten_names
    WHERE project_id = :project_id AND session_id = ANY(:gone)
)
INSERT INTO forgotten_names
SELECT DISTINCT project_id, environment, session_id, received_at, trusted, signed
FROM runtime_events
WHERE project_id = :project_id AND {_THEIRS} AND session_id <> ALL(:gone)
""")

_ERASE_EVENTS = text(f"""
WITH gone AS (
    DELETE FROM runtime_events AS e
    WHERE {_GOING}
    RETURNING e.tableoid::regclass::text AS source, {STORED_EVENT_KEY} AS key
)
INSERT INTO erased SELECT source, key FROM gone
""")

_ERASE_REVENUE = text(f"""
WITH gone AS (
    DELETE FROM revenue_events AS r
    WHERE {_GOING_PAYMENTS}
    RETURNING 'revenue_events' AS source, r.idempotency_key AS key
)
INSERT INTO erased SELECT source, key FROM gone
""")

# --- What stays ----------------------------------------------------------------------------------

_UNITS = """
CREATE TEMP TABLE {name} ON COMMIT DROP AS
SELECT experiment_id, unit, 'forgotten ' || gen_random_uuid() AS ghost
FROM (
    SELECT experiment_id, unit FROM exposures
    UNION
    SELECT experiment_id, unit FROM sightings
    UNION
    -- Of who was not exposed yet, a history.
    SELECT a.experiment_id, a.unit FROM experiments AS x JOIN (
        SELECT experiment_id, metric, unit FROM amounts
        UNION ALL
        SELECT experiment_id, metric, unit FROM conversions
    ) AS a ON a.experiment_id = x.experiment_id AND a.metric = x.target_metric || '{before}'
    WHERE x.project_id = :project_id
) AS seen JOIN experiments AS x USING (experiment_id)
WHERE x.project_id = :project_id AND unit = ANY(:units)
"""
_FORGOTTEN, _SHARED = (
    text(_UNITS.format(name=name, before=BEFORE_CANARY)) for name in ("forgotten", "shared")
)

# The revenue of another user, whom the exposure names by the public key, stays and is the unit's
# outcome: all that the counts ask for is kept as it was, under another name.
_RENAMED = text("""
CREATE TEMP TABLE renamed ON COMMIT DROP AS
SELECT f.* FROM forgotten AS f
WHERE EXISTS (
    SELECT FROM exposures AS p JOIN revenue_events AS r USING (pseudonym)
    WHERE p.experiment_id = f.experiment_id AND p.unit = f.unit
      AND r.project_id = :project_id AND r.pseudonym <> ALL(:users)
)
""")
_RENAMED_ARE_SHARED = text("""
WITH gone AS (
    DELETE FROM forgotten AS f USING renamed AS r
    WHERE f.experiment_id = r.experiment_id AND f.unit = r.unit
)
INSERT INTO shared SELECT experiment_id, ghost, ghost FROM renamed
""")

_MASKS = text(f"""
-- That a session named a user, and that several were one user's, is counted, and kept.
CREATE TEMP TABLE masks ON COMMIT DROP AS
SELECT p.experiment_id, p.pseudonym,
    CASE WHEN count(*) FILTER (WHERE p.arm <= {TREATMENT}) > 0
        THEN uuid_send(gen_random_uuid()) END AS mask
FROM exposures AS p JOIN experiments AS x USING (experiment_id)
WHERE x.project_id = :project_id AND p.pseudonym = ANY(:users)
GROUP BY p.experiment_id, p.pseudonym
""")

# The next whole second, which all closings and looks are: what was known at each is the same.
_SECOND = "({at} + 999999) / 1000000 * 1000000"

_CLOSED = f"""
JOIN exposures AS p ON p.experiment_id = o.experiment_id AND p.unit = o.unit
JOIN experiments AS x ON x.experiment_id = o.experiment_id
CROSS JOIN LATERAL (
    SELECT p.block + {BLOCK} + {epoch_microseconds(f"m.open_for + {GRACE}")} AS at
    FROM ({TARGET_AND_GUARDRAILS} UNION ALL {COMPANIONS}) AS m
    WHERE o.metric IN (m.name, m.name || '{PICKED}')
    LIMIT 1
) AS closed
"""

# The key of a pick: its hash, and its position.
_PICK = f"^[0-9a-f]{{{PICK_DIGITS}}}( [1-{LAST_PLACE}])$"

# Each unit under a new name in each experiment, and times no finer than the counts ask for: of a
# user who has further sessions they ask which came first.
_BURIED = {
    "exposures": """
SELECT experiment_id, f.ghost,
    CASE WHEN m.experiment_id IS NULL AND o.pseudonym IS NOT NULL THEN o.exposed_at
        ELSE o.block END, o.block, o.arm, o.stratum, o.commit_sha,
    coalesce(m.mask, CASE WHEN m.experiment_id IS NULL THEN o.pseudonym END), o.as_drawn,
    o.event
FROM forgotten AS f
JOIN exposures AS o USING (experiment_id, unit)
LEFT JOIN masks AS m USING (experiment_id, pseudonym)
""",
    "sightings": f"""
SELECT experiment_id, o.kind, f.ghost, {_SECOND.format(at="o.sighted_at")}, o.block, o.arm,
    o.stratum, o.event
FROM forgotten AS f JOIN sightings AS o USING (experiment_id, unit)
""",
    "conversions": f"""
SELECT o.experiment_id, o.metric, f.ghost,
    CASE WHEN o.received_at <= closed.at THEN closed.at
        ELSE {_SECOND.format(at="o.received_at")} END,
    o.late, o.block, o.arm, o.stratum
FROM forgotten AS f JOIN conversions AS o USING (experiment_id, unit)
{_CLOSED}
""",
    "amounts": f"""
-- One that came too late is in no sum.
SELECT o.experiment_id, o.metric, f.ghost,
    -- Where a unit's first event counts, keys are in the order of its events; where an event is
    -- picked, in that of their hashes, and with their positions.
    lpad(row_number() OVER (
        PARTITION BY o.experiment_id, o.metric, o.unit ORDER BY o.event_key COLLATE "C"
    )::text, 9, '0') || coalesce(substring(o.event_key FROM '{_PICK}'), ''),
    closed.at, o.value
FROM forgotten AS f JOIN amounts AS o USING (experiment_id, unit)
{_CLOSED}
WHERE o.received_at <= closed.at
""",
}

_MASK_SHARED = text("""
UPDATE exposures AS p SET pseudonym = m.mask
FROM masks AS m, shared AS s
WHERE m.experiment_id = p.experiment_id AND m.pseudonym = p.pseudonym
  AND s.experiment_id = p.experiment_id AND s.unit = p.unit
""")

_COUNTED = text("""
SELECT count(*) FILTER (WHERE source <> 'revenue_events') AS runtime_events,
    count(*) FILTER (WHERE source = 'revenue_events') AS revenue_events,
    (SELECT count(*)
        FROM (
            SELECT experiment_id, ghost FROM forgotten
            UNION ALL
            SELECT experiment_id, ghost FROM shared WHERE unit = ghost
        ) AS f
        JOIN exposures AS o ON o.experiment_id = f.experiment_id AND o.unit = f.ghost
    ) AS exposures,
    (SELECT count(*) FROM sealed_hours WHERE file IS NOT NULL) AS files,
    (SELECT count(*) FROM sealed_hours WHERE fault IS NOT NULL AND moved_at IS NOT NULL)
        AS wrong_files,
    (SELECT count(*) FROM forgotten) + (SELECT count(*) FROM shared) AS units,
    array_agg(DISTINCT source) FILTER (WHERE source IS NOT NULL) AS sources
FROM erased
""")

_REMEMBER = text("""
INSERT INTO forgettings
    (project_id, forgotten_at, kind, runtime_events, revenue_events, exposures)
VALUES (:project_id, clock_timestamp(), :kind, :runtime_events, :revenue_events, :exposures)
""")

# The next tick tries again what is set aside.
_RETRY_SOON = text("""
UPDATE set_aside AS s SET last_tried_at = to_timestamp(0)
FROM experiments AS x
WHERE x.experiment_id = s.experiment_id AND x.project_id = :project_id
""")


def _forget(
    connection: Connection,
    project_id: int,
    person: _Person,
    *,
    kind: str,
    by: Actor,
    lake: Lake | None,
) -> Forgotten:
    lake = lake or store_lake(connection.engine)
    bound = _bound(project_id, person)
    kept = _kept_sessions(connection, project_id, person, lake)
    named = set(connection.execute(_NAMED_UNITS, bound).scalars())
    shared = person.places | kept | _hex(person.others) | named
    # What could not be computed with this person's data may be so without.
    connection.execute(_RETRY_SOON, {"project_id": project_id})
    # Their part of the counts is known from the events alone, where no row of each unit is stored.
    not_computed = store_rows_of_units(
        connection,
        project_id,
        person.units | shared,
        read=person.units | shared | person.neighbours,
        lake=lake,
        settings=day_engine_settings(),
        is_passing=is_passing,
    )
    connection.execute(_ERASED)
    gone = person.sessions | person.claimed - kept
    connection.execute(_KEEP_NAMES, {**bound, "gone": list(gone)})
    connection.execute(_ERASE_EVENTS, bound)
    connection.execute(_ERASE_REVENUE, bound)
    note_erasure(
        connection, project_id, sessions=person.sessions, claimed=person.claimed, users=person.users
    )
    units = sorted(person.units - kept)
    connection.execute(_FORGOTTEN, {"project_id": project_id, "units": units})
    connection.execute(_SHARED, {"project_id": project_id, "units": sorted(shared)})
    connection.execute(_MASKS, bound)
    if person.others:
        _rename(connection, bound)
    _keep_places(connection, named)
    _bury(connection)
    row = connection.execute(_COUNTED).one()
    for table in ("erased", "forgotten", "shared", "masks"):
        connection.execute(text(f"DROP TABLE pg_temp.{table}"))
    forgotten = value_of(
        Forgotten,
        row,
        users=len(person.users),
        sessions=len(person.sessions | person.claimed),
        kept_sessions=len(kept),
        not_computed=not_computed,
        tables=sorted([*(row.sources or ()), *(_derived() if row.units else ())]),
    )
    if forgotten.tables:
        counts = {name: getattr(forgotten, name) for name in _COUNTS}
        connection.execute(_REMEMBER, {"project_id": project_id, "kind": kind, **counts})
        # How much of theirs went, as in the counts; never who.
        changes = [
            Change(member=name, before=None, after=value)
            for name, value in {"named_by": kind, **counts}.items()
        ]
        record_action(connection, project_id, "person_forgotten", by=by, changes=changes)
    return forgotten


_COUNTS = ("runtime_events", "revenue_events", "exposures")
_ERASED_AMOUNT = f"""o.event_key IN (SELECT key FROM erased)
 OR o.event_key ~ '^[0-9]{{16}}$' OR o.event_key ~ '{_PICK}'"""


def _derived() -> list[str]:
    return [name for table in _BURIED for name in (table, f"tombstone_{table}")]


def _rename(connection: Connection, bound: Mapping[str, object]) -> None:
    connection.execute(_RENAMED, bound)
    for table in _derived():
        connection.execute(
            text(
                f"UPDATE {table} AS o SET unit = r.ghost FROM renamed AS r"
                " WHERE o.experiment_id = r.experiment_id AND o.unit = r.unit"
            )
        )
    connection.execute(_RENAMED_ARE_SHARED)
    connection.execute(text("DROP TABLE pg_temp.renamed"))


def _keep_places(connection: Connection, named: Set[str]) -> None:
    """Keeps the names of places, and the rows derived of them, which no event tells any more."""
    connection.execute(_MASK_SHARED)
    for rows in UNIT_TABLES:
        # An amount whose event stays is computed from that; but not that it was a unit's first, nor
        # at which position. Nor whose an event is that names no unit, once its session's is gone.
        gone = f"WHERE s.unit = ANY(:named) OR {_ERASED_AMOUNT}" if rows is AMOUNTS else ""
        values = ", ".join(
            f"{column.name} = excluded.{column.name}"
            for column in rows.columns
            if not column.primary_key
        )
        connection.execute(
            text(
                f"INSERT INTO tombstone_{rows.name} SELECT o.* FROM shared AS s"
                f" JOIN {rows.name} AS o USING (experiment_id, unit) {gone}"
                f" ON CONFLICT ({rows.key}) DO UPDATE SET {values}"
            ),
            {"named": list(named)},
        )


def _bury(connection: Connection) -> None:
    """Puts tombstones in the place of the units' rows, in the derived tables too."""
    for table in _BURIED:
        # A place that has emptied since may have become somebody's own session.
        _remove_units(connection, f"tombstone_{table}")
    for table, buried in _BURIED.items():
        connection.execute(text(f"INSERT INTO tombstone_{table} {buried}"))
    for table in _BURIED:
        _remove_units(connection, table)
        connection.execute(
            text(
                f"INSERT INTO {table} SELECT t.* FROM forgotten AS f"
                f" JOIN tombstone_{table} AS t"
                " ON t.experiment_id = f.experiment_id AND t.unit = f.ghost"
            )
        )


def _remove_units(connection: Connection, table: str) -> None:
    connection.execute(
        text(
            f"DELETE FROM {table} AS o USING forgotten AS f"
            " WHERE o.experiment_id = f.experiment_id AND o.unit = f.unit"
        )
    )


_SAMPLED_WHOLE = text("""
SELECT EXISTS (
    SELECT FROM pg_stats
    WHERE schemaname = current_schema() AND tablename = 'runtime_events' AND inherited
)
""")


def vacuum(engine: Engine, tables: Sequence[str]) -> None:
    """Clears tables of dead rows, and of the samples of them that the planner keeps."""
    with engine.connect() as opened:
        connection = opened.execution_options(isolation_level="AUTOCOMMIT")
        for table in tables:
            connection.execute(text(f"VACUUM (ANALYZE) {table}"))
        # A sample of the log as a whole, which only an administrator's ANALYZE takes.
        if connection.execute(_SAMPLED_WHOLE).scalar_one():
            connection.execute(text("ANALYZE runtime_events"))
