"""The thumbnail of an experiment: its interval so small that a page shows it without a click."""

from collections.abc import Mapping
from typing import Any

from domain.wording.headline import headline_of
from domain.wording.looks import estimates, extent, looks_of, thinned
from orchestration.pictures import svg
from orchestration.pictures.axis import Axis
from orchestration.pictures.colour import colour_of

_WIDTH, _HEIGHT = 240, 44
# Dagster's pages show Markdown of fewer letters than 1,000 in place: all of it must fit.
_MOST_POINTS = 11


def thumbnail(document: Mapping[str, Any], contract: Mapping[str, Any]) -> str | None:
    """Returns the interval, the estimate and the line of no difference as a small SVG.

    Returns:
        None where there are not two looks with an interval.
    """
    drawn = estimates(looks_of(document))
    if len(drawn) < 2:
        return None
    low, high = extent(drawn)
    time = Axis(low=drawn[0].at, high=drawn[-1].at, start=0, end=_WIDTH)
    value = Axis(low=low, high=high, start=_HEIGHT, end=0)
    shown = thinned(drawn, _MOST_POINTS)

    def at(moment: float, difference: float) -> svg.Point:
        # Whole pixels take fewer letters; what lies beyond the scale is cut by the picture's edge.
        inside = min(max(difference, low - (high - low)), high + (high - low))
        return float(round(time.at(moment))), float(round(value.at(inside)))

    band = [at(estimate.at, estimate.high) for estimate in shown]
    band += [at(estimate.at, estimate.low) for estimate in reversed(shown)]
    colour = colour_of(headline_of(contract))
    zero = round(value.at(0.0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" fill="none">'
        + svg.path(band, closed=True, fill="#bddcec")
        + f'<path d="M0 {zero}h{_WIDTH}" stroke="#222"/>'
        + svg.path(
            [at(estimate.at, estimate.lift) for estimate in shown], stroke=colour, stroke_width="2"
        )
        + "</svg>"
    )
