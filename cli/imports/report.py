"""The report of an import: stored events, counted by arm, and rows left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec

from cli.imports.rehearsal import ArmCount, ExperimentCount
from cli.imports.spool import Tally
from domain.cause import Cause
from domain.currency import minor_unit_digits
from domain.figures import length_of_time
from domain.metric import DAY, HOUR, LONGEST_WINDOW, MINUTE, FrozenMetric
from domain.wording.left_out import CURES
from storage.views.history_counts import ArmHistory

_WINDOWS = (30 * MINUTE, HOUR, 6 * HOUR, DAY, 3 * DAY, 7 * DAY, 14 * DAY, LONGEST_WINDOW)


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """The result of an import."""

    rows: int
    tally: Tally
    skipped: Counter[str]
    arms: Counter[str]
    notes: Sequence[str]
    experiments: Sequence[ExperimentCount]
    is_rehearsal: bool

    def document(self) -> dict[str, object]:
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
            "experiments": [_document(judgement) for judgement in self.experiments],
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
        for judgement in self.experiments:
            yield ""
            yield from _experiment_lines(judgement)
        if self.is_rehearsal:
            yield "Nothing was stored: this was a dry run."
        elif self.experiments:
            yield "Now: deploy-reward evaluate"

    def _skipped_lines(self) -> Iterator[str]:
        if total := self.skipped.total():
            arms = self.skipped.most_common(10)
            named = ", ".join(f"{word!r} {count:,}" for word, count in arms)
            yield f"{total:,} rows of arms that [commits] does not name are skipped: {named}."


def _experiment_lines(judgement: ExperimentCount) -> Iterator[str]:
    target = judgement.policy.target
    made = "" if judgement.experiment_id is None else f", registered as {judgement.experiment_id}"
    window = length_of_time(target.window_seconds)
    yield f"{target.name} within {window} of the exposure{made}, counted of in file:"
    experiment, history = judgement.experiment, judgement.history
    yield _arm_line(
        "control", experiment.control_commit, judgement.control, history.control, target
    )
    yield _arm_line(
        "treatment", experiment.treatment_commit, judgement.treatment, history.treatment, target
    )
    yield from _warnings(judgement)
    evidence = judgement.evidence
    looked = evidence["sessions"]["accumulated"]
    if judgement.units.compared_with_none:
        yield (
            f"Note: {judgement.units.compared_with_none:,} units of other builds are compared with"
            " nothing: they are in no rate and in no difference."
        )
    at = "" if evidence["as_of"] is None else f", at {evidence['as_of']} with {looked:,} units"
    yield f"So it will be judged{at}: {evidence['sentence']}"


def _arm_line(
    arm: str, commit: str, count: ArmCount, history: ArmHistory, target: FrozenMetric
) -> str:
    share = f" ({100 * count.converting / count.units:.2f} %)" if count.units else ""
    line = (
        f"  {arm:<10} {commit[:12]:<12} {count.units:>10,} of {history.units:,} units"
        f" {count.converting:>10,} with {' or '.join(target.sources)}{share}"
    )
    if target.kind != "mean" or not count.units:
        return line
    currency = target.currency
    scale = 1.0 if currency is None else 10.0 ** -minor_unit_digits(currency)
    mean = f"{count.total * scale / count.units:,.4g}"
    return f"{line}, {mean}{'' if currency is None else f' {currency}'} a unit"


# Units of file and log that are in no cell, and why.
_UNCOUNTED = {
    "open": "open still, whose outcomes are waited for",
    "late": "late: they came after their block had closed",
    "in_flight": "seen before the start, so in neither arm",
    "warming": "of the first minutes, as warmup_minutes says",
    "partial": "with some changes of treatment, and not all",
    "ambiguous_commit": "of commit ids that begin several commits",
    "unknown_commit": "of commits that no deploy names",
    "unknown_build": "of no commit",
}


def _warnings(judgement: ExperimentCount) -> Iterator[str]:
    """Yields the reasons why the verdict does not count units and events of the file."""
    history, target = judgement.history, judgement.policy.target
    unit = judgement.policy.unit
    named = "user_ref" if unit == "user" else unit
    counted = "a unit" if unit == "session" else f"a `{named}`, which the setting `unit` counts,"
    for arm, units in (("control", history.control.units), ("treatment", history.treatment.units)):
        if not units:
            yield f"Warning: no unit of {arm}: no first event of {counted} names its commit."
    yield from _uncounted(judgement)
    for name in judgement.unseen_guardrails:
        yield (
            f"Warning: no row has an event of guardrail {name!r}, so this experiment goes without"
            " it: it could never be shown that it did not get worse."
        )
    for outcomes in (row for row in judgement.left_out if row.of == "outcomes"):
        yield f"Warning: {CURES[Cause(outcomes.reason)]}"
    events = " or ".join(f"`{source}`" for source in target.sources)
    if history.after:
        window = length_of_time(target.window_seconds)
        yield (
            f"Warning: {history.after:,} of {history.outcomes:,} {events} events fall outside the"
            f" window of {window} after their unit's exposure and do not count; {_wider(judgement)}"
        )
    begun = history.control.begun_by_outcome + history.treatment.begun_by_outcome
    if begun:
        units = history.control.units + history.treatment.units
        yield (
            f"Warning: {begun:,} of {units:,} units begin with their outcome, {events}, so that it"
            " exposes them. Give these rows no commit in the query, as"
            " CASE WHEN event = 'page_view' THEN commit END does, and other events expose a unit."
        )
    if history.before:
        yield (
            f"Warning: {history.before:,} of {history.outcomes:,} {events} events come before their"
            " unit's exposure and do not count."
        )


def _uncounted(judgement: ExperimentCount) -> Iterator[str]:
    """Yields why the verdict counts fewer units than there are."""
    control, treatment = judgement.history.control, judgement.history.treatment
    counted = judgement.control.units + judgement.treatment.units
    all_units = control.units + treatment.units
    if control.after_horizon + treatment.after_horizon:
        days = judgement.policy.horizon_seconds // DAY
        yield (
            f"Warning: counted {counted:,} of {all_units:,} units in the file:"
            f" {control.after_horizon:,} of control and {treatment.after_horizon:,} of treatment"
            f" come after the horizon, {days} days from the first event. To count them set"
            " horizon_days in [experiment], up to 366."
        )
    reasons = {name: getattr(judgement.units, name) for name in _UNCOUNTED}
    named = [f"{count:,} {_UNCOUNTED[name]}" for name, count in reasons.items() if count]
    if named:
        yield f"Warning: units that do not count: {'; '.join(named)}."


def _wider(judgement: ExperimentCount) -> str:
    longest = judgement.history.longest.total_seconds()
    wide = next((window for window in _WINDOWS if window >= longest), None)
    if wide is None:
        return (
            f"the last comes {length_of_time(longest)} after it, and a window is at most 28 days."
        )
    name = judgement.experiment.target_metric
    length = f"{wide // HOUR}h" if wide % DAY else f"{wide // DAY}d"
    return (
        f'window = "{length if wide >= HOUR else "30m"}" in [experiment], or window_seconds ='
        f" {wide} of metric {name!r} in the settings, before the registration, takes all in."
    )


def _document(judgement: ExperimentCount) -> dict[str, object]:
    history, experiment = judgement.history, judgement.experiment
    return {
        "experiment_id": judgement.experiment_id,
        "control_commit": experiment.control_commit,
        "treatment_commit": experiment.treatment_commit,
        "target_metric": experiment.target_metric,
        "window_seconds": judgement.policy.target.window_seconds,
        "arms": {
            arm: {"in_file": asdict(of_file), **asdict(count)}
            for arm, count, of_file in (
                ("control", judgement.control, history.control),
                ("treatment", judgement.treatment, history.treatment),
            )
        },
        "units": msgspec.to_builtins(judgement.units),
        "left_out": msgspec.to_builtins(judgement.left_out),
        "outcomes": history.outcomes,
        "outcomes_before_exposure": history.before,
        "outcomes_after_window": history.after,
        "guardrails_left_out": list(judgement.unseen_guardrails),
        **{name: judgement.evidence[name] for name in ("as_of", "headline", "sentence")},
        "warnings": list(_warnings(judgement)),
    }
