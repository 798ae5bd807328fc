"""The layouts of a file, a row an event or a row a unit: a map of either becomes a SELECT."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from api.wire.problem import Fault
from cli.imports.cells import SECRET, Reading, define_readers, require_yes, says_yes
from cli.imports.faults import MapError, RowError, name_list
from cli.imports.map import IDENTIFIERS, ImportMap, Outcome, Values
from cli.imports.tables import ROW, Table, literal, quoted
from cli.imports.times import UNIT_NAMES, define_times, time_fault, time_sql, unit_of
from cli.imports.units import UnitCount, read_identifiers, settle_arms
from domain.currency import minor_unit_digits
from domain.metric import empty_event

# At most this many values of the arm column that the map lacks are listed by name.
_MOST_ARMS = 1000
# Files of more rows hold no totals of days.
_MOST_TOTALS = 10_000
# Rules of members in words, in place of the reader's patterns.
_RULES: Mapping[str, str] = {
    "event": "an event's name has 1 to 128 characters",
    "session_id": "a session_id has 1 to 128 characters",
    "commit": "a commit has 7 to 64 hexadecimal digits, as for POST /v1/deploys",
    "route": "a route has 1 to 512 characters",
    "environment": "an environment has 1 to 64 characters",
    "user_ref": "a user_ref has 1 to 256 characters",
    "event_id": "an event_id has 1 to 64 characters",
    "flags": "flags are at most 50 names, each with a text or with true or false",
}
_READERS = {"value": "as_number", "flags": "as_object", "properties": "as_object"}


@dataclass(frozen=True, kw_only=True)
class _Event:
    """An event that a row may give: its members as SQL, and the columns that fill them."""

    members: Mapping[str, str]
    columns: Mapping[str, str]
    where: str = "true"


class Layout:
    """The events of a mapped file."""

    def __init__(self, layout: ImportMap, table: Table, *, is_history: bool = True) -> None:
        """Loads the file's columns that the map names.

        Args:
            is_history: Whether rows say which arm a unit is in, which must be the same for all.
        """
        self.map, self.table = layout, table
        self.skipped: Counter[str] = Counter()
        self.arms: Counter[str] = Counter()
        self.repetition: UnitCount | None = None
        self._readings: list[Reading] = []
        self._units: dict[str, str | None] = {}
        table.load(layout.column_names, layout.identifiers)
        define_readers(table.database, layout.decimal)
        define_times(table.database, layout.times)
        self.rows = table.rows()
        self._take_rows()
        self._identifiers = read_identifiers(table, layout.identifiers)
        if is_history:
            self._settle_arms()
        if layout.arm is not None:
            counts = self.table.database.execute(
                f"SELECT coalesce(as_text({quoted(layout.arm)}), ''), count(*) FROM taken"
                " GROUP BY 1 ORDER BY 2 DESC, 1"
            ).fetchall()
            for value, count in counts:
                if value in self.map.commits:
                    self.arms[value] = count
                elif value or self.map.layout == "unit":
                    many = len(self.skipped) > _MOST_ARMS
                    self.skipped["others" if many else f"arm {value!r}"] += count
        self._events = self._unit_events() if layout.layout == "unit" else self._row_events()

    def _take_rows(self) -> None:
        source, database = "cells", self.table.database
        if self.map.times.spread_days is not None:
            draws = np.random.default_rng(self.map.times.seed)
            seconds = draws.uniform(0, self.map.times.spread_days * 86_400, self.rows)
            # Every row is drawn, taken or not, so that `where` moves no other row.
            drawn = pa.table({"drawn#": np.rint(seconds * 1e6).astype(np.int64)})
            database.register("draws", drawn)
            database.execute("CREATE TABLE drawn AS SELECT * FROM draws")
            source = "cells POSITIONAL JOIN drawn"
        alternatives = (
            " AND ".join(_equals(quoted(name), value) for name, value in alternative.items())
            for alternative in self.map.where
        )
        where = " OR ".join(f"({tests})" for tests in alternatives) or "true"
        self._taken = f"SELECT * FROM {source} WHERE ({where})"
        database.execute(f"CREATE VIEW taken AS {self._taken}")
        (taken,) = database.execute("SELECT count(*) FROM taken").fetchall()[0]
        if left := self.rows - taken:
            self.skipped["where"] = left

    def _settle_arms(self) -> None:
        """Counts rows of the same unit, and leaves out those of an arm that does not count."""
        unit, arm = self._unit_column or self.map.columns.get("user_ref"), self._arm_of_row()
        if unit is None or arm is None:
            return
        time = ROW if self.map.times.column is None else self._time_sql(self.map.times.column)
        counts = self.map.both_arms
        # Rows that name no unit have none in common; the reader refuses them, or counts them.
        named = f"CASE WHEN NOT is_nothing({quoted(unit)}) THEN {self._identifiers[unit]} END"
        self.repetition = settle_arms(self.table, unit=named, arm=arm, time=time, counts=counts)
        if self.repetition.in_both_arms and (self.map.layout == "unit" or counts == "leave_out"):
            view = f"{self._taken} AND {ROW} NOT IN (SELECT row FROM unsettled)"
            self.table.database.execute(f"CREATE OR REPLACE VIEW taken AS {view}")
            self.skipped["both_arms"] = self.table.query("SELECT count(*) FROM unsettled")[0][0]

    @property
    def _unit_column(self) -> str | None:
        return self.map.columns.get("session_id") or self.map.unit

    def _arm_of_row(self) -> str | None:
        """Returns the commit of an experiment that a row exposes its unit to, as SQL."""
        column = self.map.columns.get("commit")
        if self.map.arm is not None:
            arm = self._commit_of_arm()
        elif column is None or not self.map.experiments:
            return None
        else:
            commits = {
                commit.lower()
                for each in self.map.experiments
                for commit in (each.control_commit, each.treatment_commit)
            }
            cell = f"lower(as_text({quoted(column)}))"
            cases = " ".join(
                f"WHEN starts_with({cell}, {sha}) OR starts_with({sha}, {cell}) THEN {sha}"
                for sha in map(literal, sorted(commits))
            )
            arm = f"CASE {cases} END"
        if not self.map.exposures:
            return arm
        event = literal(self.map.constants.get("event", ""))
        if "event" in self.map.columns:
            event = f"coalesce(as_text({quoted(self.map.columns['event'])}), {event})"
        return f"CASE WHEN {event} IN ({_listed(self.map.exposures)}) THEN {arm} END"

    def _commit_of_arm(self) -> str:
        commits = " ".join(
            f"WHEN {literal(arm)} THEN {literal(commit)}"
            for arm, commit in self.map.commits.items()
        )
        return f"CASE as_text({quoted(self.map.arm or '')}) {commits} END"

    def _unit_events(self) -> list[_Event]:
        layout = self.map
        shared = {**self._members(), "session_id": self._unit(layout.unit)}
        exposed_at = self._exposed_at()
        self._require_no_totals(exposed_at)
        require_yes(self.table, layout.outcomes)
        exposure = literal(str(layout.constants.get("event", "page_view")))
        named = self._columns(layout.unit)
        members = {**shared, "event": exposure, "occurred_at": f"as_moment({exposed_at})"}
        events = [_Event(members=members, columns=named)]
        for column, outcome in layout.outcomes.items():
            events.append(self._outcome(column, outcome, shared, exposed_at, named))
        for column, outcome in layout.outcomes.items():
            if self._tells_no(column, outcome):
                unknown = {**events[0].members, "event": literal(empty_event(outcome.event))}
                where = f"is_empty({quoted(column)})"
                events.append(_Event(members=unknown, columns=named, where=where))
        return events

    def _tells_no(self, column: str, outcome: Outcome) -> bool:
        """Whether the column says of some unit that it had no outcome, so that others are empty."""
        if outcome.at == column:
            return False
        says_no = f"NOT is_empty({quoted(column)}) AND NOT {says_yes(column, outcome.yes)}"
        return bool(self.table.query(f"SELECT 1 FROM taken WHERE {says_no} LIMIT 1"))

    def _outcome(
        self,
        column: str,
        outcome: Outcome,
        shared: Mapping[str, str],
        exposed_at: str,
        named: Mapping[str, str],
    ) -> _Event:
        members, columns, at = dict(shared), {**named, "value": column}, exposed_at
        members["event"] = literal(outcome.event)
        if outcome.at == column:
            # The time is the outcome: a NULL says that there was none.
            at = self._time(column, None)
            where = f"{at} IS NOT NULL"
        else:
            digits = 0 if outcome.currency is None else minor_unit_digits(outcome.currency)
            sql = says_yes(column, outcome.yes)
            if outcome.value:
                reader = "as_whole" if outcome.currency is not None and digits == 0 else "as_number"
                sql = f"{reader}({quoted(column)})"
            value = self._add("value", column, sql, None)
            where = f"coalesce({value}, 0) <> 0" if outcome.value else value
            if outcome.value:
                members["value"] = f"{value} * {10**digits}"
            if outcome.at is not None:
                at = self._time(
                    outcome.at,
                    f"names no time, but column {column!r} says that there was an outcome",
                    where=where,
                )
        if outcome.at is not None:
            columns["occurred_at"] = outcome.at
        members["occurred_at"] = f"as_moment({at})"
        return _Event(members=members, columns=columns, where=where)

    def _require_no_totals(self, exposed_at: str) -> None:
        """Holds that rows are units: totals are sums by arm and day, or name no unit or day.

        Raises:
            MapError: They look like totals, and the map does not say that they are none.
        """
        is_bare = self.map.unit is None and self.map.times.column is None
        columns = [
            name
            for name, outcome in self.map.outcomes.items()
            if outcome.at != name and not (is_bare and outcome.value)
        ]
        if self.map.totals or not columns or self.rows > _MOST_TOTALS:
            return
        day = "1" if self.map.times.column is None else f"CAST({exposed_at} AS DATE)"
        medians = ", ".join(f"median(as_number({quoted(name)}))" for name in columns)
        ((rows, groups, *usual),) = self.table.query(
            f"SELECT count(*), count(DISTINCT ({quoted(self.map.arm or '')}, {day})), {medians}"
            f" FROM ({self._read_rows()})"
        )
        totals = [name for name, middle in zip(columns, usual, strict=True) if (middle or 0) > 1]
        if totals and (is_bare or rows == groups):
            middle = usual[columns.index(totals[0])]
            lone = "name neither unit nor time" if is_bare else "are sums by arm and day"
            raise MapError(
                f"these are totals, not units: {rows:,} rows {lone}, and column {totals[0]!r} holds"
                f" numbers such as {middle:,g}. Import a row a unit, or a row an event. Where each"
                " row is a unit all the same, set totals = true in the map"
            )

    def require_all_arms(self) -> None:
        """Holds that every arm of the map has a row.

        Raises:
            MapError: An arm has none; the arms that the file has are named.
        """
        missing = [arm for arm in self.map.commits if not self.arms[arm]]
        if not missing:
            return
        present = [*map(repr, self.arms)]
        present += [name.removeprefix("arm ") for name in self.skipped if name.startswith("arm ")]
        raise MapError(
            f"commits: no row that is taken has {missing[0]!r} in column {self.map.arm!r}; the rows"
            f" have {name_list(present) or 'nothing'}"
        )

    def _row_events(self) -> list[_Event]:
        unit = self._unit_column
        members = {
            **self._members(),
            "session_id": self._unit(unit),
            "occurred_at": f"as_moment({self._exposed_at()})",
        }
        return [_Event(members=members, columns=self._columns(unit))]

    def _columns(self, unit: str | None) -> dict[str, str]:
        """Returns the columns that fill the members of a row's events."""
        filled = {"session_id": unit, "occurred_at": self.map.times.column, "commit": self.map.arm}
        named = {name: column for name, column in filled.items() if column is not None}
        return named | self.map.columns

    def _members(self) -> dict[str, str]:
        members = {
            name: _constant(value)
            for name, value in self.map.constants.items()
            if name != "session_id"
        }
        if self.map.arm is not None:
            members["commit"] = self._commit_of_arm()
        for member, column in self.map.columns.items():
            if member == "session_id":
                continue
            missing = "names no event" if member == "event" and "event" not in members else None
            value = self._read(member, column, missing=missing)
            members[member] = (
                f"coalesce({value}, {members[member]})" if member in members else value
            )
        tests: list[str] = []
        if self.map.exposures:
            tests.append(f"{members['event']} IN ({_listed(self.map.exposures)})")
        if self.repetition is not None and self.repetition.in_both_arms:
            # An order under the arm that does not count is still the unit's own.
            tests.append(f"{ROW} NOT IN (SELECT row FROM unsettled)")
        if tests:
            members["commit"] = f"CASE WHEN {' AND '.join(tests)} THEN {members['commit']} END"
        return members

    def _unit(self, column: str | None) -> str:
        if column is None:
            return f"CAST({ROW} - 1 AS VARCHAR)"
        return self._read("session_id", column, missing="names no unit")

    def _exposed_at(self) -> str:
        times = self.map.times
        if times.column is not None:
            return self._time(times.column, "names no time")
        start = literal(times.start or "")
        sql = time_sql(times, start, unit_of(times.start or ""))
        (read,) = self.table.database.execute(f"SELECT CAST({sql} AS VARCHAR)").fetchall()[0]
        if read is None:
            fault = time_fault(times, times.start or "", None)
            raise MapError(f"times.start is {times.start!r}: {fault}")
        return f'TIMESTAMP {literal(read)} + to_microseconds("drawn#")'

    def _time(self, column: str, missing: str | None, *, where: str = "true") -> str:
        return self._add("occurred_at", column, self._time_sql(column), missing, where)

    def _time_sql(self, column: str) -> str:
        times, cell = self.map.times, quoted(column)
        if times.unit is not None or times.format is not None:
            return time_sql(times, cell, times.unit)
        if column not in self._units:
            numbers = self.table.database.execute(
                f"SELECT stripped({cell}) FROM taken"
                f" WHERE regexp_full_match(stripped({cell}), '-?\\d+(\\.\\d*)?') LIMIT 1"
            ).fetchall()
            self._units[column] = unit_of(numbers[0][0]) if numbers else None
        return time_sql(times, cell, self._units[column])

    def _read(self, member: str, column: str, *, missing: str | None = None) -> str:
        if member in IDENTIFIERS:
            return self._add(member, column, self._identifiers[column], missing)
        reader = _READERS.get(member, "as_text")
        return self._add(member, column, f"{reader}({quoted(column)})", missing)

    def _add(
        self, member: str, column: str, value: str, missing: str | None, where: str = "true"
    ) -> str:
        """Adds the reading of a column, and returns the name of its value."""
        name = quoted(f"{member} #{len(self._readings)}")
        self._readings.append(
            Reading(
                member=member, column=column, value=value, name=name, missing=missing, where=where
            )
        )
        return name

    def select(self) -> str:
        """Returns the map as SQL: each row's events as JSON, or the number of its fault."""
        faults = " ".join(f"WHEN {r.fault} THEN {n}" for n, r in enumerate(self._readings))
        fault = f"CASE {faults} END" if faults else "NULL"
        events = [
            f"CASE WHEN {event.where} THEN json_object("
            + ", ".join(f"{literal(name)}, {value}" for name, value in event.members.items())
            + ") END"
            for event in self._events
        ]
        parts = ", ".join(map(str, range(len(events))))
        listed = ",\n".join(events)
        return (
            f"SELECT * FROM (SELECT {ROW} AS row, {fault} AS fault,\n"
            f"unnest([{parts}]) AS part,\nunnest([\n{listed}\n]) AS event\n"
            f"FROM ({self._read_rows()})\n"
            ") WHERE event IS NOT NULL OR fault IS NOT NULL"
        )

    def _read_rows(self) -> str:
        """Returns the rows that become events as SQL, with the value of each reading."""
        where = "true"
        if self.map.arm is not None:
            arm, named = quoted(self.map.arm), ", ".join(map(literal, self.map.commits))
            where = f"as_text({arm}) IN ({named})"
            if self.map.layout == "event":
                # An outcome need not name the arm of its unit again.
                where = f"(is_empty({arm}) OR {where})"
        values = ",\n".join(["*", *(f"{r.value} AS {r.name}" for r in self._readings)])
        return f"SELECT {values} FROM taken WHERE {where}"

    def require_cells(self, batch: Any) -> None:  # noqa: ANN401 - pyarrow has no types
        """Holds that the cells of a batch of the SELECT can be read.

        Raises:
            RowError: A cell breaks a rule; row, column and cell are named.
        """
        faults = batch.column("fault")
        if faults.null_count == len(faults):
            return
        row, fault = next(
            (row, fault)
            for row, fault in zip(batch.column("row").to_pylist(), faults.to_pylist(), strict=True)
            if fault is not None
        )
        reading = self._readings[fault]
        cell = self.table.cell(row, reading.column)
        if reading.member != "occurred_at":
            raise reading.row_error(self.table, row, self.map.decimal)
        (is_empty,) = self.table.query("SELECT is_empty(?)", cell)[0]
        why = (
            reading.missing or "is empty"
            if is_empty or cell is None
            else time_fault(self.map.times, cell.strip(), self._units.get(reading.column))
        )
        raise RowError(self.table.place(row), why, column=reading.column, cell=cell)

    def refusal(self, row: int, part: int, event: str, fault: Fault) -> RowError:
        """Returns a refusal of the API's reader as the fault of a cell."""
        member, rule = broken_rule(fault)
        place, column = self.table.place(row), self._events[part].columns.get(member)
        if column is not None:
            cell, is_secret = self.table.cell(row, column), member in SECRET
            return RowError(
                place, f"{member}: {rule}", column=column, cell=cell, is_secret=is_secret
            )
        time = msgspec.json.decode(event)["occurred_at"] if member == "occurred_at" else None
        return RowError(place, f"{member}:{'' if time is None else f' {time}:'} {rule}")

    def _outcome_notes(self) -> Iterator[str]:
        """Yields the columns of outcomes with empty cells, by arm, or with numbers above 1."""
        for column, outcome in self.map.outcomes.items():
            if outcome.at == column:
                # Its time is the outcome: who had none has an empty cell.
                continue
            cell, arm = quoted(column), quoted(self.map.arm or "")
            by_arm = {
                name: (empty, most)
                for name, empty, most in self.table.query(
                    f"SELECT as_text({arm}), count(*) FILTER (is_empty({cell})),"
                    f" max(TRY_CAST({cell} AS DOUBLE)) FROM taken GROUP BY 1"
                )
                if name in self.arms
            }
            if any(empty for empty, _ in by_arm.values()):
                listed = ", ".join(
                    f"{name!r} {by_arm[name][0]:,} of {rows:,} ({by_arm[name][0] / rows:.1%})"
                    for name, rows in self.arms.items()
                ).replace("%", " %")
                yield f"Empty cells in column {column!r} count as no outcome: {listed}."
            largest = max((number or 0 for _, number in by_arm.values()), default=0)
            if largest > 1 and not outcome.value and outcome.yes is None:
                yield (
                    f"Column {column!r} has numbers up to {largest:,g}: each number but 0 counts as"
                    " a yes of its unit. For amounts, value = true in [metrics] makes a mean; if"
                    " the numbers are codes, yes in [metrics] names those that say yes."
                )

    def notes(self) -> list[str]:
        """Returns the choices that the file made without the map, as sentences."""
        repeated = self.repetition and self.repetition.notes(self.map)
        read_as = (
            f"Numbers in column {column!r} were read as {UNIT_NAMES[unit]} since 1970:"
            f' unit = "{unit}" in [times] says so.'
            for column, unit in self._units.items()
            if unit is not None
        )
        return [*(repeated or ()), *self._outcome_notes(), *read_as]


def _equals(cell: str, values: Values) -> str:
    """Returns the SQL of a test of `where`: by the kind of each value in TOML."""
    if isinstance(values, str) and values.startswith("@"):
        return f"coalesce(as_text({cell}), '') = coalesce(as_text({quoted(values[1:])}), '')"
    listed: Sequence[str | int | float | bool] = values if isinstance(values, list) else [values]
    tests = [
        f"coalesce(as_text({cell}), '') = {literal(value)}"
        if isinstance(value, str)
        else f"coalesce(NOT is_empty({cell}) AND as_outcome({cell}) = {str(value).lower()}, false)"
        if isinstance(value, bool)
        else f"coalesce(as_number({cell}) = {value!r}, false)"
        for value in listed
    ]
    return f"({' OR '.join(tests)})"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(literal, words))


def _constant(value: Any) -> str:  # noqa: ANN401 - a value of TOML
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return f"CAST({literal(json.dumps(value))} AS JSON)"


def broken_rule(fault: Fault) -> tuple[str, str]:
    """Returns the member of an event that a fault is of, and the rule that it breaks."""
    parts = fault.at.split("/")
    member = parts[3] if len(parts) > 3 else "event"
    is_known = fault.code == "invalid_member"
    return member, _RULES.get(member, fault.detail) if is_known else fault.detail
