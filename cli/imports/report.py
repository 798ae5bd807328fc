"""The report of an import: stored events, counted by arm, and rows left out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.changes.outcome import span
from cli.imports.experiments import ExperimentCount, experiment_document
from cli.imports.spool import Tally
from domain.currency import minor_unit_digits
from domain.metric import DAY, HOUR, LONGEST_WINDOW, MINUTE
from storage.views.history_counts import ArmCount

_WINDOWS = (30 * MINUTE, HOUR, 6 * HOUR, DAY, 3 * DAY, 7 * DAY, 14 * DAY, LONGEST_WINDOW)


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """The result of an import.

    Attributes:
        rows: How many rows were read.
        tally: The events that were made of them.
        skipped: How many rows were left out, by why.
        arms: How many rows each arm has that the map names.
        notes: The choices that the file made without the map, as sentences.
        experiments: The experiments, counted.
        is_rehearsal: Whether nothing was stored.
    """

    rows: int
    tally: Tally
    skipped: Counter[str]
    arms: Counter[str]
    notes: Sequence[str]
    experiments: Sequence[ExperimentCount]
    is_rehearsal: bool

    def document(self) -> dict[str, Any]:
        """Returns the report as JSON."""
        return {
            "dry_run": self.is_rehearsal,
            "rows": self.rows,
            "events": self.tally.events.total(),
            "events_by_name": dict(sorted(self.tally.events.items())),
            "first": self._first,
            "last": self._last,
            "skipped_rows": dict(self.skipped.most_common()),
            "rows_by_arm": dict(self.arms),
            "notes": list(self.notes),
            "experiments": [
                {**experiment_document(counted), "warnings": list(_warnings(counted))}
                for counted in self.experiments
            ],
        }

    @property
    def _first(self) -> datetime | None:
        return min(self.tally.first.values(), default=None)

    @property
    def _last(self) -> datetime | None:
        return max(self.tally.last.values(), default=None)

    def lines(self) -> Iterator[str]:
        """Yields the report as lines of text."""
        total = self.tally.events.total()
        stored = "would be stored" if self.is_rehearsal else "stored"
        between = f", from {self._first} to {self._last}" if total else ""
        yield f"{self.rows:,} rows read, {total:,} events {stored}{between}."
        if len(self.tally.events) > 1:
            events = self.tally.events.most_common(20)
            yield "Events: " + ", ".join(f"{name} {count:,}" for name, count in events) + "."
        if self.arms and not self.experiments:
            arms = ", ".join(f"{arm!r} {count:,}" for arm, count in self.arms.most_common())
            yield f"Rows by arm: {arms}."
        yield from self._skipped_lines()
        yield from self.notes
        for counted in self.experiments:
            yield ""
            yield from _experiment_lines(counted)
        if self.is_rehearsal:
            yield "Nothing was stored: this was a dry run."
        elif self.experiments:
            yield "Now: deploy-reward evaluate"

    def _skipped_lines(self) -> Iterator[str]:
        where = self.skipped["where"]
        if where:
            yield f"{where:,} rows are left out by `where`."
        arms = [(name, count) for name, count in self.skipped.most_common() if name != "where"]
        if arms:
            total = sum(count for _, count in arms)
            named = ", ".join(f"{name.removeprefix('arm ')} {count:,}" for name, count in arms[:10])
            yield f"{total:,} rows of arms that [commits] does not name are skipped: {named}."


def _experiment_lines(counted: ExperimentCount) -> Iterator[str]:
    experiment, metric, count = counted.experiment, counted.metric, counted.count
    name = experiment.target_metric
    registered = "" if counted.experiment_id is None else f", registered as {counted.experiment_id}"
    window = _length(metric["window_seconds"])
    yield f"{name} within {window} of the exposure{registered}:"
    yield _arm_line("control", experiment.control_commit, count.control, metric)
    yield _arm_line("treatment", experiment.treatment_commit, count.treatment, metric)
    yield from _warnings(counted)


def _arm_line(arm: str, commit: str, count: ArmCount, metric: Mapping[str, Any]) -> str:
    share = f" ({100 * count.converting / count.units:.2f} %)" if count.units else ""
    line = (
        f"  {arm:<10} {commit[:12]:<12} {count.units:>10,} units {count.converting:>10,}"
        f" with {' or '.join(metric['sources'])}{share}"
    )
    if metric["kind"] != "mean" or not count.units:
        return line
    currency = metric["currency"]
    scale = 1.0 if currency is None else 10.0 ** -minor_unit_digits(currency)
    mean = f"{count.total * scale / count.units:,.4g}"
    return f"{line}, {mean}{'' if currency is None else f' {currency}'} a unit"


def _warnings(counted: ExperimentCount) -> Iterator[str]:
    """Yields the reasons why the verdict does not count events of the file."""
    count, metric = counted.count, counted.metric
    for arm, count_of_arm in (("control", count.control), ("treatment", count.treatment)):
        if not count_of_arm.units + count_of_arm.after_horizon:
            yield f"Warning: no unit of {arm}: no first event of a unit names its commit."
    units = count.control.units + count.treatment.units
    late, later = count.control.after_horizon, count.treatment.after_horizon
    if late + later:
        yield (
            f"Warning: counted {units:,} of {units + late + later:,} units in the file: {late:,} of"
            f" control and {later:,} of treatment come after the horizon, {counted.horizon_days}"
            " days from the first event. To count them set horizon_days in [experiment], up to 366."
        )
    for name in counted.unseen_guardrails:
        yield (
            f"Warning: no row has an event of guardrail {name!r}, so this experiment goes without"
            " it: it could never be shown that it did not get worse."
        )
    events = " or ".join(f"`{source}`" for source in metric["sources"])
    number, unit = span(metric["window_seconds"]).split()
    window = f"{number}-{_UNITS[unit]}"
    if count.after:
        yield (
            f"Warning: {count.after:,} of {count.outcomes:,} {events} events fall outside the"
            f" {window} window of their unit's exposure and do not count; {_wider(counted)}"
        )
    if count.before:
        yield (
            f"Warning: {count.before:,} of {count.outcomes:,} {events} events come before their"
            " unit's exposure and do not count."
        )


def _wider(counted: ExperimentCount) -> str:
    longest = counted.count.longest.total_seconds()
    wide = next((window for window in _WINDOWS if window >= longest), None)
    if wide is None:
        return f"the last comes {_length(longest)} after it, and a window is at most 28 days."
    name = counted.experiment.target_metric
    length = f"{wide // HOUR}h" if wide % DAY else f"{wide // DAY}d"
    return (
        f'window = "{length if wide >= HOUR else "30m"}" in [experiment], or window_seconds ='
        f" {wide} of metric {name!r} in the settings, before the registration, takes all in."
    )


_UNITS = {"d": "day", "h": "hour", "m": "minute", "s": "second"}


def _length(seconds: float) -> str:
    number, unit = span(seconds).split()
    return f"{number} {_UNITS[unit]}{'' if number == '1' else 's'}"
