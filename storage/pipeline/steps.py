"""Steps: the text of SQL that defines exposures, conversions and cells.

Every engine runs these statements, so they keep to what PostgreSQL, DuckDB and Spark SQL share:
whole numbers, equi-joins, `CASE`, window functions. Times are microseconds since the epoch, spans
microseconds, values whole millionths, flags of an input 0 or 1. An engine gives the inputs under
their names and materializes each step under its own; `inputs` makes the small inputs.

Input of the clocks: `requests`, from `requests_from` on. The events of `log` and `outcome_events`
have their times by `session_times`.
Inputs of the exposures: `scope`, `log`, `identities`, `routes`, `assignments`, `stratum_flags`,
`deploy_times`, `known_exposures`, `known_in_flight`, `buried_exposures`, `buried_sightings`.
Inputs of the cells: `scope`, `metrics`, `rates`, `sources`, `outcome_events`, `revenue`,
`exposed_units`, `exposed_users`, `closing_exposures`, `buried_conversions`, `buried_amounts`,
`earlier_amounts` (those known before), `known_conversions`, `known_amounts`.

`scope.experiment` is an experiment's key in the derived relations: its id in PostgreSQL, its
number elsewhere. `scope.leader` is the number of the experiment whose exposures it shares, often
its own. `buried_*` are tombstones: rows that no event stands behind any more.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain.absence import NOT_SERVED
from domain.cause import LEFT_OUT_OF_MEANS, Cause
from domain.currency import RATE_SCALE
from domain.draw import DIGITS, FLAG_SHARE, bound_of
from domain.millionths import MILLION
from storage.pipeline.moments import EARLIEST, LATEST
from storage.schema.encoding import (
    ARMS,
    BLOCK,
    CONTROL,
    LEFT_OUT,
    SIGHTING_KINDS,
    SIGHTINGS,
    SKEW,
    TREATMENT,
    arms,
    compared_value,
    listed,
)

# A client's clock may run ahead by 2 minutes; and a minute for the servers' own.
AHEAD = 180_000_000
# How far before a block's close a session is searched for the user that it named.
IDENTITY = 2_419_200_000_000
DAY = 86_400_000_000
# How far before a block the log is read for it.
LOOK_BACK = IDENTITY + AHEAD
# An exposure is packed as (its time since the start) · SPOTS + its assignment's spot: 45 bits of
# microseconds are 407 days: the longest horizon, and a window after it.
SPOTS = 262_144
# The kinds of metrics, by the column `kind`.
KINDS = ("conversion", "mean", "ratio", "picked")
# A unit's amount is squared in two halves; of a ratio these are its two counts.
HALF = 2_147_483_648

# A pick is by so many digits of its hash. From the last place on all events have that place.
PICK_DIGITS = 16
LAST_PLACE = 5

# Stand around a text whose SHA-256 in hexadecimal is meant: engines call it otherwise.
HEX_FROM, HEX_TO = "<digest of ", " in hexadecimal>"
# Stands for whether `unit` is among those that are computed now: an engine that computes a large
# day in parts of its units says which, each other that they all are.
IN_PART = "<unit is in the part>"
# Stands at the end of a subquery whose columns are worked out once for each row, however often they
# are named outside: nothing for an engine that does so anyway.
COMPUTED_ONCE = "<computed once>"


def _position(salt: str, unit: str) -> str:
    """Returns SQL for where a unit stands in the draw of a salt, `domain.draw.position_of`."""
    return f"""left({HEX_FROM}concat({salt}, ':', {unit}){HEX_TO}, {DIGITS}) COLLATE "C\""""


# Whether `unit` is in the sample of its row's experiment.
IN_SAMPLE = f"""(sample_bound IS NULL
 OR {_position("concat('sample:', project_id)", "unit")} < sample_bound)"""

# The reasons for which means leave outcomes out; 0 is none. A metric of such a reason counts these
# outcomes instead, and each of them as a single outcome.
REASONS: dict[str, int] = {reason: number for number, reason in enumerate(LEFT_OUT_OF_MEANS, 1)}
_OTHER_CURRENCY, _NO_VALUE = REASONS[Cause.OTHER_CURRENCY], REASONS[Cause.NO_VALUE]

# A time and a text as a text of which the least is the first: all times have these digits.
_DIGITS = 17


def _timed(time: str, words: str) -> str:
    return f"concat({time} + {10 ** (_DIGITS - 1)}, {words})"


def _words(timed: str) -> str:
    return f"substring({timed}, {_DIGITS + 1})"


# Index of an assignment without an arm: its events expose no unit.
UNASSIGNED = len(ARMS)
# Likewise: their commit's id begins several known commits.
AMBIGUOUS_ARM = UNASSIGNED + 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """A statement of the text, and the name under which its rows are materialized.

    Attributes:
        small_right: Whether the right side of each of its joins is the smaller, regardless of
            an engine's statistics.
        temporary: Whether only steps of the same units read it, so that an engine may drop its rows
            once these have run.
        words: Columns of few texts, each with a statement of them: an engine may store numbers.
    """

    name: str
    sql: str
    small_right: bool = False
    temporary: bool = False
    words: Mapping[str, str] = field(default_factory=dict[str, str])


# --- What the steps share ------------------------------------------------------------------------

_CLOSED = f"(e.occurred - e.occurred % {BLOCK} + {BLOCK} + s.grace)"

# The unit that an event names: its session, or its user.
_UNIT = """CASE WHEN s.by_user = 0 THEN e.session_id
         WHEN s.trusted_only = 0 OR e.trusted THEN e.user_unit END"""


def _session_user(event: str) -> str:
    """Returns the join that finds the user `n.user_unit` of an event that names none."""
    return f"""LEFT JOIN session_users AS n ON n.number = s.number
        AND n.session_id = {event}.session_id
        AND n.block = {event}.occurred - {event}.occurred % {BLOCK}"""


# Whether an experiment reads an event now. Of a range between two columns PostgreSQL's planner
# expects a two-hundredth of the rows, as of a CASE that equals 1, and would look an input up anew
# for each event, or hash the events; of a CASE that is not 0 it expects nearly all.
_READ = """CASE WHEN e.received >= s.received_from AND e.received <= s.received_to
      AND e.occurred >= s.seen_from AND e.occurred < s.to_block THEN 1 ELSE 0 END <> 0"""

# Stands for the value of the flag `s.flag` of the event `e`, as `flag_value` has it.
FLAG_VALUE = "<value of the flag>"
_NOTHING = ", ".join(f"'{word}'" for word in sorted(NOT_SERVED))

# Values of a drawn flag on an event, as its experiment tells them apart.
ABSENT_VALUE, TREATMENT_VALUE, CONTROL_VALUE, FURTHER_VALUE = range(4)
_OWN_VALUE = f"""CASE WHEN s.flag IS NULL OR {FLAG_VALUE} IS NULL THEN {ABSENT_VALUE}
         WHEN {FLAG_VALUE} IN (s.flag_treatment, s.treatment_too) THEN {TREATMENT_VALUE}
         WHEN {FLAG_VALUE} IN (s.flag_control, s.control_too) THEN {CONTROL_VALUE}
         WHEN lower({FLAG_VALUE}) IN ({_NOTHING}) THEN {ABSENT_VALUE}
         ELSE {FURTHER_VALUE} END"""

_ASSIGNED = f"""a.number = s.number AND a.commit_sha = e.commit_sha AND a.context = e.context
     AND a.own_value = {_OWN_VALUE} AND a.route_rank = e.route_rank
     AND e.occurred >= a.occurred_from AND e.occurred < a.occurred_to"""

# Whether an event may say which arm served its session: anybody can send with the public key.
_VOUCHED = "(s.signed_only = 0 OR e.trusted OR e.signed)"
# The arm that served an event from the start on, as far as its word is taken; 2 for neither.
_SERVING_ARM = f"""CASE WHEN a.arm <= 1 AND {_VOUCHED} AND e.occurred >= s.starts_at THEN a.arm
    ELSE 2 END"""

# Key by which a second delivery is the same event: its own id, else its time, name and value.
EVENT_KEY = (
    "coalesce(e.event_id, concat(e.event, ' ', e.stamped, ' ', coalesce(concat(e.value, ''), '')))"
)

# --- Whose clock an event was dated by -----------------------------------------------------------

# A session's requests are compared with those of its visit: of the same half hour, and of those
# before and after it.
VISIT = 1_800_000_000


def requests_from(received: int) -> int:
    """Returns from when on requests tell of the clocks of events that are received from then on."""
    return received - received % VISIT - VISIT


_CLOCK = "project_id, environment, session_id, visit"

# The amount by which a session's stamped times are moved: the smallest delay of its requests, from
# the stamp to the receipt, unless so small a delay is a right clock's. A slow request has a
# longer delay than the others, and moves nothing. The smallest is known ever better: times that
# `moved` puts into a block that has ended stand, whatever comes later; those that it doesn't are
# moved by the next, never back into a block that had ended (`opens`). So the times of a session
# keep their order, and what a closed block holds stays.
CLOCKS = Step(
    name="clocks",
    sql=f"""
SELECT {_CLOCK}, moved, CASE WHEN earlier IS NULL THEN {EARLIEST} ELSE block END AS opens,
    CASE WHEN earlier IS NULL THEN {EARLIEST} ELSE block - earlier END AS stamped_from,
    coalesce(next_block - moved, {LATEST}) AS stamped_to
FROM (
    SELECT {_CLOCK}, moved, earlier, block, lead(block) OVER (
        PARTITION BY {_CLOCK} ORDER BY received
    ) AS next_block
    FROM (
        SELECT {_CLOCK}, received, received - received % {BLOCK} AS block, moved, lag(moved) OVER (
            PARTITION BY {_CLOCK} ORDER BY received
        ) AS earlier
        FROM (
            SELECT {_CLOCK}, received, CASE
                WHEN min(delay) OVER known BETWEEN -{SKEW} AND {SKEW} THEN 0
                ELSE min(delay) OVER known END AS moved
            FROM (
                SELECT r.project_id, r.environment, r.session_id,
                    r.received - r.received % {VISIT} + k.ahead AS visit, r.received,
                    min(r.delay) AS delay
                FROM requests AS r
                JOIN (
                    SELECT DISTINCT project_id, environment, session_id FROM requests
                    WHERE delay < -{SKEW} OR delay > {SKEW}
                ) AS s ON s.project_id = r.project_id AND s.environment = r.environment
                    AND s.session_id = r.session_id
                CROSS JOIN (
                    SELECT -{VISIT} AS ahead UNION ALL SELECT 0 UNION ALL SELECT {VISIT}
                ) AS k
                GROUP BY r.project_id, r.environment, r.session_id, visit, r.received
            ) AS delays
            WINDOW known AS (PARTITION BY {_CLOCK} ORDER BY received)
        ) AS smallest
    ) AS compared
    WHERE earlier IS NULL OR moved < earlier
) AS changes
WHERE moved <> 0 OR earlier <> 0
""",
)


def session_times(rows: str, *, moved: bool = True) -> str:
    """Returns SQL for rows of the log with the time of each by the clock of its session.

    Args:
        rows: A statement of events, the time that each is dated by in `stamped`.
        moved: Whether `clocks` has rows. To look none up, engines would still read the sessions.
    """
    if not moved:
        return f"SELECT e.*, e.stamped AS occurred FROM ({rows}) AS e"
    return f"""
SELECT e.*, CASE WHEN c.moved IS NULL THEN e.stamped
    ELSE greatest(e.stamped + c.moved, c.opens) END AS occurred
FROM ({rows}) AS e
LEFT JOIN clocks AS c ON c.project_id = e.project_id AND c.environment = e.environment
    AND c.session_id = e.session_id AND c.visit = e.received - e.received % {VISIT}
    AND e.sent IS NOT NULL AND e.stamped >= c.stamped_from AND e.stamped < c.stamped_to
"""


# --- What the small inputs are made of -----------------------------------------------------------

# The sets of flags that events name where flags are under test.
FLAG_SETS = """
SELECT e.project_id, e.environment, concat(e.flags, '') AS flags
FROM log_rows AS e
JOIN (SELECT DISTINCT project_id, environment FROM scope WHERE flagged = 1) AS s
  ON s.project_id = e.project_id AND s.environment = e.environment
WHERE e.flags IS NOT NULL AND e.commit_sha IS NOT NULL
GROUP BY e.project_id, e.environment, e.flags
"""

# Where experiments read properties of events, `log_rows` has them as `segments`: of each property,
# in the order of their names, its text, ended by SEGMENT_END. Objects and lists count as absent.
SEGMENT_END = 31
_OTHER_SEPARATOR = 30
SEGMENT_LENGTH = 64


def segment_text(value: str) -> str:
    """Returns SQL for a property's part of `segments`, from SQL for the property as text."""
    return (
        f"concat(CASE WHEN {value} IS NULL OR {value} LIKE '{{%' OR {value} LIKE '[%' THEN ''"
        f" ELSE left(replace({value}, chr({SEGMENT_END}), ' '), {SEGMENT_LENGTH}) END,"
        f" chr({SEGMENT_END}))"
    )


_SAME_FLAGS = "k.flags = e.flags"
_SAME_SEGMENTS = "k.flag_text = coalesce(concat(e.flags, ''), '') AND k.segments = e.segments"

SEGMENT_SETS = """
SELECT e.project_id, e.environment, coalesce(concat(e.flags, ''), '') AS flags, e.segments
FROM log_rows AS e
JOIN (SELECT DISTINCT project_id, environment FROM scope WHERE flagged = 1) AS s
  ON s.project_id = e.project_id AND s.environment = e.environment
WHERE e.commit_sha IS NOT NULL
GROUP BY e.project_id, e.environment, coalesce(concat(e.flags, ''), ''), e.segments
"""


def with_segments(log: str) -> str:
    """Returns the text of a log whose contexts are those of flags and segments."""
    return log.replace(_SAME_FLAGS, _SAME_SEGMENTS)


# The log where no flag is under test.
LOG_WITHOUT_FLAGS = "SELECT e.*, 0 AS context, 0 AS route_rank FROM log_rows AS e"

LOG_WITH_CONTEXTS = """
SELECT e.*, coalesce(k.context, 0) AS context, 0 AS route_rank
FROM log_rows AS e
LEFT JOIN contexts AS k
  ON k.project_id = e.project_id AND k.environment = e.environment AND k.flags = e.flags
"""

# Routes decide between events of a unit, moment and commit that differ in their flags: few.
TIED_ROUTES = """
SELECT DISTINCT e.project_id, e.environment, coalesce(e.route, '') AS route
FROM log AS e
JOIN (
    SELECT DISTINCT project_id, environment, occurred, commit_sha
    FROM (
        SELECT e.project_id, e.environment, e.occurred, e.commit_sha, e.context,
            coalesce(concat(e.flags, ''), '') AS flags,
            CASE WHEN s.by_user = 0 THEN e.session_id ELSE coalesce(e.user_unit, e.session_id) END
                AS unit
        FROM log AS e
        JOIN (
            SELECT DISTINCT project_id, environment, by_user FROM scope
            WHERE flagged = 1 OR drawn = 1
        ) AS s
          ON s.project_id = e.project_id AND s.environment = e.environment
        WHERE e.commit_sha IS NOT NULL
    ) AS named
    WHERE unit IS NOT NULL
    GROUP BY project_id, environment, unit, occurred, commit_sha
    HAVING min(context) < max(context) OR min(flags) < max(flags)
) AS t
  ON t.project_id = e.project_id AND t.environment = e.environment
 AND t.occurred = e.occurred AND t.commit_sha = e.commit_sha
"""

LOG_WITH_TIES = f"""{LOG_WITH_CONTEXTS.replace("0 AS route", "coalesce(t.route_rank, 0) AS route")}
LEFT JOIN tied_routes AS t
  ON t.project_id = e.project_id AND t.environment = e.environment
 AND t.route = coalesce(e.route, '')
"""

# Commits that events name, by environment: read once for all its experiments.
NAMED_COMMITS = """
SELECT e.*
FROM (
    SELECT project_id, environment, commit_sha, context, route_rank,
        max(CASE WHEN trusted OR signed THEN 1 ELSE 0 END) AS vouched
    FROM log
    WHERE commit_sha IS NOT NULL
    GROUP BY project_id, environment, commit_sha, context, route_rank
) AS e
JOIN (SELECT DISTINCT project_id, environment FROM scope) AS s
  ON s.project_id = e.project_id AND s.environment = e.environment
"""

NAMED_ROUTES = """
SELECT DISTINCT e.project_id, e.environment, e.route
FROM log AS e
JOIN (SELECT DISTINCT project_id, environment FROM scope WHERE by_route = 1) AS s
  ON s.project_id = e.project_id AND s.environment = e.environment
WHERE e.route IS NOT NULL
"""

# --- The users of sessions -----------------------------------------------------------------------

# Sessions, with their blocks, of the events that name no user where users are the units.
NAMELESS_SESSIONS = Step(
    name="nameless_sessions",
    sql=f"""
SELECT DISTINCT s.number, e.session_id, e.occurred - e.occurred % {BLOCK} AS block
FROM scope AS s
JOIN nameless_events AS e ON e.project_id = s.project_id
    AND coalesce(e.environment, s.environment) = s.environment
    AND e.occurred >= s.seen_from AND e.occurred < s.to_block
WHERE s.by_user = 1 AND e.session_id IS NOT NULL
  AND (e.user_unit IS NULL OR s.trusted_only = 1 AND NOT e.trusted)
""",
)

# Each has the user whom the session named first, as it was received by the block's close: the empty
# text where that user is forgotten. Of each day a session's first event that names a user is
# enough: a server may send all in one session.
SESSION_USERS = Step(
    name="session_users",
    sql=f"""
SELECT number, session_id, block, {_words('min(named COLLATE "C")')} AS user_unit
FROM (
    SELECT c.number, c.session_id, c.block, i.named, i.received,
        c.block + {BLOCK} + s.grace AS closed
    FROM nameless_sessions AS c
    JOIN scope AS s ON s.number = c.number
    JOIN (
        SELECT project_id, environment, session_id, trusted, signed, min(received) AS received,
            min({_timed("received", "user_unit")} COLLATE "C") AS named
        FROM (
            SELECT project_id, environment, session_id, trusted, signed, received, user_unit
            FROM identities
            UNION ALL
            SELECT project_id, environment, session_id, trusted, signed, received, ''
            FROM forgotten_names
        ) AS said
        GROUP BY project_id, environment, session_id, trusted, signed, received - received % {DAY}
    ) AS i ON i.session_id = c.session_id AND i.project_id = s.project_id
        AND i.environment = s.environment
    WHERE (s.trusted_only = 0 OR i.trusted) AND (s.vouched_only = 0 OR i.trusted OR i.signed)
) AS met
WHERE received <= closed AND received >= closed - closed % {DAY} - {IDENTITY - DAY}
GROUP BY number, session_id, block
""",
)
# The sessions of outcomes, which payments name too.
OUTCOME_SESSIONS = """(
    SELECT project_id, environment, session_id, user_unit, trusted, occurred FROM outcome_events
    UNION ALL
    SELECT project_id, environment, session_id, user_unit, true, occurred FROM revenue
) AS sent"""
# The same columns without rows, for experiments whose units are sessions.
NO_SESSION_USERS = "SELECT 0 AS number, '' AS session_id, 0 AS block, '' AS user_unit WHERE 1 = 0"

# --- From the log to exposures -------------------------------------------------------------------

# The kinds of sightings that an event tells of by itself.
_SEEN_KINDS = listed(kind for kind, name in SIGHTING_KINDS.items() if name != "crossover")

_UNKNOWN_BUILD, _UNKNOWN_USER = SIGHTINGS["unknown_build"], SIGHTINGS["unknown_user"]
# An event without a commit, or with git's null id, which is of zeros alone, names no build.
_NAMES_NO_BUILD = "coalesce(replace(e.commit_sha, '0', ''), '') = ''"

# Whether an event exposes nobody for want of a user alone: of such events the session is counted.
_IS_ANONYMOUS = f"""e.occurred >= s.starts_at AND (s.by_route = 0 OR r.exposing = 1) AND {_VOUCHED}
    AND e.received <= {_CLOSED} AND a.arm <= 1"""

# An event that names no user is lent to its session's. It exposes that user where no event of the
# block does that names the user: whoever is not logged in may be served another build. For the same
# reason it is no crossover; and of a flag that is drawn for users it says nothing.
_LENT = 11

# An event of this kind exposes its unit; of kind 0 it tells at most which arm served it.
_EXPOSING = 6
# A time and the number of an event's name, as a number of which the least is the first.
_NAMES = f"CAST({2**40} AS DECIMAL(38, 0))"
_ARM_BITS = f"CASE arm WHEN {TREATMENT} THEN 2 WHEN {CONTROL} THEN 1 ELSE 0 END"
_SAW_TREATMENT, _SAW_CONTROL = "arms >= 2", "arms % 2 = 1"


def _name_of(named: str, time: str) -> str:
    """Returns SQL for the number of an event's name; a remainder would take ten times as long."""
    return f"CAST({named} - CAST({time} AS DECIMAL(38, 0)) * {_NAMES} AS BIGINT)"


# A single reading of the events finds, of each unit and kind, the first event, as the time at
# which it was known · 4 + the arm that served it. Leaders alone have rows here, and in the steps up
# to `SHARED_EXPOSURES`.
SEEN = Step(
    name="seen",
    temporary=True,
    sql=f"""
SELECT number, unit, kind, min((occurred - starts_at) * {SPOTS} + spot) AS first_at,
    min(known_at) AS known_at, bit_or({_ARM_BITS}) AS arms,
    min(CASE WHEN kind IN ({_EXPOSING}, {_LENT}, {_UNKNOWN_BUILD}) THEN
        CAST(CASE WHEN kind = {_UNKNOWN_BUILD} THEN known_at ELSE occurred END AS DECIMAL(38, 0))
            * {_NAMES} + name END) AS named
FROM (
    SELECT number, unit, name, occurred, starts_at, spot, arm, known_at, kind
    FROM (
        SELECT s.number, coalesce({_UNIT}, n.user_unit, e.session_id) AS unit, s.project_id,
            s.sample_bound AS sample_bound, v.name, e.occurred, s.starts_at AS starts_at, a.spot,
            CASE WHEN {_UNIT} IS NOT NULL THEN a.arm END AS arm,
            CASE WHEN e.received > {_CLOSED} THEN e.received ELSE {_CLOSED} END * 4
                + {_SERVING_ARM} AS known_at,
            CASE
                WHEN {_UNIT} IS NULL AND n.user_unit IS NULL
                    THEN CASE WHEN {_IS_ANONYMOUS} THEN {_UNKNOWN_USER} ELSE 0 END
                WHEN e.occurred < s.starts_at
                    THEN CASE WHEN e.received <= {_CLOSED} THEN 1 ELSE 0 END
                WHEN s.by_route = 1 AND r.number IS NULL THEN 0
                WHEN s.by_route = 1 AND r.exposing = 0 THEN 2
                WHEN NOT {_VOUCHED} THEN 3
                WHEN a.arm = {UNASSIGNED} OR ({_UNIT} IS NULL AND s.drawn = 1) THEN 0
                WHEN e.received > {_CLOSED} THEN 4
                WHEN a.number IS NULL AND {_NAMES_NO_BUILD} THEN {_UNKNOWN_BUILD}
                WHEN a.number IS NULL THEN 5
                WHEN a.arm = {AMBIGUOUS_ARM} THEN 8
                WHEN {_UNIT} IS NULL THEN {_LENT}
                ELSE {_EXPOSING}
            END AS kind
        FROM scope AS s
        JOIN log AS e ON e.project_id = s.project_id AND e.environment = s.environment AND {_READ}
            AND CASE WHEN s.leader = s.number THEN 1 ELSE 0 END <> 0
        JOIN event_names AS v ON v.event = e.event
        LEFT JOIN routes AS r ON r.number = s.number AND r.route = e.route
        LEFT JOIN assignments AS a ON {_ASSIGNED}
        {_session_user("e")}
    ) AS events
    WHERE unit <> '' AND {IN_PART} AND {IN_SAMPLE}
    {COMPUTED_ONCE}
) AS classified
GROUP BY number, unit, kind
""",
)


def _moment_of(packed: str, scope: str = "b") -> str:
    return f"({scope}.starts_at + CAST(({packed} - {packed} % {SPOTS}) / {SPOTS} AS BIGINT))"


_LENT_AT, _OWN_AT = _moment_of("o.first_lent"), _moment_of("x.first_at")
_IS_LENT = f"""(x.first_at IS NULL
        OR {_LENT_AT} - {_LENT_AT} % {BLOCK} < {_OWN_AT} - {_OWN_AT} % {BLOCK})"""

# The first exposure of each unit that has none yet, its texts by number. Most units have events of
# a single kind. Units that have an exposure are left out last: of what is left PostgreSQL's planner
# knows nothing.
CANDIDATES = Step(
    name="candidates",
    temporary=True,
    small_right=True,
    sql=f"""
SELECT c.number, c.unit, c.exposed_at, c.exposed_at - c.exposed_at % {BLOCK} AS block,
    CASE WHEN c.in_flight = 1 OR f.unit IS NOT NULL OR g.unit IS NOT NULL THEN 3
         WHEN c.exposed_at - c.exposed_at % {BLOCK} + {BLOCK} > c.horizon THEN 6
         WHEN c.exposed_at < c.warm_at THEN 9
         ELSE 0 END + a.arm AS arm,
    c.spot, c.arms,
    CASE WHEN c.salt IS NULL OR a.arm > 1 THEN NULL
         WHEN a.arm = CASE WHEN {_position("c.salt", "c.unit")} < '{bound_of(FLAG_SHARE)}'
                           THEN {TREATMENT} ELSE {CONTROL} END THEN 1
         ELSE 0 END AS as_drawn,
    c.name
FROM (
    SELECT u.number, {_name_of("u.named", _moment_of("u.first_at", "u"))} AS name, u.experiment,
        u.horizon, u.warm_at, u.salt, u.unit, u.in_flight, u.arms, u.first_at % {SPOTS} AS spot,
        {_moment_of("u.first_at", "u")} AS exposed_at
    FROM (
        SELECT b.number, b.experiment, b.horizon AS horizon, b.warm_at AS warm_at,
            b.starts_at AS starts_at,
            CASE WHEN b.drawn = 1 THEN concat(b.flag, '=', b.flag_treatment) END AS salt,
            coalesce(x.unit, o.unit) AS unit, coalesce(o.in_flight, 0) AS in_flight,
            coalesce(x.arms, 0) | coalesce(o.arms, 0) AS arms,
            CASE WHEN {_IS_LENT} THEN o.first_lent ELSE x.first_at END AS first_at,
            CASE WHEN {_IS_LENT} THEN o.lent_by ELSE x.named END AS named
        FROM (SELECT * FROM seen WHERE kind = {_EXPOSING}) AS x
        FULL JOIN (
            SELECT number, unit, bit_or(arms) AS arms,
                max(CASE WHEN kind = 1 THEN 1 ELSE 0 END) AS in_flight,
                min(CASE WHEN kind = {_LENT} THEN first_at END) AS first_lent,
                min(CASE WHEN kind = {_LENT} THEN named END) AS lent_by
            FROM seen
            WHERE kind <> {_EXPOSING}
            GROUP BY number, unit
        ) AS o ON o.number = x.number AND o.unit = x.unit
        JOIN scope AS b ON b.number = coalesce(x.number, o.number)
    ) AS u
    WHERE u.first_at IS NOT NULL
    {COMPUTED_ONCE}
) AS c
JOIN assignments AS a ON a.number = c.number AND a.spot = c.spot
LEFT JOIN known_in_flight AS f ON f.experiment = c.experiment AND f.unit = c.unit
LEFT JOIN (SELECT DISTINCT number, unit FROM buried_sightings WHERE kind = 1) AS g
  ON g.number = c.number AND g.unit = c.unit
WHERE NOT EXISTS (
    SELECT 1 FROM known_exposures AS k WHERE k.experiment = c.experiment AND k.unit = c.unit
) AND NOT EXISTS (
    SELECT 1 FROM buried_exposures AS b WHERE b.number = c.number AND b.unit = c.unit
)
""",
)

# The users that a session's events name by its block's close, each since when. They are grouped
# before they are ordered, since many events of a session name a user, and in a step of their own,
# so that no engine holds the groups and their order in memory together. Of the log's identities
# DuckDB expects next to none: joined to the scope first, they would be hashed once an experiment.
NAMED_USERS = Step(
    name="named_users",
    temporary=True,
    small_right=True,
    sql=f"""
SELECT c.number, c.unit, e.pseudonym, min(e.occurred) AS occurred
FROM candidates AS c
JOIN identities AS e ON e.session_id = c.unit
JOIN scope AS s ON s.number = c.number AND s.project_id = e.project_id
    AND s.environment = e.environment
WHERE s.by_user = 0 AND (s.trusted_only = 0 OR e.trusted)
  AND (s.vouched_only = 0 OR e.trusted OR e.signed)
  AND e.last_received > c.block + {BLOCK} + s.grace - {IDENTITY}
  AND e.received <= c.block + {BLOCK} + s.grace
GROUP BY c.number, c.unit, e.pseudonym
""",
)

# The session's user: the first of them.
NAMED = Step(
    name="named",
    temporary=True,
    sql="""
SELECT number, unit, pseudonym
FROM (
    SELECT number, unit, pseudonym,
        row_number() OVER (PARTITION BY number, unit ORDER BY occurred, pseudonym) AS place
    FROM named_users
) AS ordered
WHERE place = 1
""",
)

# By leader: of experiments that share them exposures are stored once, and counted once.
SHARED_EXPOSURES = Step(
    name="shared_exposures",
    words={
        column: f"SELECT {words} UNION ALL SELECT {column} FROM buried_exposures"
        for column, words in (
            ("stratum", "stratum FROM assignments"),
            ("commit_sha", "resolved FROM assignments"),
            ("event", "event FROM event_names"),
        )
    },
    sql="""
SELECT c.number, c.unit, c.exposed_at, c.block, c.arm, a.stratum, a.resolved AS commit_sha,
    n.pseudonym, c.arms, c.as_drawn, v.event
FROM candidates AS c
JOIN assignments AS a ON a.number = c.number AND a.spot = c.spot
JOIN event_names AS v ON v.name = c.name
LEFT JOIN named AS n ON n.number = c.number AND n.unit = c.unit
UNION ALL
SELECT b.number, b.unit, b.exposed_at, b.block, b.arm, b.stratum, b.commit_sha, b.pseudonym,
    coalesce(u.arms, 0), b.as_drawn, b.event
FROM buried_exposures AS b
JOIN scope AS s ON s.number = b.number
LEFT JOIN (
    SELECT number, unit, bit_or(arms) AS arms FROM seen
    WHERE (number, unit) IN (SELECT number, unit FROM buried_exposures)
    GROUP BY number, unit
) AS u ON u.number = b.number AND u.unit = b.unit
WHERE NOT EXISTS (
    SELECT 1 FROM known_exposures AS k WHERE k.experiment = s.experiment AND k.unit = b.unit
)
""",
)

NEW_EXPOSURES = """
SELECT s.number, x.unit, x.exposed_at, x.block, x.arm, x.stratum, x.commit_sha, x.pseudonym,
    x.as_drawn, x.event
FROM shared_exposures AS x
JOIN scope AS s ON s.leader = x.number
"""

# Any commit may stand for a stratum: its lineage less the change is the stratum's set, beside the
# values of other flags.
NEW_STRATA = Step(
    name="new_strata",
    sql="""
SELECT s.number, x.stratum, x.commit_sha, f.lineage, f.flags
FROM (
    SELECT number, stratum, min(commit_sha COLLATE "C") AS commit_sha
    FROM shared_exposures
    WHERE stratum IS NOT NULL
    GROUP BY number, stratum
) AS x
JOIN scope AS s ON s.leader = x.number
LEFT JOIN stratum_flags AS f ON f.number = s.number AND f.stratum = x.stratum
""",
)

# Units of an arm that were seen in the other as well: few, if any.
MOVED = Step(
    name="moved",
    temporary=True,
    sql=f"""
SELECT s.number, x.unit, x.exposed_at, x.block, x.arm, x.stratum
FROM shared_exposures AS x
JOIN scope AS s ON s.leader = x.number
WHERE (x.arm = {TREATMENT} AND x.{_SAW_CONTROL}) OR (x.arm = {CONTROL} AND x.{_SAW_TREATMENT})
UNION
SELECT u.number, u.unit, k.exposed_at, k.block, k.arm, k.stratum
FROM (
    SELECT s.number, s.experiment, u.unit, u.arms
    FROM seen AS u
    JOIN scope AS s ON s.leader = u.number
    -- Candidates have no exposure that is known.
    WHERE NOT EXISTS (SELECT 1 FROM candidates AS c WHERE c.number = u.number AND c.unit = u.unit)
    {COMPUTED_ONCE}
) AS u
JOIN known_exposures AS k ON k.experiment = u.experiment AND k.unit = u.unit
WHERE (k.arm = {TREATMENT} AND u.{_SAW_CONTROL}) OR (k.arm = {CONTROL} AND u.{_SAW_TREATMENT})
""",
)

_SEEN_AGAIN = """
SELECT m.number, m.unit, m.exposed_at, m.block, m.arm, m.stratum, l.project_id, l.environment,
    l.occurred, l.received, l.commit_sha, l.flags, l.context, l.route_rank, l.trusted, l.signed,
    {1} AS by_user
FROM moved AS m JOIN log AS l ON l.{0} = m.unit
"""

# A unit in both arms within its window, with no deploy between the sightings: the router is not
# sticky. A deploy may rightly move units, so a deploy in between explains it.
CROSSOVERS = Step(
    name="crossovers",
    temporary=True,
    sql=f"""
SELECT x.number, x.unit, min(x.known_at) AS sighted_at, min(x.block) AS block, min(x.arm) AS arm,
    min(x.stratum COLLATE "C") AS stratum
FROM (
    SELECT e.number, e.unit, e.exposed_at, e.block, e.arm, e.stratum, e.occurred,
        s.project_id, s.environment, s.bound_at, {_CLOSED} AS closed_at,
        CASE WHEN e.received > {_CLOSED} THEN e.received ELSE {_CLOSED} END AS known_at
    FROM ({_SEEN_AGAIN.format("session_id", 0)} UNION ALL {_SEEN_AGAIN.format("user_unit", 1)}) AS e
    JOIN scope AS s ON s.number = e.number AND s.by_user = e.by_user
        AND s.project_id = e.project_id AND s.environment = e.environment AND {_READ}
        AND e.occurred > e.exposed_at AND e.occurred <= e.exposed_at + s.target_window
    JOIN assignments AS a ON {_ASSIGNED} AND a.arm + e.arm = 1
    WHERE {_VOUCHED} AND (s.by_user = 0 OR s.trusted_only = 0 OR e.trusted)
) AS x
WHERE NOT EXISTS (
    SELECT 1 FROM deploy_times AS d
    WHERE d.project_id = x.project_id AND d.environment = x.environment
      AND d.deployed_at > x.exposed_at AND d.deployed_at <= x.occurred
      AND d.recorded_at <= CASE WHEN x.closed_at > x.bound_at THEN x.closed_at ELSE x.bound_at END
      AND d.withdrawn_at > x.bound_at
)
GROUP BY x.number, x.unit
""",
)

_FIRST_EVENT = f"CASE WHEN event IS NOT NULL THEN {_timed('sighted', 'event')} END"

# A crossover is kept with the block, arm and stratum of its unit's exposure.
NEW_SIGHTINGS = Step(
    name="new_sightings",
    sql=f"""
SELECT number, kind, unit, CAST((min(sighted) - min(sighted) % 4) / 4 AS BIGINT) AS sighted_at,
    min(block) AS block, CAST(nullif(min(sighted) % 4, 2) AS INTEGER) AS arm,
    min(stratum COLLATE "C") AS stratum,
    {_words(f'min({_FIRST_EVENT} COLLATE "C")')} AS event
FROM (
    SELECT s.number, u.kind, u.unit, u.known_at AS sighted, CAST(NULL AS BIGINT) AS block,
        NULL AS stratum, v.event
    FROM seen AS u
    JOIN scope AS s ON s.leader = u.number
    LEFT JOIN event_names AS v
        ON v.name = CASE WHEN u.kind = {_UNKNOWN_BUILD} THEN {_name_of("u.named", "u.known_at")} END
    WHERE u.kind IN {_SEEN_KINDS}
    UNION ALL SELECT number, {SIGHTINGS["crossover"]}, unit, sighted_at * 4 + arm, block, stratum,
        NULL
    FROM crossovers
    UNION ALL SELECT number, kind, unit, sighted_at * 4 + coalesce(arm, 2), block, stratum, event
    FROM buried_sightings
) AS sighted
GROUP BY number, kind, unit
""",
)

# The new exposures that name a user, by leader. Those of a user are of many units.
USER_EXPOSURES = """
SELECT number, pseudonym, unit, exposed_at, block, arm FROM shared_exposures
WHERE pseudonym IS NOT NULL AND arm <= 1
"""

# The users whom a block of this reading brought back: the arm of their first session, and whether
# the second, which is the next in a later block, has the same. Within a block nothing is ordered:
# of a first block with both arms no user is counted, and a second with both did not keep the arm.
# A deploy in between may rightly move users.
RETURNED = Step(
    name="returned_users",
    sql=f"""
SELECT s.number, u.block, u.arm, u.kept
FROM (
    SELECT number, min(block) AS first_block, max(block) AS block,
        min(CASE WHEN place = 1 THEN lowest END) AS arm,
        CASE WHEN min(lowest) = max(highest) THEN 1 ELSE 0 END AS kept
    FROM (
        SELECT number, pseudonym, block, min(arm) AS lowest, max(arm) AS highest,
            row_number() OVER (PARTITION BY number, pseudonym ORDER BY block) AS place
        FROM (
            SELECT number, pseudonym, block, arm FROM user_exposures
            UNION ALL
            SELECT u.number, u.pseudonym, k.block, k.arm
            FROM (
                SELECT DISTINCT x.number, s.experiment, x.pseudonym
                FROM user_exposures AS x JOIN scope AS s ON s.number = x.number
            ) AS u
            JOIN known_exposures AS k ON k.experiment = u.experiment AND k.pseudonym = u.pseudonym
            WHERE k.arm <= 1
        ) AS met
        GROUP BY number, pseudonym, block
    ) AS placed
    WHERE place <= 2
    GROUP BY number, pseudonym
    HAVING count(*) = 2
       AND min(CASE WHEN place = 1 THEN lowest END) = max(CASE WHEN place = 1 THEN highest END)
) AS u
JOIN scope AS s ON s.leader = u.number
WHERE u.block >= s.from_block AND NOT EXISTS (
    SELECT 1 FROM deploy_times AS d
    WHERE d.project_id = s.project_id AND d.environment = s.environment
      AND d.deployed_at > u.first_block AND d.deployed_at < u.block + {BLOCK}
      AND d.recorded_at <= CASE WHEN u.block + {BLOCK} + s.grace > s.bound_at
          THEN u.block + {BLOCK} + s.grace ELSE s.bound_at END
      AND d.withdrawn_at > s.bound_at
)
""",
)

# Conditions on an exposure that the columns of `block_units` count.
_UNITS = {
    name: f"CASE WHEN {holds} THEN 1 ELSE 0 END"
    for name, holds in {
        **{name: f"x.arm IN {arms(name)}" for name in (*ARMS[:3], *LEFT_OUT)},
        **{name: f"x.arm = {at}" for at, name in enumerate(ARMS) if at > 2 and at % 3 < 2},
        "own": f"x.commit_sha = s.treatment_commit AND x.arm NOT IN {arms(*LEFT_OUT[:2])}",
        "as_drawn": "x.arm <= 1 AND x.as_drawn = 1",
        "off_draw": "x.arm <= 1 AND x.as_drawn = 0",
    }.items()
}
# And of a user who was brought back.
_AGAIN = {
    "again_treatment": "arm",
    "kept_treatment": "arm * kept",
    "again_control": "1 - arm",
    "kept_control": "(1 - arm) * kept",
}
NEW_BLOCK_UNITS = Step(
    name="new_block_units",
    sql=f"""
SELECT number, block, {", ".join(f"sum({name}) AS {name}" for name in (*_UNITS, *_AGAIN))}
FROM (
    SELECT s.number, x.block, {", ".join(f"0 AS {name}" for name in _AGAIN)},
        {", ".join(f"x.{name}" for name in _UNITS)}
    FROM (
        SELECT x.number, x.block,
            {", ".join(f"sum({each}) AS {name}" for name, each in _UNITS.items())}
        FROM shared_exposures AS x JOIN scope AS s ON s.number = x.number
        GROUP BY x.number, x.block
    ) AS x
    JOIN scope AS s ON s.leader = x.number
    UNION ALL
    SELECT number, block, {", ".join(_AGAIN.values())}, {", ".join("0" for _ in _UNITS)}
    FROM returned_users
) AS counted
GROUP BY number, block
""",
)

NEW_BLOCK_NAMES = Step(
    name="new_block_names",
    sql=f"""
SELECT s.number, x.block, x.event, x.units
FROM (
    SELECT number, block, event, count(*) AS units
    FROM shared_exposures
    WHERE arm NOT IN {arms(*LEFT_OUT[:2])}
    GROUP BY number, block, event
) AS x
JOIN scope AS s ON s.leader = x.number
""",
)

# --- From outcomes to cells ----------------------------------------------------------------------


# The columns of `metrics` that name the properties of events for which a metric asks. Its column
# `asked` has each property with each value that counts, as PROPERTY=VALUE between separators.
PROPERTIES = ("property_1", "property_2", "property_3")
_PROPERTY = re.compile(r"<property (\S+) of (\w+)>")


def asked_values(where: Mapping[str, Sequence[str]]) -> str:
    """Returns the column `asked` of a metric."""
    end = chr(SEGMENT_END)
    pairs = (f"{name}={value}" for name, values in where.items() for value in values)
    return end + "".join(f"{pair}{end}" for pair in pairs)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What the text leaves to an engine's own SQL.

    Attributes:
        digest: What stands before and after a text whose SHA-256 in hexadecimal is meant.
        row_digest: The number that the first ten digits of the MD5 of `{words}`, a text, are.
        event_property: A property of `{event}`, an alias, as text; `{name}` is SQL for its name,
            which is of letters, digits, _ and -, or NULL.
    """

    digest: tuple[str, str]
    row_digest: str
    flag: str
    event_property: str
    computed_once: str = ""

    def property_text(self, name: str, event: str) -> str:
        """Returns SQL for a property of an event as text."""
        return self.event_property.format(name=name, event=event)

    def written(self, sql: str, *, in_part: str = "true") -> str:
        """Returns a part of the text as the engine takes it."""
        return (
            _PROPERTY.sub(lambda match: self.property_text(match[1], match[2]), sql)
            .replace(HEX_FROM, self.digest[0])
            .replace(HEX_TO, self.digest[1])
            .replace(FLAG_VALUE, compared_value(self.flag))
            .replace(IN_PART, in_part)
            .replace(COMPUTED_ONCE, self.computed_once)
        )


def has_asked_values(event: str) -> str:
    """Returns SQL for whether an event has the values of properties that its metric asks for."""
    end = f"chr({SEGMENT_END})"
    return " AND ".join(
        f"""(m.{name} IS NULL OR position(concat({end}, m.{name}, '=',
              replace(<property m.{name} of {event}>, {end}, chr({_OTHER_SEPARATOR})), {end})
              IN m.asked) > 0)"""
        for name in PROPERTIES
    )


def _counted(event: str) -> str:
    """Returns SQL for what an event counts: of a metric that asks for properties, by those."""
    return f"""CASE WHEN o.otherwise IS NULL OR {has_asked_values(event)}
            THEN coalesce(o.adds, {event}.value) ELSE o.otherwise END"""


# The history of users is read once, with the block of the start. It is read of all users, since the
# users of the canary are not known yet.
_READ_HISTORY = """s.from_block <= s.starts_at AND s.to_block > s.starts_at
                  AND {event}.received >= m.history_from AND {event}.received < m.history_to"""


def _read_outcome(event: str) -> str:
    """Returns SQL for whether an experiment's metric reads an event now.

    A unit's exposure is known after the events before it, which are therefore read again; those
    before the start are no outcome of either arm. Of a block that has not ended no time is final.
    """
    return f"""CASE WHEN CASE WHEN m.history_to IS NULL
                  THEN {event}.received > s.from_block - {AHEAD}
                      - CASE WHEN m.attribution_before > 0 THEN m.attribution_before ELSE 0 END
                  AND {event}.received <= s.to_block + s.grace AND {event}.occurred < s.to_block
                  AND (m.attribution_before <= 0 OR {event}.occurred >= s.starts_at)
                  ELSE {_READ_HISTORY.format(event=event)} END
              AND (o.otherwise IS NOT NULL OR {has_asked_values(event)})
          THEN 1 ELSE 0 END <> 0"""


# A history is of events that name their user themselves.
_LENDER = "CASE WHEN m.history_to IS NULL THEN n.user_unit END"

# Revenue events that an experiment's metric reads, with the unit that they name, if any. An amount
# in a currency with a rate is multiplied by its factor, a whole number of 10⁻¹²ths, and cut off
# towards zero: in two parts, since an engine that divides by way of doubles is exact up to 2⁵³.
PAID = Step(
    name="paid",
    sql=f"""
SELECT number, experiment, exposures_of, metric, occurred, received, idempotency_key,
    CASE WHEN product IS NULL THEN value
         ELSE CAST((product - product % {RATE_SCALE * MILLION}) / {RATE_SCALE * MILLION} AS BIGINT)
             * {MILLION}
             + CAST((product % {RATE_SCALE * MILLION} - product % {RATE_SCALE}) / {RATE_SCALE}
                 AS BIGINT)
    END AS value,
    session_id, pseudonym, by_user, unit, attribution_window, attribution_before, closes_after,
    kind, cap, history_to
FROM (
    SELECT s.number, s.experiment, s.exposures_of, m.metric, r.occurred, r.received,
        r.idempotency_key, {_counted("r")} AS value,
        CASE WHEN o.adds IS NULL THEN
            CAST(greatest(least(r.value, x.largest), -x.largest) AS DECIMAL(38, 0))
                * CAST(x.factor AS DECIMAL(38, 0))
        END AS product,
        r.session_id, r.pseudonym, s.by_user AS by_user,
        CASE WHEN s.by_user = 0 THEN r.session_id ELSE coalesce(r.user_unit, {_LENDER}) END AS unit,
        m.attribution_window, m.attribution_before, m.open_for + s.grace AS closes_after, m.kind,
        m.cap, m.history_to
    FROM revenue AS r
    JOIN sources AS o ON o.event = r.event
    JOIN scope AS s ON s.number = o.number AND s.project_id = r.project_id
        AND s.environment = coalesce(r.environment, s.environment)
    JOIN metrics AS m ON m.number = o.number AND m.metric = o.metric
    LEFT JOIN rates AS x ON x.number = m.number AND x.metric = m.metric AND x.currency = r.currency
    {_session_user("r")}
    WHERE m.by_page = 0 AND m.threshold IS NULL AND CASE WHEN m.left_out = CASE
              WHEN m.kind <> 1 THEN 0
              WHEN r.value IS NULL THEN {_NO_VALUE}
              WHEN m.currency = r.currency OR x.factor IS NOT NULL THEN 0
              ELSE {_OTHER_CURRENCY}
          END THEN 1 ELSE 0 END <> 0
      AND {_read_outcome("r")}
    {COMPUTED_ONCE}
) AS priced
""",
)

# The users that revenue without a session names, by leader.
OUTCOME_USERS = """
SELECT DISTINCT s.leader, p.pseudonym FROM paid AS p JOIN scope AS s ON s.number = p.number
WHERE p.session_id IS NULL AND p.by_user = 0 AND p.pseudonym IS NOT NULL
"""

# The runtime events that an experiment's metric reads, with the unit that they are of.
_EVENTS = f"""
SELECT s.number, s.experiment, s.exposures_of, m.metric, m.attribution_window,
    m.attribution_before, coalesce({_UNIT}, {_LENDER}) AS unit, e.occurred, e.received,
    {EVENT_KEY} AS event_key,
    {_counted("e")} AS value,
    m.open_for + s.grace AS closes_after, m.kind, m.cap, m.threshold
FROM outcome_events AS e
JOIN sources AS o ON o.event = e.event
JOIN scope AS s ON s.number = o.number AND s.project_id = e.project_id
    AND s.environment = e.environment
JOIN metrics AS m ON m.number = o.number AND m.metric = o.metric
{_session_user("e")}
WHERE {_read_outcome("e")}
  AND (m.vouched_only = 0 OR e.trusted OR m.vouched_only = 1 AND e.signed)
  AND (m.by_page = 0 OR NOT (e.trusted OR e.signed))
  AND (m.left_out = 0 OR m.left_out = {_NO_VALUE} AND e.value IS NULL)
  AND (m.threshold IS NULL OR e.value IS NOT NULL)
"""

# Events of users with a history before the canary, exposed or not: conversions where no mean is
# adjusted by them.
HISTORY = Step(
    name="history",
    temporary=True,
    sql=f"""
SELECT number, metric, unit, received, event_key, value, kind, cap
FROM (
    SELECT number, metric, unit, received, event_key, value, kind, cap FROM ({_EVENTS}
      AND m.history_to IS NOT NULL
    ) AS sent
    UNION ALL
    SELECT number, metric, unit, received, idempotency_key, value, kind, cap FROM paid
    WHERE history_to IS NOT NULL
) AS t
WHERE unit IS NOT NULL AND (kind = 0 OR value IS NOT NULL) AND {IN_PART}
""",
)

# Events that count for an exposed unit, each with its key. A revenue event counts by its session
# where it names a session, else by pseudonym: then once, for the earliest exposure of that
# pseudonym whose window holds it. Earlier blocks close first, so no later exposure is ever
# preferred, and nothing is taken back.
OUTCOMES = Step(
    name="outcomes",
    temporary=True,
    sql=f"""
SELECT number, experiment, metric, unit, occurred, received, event_key, value, block, arm, stratum,
    block + {BLOCK} + closes_after AS closes_at, kind, cap, threshold
FROM (
    SELECT t.number, t.experiment, t.metric, t.unit, t.occurred, t.received, t.event_key, t.value,
        p.block, p.arm, p.stratum, t.closes_after, t.kind, t.cap, t.threshold
    FROM ({_EVENTS}
      AND m.history_to IS NULL
    ) AS t
    JOIN exposed_units AS p ON p.experiment = t.exposures_of AND p.unit = t.unit
        AND t.occurred >= p.exposed_at - t.attribution_before
        AND t.occurred <= p.exposed_at + t.attribution_window
    UNION ALL
    SELECT r.number, r.experiment, r.metric, p.unit, r.occurred, r.received, r.idempotency_key,
        r.value, p.block, p.arm, p.stratum, r.closes_after, r.kind, r.cap, CAST(NULL AS BIGINT)
    FROM paid AS r
    JOIN exposed_units AS p ON p.experiment = r.exposures_of AND p.unit = r.unit
        AND r.occurred >= p.exposed_at - r.attribution_before
        AND r.occurred <= p.exposed_at + r.attribution_window
    WHERE r.history_to IS NULL
    UNION ALL
    SELECT number, experiment, metric, unit, occurred, received, idempotency_key, value, block,
        arm, stratum, closes_after, kind, cap, CAST(NULL AS BIGINT)
    FROM (
        SELECT r.number, r.experiment, r.metric, p.unit, r.occurred, r.received, r.idempotency_key,
            r.value, p.block, p.arm, p.stratum, r.closes_after, r.kind, r.cap,
            row_number() OVER (
                PARTITION BY r.number, r.metric, r.idempotency_key
                ORDER BY p.exposed_at, p.unit COLLATE "C"
            ) AS place
        FROM paid AS r
        JOIN exposed_users AS p ON p.experiment = r.exposures_of AND p.pseudonym = r.pseudonym
            AND r.occurred >= p.exposed_at AND r.occurred <= p.exposed_at + r.attribution_window
            AND r.occurred >= p.exposed_at - r.attribution_before
        WHERE r.session_id IS NULL AND r.by_user = 0 AND p.arm <= 1
    ) AS earliest
    WHERE place = 1 AND {IN_PART}
) AS t
WHERE arm <= 1
""",
)

# The sessions whose user began another within the target's window, and when that was known: once
# the other's block had closed, which is before the session's outcomes close. Of a user's sessions
# only the next is looked at, so that a reference that thousands of sessions share costs no more.
# Tombstones keep only block times, so a turnover between two of them is stored as a tombstone.
TURNOVER = Step(
    name="turnover",
    sql=f"""
SELECT s.number, m.metric, t.unit,
    t.next_at - t.next_at % {BLOCK} + {BLOCK} + s.grace AS received_at
FROM (
    -- Later, not at the same moment: a session that was erased has another name, and so another
    -- place among those of its moment. Of two erased ones tombstones hold the outcome.
    SELECT number, unit, exposed_at,
        CASE WHEN buried = 0 THEN min(exposed_at) OVER later
            ELSE min(CASE WHEN buried = 0 THEN exposed_at END) OVER later END AS next_at
    FROM user_sessions
    WINDOW later AS (
        PARTITION BY number, pseudonym ORDER BY exposed_at
        RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    )
) AS t
JOIN scope AS s ON s.leader = t.number
JOIN metrics AS m ON m.number = s.number AND m.turnover = 1
WHERE t.next_at - t.next_at % {BLOCK} >= s.from_block
  AND t.next_at <= t.exposed_at + m.attribution_window
""",
)

# A metric with a threshold counts a unit's first event. Which that is changes while earlier ones
# are still received: each event is kept that was the first as far as was received by then, so that
# rows do not depend on the rhythm of the readings. Its key is when it occurred.
FIRSTS = Step(
    name="firsts",
    temporary=True,
    sql="""
SELECT number, metric, unit, received AS received_at, concat(occurred, '') AS event_key, value,
    CASE WHEN received > closes_at AND value > threshold THEN 1 ELSE 0 END AS late, block, arm,
    stratum
FROM (
    SELECT number, experiment, metric, unit, occurred, received, min(value) AS value, threshold,
        block, arm, stratum, closes_at, min(occurred) OVER (
            PARTITION BY number, metric, unit ORDER BY received, occurred
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earliest
    FROM outcomes
    WHERE threshold IS NOT NULL
    GROUP BY number, experiment, metric, unit, occurred, received, threshold, block, arm, stratum,
        closes_at
) AS f
WHERE (earliest IS NULL OR occurred < earliest) AND NOT EXISTS (
    SELECT 1 FROM earlier_amounts AS k
    WHERE k.experiment = f.experiment AND k.metric = f.metric AND k.unit = f.unit
      AND k.event_key <= concat(f.occurred, '') AND k.received_at <= f.received
)
""",
)

# Beside a unit's first value, that of the event with the smallest hash, among those that had come
# by the close: known when its cells close. Events stand in the order in which readings find them,
# and within a reading in that of their times, so that a place, once given, is final. Kept are the
# first four and each that had the smallest hash so far: later events need no others to know theirs.
# Another delivery of an event is no further event.
_READ_AT = f"""greatest(o.occurred - o.occurred % {BLOCK} + {BLOCK},
        o.received - s.grace + {BLOCK - 1} - (o.received - s.grace + {BLOCK - 1}) % {BLOCK})"""
_IN_PLACE = 'PARTITION BY number, metric, unit ORDER BY new, read_at, occurred, hash COLLATE "C"'
HASHED = Step(
    name="hashed",
    temporary=True,
    sql=f"""
SELECT s.number, s.experiment, m.picked_as AS metric, o.unit, o.occurred, o.received, o.value,
    {_READ_AT} AS read_at,
    left({HEX_FROM}concat(m.salt, ':', o.event_key){HEX_TO}, {PICK_DIGITS}) AS hash
FROM outcomes AS o
JOIN scope AS s ON s.number = o.number
JOIN metrics AS m ON m.number = o.number AND m.metric = o.metric AND m.picked_as IS NOT NULL
WHERE o.received <= o.closes_at AND {_READ_AT} > s.from_block
""",
)
PICKS = Step(
    name="picks",
    temporary=True,
    sql=f"""
SELECT number, metric, unit, received AS received_at,
    concat(hash, ' ', CASE WHEN place > {LAST_PLACE} THEN {LAST_PLACE} ELSE place END) AS event_key,
    value
FROM (
    SELECT number, metric, unit, received, value, hash, new,
        row_number() OVER ({_IN_PLACE}) AS place,
        min(hash COLLATE "C") OVER (
            {_IN_PLACE} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS smallest
    FROM (
        SELECT number, metric, unit, read_at, occurred, received, value, hash, new,
            row_number() OVER (
                PARTITION BY number, metric, unit, hash
                ORDER BY new, read_at, received, occurred, value
            ) AS delivery
        FROM (
            SELECT number, metric, unit, read_at, occurred, received, value, hash, 1 AS new
            FROM hashed
            UNION ALL
            SELECT u.number, u.metric, u.unit, 0, 0, 0, 0, left(k.event_key, {PICK_DIGITS}), 0
            FROM (SELECT DISTINCT number, experiment, metric, unit FROM hashed) AS u
            JOIN earlier_amounts AS k ON k.experiment = u.experiment AND k.metric = u.metric
                AND k.unit = u.unit
        ) AS met
    ) AS delivered
    WHERE delivery = 1
) AS placed
WHERE new = 1 AND (place < {LAST_PLACE} OR hash COLLATE "C" < smallest)
""",
)

# The earliest receipt of an outcome: on time if before its block's close. Of a metric with a
# threshold the late ones alone are stored: which units exceed it is known when its cells close. A
# ratio's unit converts by an event that counts, not by those that it is over.
NEW_CONVERSIONS = Step(
    name="new_conversions",
    sql=f"""
SELECT number, metric, unit, min(received_at) AS received_at, min(late) AS late,
    CASE WHEN min(late) = 1 THEN min(block) END AS block,
    CASE WHEN min(late) = 1 THEN min(arm) END AS arm,
    CASE WHEN min(late) = 1 THEN min(stratum COLLATE "C") END AS stratum
FROM (
    SELECT number, metric, unit, received AS received_at,
        CASE WHEN received > closes_at THEN 1 ELSE 0 END AS late, block, arm, stratum
    FROM outcomes
    WHERE threshold IS NULL AND (kind < 2 OR value >= {HALF})
    UNION ALL
    SELECT number, metric, unit, received_at, late, block, arm, stratum FROM firsts WHERE late = 1
    UNION ALL
    SELECT number, metric, unit, received_at, 0, NULL, NULL, NULL FROM turned_over
    UNION ALL
    SELECT number, metric, unit, received, 0, NULL, NULL, NULL FROM history WHERE kind = 0
    UNION ALL
    SELECT number, metric, unit, received_at, late, block, arm, stratum FROM buried_conversions
) AS outcomes_of_units
GROUP BY number, metric, unit
""",
)

# The first delivery of an event speaks for it, in whatever order the deliveries are read.
NEW_AMOUNTS = Step(
    name="new_amounts",
    sql="""
SELECT number, metric, unit, event_key, received_at, value
FROM (
    SELECT number, metric, unit, event_key, received_at, value,
        row_number() OVER (
            PARTITION BY number, metric, unit, event_key ORDER BY received_at, value
        ) AS place
    FROM (
        SELECT number, metric, unit, event_key, received AS received_at,
            greatest(least(value, cap), -cap) AS value
        FROM outcomes
        WHERE kind > 0 AND value IS NOT NULL
        UNION ALL
        SELECT number, metric, unit, event_key, received, greatest(least(value, cap), -cap)
        FROM history
        WHERE kind > 0
        UNION ALL
        SELECT number, metric, unit, event_key, received_at, value FROM firsts
        UNION ALL
        SELECT number, metric, unit, event_key, received_at, value FROM picks
        UNION ALL
        SELECT number, metric, unit, event_key, received_at, value FROM buried_amounts
    ) AS delivered
) AS deliveries
WHERE place = 1
""",
)

_SUMS = ", ".join(
    f"sum(CASE WHEN arm = {arm} THEN {each} ELSE 0 END)"
    for arm in (1, 0)
    for each in ("amount", "high * high", "high * low", "low * low")
)

_KNOWN_AMOUNTS = """(
    SELECT s.number, s.exposures_of, s.grace AS grace, k.metric, k.unit, k.event_key, k.received_at,
        k.value
    FROM known_amounts AS k JOIN scope AS s ON s.experiment = k.experiment
)"""

# Of picks how many exceed each further threshold, in the places of those sums.
THRESHOLDS = ("threshold", "threshold_2", "threshold_3", "threshold_4")
_EXCEEDING = ", ".join(
    each
    for arm in ("arm", "(1 - arm)")
    for each in (*(f"sum({arm} * over_{number})" for number in (2, 3, 4)), "0")
)

# All units are counted, and beside them those few of whom anything came. Whether a user began
# another session is asked of sessions that name a user. Sums are of whole numbers, so that their
# order never matters. A unit's amount a is kept as a = high · HALF + low, and its square by the
# sums of high², high · low and low², which no engine overflows; `cell_sums` puts them together.
# DuckDB expects that few units close, and would hash all of them to look up the few outcomes.
COUNTED = Step(
    name="counted",
    small_right=True,
    sql=f"""
SELECT m.number, m.metric, p.block, p.stratum,
    CASE WHEN m.turnover = 0 THEN p.n1 ELSE p.named1 END AS n1, 0 AS x1,
    CASE WHEN m.turnover = 0 THEN p.n0 ELSE p.named0 END AS n0, 0 AS x0,
    m.kind, 0 AS y1, 0 AS hh1, 0 AS hl1, 0 AS ll1, 0 AS y0, 0 AS hh0, 0 AS hl0, 0 AS ll0
FROM (
    SELECT experiment, block, stratum, sum(arm) AS n1, sum(1 - arm) AS n0,
        sum(CASE WHEN pseudonym IS NULL THEN 0 ELSE arm END) AS named1,
        sum(CASE WHEN pseudonym IS NULL THEN 0 ELSE 1 - arm END) AS named0
    FROM closing_exposures
    WHERE arm <= 1
    GROUP BY experiment, block, stratum
) AS p
JOIN scope AS s ON s.exposures_of = p.experiment
JOIN metrics AS m ON m.number = s.number
WHERE p.block >= m.closed_from AND p.block < m.closed_to AND m.position IS NULL
  AND (m.turnover = 0 OR p.named1 + p.named0 > 0)
UNION ALL
SELECT m.number, m.metric, p.block, p.stratum, 0, sum(p.arm), 0, sum(1 - p.arm), 0,
    0, 0, 0, 0, 0, 0, 0, 0
FROM closing_exposures AS p
JOIN (
    SELECT s.number, s.exposures_of, k.metric, k.unit, k.late
    FROM known_conversions AS k JOIN scope AS s ON s.experiment = k.experiment
) AS k ON k.exposures_of = p.experiment AND k.unit = p.unit
JOIN metrics AS m ON m.number = k.number AND m.metric = k.metric
WHERE p.arm <= 1 AND p.block >= m.closed_from AND p.block < m.closed_to AND k.late = 0
  AND (m.turnover = 0 OR p.pseudonym IS NOT NULL)
GROUP BY m.number, m.metric, p.block, p.stratum
UNION ALL
SELECT number, metric, block, stratum, 0, sum(arm), 0, sum(1 - arm), 0, 0, 0, 0, 0, 0, 0, 0, 0
FROM (
    SELECT m.number, m.metric, p.block, p.stratum, p.arm, m.threshold, k.value,
        row_number() OVER (PARTITION BY m.number, m.metric, p.unit ORDER BY k.event_key) AS place
    FROM closing_exposures AS p
    JOIN {_KNOWN_AMOUNTS} AS k ON k.exposures_of = p.experiment AND k.unit = p.unit
    JOIN metrics AS m ON m.number = k.number AND m.amounts_of = k.metric
    WHERE p.arm <= 1 AND p.block >= m.closed_from AND p.block < m.closed_to
      AND m.threshold IS NOT NULL AND m.position IS NULL
      AND k.received_at <= p.block + {BLOCK} + m.open_for + k.grace
) AS firsts_in_time
WHERE place = 1 AND value > threshold
GROUP BY number, metric, block, stratum
UNION ALL
SELECT number, concat(metric, ' ', position), block, stratum,
    sum(arm), sum(arm * over_1), sum(1 - arm), sum((1 - arm) * over_1), {KINDS.index("picked")},
    {_EXCEEDING}
FROM (
    SELECT number, metric, block, stratum, arm,
        CASE WHEN right(event_key, 1) = '4' THEN '3' ELSE right(event_key, 1) END AS position,
        {
        ", ".join(
            f"CASE WHEN value > {each} THEN 1 ELSE 0 END AS over_{number}"
            for number, each in enumerate(THRESHOLDS, 1)
        )
    }
    FROM (
        SELECT m.number, k.metric, p.block, p.stratum, p.arm, k.event_key, k.value,
            {", ".join(f"m.{each}" for each in THRESHOLDS)},
            row_number() OVER (
                PARTITION BY m.number, k.metric, p.unit ORDER BY k.event_key COLLATE "C"
            ) AS smallest
        FROM closing_exposures AS p
        JOIN {_KNOWN_AMOUNTS} AS k ON k.exposures_of = p.experiment AND k.unit = p.unit
        JOIN metrics AS m ON m.number = k.number AND m.amounts_of = k.metric AND m.position = 1
        WHERE p.arm <= 1 AND p.block >= m.closed_from AND p.block < m.closed_to
          AND k.received_at <= p.block + {BLOCK} + m.open_for + k.grace
    ) AS hashes
    WHERE smallest = 1
) AS picked
GROUP BY number, metric, position, block, stratum
UNION ALL
SELECT number, metric, block, stratum, 0, sum(has_history * arm), 0, sum(has_history * (1 - arm)),
    0,
    {_SUMS}
FROM (
    SELECT number, metric, block, stratum, arm, has_history, amount,
        CAST(CAST((amount - amount % {HALF}) / {HALF} AS BIGINT) AS DECIMAL(38, 0)) AS high,
        amount % {HALF} AS low
    FROM (
        SELECT m.number, m.metric, p.block, p.stratum, p.arm, p.unit,
            max(CASE WHEN m.history_to IS NULL THEN 0 ELSE 1 END) AS has_history,
            sum(CAST(k.value AS DECIMAL(38, 0))) AS amount
        FROM closing_exposures AS p
        JOIN {_KNOWN_AMOUNTS} AS k ON k.exposures_of = p.experiment AND k.unit = p.unit
        JOIN (
            SELECT m.*, m.amounts_of AS named FROM metrics AS m
            WHERE m.kind > 0 AND m.position IS NULL
            UNION ALL
            SELECT m.*, m.also_of FROM metrics AS m WHERE m.also_of IS NOT NULL
        ) AS m ON m.number = k.number AND m.named = k.metric
        WHERE p.arm <= 1 AND p.block >= m.closed_from AND p.block < m.closed_to
          AND k.received_at <= p.block + {BLOCK} + m.open_for + k.grace
        GROUP BY m.number, m.metric, p.block, p.stratum, p.arm, p.unit
    ) AS earned
) AS halved
GROUP BY number, metric, block, stratum
""",
)

NEW_CELLS = Step(
    name="new_cells",
    sql="""
SELECT number, metric, block, stratum,
    sum(n1) AS n1, sum(x1) AS x1, sum(n0) AS n0, sum(x0) AS x0, max(kind) AS kind,
    sum(y1) AS y1, sum(hh1) AS hh1, sum(hl1) AS hl1, sum(ll1) AS ll1,
    sum(y0) AS y0, sum(hh0) AS hh0, sum(hl0) AS hl0, sum(ll0) AS ll0
FROM counted
GROUP BY number, metric, block, stratum
""",
)

# Each row of these steps belongs to a unit and is computed from rows of that unit alone, so that
# an engine can compute the units part by part.
EXPOSURE_STEPS = (
    SEEN,
    CANDIDATES,
    NAMED_USERS,
    NAMED,
    SHARED_EXPOSURES,
    MOVED,
    CROSSOVERS,
    NEW_SIGHTINGS,
)
# Likewise, from outcomes.
OUTCOME_STEPS = (OUTCOMES, FIRSTS, HASHED, PICKS, HISTORY, NEW_CONVERSIONS, NEW_AMOUNTS)
# These count the exposures of all units.
EXPOSED_COUNTS = (NEW_STRATA, NEW_BLOCK_UNITS, NEW_BLOCK_NAMES)
