"""The metrics of an evidence document as rows of text, the same in every face."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.evidence import results
from domain.evidence.document import Evidence
from domain.evidence.results import shown_threshold
from domain.figures import length_of_time, listed, rough_percent
from domain.measure import Measure
from domain.metric import FrozenMetric, so_far_seconds

_STATES = {
    "better": "better",
    "worse": "worse",
    "unfair": "unfair comparison",
    "breached": "got worse",
    "unharmed": "unharmed",
    "fewer_so_far": "fewer so far",
}
_WHEN_DECIDED = {"guardrail": "not shown unharmed"}
_TONES = {"better": "ok", "unharmed": "ok", "worse": "fault", "breached": "fault"}


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A metric as people read it; a text is empty where nothing is known.

    Attributes:
        part: Its part in the experiment.
        tone: `ok`, `fault` or `unknown`.
    """

    metric: str
    part: str
    control: str
    treatment: str
    difference: str
    relative: str
    interval: str
    relative_interval: str
    state: str
    tone: str

    @property
    def is_guardrail(self) -> bool:
        """Whether the change may not harm it."""
        return self.part == "guardrail"

    @property
    def change(self) -> str:
        """From which level to which it went; empty where either is not known."""
        if not (self.control and self.treatment):
            return ""
        number, _, unit = self.control.rpartition(" ")
        same = number and unit != "%" and self.treatment.endswith(f" {unit}")
        return f"{number if same else self.control} → {self.treatment}"

    @property
    def whole_difference(self) -> str:
        """The difference, in percent too."""
        return _with(self.difference, self.relative)

    @property
    def whole_interval(self) -> str:
        """The interval, in percent too."""
        return _with(self.interval, self.relative_interval)


def _with(text: str, relative: str) -> str:
    return f"{text} ({relative})" if relative else text


def metric_rows(evidence: Evidence) -> list[MetricRow]:
    """Returns a row for each metric of an evidence document, the target first."""
    policy, effect = evidence.policy, evidence.effect
    # A document that is served after a decision may hold the effect of another moment.
    is_decided = evidence.ended_because is not None or (
        effect is not None and effect.basis == "at_decision"
    )
    guardrails = {metric.of or metric.name: metric for metric in policy.guardrails}
    return [
        _row(
            row,
            # `arrival` is none that a policy defines.
            definition=guardrails.get(row.metric) if row.role == "guardrail" else policy.target,
            unit=policy.unit,
            is_decided=is_decided,
        )
        for row in evidence.metrics
    ]


def _row(
    row: results.MetricRow, *, definition: FrozenMetric | None, unit: str, is_decided: bool
) -> MetricRow:
    measure = Measure.of(definition, name=row.metric, unit=unit, control=row.control)
    difference, interval = row.difference, row.interval
    if row.state == "unfair":
        # It is not the change's, so no size is shown.
        difference = interval = None
    ends = [] if interval is None else [measure.possible(end) for end in interval]
    read = MetricRow(
        metric=row.metric,
        part=_part(row, definition),
        control=measure.level(row.control),
        treatment=measure.level(row.treatment),
        difference="" if difference is None else measure.difference(difference),
        relative="" if difference is None else measure.relative(difference),
        interval=_interval(measure, ends) if ends else "",
        relative_interval=_relative(measure, ends) if ends else "",
        state=_state(row, definition, is_decided=is_decided),
        tone=_TONES.get(row.state, "unknown"),
    )
    return replace(read, **threshold_texts(row, definition, control=read.control))


def _part(row: results.MetricRow, definition: FrozenMetric | None) -> str:
    if row.role != "so_far" or definition is None:
        return row.role
    return f"within {length_of_time(so_far_seconds(definition.window_seconds))}"


def _state(row: results.MetricRow, definition: FrozenMetric | None, *, is_decided: bool) -> str:
    if row.state != "not_known":
        return _STATES[row.state]
    if row.role == "guardrail" and (definition is None or definition.margin is None):
        return "no harm seen"  # nothing waits until it is shown unharmed
    return _WHEN_DECIDED.get(row.role, "not known") if is_decided else "not known yet"


def _interval(measure: Measure, ends: list[float]) -> str:
    text = measure.interval(*ends)
    return f"{text} {measure.per}" if measure.mean else text


def _relative(measure: Measure, ends: list[float]) -> str:
    low, high = (measure.relative(end) for end in ends)
    return f"{low} to {high}" if low else ""


def never_received(silent: Sequence[str], candidate: results.Candidate) -> str | None:
    """Returns that no event came of guardrails that hold a keep back; None where some came."""
    named = listed([name for name in candidate.waits_for if name in silent])
    return f"No {named} event was ever received." if named else None


def threshold_texts(
    row: results.MetricRow, definition: FrozenMetric | None, *, control: str
) -> dict[str, str]:
    """Returns the texts of the threshold that a row shows; none of a row without thresholds.

    Args:
        control: The share of control's units that exceed that threshold.
    """
    if not row.thresholds:
        return {}
    shown = shown_threshold(row.thresholds)
    unit = None if definition is None else definition.value_unit
    # Else of a unit's first event.
    of = " of any event" if row.picked else ""
    if shown.levels is None:
        return {"control": f"over {_value(shown.over, unit)}{of}: {control}"}
    levels = shown.levels
    base, beyond = levels.control, row.thresholds[-1].over
    high = f"more than {_difference(beyond - base, unit)}"
    return {
        "control": f"{shown.quantile}{of} {_value(base, unit)}",
        "treatment": _value(levels.treatment, unit),
        "difference": _difference(levels.treatment - base, unit),
        "relative": rough_percent(100 * (levels.treatment / base - 1)),
        "interval": f"{'less' if levels.low is None else _difference(levels.low - base, unit)}"
        f" to {high if levels.high is None else _difference(levels.high - base, unit)}",
        "relative_interval": "",
    }


def _difference(value: float, unit: str | None) -> str:
    return f"{'+' if value >= 0 else '-'}{_value(abs(value), unit)}"


def _value(value: float, unit: str | None) -> str:
    if unit == "ms" and abs(value) >= 1000:
        value, unit = value / 1000, "s"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}" if unit else text
