"""A plan: the sessions and days that a design takes for each of some lifts, and other designs."""

from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from domain.document import Document
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.requirement import (
    HORIZON_DAYS,
    deciding_sessions,
    excluding_sessions,
    smallest_lift_by_horizon,
)

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


def planned(design: Design, boundary: Boundary) -> dict[str, Any]:
    """The plan of a design as a document."""
    return {
        "sessions_per_day": design.sessions_per_day,
        "rate": design.rate,
        "share": design.share,
        "sample_rate": design.sample_rate,
        "alpha": boundary.alpha,
        "typical_lifts": list(boundary.typical_lifts),
        "power": 0.8,
        "horizon_days": HORIZON_DAYS,
        "smallest_lift_by_horizon": smallest_lift_by_horizon(design, boundary),
        "lifts": [asdict(prospect) for prospect in prospects(design, boundary)],
        "instead": [
            {
                "change": name,
                "rate": other.rate,
                "share": other.share,
                "changes": other.changes,
                "sample_rate": other.sample_rate,
                "lifts": [asdict(prospect) for prospect in prospects(other, boundary)],
            }
            for name, other in alternatives(design)
        ],
    }


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
    whole = (
        []
        if design.sample_rate == 1
        else [("all sessions measured", replace(design, sample_rate=1.0))]
    )
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
        if times * p < 1
    ]
    return [*whole, *shares, *bundles, *earlier]
