"""The command `plan`: how long a canary takes, before it begins."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from stats.counts.cell import number_or_none
from stats.looks.policy import DAY, Policy
from stats.sequential.exclusion import excluding_sessions
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import required_sessions, smallest_lift

LIFTS = (0.05, 0.10, 0.15, 0.20, 0.30, 0.50)
SHARES = (0.10, 0.25, 0.50)
BUNDLES = (2, 4)
EARLIER_RATES = (2, 4)
HORIZON_DAYS = Policy().horizon_seconds // DAY
_OPEN_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@dataclass(frozen=True, kw_only=True)
class Design:
    """A canary before it begins.

    Attributes:
        sessions_per_day: Sessions a day that reach the change's routes, of both arms.
        rate: The share of control's sessions that convert.
        share: The share of sessions that treatment gets.
        changes: How many changes it bundles whose relative lifts add up.
        sample_rate: The share of the sessions that is measured.
    """

    sessions_per_day: float
    rate: float
    share: float
    changes: int = 1
    sample_rate: float = 1.0

    @property
    def measured_per_day(self) -> float:
        """Sessions a day that count."""
        return self.sessions_per_day * self.sample_rate


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A design's requirements for one lift, with 80 % power.

    Attributes:
        relative_lift: Of each change, relative to control's rate.
        sessions_to_decide: Of both arms, measured, until the test finds the lift; None where none
            can.
        days_to_decide: The same at the design's traffic.
        sessions_to_exclude_harm: Until a loss of that size is excluded where there is none.
        days_to_exclude_harm: The same at the design's traffic.
    """

    relative_lift: float
    sessions_to_decide: float | None
    days_to_decide: float | None
    sessions_to_exclude_harm: float | None
    days_to_exclude_harm: float | None


@click.command("plan")
@click.option(
    "--sessions-per-day",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Sessions a day on the change's routes, of both arms.",
)
@click.option(
    "--rate", type=_OPEN_SHARE, required=True, help="The share of them that convert: 0.05, say."
)
@click.option(
    "--share", type=_OPEN_SHARE, required=True, help="The share that the canary gets: 0.1, say."
)
@click.option(
    "--sample-rate",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of them that is measured: the project's setting.",
)
@click.option("--alpha", type=_OPEN_SHARE, default=Policy().alpha, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def plan(
    *,
    sessions_per_day: float,
    rate: float,
    share: float,
    sample_rate: float,
    alpha: float,
    as_json: bool,
) -> None:
    """Say how many days a canary takes, and what would make it quicker.

    To decide: until a lift of that size is found in 80 % of runs. To exclude harm: until a loss
    of that size is excluded in 80 % of runs of a change that does nothing, as `wait
    --accept-harm` asks. Days are days of traffic; the metric's window comes after them.
    """
    design = Design(
        sessions_per_day=sessions_per_day, rate=rate, share=share, sample_rate=sample_rate
    )
    document = planned(design, alpha=alpha)
    if as_json:
        click.echo(json.dumps(document))
    else:
        _print(document)


def planned(design: Design, *, alpha: float) -> dict[str, Any]:
    """The plan of a design as a document.

    Args:
        design: The canary.
        alpha: Level of the test, in (0, 1).
    """
    return {
        "sessions_per_day": design.sessions_per_day,
        "rate": design.rate,
        "share": design.share,
        "sample_rate": design.sample_rate,
        "alpha": alpha,
        "power": 0.8,
        "horizon_days": HORIZON_DAYS,
        "smallest_lift_by_horizon": _smallest_lift(design, alpha=alpha),
        "lifts": [asdict(prospect) for prospect in prospects(design, alpha=alpha)],
        "instead": [
            {
                "change": name,
                "rate": other.rate,
                "share": other.share,
                "changes": other.changes,
                "sample_rate": other.sample_rate,
                "lifts": [asdict(prospect) for prospect in prospects(other, alpha=alpha)],
            }
            for name, other in alternatives(design)
        ],
    }


def prospects(design: Design, *, alpha: float) -> list[Prospect]:
    """Returns the design's requirements for each of `LIFTS`."""
    mixture = _mixture(alpha, len(LIFTS))
    lifts = np.array(LIFTS) * design.changes
    rate, share = np.full(lifts.shape, design.rate), np.full(lifts.shape, design.share)
    decide = required_sessions(rate, share, lifts, mixture)
    # What loses more than it has is excluded from the first.
    exclude = excluding_sessions(rate, share, np.minimum(lifts, 1.0), mixture)
    return [
        Prospect(
            relative_lift=lift,
            sessions_to_decide=number_or_none(decide[i]),
            days_to_decide=number_or_none(decide[i] / design.measured_per_day),
            sessions_to_exclude_harm=number_or_none(exclude[i]),
            days_to_exclude_harm=number_or_none(exclude[i] / design.measured_per_day),
        )
        for i, lift in enumerate(LIFTS)
    ]


def alternatives(design: Design) -> list[tuple[str, Design]]:
    """What one could do instead, in words, with the design that it makes."""
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


def _mixture(alpha: float, length: int) -> Mixture:
    policy = Policy(alpha=alpha)
    return Mixture(
        rho_day=np.full(length, policy.rho_day),
        rho_fast=np.full(length, policy.rho_fast),
        log_threshold=np.full(length, policy.log_threshold),
    )


def _smallest_lift(design: Design, *, alpha: float) -> float | None:
    """The smallest relative rise that the sessions of the whole horizon find."""
    sessions = design.measured_per_day * HORIZON_DAYS
    rate, share, expected = (np.array([number]) for number in (design.rate, design.share, sessions))
    lift = smallest_lift(rate, share, expected, _mixture(alpha, 1))
    return number_or_none(lift[0] / design.rate)


def _print(document: dict[str, Any]) -> None:
    console = Console()
    console.print(
        f"{document['sessions_per_day']:,.0f} sessions a day, {100 * document['rate']:g} %"
        f" convert, {100 * document['share']:g} % get the canary{_sampled(document)}",
        highlight=False,
    )
    console.print(_needs(document["lifts"]))
    if document["instead"]:
        console.print(_instead(document))
    console.print(_horizon(document), highlight=False)


def _sampled(document: dict[str, Any]) -> str:
    rate = document["sample_rate"]
    return "" if rate == 1 else f", {100 * rate:g} % are measured"


def _needs(lifts: list[dict[str, Any]]) -> Table:
    table = Table(title="What it takes, at 80 % power", title_justify="left")
    table.add_column("change of the rate")
    for column in ("sessions to decide", "days", "sessions to exclude harm", "days"):
        table.add_column(column, justify="right")
    for lift in lifts:
        table.add_row(
            _signed(lift),
            _count(lift["sessions_to_decide"]),
            days(lift["days_to_decide"]),
            _count(lift["sessions_to_exclude_harm"]),
            days(lift["days_to_exclude_harm"]),
        )
    return table


def _instead(document: dict[str, Any]) -> Table:
    table = Table(title="Days to decide with", title_justify="left")
    table.add_column("")
    for lift in document["lifts"]:
        table.add_column(_signed(lift), justify="right")
    rows: list[dict[str, Any]] = [{**document, "change": "this plan"}, *document["instead"]]
    for row in rows:
        table.add_row(row["change"], *(days(lift["days_to_decide"]) for lift in row["lifts"]))
    return table


def _signed(lift: dict[str, Any]) -> str:
    return f"±{100 * lift['relative_lift']:.0f} %"


def _count(sessions: float | None) -> str:
    return "never" if sessions is None else f"{sessions:,.0f}"


def days(count: float | None) -> str:
    """A number of days as a table shows it; marked where it is beyond the horizon."""
    if count is None:
        return "never"
    digits = 2 if count < 1 else 1
    shown = f"{count:,.{digits}f}" if count >= 0.01 else "< 0.01"
    return f"{shown}*" if count > HORIZON_DAYS else shown


def _horizon(document: dict[str, Any]) -> str:
    smallest = document["smallest_lift_by_horizon"]
    ends = f"* beyond {HORIZON_DAYS} days, when an experiment ends."
    if smallest is None:
        return f"{ends} No lift can be found by then."
    return (
        f"{ends} By then a rise of {100 * smallest:.1f} % is found."
        " Bundles: the lifts add up, and so do the suspects.\n"
        "An earlier step: the same relative lift on a rate that is higher."
    )
