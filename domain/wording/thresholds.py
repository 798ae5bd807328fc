"""Thresholds in words: a quantile of both arms, or the shares of units that exceed a value."""

from domain.evidence.results import MetricRow, shown_threshold
from domain.figures import rough_percent
from domain.metric import FrozenMetric


def threshold_texts(
    row: MetricRow, definition: FrozenMetric | None, *, control: str
) -> dict[str, str]:
    """Returns the texts of the threshold that a row shows; none of a row without thresholds.

    Args:
        control: The share of control's units that exceed that threshold.
    """
    if not row.thresholds:
        return {}
    shown = shown_threshold(row.thresholds)
    unit = None if definition is None else definition.value_unit
    if shown.levels is None:
        return {"control": f"over {_value(shown.over, unit)}: {control}"}
    levels = shown.levels
    base, beyond = levels.control, row.thresholds[-1].over
    high = f"more than {_difference(beyond - base, unit)}"
    return {
        "control": f"{shown.quantile} {_value(base, unit)}",
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
