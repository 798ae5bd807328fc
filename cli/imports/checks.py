"""The checks of a query's rows: the reader of `POST /v1/events` reads each, units have an arm."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from api.wire.event_batch import MOST_EVENTS, EventReader
from api.wire.problem import Fault, Problem
from cli.imports.faults import ImportFailedError, RowError, name_list
from cli.imports.query import ARM, QueryResult, literal
from storage.log.events import EventLines, event_lines

# Results of more rows hold no totals of days.
_MOST_TOTALS = 10_000
_FEWEST_DAYS = 3
# How many of the pairs of an arm and a day have a row, where rows are their totals.
_NEARLY_ALL = 0.9
# Rules of members in words, in place of the reader's patterns.
_RULES: Mapping[str, str] = {
    "event": "an event's name has 1 to 128 characters",
    "session_id": "a session_id has 1 to 128 characters",
    "occurred_at": "is no time: cast the column to TIMESTAMPTZ in the query",
    "commit": "a commit has 7 to 64 hexadecimal digits, as for POST /v1/deploys",
    "route": "a route has 1 to 512 characters",
    "environment": "an environment has 1 to 64 characters",
    "user_ref": "a user_ref has 1 to 256 characters",
    "event_id": "an event_id has 1 to 64 characters",
    "value": "is no number: cast the column to DOUBLE in the query",
    "flags": "flags are at most 200 names, each with a text or with true or false",
    "properties": "properties are a JSON object",
}


class EventChecks:
    """Holds the rows of a query to the rules of the API."""

    def __init__(self, reader: EventReader) -> None:
        self.ignored: set[str] = set()
        self.unknown: Counter[str] = Counter()
        self._reader = reader

    def checked(self, result: QueryResult) -> Iterator[EventLines]:
        """Yields the events of a query in batches.

        Raises:
            RowError: A row breaks a rule; its number, the member and the value are named.
        """
        for rows, events in result.batches():
            for begin in range(0, len(rows), MOST_EVENTS):
                yield self._read(rows[begin:], events[begin : begin + MOST_EVENTS])

    def _read(self, rows: Sequence[int], events: Sequence[str]) -> EventLines:
        body = f'{{"events":[{",".join(events)}]}}'.encode()
        by_column = self._reader.columns(body)
        if by_column is not None:
            columns, unknown = by_column
            self.unknown += unknown
            return columns.lines(history=True)
        try:
            read = self._reader.batch(body)
        except Problem as problem:
            detail = problem.detail.removeprefix("the body ")
            raise ImportFailedError(f"row {rows[0]} or a row soon after it: {detail}") from None
        if read.rejected:
            first = read.rejected[0]
            raise _refusal(rows[first.index], events[first.index], first.faults[0])
        self.ignored |= read.ignored
        self.unknown += read.unknown
        return event_lines(read.events, history=True)

    def notes(self) -> list[str]:
        """Returns which members were ignored, and which said nothing, as sentences."""
        notes = [
            f"{count:,} of {member} say nothing, such as `undefined`: their events count without."
            for member, count in self.unknown.items()
        ]
        if self.ignored:
            notes.append(
                f"Members that no event has were ignored: {name_list(sorted(self.ignored))}."
            )
        return notes


def _refusal(row: int, event: str, fault: Fault) -> RowError:
    """Returns a refusal of the API's reader as the fault of a row."""
    member = "/".join(fault.at.split("/")[3:]) or "event"
    document = msgspec.json.decode(event)
    value = document.get(member) if isinstance(document, dict) else document
    is_known = fault.code == "invalid_member"
    return RowError(
        row, member, value, _RULES.get(member, fault.detail) if is_known else fault.detail
    )


def counted_arms(
    result: QueryResult, commits: Mapping[str, str]
) -> tuple[Counter[str], Counter[str]]:
    """Returns the rows of each arm, and those of words that stand for no commit."""
    arms, skipped = Counter[str](), Counter[str]()
    if commits:
        words = f"SELECT trim({ARM}), count(*) FROM result GROUP BY 1 ORDER BY 2 DESC, 1"
        for word, count in result.query(words):
            if word:
                (arms if word in commits else skipped)[word] = count
    for word in commits:
        if not arms[word]:
            present = name_list(map(repr, [*filter(arms.get, arms), *skipped]))
            raise ImportFailedError(
                f"commits: no row has {word!r} in column {ARM!r}; the rows have {present or 'none'}"
            )
    return arms, skipped


def require_units(result: QueryResult, commits: Collection[str], *, totals: bool) -> None:
    """Holds that rows are of units, each with a single arm.

    Args:
        totals: Whether rows are taken that look like totals.
    """
    if not commits:
        return
    cases = " ".join(
        f"WHEN starts_with(commit, {sha}) OR starts_with({sha}, commit) THEN {sha}"
        for sha in map(literal, sorted({commit.lower() for commit in commits}))
    )
    exposed = f"(SELECT row, unit, CASE {cases} END AS arm, left(moment, 10) AS day FROM events)"
    ((units, both, row),) = result.query(
        "SELECT count(*), count(*) FILTER (low <> high), min(row) FILTER (low <> high)"
        " FROM (SELECT min(row) AS row, min(arm) AS low, max(arm) AS high"
        f" FROM {exposed} WHERE arm IS NOT NULL GROUP BY unit)"
    )
    if both:
        raise ImportFailedError(
            f"{both:,} of {units:,} units have rows of both arms, such as that of row {row}, so"
            " nobody can tell which arm they saw. Say in the query which rows count: docs/import.md"
            " has those of the first arm, of the last, or of none"
        )
    ((days, arms, pairs),) = result.query(
        "SELECT count(DISTINCT day), count(DISTINCT arm), count(DISTINCT (arm, day))"
        f" FROM {exposed} WHERE arm IS NOT NULL"
    )
    is_full = days >= _FEWEST_DAYS and pairs >= _NEARLY_ALL * days * arms and arms > 1
    if is_full and units == pairs and units <= _MOST_TOTALS and not totals:
        raise ImportFailedError(
            f"these are totals, not units: {units:,} rows are sums by arm and day, for there is"
            " a single row for each. The units of these are not in them: export a row for"
            " each unit. If a row is a unit all the same, set totals = true in --experiments"
        )
