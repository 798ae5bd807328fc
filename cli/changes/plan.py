"""The command `plan`: how long a canary takes, before it begins."""

import json
from typing import Any

import click
from msgspec.structs import asdict
from rich.console import Console

from cli.operations.options import MeasureRange, Share
from cli.table import table
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.plan import alternatives, prospects
from domain.planning.requirement import HORIZON_DAYS, smallest_lift_by_horizon

_OPEN_SHARE = Share(0, 1, min_open=True, max_open=True)


@click.command("plan")
@click.option(
    "--sessions-per-day",
    type=MeasureRange(min=0, min_open=True),
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
    type=Share(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of them that is measured: the project's setting.",
)
@click.option("--alpha", type=_OPEN_SHARE, default=Boundary.alpha, show_default=True)
@click.option(
    "--typical-lift",
    "typical_lifts",
    type=MeasureRange(0.01, 2),
    multiple=True,
    default=Boundary.typical_lifts,
    show_default=True,
    help="A lift that the test is made for, up to four: the project's setting typical_lifts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def plan(
    *,
    sessions_per_day: float,
    rate: float,
    share: float,
    sample_rate: float,
    alpha: float,
    typical_lifts: tuple[float, ...],
    as_json: bool,
) -> None:
    """Say how many days a canary takes, and how to make it quicker.

    To decide: until a lift of that size is detected in 80 % of runs. To exclude harm: until a loss
    of that size is excluded in 80 % of runs of a change that does nothing, as `wait
    --accept-harm` asks. Days are days of traffic; the metric's window comes after them.
    """
    try:
        design = Design(
            sessions_per_day=sessions_per_day, rate=rate, share=share, sample_rate=sample_rate
        )
        boundary = Boundary(alpha=alpha, typical_lifts=typical_lifts)
    except ValueError as error:
        option = str(error).split()[0].removesuffix("s").replace("_", "-")
        raise click.BadParameter(str(error), param_hint=f"'--{option}'") from None
    document = planned(design, boundary)
    if as_json:
        click.echo(json.dumps(document))
        return
    console, lifts, measured = Console(), document["lifts"], document["sample_rate"]
    sampled = "" if measured == 1 else f", {100 * measured:g} % are measured"
    console.print(
        f"{document['sessions_per_day']:,.0f} sessions a day, {100 * document['rate']:g} %"
        f" convert, {100 * document['share']:g} % get the canary{sampled}",
        highlight=False,
    )
    needs = (
        (
            _signed(lift["relative_lift"]),
            _count(lift["sessions_to_decide"]),
            days(lift["days_to_decide"]),
            _count(lift["sessions_to_exclude_harm"]),
            days(lift["days_to_exclude_harm"]),
        )
        for lift in lifts
    )
    columns = (">sessions to decide", ">days", ">sessions to exclude harm", ">days")
    title = "What it takes, at 80 % power"
    console.print(table(needs, "change of the rate", *columns, title=title, left=True))
    if document["instead"]:
        plans: list[dict[str, Any]] = [{**document, "change": "this plan"}, *document["instead"]]
        instead = (
            (each["change"], *(days(lift["days_to_decide"]) for lift in each["lifts"]))
            for each in plans
        )
        columns = ("", *(f">{_signed(lift['relative_lift'])}" for lift in lifts))
        console.print(table(instead, *columns, title="Days to decide with", left=True))
    smallest = document["smallest_lift_by_horizon"]
    by_then = (
        " No lift can be detected by then."
        if smallest is None
        else f" By then a rise of {100 * smallest:.1f} % is detected."
        " Bundles: the lifts add up, and so do the suspects.\n"
        "An earlier step: the same relative lift on a rate that is higher."
    )
    ends = f"* beyond {HORIZON_DAYS} days, when an experiment ends."
    console.print(f"{ends}{by_then}", highlight=False)


def _signed(lift: float) -> str:
    return f"±{100 * lift:.0f} %"


def _count(sessions: float | None) -> str:
    return "never" if sessions is None else f"{sessions:,.0f}"


def days(count: float | None) -> str:
    """A number of days as a table shows it; marked where it is beyond the horizon."""
    if count is None:
        return "never"
    digits = 2 if count < 1 else 1
    shown = f"{count:,.{digits}f}" if count >= 0.01 else "< 0.01"
    return f"{shown}*" if count > HORIZON_DAYS else shown


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
