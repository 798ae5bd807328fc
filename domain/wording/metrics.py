"""The metrics of an evidence document as rows of text, the same in every face."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.evidence import results
from domain.evidence.document import Evidence
from domain.figures import listed
from domain.measure import Measure
from domain.metric import FrozenMetric
from domain.wording.thresholds import threshold_texts

_STATES = {
    "better": "better",
    "worse": "worse",
    "unfair": "unfair comparison",
    "breached": "got worse",
    "unharmed": "unharmed",
}
_WHEN_DECIDED = {"target": "not known", "guardrail": "not shown unharmed"}
_TONES = {"better": "ok", "unharmed": "ok", "worse": "fault", "breached": "fault"}


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A metric as people read it; a text is empty where nothing is known.

    Attributes:
        tone: `ok`, `fault` or `unknown`.
    """

    metric: str
    is_target: bool
    control: str
    treatment: str
    difference: str
    relative: str
    interval: str
    relative_interval: str
    state: str
    tone: str

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
    guardrails = {metric.of or metric.name: metric for metric in policy.guardrails}
    return [
        _row(
            row,
            # `arrival` is none that a policy defines.
            definition=policy.target if row.role == "target" else guardrails.get(row.metric),
            unit=policy.unit,
            is_decided=effect is not None and effect.basis == "at_decision",
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
        is_target=row.role == "target",
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


def _state(row: results.MetricRow, definition: FrozenMetric | None, *, is_decided: bool) -> str:
    if row.state != "not_known":
        return _STATES[row.state]
    if row.role == "guardrail" and (definition is None or definition.margin is None):
        return "no harm seen"  # nothing waits until it is shown unharmed
    return _WHEN_DECIDED[row.role] if is_decided else "not known yet"


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
