"""Readings of the past log: start, unit, caps, thresholds, history and routes of a policy.

Anybody can send events with the public key. So each member is read from vouched events, which came
with the write key or signed by the router, wherever these are enough; else from all events, of a
mean the first of each session, and the policy says so (`read_from`). Numbers are whole millionths,
and sums are exact, so that every engine reads the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Row, TextClause, text

from domain.cause import MANY_RETURNING
from domain.currency import RATE_SCALE
from domain.lineage.flag import Flag, spellings
from domain.lineage.returning import ReturningVisitors
from domain.metric import FrozenMetric, quantile_share
from domain.millionths import LARGEST_AMOUNT, MILLION, cap_in_millionths
from domain.policy import FrozenAnswer, FrozenSource, Member
from domain.route import RouteTable, canonical_route
from storage.schema.encoding import EPOCH, MICROSECOND, compared_value
from storage.schema.past_log import EVENTS, FLAG, REVENUE, PastLog, UnansweredError
from storage.tenants.settings import Settings

ReadT = TypeVar("ReadT")

# docs/statistics.md, 'Threshold metrics': quantiles need so many units with a value.
FEWEST_UNITS = 1000
# docs/statistics.md, 'Continuous metrics': what a mean is capped at unless the project says so.
HISTORY_DAYS = timedelta(days=28)
_FEW_VALUES, _MANY_VALUES = 20, 1000
_MEDIANS = 20
# An hour or a day with so many values is read alone.
_SPANS = (timedelta(hours=1), timedelta(days=1), HISTORY_DAYS)
_PLENTY = 100_000
# docs/statistics.md, 'Regression adjustment': the share of the variance that history has to explain
# of what so many users did at least, seen in a day or else in a week.
_LEAST_EXPLAINED = 0.08
_FEW_USERS, _MANY_USERS = 500, 5000
_ROUTES_SEEN_WITHIN = timedelta(days=7)


def first_enough(readings: Iterable[ReadT], is_enough: Callable[[ReadT], bool]) -> ReadT:
    """Returns the first of some readings that is enough, else the last; none after it is made."""
    iterator = iter(readings)
    reading = next(iterator)
    while not is_enough(reading) and (following := next(iterator, None)) is not None:
        reading = following
    return reading


def _as_kept(value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))


@dataclass(frozen=True, kw_only=True)
class Reading(Generic[ReadT]):
    """A question to the past log; the policy keeps its answer, or `default` if none is in time."""

    question: str
    read: Callable[["PastEvents"], ReadT]
    default: ReadT
    kind: object

    def answer(self, past: PastLog) -> FrozenAnswer | None:
        """Returns the answer of the log; None where it gives none in time."""
        # Each has its own time.
        events = PastEvents(past=replace(past))
        try:
            return events.answer(self.question, self.read(events))
        except UnansweredError:
            return None

    @property
    def unanswered(self) -> FrozenAnswer:
        """The default, as an answer."""
        answer = _as_kept(self.default)
        return FrozenAnswer(question=self.question, answer=answer, is_default=True)

    def value(self, answer: FrozenAnswer) -> ReadT:
        """Returns the value of its answer."""
        return msgspec.convert(answer.answer, self.kind)  # pyright: ignore[reportCallIssue, reportArgumentType] - of its kind


@dataclass(frozen=True, kw_only=True)
class PastEvents:
    """The events of an environment that a single answer of a policy is read from."""

    past: PastLog
    _days: list[datetime] = field(default_factory=list[datetime])
    _noted: list[FrozenSource] = field(default_factory=list[FrozenSource])

    @property
    def _place(self) -> dict[str, object]:
        return {"project_id": self.past.project_id, "environment": self.past.environment}

    def rows(self, reading: str, **parameters: Any) -> Sequence[Row[Any]]:  # noqa: ANN401 - of SQL
        """Returns the rows of a reading of this environment, received within some days."""
        asked = {"before": self.past.until, "since": self.past.until, **parameters}
        self._days.extend((asked["since"], asked["before"]))
        return self.past.rows(reading, {**self._place, **asked})

    def stored(self, statement: TextClause, **parameters: Any) -> Sequence[Row[Any]]:  # noqa: ANN401 - of SQL
        """Returns the rows of a statement on this environment that reads no events."""
        self._days.extend(parameters[name] for name in ("since", "until") if name in parameters)
        return self.past.stored(statement, {**self._place, **parameters})

    def answer(self, question: str, value: object) -> FrozenAnswer:
        """Returns an answer with what it was read from."""
        return FrozenAnswer(
            question=question,
            answer=_as_kept(value),
            read_from=next(iter(self._noted), None),
            since=min(self._days, default=None),
            until=max(self._days, default=None),
        )

    def vouched_first(
        self,
        readings: Sequence[str],
        parameters: Mapping[str, object],
        *,
        before: datetime,
        enough: int,
    ) -> tuple[Row[Any], datetime]:
        """Returns a row of vouched events, of all where these are too few, and since when."""

        def read(reading: str, *, vouched_only: bool) -> tuple[Row[Any], datetime]:
            chosen = {**parameters, "vouched_only": vouched_only, "before": before}
            spans = (
                (self.rows(reading, **chosen, since=before - span)[0], before - span)
                for span in _SPANS
            )
            return first_enough(spans, lambda each: users_of(each[0]) >= _PLENTY)

        read_each = (read(each, vouched_only=number == 0) for number, each in enumerate(readings))
        return first_enough(read_each, lambda each: each[0].vouched >= enough)

    def note(
        self, member: Member, row: "Row[Any] | _HistoryRow", *days: datetime, metric: str | None
    ) -> None:
        """Notes which events a member of the policy rests on, received within some days."""
        self._noted.append(
            FrozenSource(
                member=member,
                metric=metric,
                vouched=row.vouched,
                unvouched=row.unvouched,
                since=days[0],
                until=days[1],
            )
        )


def users_of(row: "Row[Any] | _HistoryRow") -> int:
    """Returns how many users, sessions or values a row counts, whoever sent them."""
    return row.vouched + row.unvouched


def _has_values(where: Mapping[str, Sequence[str]] | None, column: str) -> str:
    """Returns SQL for whether an event has the values of properties that a metric asks for."""
    asked = enumerate(where or {})
    return "".join(
        f" AND coalesce(<property {name} of {column}> = ANY(:asked_{number}), false)"
        for number, name in asked
    )


# What an amount in another currency is in the metric's, cut off towards zero: in two parts, since
# an engine that divides by way of doubles is exact up to 2⁵³.
_CONVERTED = f"""
    CAST((product - product % {RATE_SCALE}) / {RATE_SCALE} AS bigint) * {MILLION}
        + CAST((product % {RATE_SCALE} - product % {RATE_SCALE // MILLION})
            / {RATE_SCALE // MILLION} AS bigint)"""
_LARGEST = 2**63 - 1


def _values(metric: FrozenMetric) -> str:
    """Returns SQL for the values that a mean adds up."""
    return f"""
    SELECT pseudonym, session_id AS sender, occurred, received, value, trusted OR signed AS vouched
    FROM {EVENTS} AS e
    WHERE event = ANY(:sources) AND value <> 0 AND (trusted OR signed OR NOT :vouched_only)
      {_has_values(metric.where, "properties")}
    UNION ALL
    SELECT pseudonym, idempotency_key, occurred, received, CASE WHEN product IS NULL
            THEN greatest(least(amount, {LARGEST_AMOUNT}), {-LARGEST_AMOUNT}) * {MILLION}
            ELSE {_CONVERTED} END, true
    FROM (
        SELECT r.*, CAST(greatest(least(amount, x.largest), -x.largest) AS DECIMAL(38, 0))
            * CAST(x.factor AS DECIMAL(38, 0)) AS product
        FROM {REVENUE} AS r LEFT JOIN (
            SELECT unnest(CAST(:others AS text[])) AS other,
                unnest(CAST(:factors AS bigint[])) AS factor,
                unnest(CAST(:largest AS bigint[])) AS largest
        ) AS x ON x.other = r.currency
        WHERE event = ANY(:sources) AND (currency = :currency OR x.factor IS NOT NULL)
          AND amount <> 0 {_has_values(metric.where, "attributes")}
    ) AS priced
"""


def _sizes(values: str) -> str:
    shares = ((f"percentile_{percent}", percent * MILLION // 100) for percent in (50, 95, 99))
    return f"""
SELECT count(*) FILTER (WHERE vouched) AS vouched, count(*) FILTER (WHERE NOT vouched) AS unvouched,
    {_quantiles(shares, "size")}
FROM (
    SELECT vouched, abs(value) AS size, row_number() OVER (ORDER BY abs(value)) AS place,
        count(*) OVER () AS total
    FROM ({values}) AS earlier
) AS ranked
"""


def _quantiles(shares: Iterable[tuple[str, int]], value: str) -> str:
    """Returns columns of values of which so many millionths of all are no larger, by name."""
    return ", ".join(
        f"min({value}) FILTER (WHERE place * {MILLION} >= total * {share}) AS {name}"
        for name, share in shares
    )


def _first_of_each(values: str) -> str:
    return f"""
    SELECT DISTINCT ON (sender) value, vouched FROM ({values}) AS valued
    ORDER BY sender, occurred, received, value, vouched
"""


def _valued(metric: FrozenMetric) -> dict[str, object]:
    """Returns the parameters of `_values` for a mean, but for its days and its senders."""
    return {
        "sources": list(metric.sources),
        "currency": metric.currency,
        "others": list(metric.factors),
        "factors": list(metric.factors.values()),
        "largest": [
            min(_LARGEST, LARGEST_AMOUNT * RATE_SCALE // factor)
            for factor in metric.factors.values()
        ],
        **_asked(metric),
    }


def _asked(metric: FrozenMetric) -> dict[str, object]:
    values = (metric.where or {}).values()
    return {f"asked_{number}": list(each) for number, each in enumerate(values)}


def cap_of(events: PastEvents, metric: FrozenMetric, *, before: datetime) -> int | None:
    """Returns the cap of a metric's values before the start, in millionths; None of too few.

    That is the 99th percentile of the values that are not zero; where these are fewer than a
    thousand the larger of twenty times their median and their 95th percentile. Without a cap a
    single extreme value hides the effect on all others.
    """
    values = _values(metric)
    every = (
        [_sizes(values)]
        if metric.vouched_only
        else [_sizes(values), _sizes(_first_of_each(values))]
    )
    row, since = events.vouched_first(every, _valued(metric), before=before, enough=_FEW_VALUES)
    count = users_of(row)
    if count < _FEW_VALUES:
        return None
    events.note("cap", row, since, before, metric=metric.name)
    if count >= _MANY_VALUES:
        return row.percentile_99
    return max(_MEDIANS * row.percentile_50, row.percentile_95)


def _explained(metric: FrozenMetric) -> str:
    """Returns SQL for sums of users before and after a time, with how many users had them.

    The users are those that an experiment would have met that began at `split`; the later sums
    come from then on.
    """
    return f"""
WITH met AS (
    SELECT pseudonym, min(occurred) AS met_at, bool_or(trusted) AS vouched
    FROM <events from :split until :met_until> AS e
    WHERE pseudonym IS NOT NULL AND (trusted OR NOT :trusted_only)
    GROUP BY pseudonym
), users AS (
    SELECT bool_and(met.vouched AND coalesce(valued.vouched, true)) AS vouched,
        coalesce(sum(capped) FILTER (WHERE received < :split), 0) AS earlier,
        coalesce(sum(capped) FILTER (
            WHERE received >= :split AND occurred BETWEEN met_at AND met_at + :window
        ), 0) AS later
    FROM met LEFT JOIN (
        SELECT *, greatest(least(value, :cap), -:cap) AS capped FROM ({_values(metric)}) AS valued
    ) AS valued USING (pseudonym)
    GROUP BY pseudonym
)
SELECT earlier, later, count(*) FILTER (WHERE vouched) AS vouched,
    count(*) FILTER (WHERE NOT vouched) AS unvouched
FROM users GROUP BY earlier, later
"""


class _HistoryRow(NamedTuple):
    """How many users there were, and sums that an engine's 128 bits may be too few for."""

    vouched: int
    unvouched: int
    sums: Sequence[int]


def _added(rows: Sequence[Row[Any]]) -> _HistoryRow:
    each = [(users_of(row), int(row.earlier), int(row.later)) for row in rows]
    powers = ((1, 0), (0, 1), (2, 0), (0, 2), (1, 1))
    sums = [sum(users * x**i * y**j for users, x, y in each) for i, j in powers]
    return _HistoryRow(sum(row.vouched for row in rows), sum(row.unvouched for row in rows), sums)


class HistorySums(NamedTuple):
    """Exact sums over users, in decimal digits: they may need more than 64 bits."""

    users: int
    x: str
    y: str
    xx: str
    yy: str
    xy: str

    @property
    def predicts(self) -> bool:
        """Whether the earlier of enough users explains enough of the later."""
        users, (x, y, xx, yy, xy) = self.users, map(int, self[1:])
        spread = (users * xx - x * x) * (users * yy - y * y)
        explained = (users * xy - x * y) ** 2 / spread if spread else 0.0
        return users >= _FEW_USERS and explained >= _LEAST_EXPLAINED


def history_of(
    events: PastEvents, metric: FrozenMetric, *, before: datetime, trusted_only: bool
) -> HistorySums:
    """Returns the sums of what users did before and after a time in the 28 days before the start.

    Those of a metric, which tell by themselves whether the earlier predict the later.
    """
    since, window = before - HISTORY_DAYS, timedelta(seconds=metric.window_seconds)
    reading = _explained(metric)
    chosen = {**_valued(metric), "window": window, "cap": cap_in_millionths(metric.cap or 0)}

    def read(days: timedelta, *, vouched_only: bool) -> _HistoryRow:
        split = before - window - days
        asked = {"since": since, "before": before, "split": split, "met_until": split + days}
        rows = events.rows(
            reading,
            **chosen,
            **asked,
            vouched_only=vouched_only or metric.vouched_only,
            trusted_only=vouched_only or trusted_only,
        )
        return _added(rows)

    def newest(*, vouched_only: bool) -> _HistoryRow:
        spans = (read(timedelta(days=days), vouched_only=vouched_only) for days in (1, 7))
        return first_enough(spans, lambda read: users_of(read) >= _MANY_USERS)

    readings = (newest(vouched_only=each) for each in (True, False))
    history = first_enough(readings, lambda read: read.vouched >= _FEW_USERS)
    users = HistorySums(users_of(history), *map(str, history.sums))
    if users.predicts:
        events.note("history", history, since, before, metric=metric.name)
    return users


_SENDS_REQUESTS = f"""
SELECT 1 AS request FROM {EVENTS} AS e WHERE event = :event AND value IS NOT NULL AND trusted
LIMIT 1
"""


def sends_requests(events: PastEvents, event: str, *, at: datetime) -> bool:
    """Tells whether a server's spans came within the hour before: with the write key, as all do."""
    before = min(at, events.past.until)
    since = before - timedelta(hours=1)
    return bool(events.rows(_SENDS_REQUESTS, event=event, since=since, before=before))


def _first_values(metric: FrozenMetric, shares: Iterable[tuple[str, int]]) -> str:
    """Returns SQL for the quantiles of units' first values, and how many units exceed each."""
    shares = list(shares)
    above = [(f"above_{name}", share) for name, share in shares]
    return f"""
SELECT count(*) FILTER (WHERE vouched) AS vouched, count(*) FILTER (WHERE NOT vouched) AS unvouched,
    {_quantiles(shares, "value")},
    {_quantiles(above, "above").replace("min(above)", "max(above)")}
FROM (
    SELECT value, vouched, row_number() OVER (ORDER BY value) AS place, count(*) OVER () AS total,
        rank() OVER (ORDER BY value DESC) - 1 AS above
    FROM (
        SELECT DISTINCT ON (unit) value, vouched
        FROM (
            SELECT CASE WHEN :by_user THEN pseudonym ELSE session_id END AS unit, value, occurred,
                received, trusted OR signed AS vouched
            FROM {EVENTS} AS e
            WHERE event = ANY(:sources) AND value IS NOT NULL
              AND (trusted OR (signed AND NOT :trusted_only) OR NOT :vouched_only)
              {_has_values(metric.where, "properties")}
        ) AS valued
        WHERE unit IS NOT NULL
        ORDER BY unit, occurred, received, value, vouched
    ) AS firsts
) AS ranked
"""


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """The first values of units before the start.

    Attributes:
        values: In millionths, a quantile each.
        exceeding: How many units exceeded each of them.
    """

    units: int
    values: Sequence[int]
    exceeding: Sequence[int]


def first_values(
    events: PastEvents,
    metric: FrozenMetric,
    quantiles: Sequence[str],
    *,
    by_user: bool,
    before: datetime,
) -> Quantiles:
    """Returns the quantiles of a metric's first values of units, in the days before the start.

    Those of a server's spans are read by the write key alone, with which all spans come.
    """
    asked = {
        "sources": list(metric.sources),
        "by_user": by_user,
        "trusted_only": metric.trusted_only,
        **_asked(metric),
    }
    names = {
        f"value_{number}": round(quantile_share(quantile) * MILLION)
        for number, quantile in enumerate(quantiles)
    }
    reading = _first_values(metric, names.items())
    is_vouched = metric.trusted_only or metric.vouched_only
    row, since = events.vouched_first(
        [reading] if is_vouched else [reading] * 2, asked, before=before, enough=FEWEST_UNITS
    )
    units = users_of(row)
    if units >= FEWEST_UNITS:
        events.note("thresholds", row, since, before, metric=metric.name)
    values, exceeding = (
        [getattr(row, f"{of}{name}") for name in names if units] for of in ("", "above_")
    )
    return Quantiles(units=units, values=values, exceeding=exceeding)


_ROUTES_SEEN = f"""
SELECT route, count(DISTINCT session_id) AS sessions,
    count(DISTINCT session_id) FILTER (WHERE trusted) AS vouched,
    count(DISTINCT session_id) FILTER (WHERE NOT trusted) AS unvouched
FROM {EVENTS} AS e WHERE route IS NOT NULL
GROUP BY GROUPING SETS ((route), ())
"""


def affected_routes(
    events: PastEvents, table: RouteTable, affected: Sequence[str], *, since: datetime
) -> list[str]:
    """Returns the affected routes that events have named of late.

    A route that the write key never named needs 1 in 100 of the sessions: a stranger's few would
    leave an experiment to a route that nobody visits.
    """
    since -= _ROUTES_SEEN_WITHIN
    rows = events.rows(_ROUTES_SEEN, since=since)
    (total,) = (row for row in rows if row.route is None)
    seen: Counter[str | None] = Counter()
    for row in rows:
        if row.route is not None:
            seen[table.match(row.route)] += total.sessions if row.vouched else row.sessions
    floor = max(1, total.sessions)
    named = [each for each in affected if seen[canonical_route(each)] * 100 >= floor]
    if named:
        events.note("routes", total, since, events.past.until, metric=None)
    return sorted(named)


# --- The router: whether it keeps visitors or draws each session ---------------------------------

# How far back sessions are read, until enough visitors have come back. A longer span that would
# have more sessions than these is not read, so that nobody who asks waits for long.
_ROUTER_SPANS = (*(timedelta(hours=hours) for hours in (1, 24, 7 * 24, 28 * 24)), timedelta.max)
_MOST_SESSIONS = 200_000
_NEVER = 2**62

# Of the users whose first session after a deploy was of the second largest build, those who began
# a second before the next deploy, and how many of those kept the build. Where no share is declared
# a second build is what browsers kept of an earlier release, and nobody draws.
_RETURNED = f"""
WITH sessions AS (
    SELECT session_id, min(occurred) AS began,
        (array_agg(commit_sha ORDER BY occurred, commit_sha))[1] AS build,
        (array_agg(pseudonym ORDER BY occurred, pseudonym) FILTER (
            WHERE pseudonym IS NOT NULL AND (trusted OR NOT :trusted_only)
        ))[1] AS pseudonym,
        coalesce(bool_or(trusted) FILTER (WHERE pseudonym IS NOT NULL), false) AS vouched
    FROM {EVENTS} AS e WHERE commit_sha IS NOT NULL
    GROUP BY session_id
), steps AS (
    SELECT commit_sha, is_shared, epoch, lead(epoch, 1, {_NEVER}) OVER (ORDER BY step) AS ends,
        lead(epoch, 1, {_NEVER}) OVER (PARTITION BY commit_sha ORDER BY step) AS changed
    FROM (
        SELECT unnest(CAST(:commits AS text[])) AS commit_sha,
            unnest(CAST(:shared AS boolean[])) AS is_shared,
            unnest(CAST(:epochs AS bigint[])) AS epoch, unnest(CAST(:steps AS bigint[])) AS step
    ) AS deployed
), drawn AS (
    SELECT s.epoch, v.build, v.pseudonym, v.vouched,
        lead(v.build) OVER visits AS next_build, row_number() OVER visits AS visit
    FROM sessions AS v JOIN steps AS s ON v.began >= s.epoch AND v.began < s.ends
    WHERE EXISTS (
        SELECT 1 FROM steps AS c
        WHERE c.epoch <= s.epoch AND c.changed > s.epoch AND c.is_shared
    )
    WINDOW visits AS (
        PARTITION BY s.epoch, v.pseudonym ORDER BY v.began, v.session_id COLLATE "C"
    )
), builds AS (
    SELECT epoch, build, count(*) AS came, sum(count(*)) OVER (PARTITION BY epoch) AS all_came,
        row_number() OVER (PARTITION BY epoch ORDER BY count(*) DESC, build) AS place
    -- A stranger's sessions of any build would make another the second.
    FROM drawn WHERE vouched OR NOT :trusted_only GROUP BY epoch, build
)
SELECT (SELECT count(*) FROM sessions) AS sessions,
    (SELECT count(pseudonym) FROM sessions) AS named,
    count(*) FILTER (WHERE d.vouched) AS vouched,
    count(*) FILTER (WHERE NOT d.vouched) AS unvouched,
    count(*) FILTER (WHERE d.next_build = d.build) AS kept,
    -- Whole, so that an engine that divides by way of doubles is exact.
    coalesce(sum(CAST(
        (b.came * {MILLION} - b.came * {MILLION} % b.all_came) / b.all_came AS bigint
    )), 0) AS expected
FROM drawn AS d JOIN builds AS b USING (epoch, build)
WHERE b.place = 2 AND d.visit = 1 AND d.pseudonym IS NOT NULL AND d.next_build IS NOT NULL
"""
_STEPS = text("""
SELECT commit_sha, coalesce(allocation > 0 AND allocation < 1, false) AS is_shared, deployed_at
FROM deploys
WHERE project_id = :project_id AND environment = :environment AND recorded_at <= :until
  AND (withdrawn_at IS NULL OR withdrawn_at > :until)
ORDER BY deployed_at, recorded_at, deploy_id
""")


def read_returning(events: PastEvents, settings: Settings) -> ReturningVisitors:
    """Returns the visitors who came back in the last 28 days, or in fewer if many did.

    The write key tells who they are where it tells of enough: anybody can name users with the
    public key.
    """
    until = events.past.until
    deployed = events.stored(_STEPS, until=until)
    steps = {
        "commits": [step.commit_sha for step in deployed],
        "shared": [step.is_shared for step in deployed],
        "epochs": [(step.deployed_at - EPOCH) // MICROSECOND for step in deployed],
        "steps": list(range(len(deployed))),
    }

    def read(span: timedelta, *, trusted_only: bool) -> tuple[Row[Any], datetime]:
        since = until - span
        (row,) = events.rows(_RETURNED, **steps, trusted_only=trusted_only, since=since)
        return row, since

    def newest(*, trusted_only: bool) -> tuple[ReturningVisitors, Row[Any], datetime]:
        spans = (
            (*read(span, trusted_only=trusted_only), longer / span)
            for span, longer in pairwise(_ROUTER_SPANS)
        )
        row, since, _ = first_enough(
            spans,
            lambda each: (
                users_of(each[0]) >= MANY_RETURNING or each[0].sessions * each[2] > _MOST_SESSIONS
            ),
        )
        counts = {"sessions": row.sessions, "named": row.named, "kept": row.kept}
        expected = int(row.expected) / MILLION
        returning = ReturningVisitors(
            users=users_of(row), expected=expected, vouched=trusted_only, **counts
        )
        return returning, row, since

    returning, row, since = first_enough(
        (
            newest(trusted_only=each)
            for each in ((True,) if settings.trusted_identity else (True, False))
        ),
        lambda each: each[0].users >= MANY_RETURNING and each[0].unit is not None,
    )
    if returning.unit is not None:
        events.note("unit", row, since, until, metric=None)
    return returning


# --- The start: the first event of a flag, and the first look that somebody could have had -------

_FIRST_FLAGGED = f"""
SELECT min(occurred) AS occurred, count(*) FILTER (WHERE trusted OR signed) AS vouched,
    count(*) FILTER (WHERE NOT (trusted OR signed)) AS unvouched
FROM {EVENTS} AS e
WHERE occurred >= :since AND {compared_value(FLAG)} IN (:treatment, :spelled)
  AND (trusted OR signed OR NOT :vouched_only)
"""


def first_flagged(
    events: PastEvents, flag: Flag, *, since: datetime, signed_only: bool
) -> datetime | None:
    """Returns when a flag was first on; None where it never was."""
    treatment, spelled = spellings(flag.treatment)
    asked = {"flag": flag.name, "treatment": treatment, "spelled": spelled}
    first = first_enough(
        (
            events.rows(_FIRST_FLAGGED, since=since, vouched_only=each, **asked)[0]
            for each in ((True,) if signed_only else (True, False))
        ),
        lambda row: row.vouched > 0,
    )
    if first.occurred is None:
        return None
    events.note("start", first, since, events.past.until, metric=None)
    return EPOCH + first.occurred * MICROSECOND


# What closes later is not asked: so whenever it is read, it is the same.
_FIRST_CLOSING = text("""
SELECT min(closed_at) AS closed_at FROM (
    SELECT closed_at, sum(sum(sessions)) OVER (ORDER BY block) AS units
    FROM seen_commits
    WHERE project_id = :project_id AND environment = :environment
      AND block > CAST(:since AS timestamptz) - interval '5 minutes' AND closed_at < :until
    GROUP BY block, closed_at
) AS seen WHERE units >= :enough
""")
_IS_ANY = f"SELECT 1 AS event FROM {EVENTS} AS e LIMIT 1"


def first_closing(
    events: PastEvents, *, since: datetime, enough: int, longest: timedelta
) -> datetime | None:
    """Returns when the first analysis block closed since a time; None where that is still open.

    It waits for so many units, and no longer than a time. Where no event came nobody could look.
    """
    until, latest = events.past.until, since + longest
    ((closed_at,),) = events.stored(_FIRST_CLOSING, since=since, enough=enough, until=until)
    if latest < min(until, closed_at or until):
        before = latest + MICROSECOND
        if events.rows(_IS_ANY, since=since, before=before):
            return latest
    return closed_at
