"""Readings of the past log: unit, caps, thresholds, history and routes that a policy freezes.

Anybody can send events with the public key. So each member is read from vouched events, which came
with the write key or signed by the router, wherever these are enough; else from all events, of a
mean the first of each session, and the policy says so (`read_from`). Numbers are whole millionths,
and sums are exact, so that every engine reads the same.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Row, TextClause, text

from domain.cause import MANY_RETURNING
from domain.checklist.setup import ReturningVisitors
from domain.currency import RATE_SCALE
from domain.metric import FrozenMetric, quantile_share
from domain.millionths import LARGEST_AMOUNT, MILLION, cap_in_millionths
from domain.policy import FrozenAnswer, FrozenSource, Member
from domain.route import RouteTable, canonical_route
from storage.experiments.policy import FEWEST_UNITS, Quantiles
from storage.schema.encoding import on_our_clock
from storage.schema.past_log import PastLog, UnansweredError
from storage.tenants.settings import Settings, Unit

ReadT = TypeVar("ReadT")

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


@dataclass(frozen=True, kw_only=True)
class PastEvents:
    """The events of an environment that a policy is frozen from.

    Attributes:
        kept: The answers that a policy kept, in order, to freeze it again; None to read the log.
        answers: Receives each answer.
    """

    past: PastLog
    project_id: int
    environment: str
    kept: Iterator[FrozenAnswer] | None = None
    answers: list[FrozenAnswer] = field(default_factory=list[FrozenAnswer])
    _days: list[datetime] = field(default_factory=list[datetime])
    _noted: list[FrozenSource] = field(default_factory=list[FrozenSource])

    def rows(self, statement: TextClause, **parameters: Any) -> Sequence[Row[Any]]:  # noqa: ANN401 - of SQL
        """Returns the rows of a statement on this environment, received within some days."""
        asked = {"before": self.past.until, "since": self.past.until, **parameters}
        self._days.extend((asked["since"], asked["before"]))
        place = {"project_id": self.project_id, "environment": self.environment}
        return self.past.rows(statement, {**place, **asked})

    def answered(
        self, question: str, read: Callable[[], ReadT], *, default: ReadT, kind: object
    ) -> ReadT:
        """Returns what a reading gives for a member, else its default, and keeps it.

        Args:
            kind: The type of the answer.
        """
        answer = self._read(question, read, default) if self.kept is None else next(self.kept)
        self.answers.append(answer)
        return msgspec.convert(answer.answer, kind)  # pyright: ignore[reportCallIssue, reportArgumentType] - of its kind

    def _read(self, question: str, read: Callable[[], ReadT], default: ReadT) -> FrozenAnswer:
        self._days.clear()
        self._noted.clear()
        try:
            value, is_default = read(), False
        except UnansweredError:
            value, is_default = default, True
        return FrozenAnswer(
            question=question,
            answer=msgspec.to_builtins(value),
            read_from=next(iter(self._noted), None),
            is_default=is_default,
            since=min(self._days, default=None),
            until=max(self._days, default=None),
        )

    def vouched_first(
        self,
        statements: Sequence[TextClause],
        parameters: Mapping[str, Any],
        *,
        before: datetime,
        enough: int,
    ) -> tuple[Row[Any], datetime]:
        """Returns a row of vouched events, of all where these are too few, and since when."""

        def read(statement: TextClause, *, vouched_only: bool) -> tuple[Row[Any], datetime]:
            chosen = {**parameters, "vouched_only": vouched_only, "before": before}
            spans = (
                (self.rows(statement, **chosen, since=before - span)[0], before - span)
                for span in _SPANS
            )
            return first_enough(spans, lambda each: users_of(each[0]) >= _PLENTY)

        readings = (
            read(statement, vouched_only=number == 0) for number, statement in enumerate(statements)
        )
        return first_enough(readings, lambda each: each[0].vouched >= enough)

    def note(self, member: Member, row: Row[Any], *days: datetime, metric: str | None) -> None:
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


def users_of(row: Row[Any]) -> int:
    """Returns how many users, sessions or values a row counts, whoever sent them."""
    return row.vouched + row.unvouched


def has_values(properties: str, asked: str = "CAST(:asked AS jsonb)") -> str:
    """Returns SQL for whether an event has the values of properties that a metric asks for."""
    return f"""NOT EXISTS (
    SELECT FROM jsonb_each({asked}) AS a
    WHERE NOT coalesce(a.value ? ({properties} ->> a.key), false)
)"""


_AT = on_our_clock("runtime_events")
_AMOUNT = f"div(amount_value::numeric * coalesce(x.factor, {RATE_SCALE}), {RATE_SCALE // MILLION})"
_VALUES = f"""
    SELECT pseudonym, session_id AS sender, {_AT} AS occurred_at, received_at, value,
        trusted OR signed AS vouched
    FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND event = ANY(:sources)
      AND received_at >= :since AND received_at < :before AND value <> 0
      AND (trusted OR signed OR NOT :vouched_only) AND {has_values("properties")}
    UNION ALL
    SELECT pseudonym, idempotency_key, occurred_at, received_at, CAST(
        greatest(least({_AMOUNT}, {LARGEST_AMOUNT * MILLION}), {-LARGEST_AMOUNT * MILLION})
        AS bigint
    ), true
    FROM revenue_events
    LEFT JOIN unnest(CAST(:others AS text[]), CAST(:factors AS bigint[])) AS x (currency, factor)
      ON x.currency = amount_currency
    WHERE project_id = :project_id AND event = ANY(:sources)
      AND (amount_currency = :currency OR x.factor IS NOT NULL)
      AND received_at >= :since AND received_at < :before AND amount_value <> 0
      AND {has_values("attributes")}
"""


def _sizes(values: str) -> TextClause:
    return text(f"""
SELECT count(*) FILTER (WHERE vouched) AS vouched, count(*) FILTER (WHERE NOT vouched) AS unvouched,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY abs(value)) AS percentiles
FROM ({values}) AS earlier
""")


_CAP = (
    _sizes(_VALUES),
    _sizes(f"""
    SELECT DISTINCT ON (sender) value, vouched FROM ({_VALUES}) AS valued
    ORDER BY sender, occurred_at, received_at, value
"""),
)


def _valued(metric: FrozenMetric) -> dict[str, Any]:
    """Returns the parameters of `_VALUES` for a mean, but for its days and its senders."""
    return {
        "sources": list(metric.sources),
        "currency": metric.currency,
        "asked": json.dumps(metric.where or {}),
        "others": list(metric.factors),
        "factors": list(metric.factors.values()),
    }


def cap_of(events: PastEvents, metric: FrozenMetric, *, before: datetime) -> int | None:
    """Returns the cap of a metric's values before the start, in millionths; None of too few.

    That is the 99th percentile of the values that are not zero; where these are fewer than a
    thousand the larger of twenty times their median and their 95th percentile. Without a cap a
    single extreme value hides the effect on all others.
    """
    statements = _CAP[:1] if metric.vouched_only else _CAP
    row, since = events.vouched_first(
        statements, _valued(metric), before=before, enough=_FEW_VALUES
    )
    values = users_of(row)
    if values < _FEW_VALUES:
        return None
    events.note("cap", row, since, before, metric=metric.name)
    median, percentile_95, percentile_99 = row.percentiles
    if values >= _MANY_VALUES:
        return percentile_99
    return max(_MEDIANS * median, percentile_95)


_EXPLAINED = text(f"""
-- Users as an experiment would have met them that began at :split, what they brought from then on,
-- and what before.
WITH met AS (
    SELECT pseudonym, min({_AT}) AS met_at, bool_or(trusted) AS vouched FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND pseudonym IS NOT NULL
      AND (trusted OR NOT :trusted_only) AND received_at >= :split AND received_at < :met_until
    GROUP BY pseudonym
), users AS (
    SELECT bool_and(met.vouched AND coalesce(valued.vouched, true)) AS vouched,
        coalesce(sum(capped) FILTER (WHERE received_at < :split), 0) AS earlier,
        coalesce(sum(capped) FILTER (
            WHERE received_at >= :split AND occurred_at BETWEEN met_at AND met_at + :window
        ), 0) AS later
    FROM met LEFT JOIN (
        SELECT *, greatest(least(value, :cap), -:cap) AS capped FROM ({_VALUES}) AS valued
    ) AS valued USING (pseudonym)
    GROUP BY pseudonym
)
SELECT count(*) FILTER (WHERE vouched) AS vouched, count(*) FILTER (WHERE NOT vouched) AS unvouched,
    sum(earlier) AS x, sum(later) AS y, sum(earlier * earlier) AS xx, sum(later * later) AS yy,
    sum(earlier * later) AS xy
FROM users
""")


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
    chosen = {**_valued(metric), "window": window, "cap": cap_in_millionths(metric.cap or 0)}

    def read(days: timedelta, *, vouched_only: bool) -> Row[Any]:
        split = before - window - days
        asked = {"since": since, "before": before, "split": split, "met_until": split + days}
        (row,) = events.rows(
            _EXPLAINED,
            **chosen,
            **asked,
            vouched_only=vouched_only or metric.vouched_only,
            trusted_only=vouched_only or trusted_only,
        )
        return row

    def newest(*, vouched_only: bool) -> Row[Any]:
        spans = (read(timedelta(days=days), vouched_only=vouched_only) for days in (1, 7))
        return first_enough(spans, lambda row: users_of(row) >= _MANY_USERS)

    readings = (newest(vouched_only=each) for each in (True, False))
    row = first_enough(readings, lambda row: row.vouched >= _FEW_USERS)
    sums = (str(getattr(row, name) or 0) for name in ("x", "y", "xx", "yy", "xy"))
    users = HistorySums(users_of(row), *sums)
    if users.predicts:
        events.note("history", row, since, before, metric=metric.name)
    return users


_SENDS_REQUESTS = text("""
SELECT FROM runtime_events
WHERE project_id = :project_id AND environment = :environment AND event = :event
  AND received_at >= :since AND received_at < :before AND value IS NOT NULL AND trusted
LIMIT 1
""")


def sends_requests(events: PastEvents, event: str, *, at: datetime) -> bool:
    """Tells whether a server's spans came within the hour before: with the write key, as all do."""
    before = min(at, events.past.until)
    since = before - timedelta(hours=1)
    return bool(events.rows(_SENDS_REQUESTS, event=event, since=since, before=before))


_FIRST_VALUES = text(f"""
WITH firsts AS (
    SELECT DISTINCT ON (unit) value, vouched
    FROM (
        SELECT CASE WHEN :by_user THEN encode(pseudonym, 'hex') ELSE session_id END AS unit, value,
            {_AT} AS occurred_at, received_at, trusted OR signed AS vouched
        FROM runtime_events
        WHERE project_id = :project_id AND environment = :environment AND event = ANY(:sources)
          AND received_at >= :since AND received_at < :before AND value IS NOT NULL
          AND (trusted OR (signed AND NOT :trusted_only) OR NOT :vouched_only)
          AND {has_values("properties")}
    ) AS valued
    WHERE unit IS NOT NULL
    ORDER BY unit, occurred_at, received_at, value
), frozen AS (
    SELECT count(*) FILTER (WHERE vouched) AS vouched,
        count(*) FILTER (WHERE NOT vouched) AS unvouched,
        percentile_disc(CAST(:shares AS float[])) WITHIN GROUP (ORDER BY value) AS values
    FROM firsts
)
SELECT vouched, unvouched, values, ARRAY(
    SELECT (SELECT count(*) FROM firsts AS f WHERE f.value > v.value)
    FROM unnest(values) WITH ORDINALITY AS v (value, place) ORDER BY place
) AS exceeding
FROM frozen
""")


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
        "asked": json.dumps(metric.where or {}),
        "shares": [quantile_share(quantile) for quantile in quantiles],
        "trusted_only": metric.trusted_only,
    }
    is_vouched = metric.trusted_only or metric.vouched_only
    row, since = events.vouched_first(
        [_FIRST_VALUES] if is_vouched else [_FIRST_VALUES] * 2,
        asked,
        before=before,
        enough=FEWEST_UNITS,
    )
    units = users_of(row)
    if units >= FEWEST_UNITS:
        events.note("thresholds", row, since, before, metric=metric.name)
    return Quantiles(units=units, values=row.values or (), exceeding=row.exceeding)


_ROUTES_SEEN = text("""
SELECT route, count(DISTINCT session_id) AS sessions,
    count(DISTINCT session_id) FILTER (WHERE trusted) AS vouched,
    count(DISTINCT session_id) FILTER (WHERE NOT trusted) AS unvouched
FROM runtime_events
WHERE project_id = :project_id AND environment = :environment AND route IS NOT NULL
  AND received_at >= :since AND received_at < :until
GROUP BY GROUPING SETS ((route), ())
""")


def affected_routes(
    events: PastEvents, table: RouteTable, affected: Sequence[str], *, since: datetime
) -> list[str]:
    """Returns the affected routes that events have named of late.

    A route that the write key never named needs 1 in 100 of the sessions: a stranger's few would
    leave an experiment to a route that nobody visits.
    """
    since -= _ROUTES_SEEN_WITHIN
    rows = events.rows(_ROUTES_SEEN, since=since, until=events.past.until)
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

# Of the users whose first session after a deploy was of the second largest build, those who began
# a second before the next deploy, and how many of those kept the build. Where no share is declared
# a second build is what browsers kept of an earlier release, and nobody draws.
_RETURNED = text(f"""
WITH sessions AS (
    SELECT session_id, min({_AT}) AS began,
        (array_agg(commit_sha ORDER BY {_AT}, commit_sha))[1] AS build,
        (array_agg(pseudonym ORDER BY {_AT}, pseudonym) FILTER (
            WHERE pseudonym IS NOT NULL AND (trusted OR NOT :trusted_only)
        ))[1] AS pseudonym,
        coalesce(bool_or(trusted) FILTER (WHERE pseudonym IS NOT NULL), false) AS vouched
    FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND commit_sha IS NOT NULL
      AND received_at >= :since AND received_at < :before
    GROUP BY session_id
), steps AS (
    SELECT commit_sha, allocation, deployed_at AS epoch,
        lead(deployed_at, 1, 'infinity') OVER (ORDER BY deployed_at, recorded_at) AS ends,
        lead(deployed_at, 1, 'infinity') OVER (
            PARTITION BY commit_sha ORDER BY deployed_at, recorded_at
        ) AS changed
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
), drawn AS (
    SELECT s.epoch, v.build, v.pseudonym, v.vouched,
        lead(v.build) OVER visits AS next_build, row_number() OVER visits AS visit
    FROM sessions AS v JOIN steps AS s ON v.began >= s.epoch AND v.began < s.ends
    WHERE EXISTS (
        SELECT FROM steps AS c
        WHERE c.epoch <= s.epoch AND c.changed > s.epoch AND c.allocation > 0 AND c.allocation < 1
    )
    WINDOW visits AS (PARTITION BY s.epoch, v.pseudonym ORDER BY v.began, v.session_id)
), builds AS (
    SELECT epoch, build, count(*) AS came, sum(count(*)) OVER (PARTITION BY epoch) AS all_came,
        row_number() OVER (PARTITION BY epoch ORDER BY count(*) DESC, build) AS place
    FROM drawn GROUP BY epoch, build
)
SELECT (SELECT count(*) FROM sessions) AS sessions,
    (SELECT count(pseudonym) FROM sessions) AS named,
    count(*) FILTER (WHERE d.vouched) AS vouched,
    count(*) FILTER (WHERE NOT d.vouched) AS unvouched,
    count(*) FILTER (WHERE d.next_build = d.build) AS kept,
    coalesce(sum(div(b.came * {MILLION}, b.all_came)), 0) AS expected
FROM drawn AS d JOIN builds AS b USING (epoch, build)
WHERE b.place = 2 AND d.visit = 1 AND d.pseudonym IS NOT NULL AND d.next_build IS NOT NULL
""")


def read_returning(events: PastEvents, settings: Settings) -> ReturningVisitors:
    """Returns the visitors who came back in the last 28 days, or in fewer if many did.

    The write key tells who they are where it tells of enough: anybody can name users with the
    public key.
    """
    until = events.past.until

    def read(span: timedelta, *, trusted_only: bool) -> tuple[Row[Any], datetime]:
        since = until - span
        (row,) = events.rows(_RETURNED, trusted_only=trusted_only, since=since, before=until)
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


def fitting_unit(events: PastEvents, settings: Settings, *, is_history: bool) -> Unit:
    """Returns the unit that an experiment counts: the project's, or by `auto` the router's.

    Args:
        is_history: Whether history is bound, whose sessions are units: an import counts them
            before any router can be read of it.
    """
    if settings.unit != "auto":
        return settings.unit
    # A token vouches for a session, and a sample takes whole sessions.
    if settings.signed_assignments or settings.sample_rate < 1 or is_history:
        return "session"
    nobody = ReturningVisitors()
    returning = events.answered(
        "unit", lambda: read_returning(events, settings), default=nobody, kind=ReturningVisitors
    )
    return returning.unit or "session"
