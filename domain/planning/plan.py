"""A plan: the sessions and days that a design takes for each of some lifts, and other designs."""

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from domain.document import Document
from domain.planning.boundary import Boundary
from domain.planning.design import LEAST, Design
from domain.planning.requirement import deciding_sessions, excluding_sessions

LIFTS = (0.05, 0.10, 0.15, 0.20, 0.30, 0.50)
SHARES = (0.10, 0.25, 0.50)
BUNDLES = (2, 4)
EARLIER_RATES = (2, 4)


class Prospect(Document, frozen=True, kw_only=True):
    """A design's requirements for a lift, with 80 % power."""

    relative_lift: Annotated[float, Meta(description="Of each change, relative to control's rate.")]
    sessions_to_decide: float
    days_to_decide: Annotated[float, Meta(description="Until 80 % of runs detect it.")]
    sessions_to_exclude_harm: float
    days_to_exclude_harm: Annotated[
        float, Meta(description="Until a loss of that size is excluded where there is none.")
    ]


def prospects(design: Design, boundary: Boundary) -> list[Prospect]:
    """Returns the design's requirements for each of `LIFTS`."""
    return [_prospect(design, lift, boundary) for lift in LIFTS]


def _prospect(design: Design, lift: float, boundary: Boundary) -> Prospect:
    relative = lift * design.changes
    decide = deciding_sessions(design, relative, boundary)
    # A loss of more than everything is excluded from the start.
    exclude = excluding_sessions(design, min(relative, 1.0), boundary)
    return Prospect(
        relative_lift=lift,
        sessions_to_decide=decide,
        days_to_decide=decide / design.measured_per_day,
        sessions_to_exclude_harm=exclude,
        days_to_exclude_harm=exclude / design.measured_per_day,
    )


def alternatives(design: Design) -> list[tuple[str, Design]]:
    """Another design, with the words that propose it."""
    p = design.rate
    whole = [("all sessions measured", replace(design, sample_rate=1.0))]
    shares = [
        (f"a share of {100 * share:g} %", replace(design, share=share))
        for share in SHARES
        if share > design.share
    ]
    bundles = [
        (f"{changes} such changes at once", replace(design, changes=changes)) for changes in BUNDLES
    ]
    earlier = [
        (f"an earlier step at {100 * times * p:.3g} %", replace(design, rate=times * p))
        for times in EARLIER_RATES
        if times * p <= 1 - LEAST
    ]
    return [*(whole if design.sample_rate < 1 else ()), *shares, *bundles, *earlier]
