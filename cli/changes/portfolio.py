"""`portfolio`: the standing build against a hold-back, set up and read by a single command."""

from pathlib import Path
from urllib.parse import urlencode

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.operations.options import data_dir_option, project_option
from cli.operations.remote import READING_KEY, decoded, remote
from domain.figures import percent
from domain.ledger.portfolio import Portfolio, PortfolioMeasurement
from domain.ledger.sentences import (
    portfolio_headline,
    portfolio_notes,
    portfolio_steps,
)
from domain.registration import PRODUCTION
from domain.wording.effect import MOMENTS


@click.command("portfolio")
@click.argument("hold_back", required=False)
@click.option("--metric", help="What all changes together should lift; default: the project's.")
@click.option("--environment", default=PRODUCTION, show_default=True, help="Where users are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
@project_option
@data_dir_option
def portfolio(
    *,
    hold_back: str | None,
    metric: str | None,
    environment: str,
    project: str,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Measure a week's changes together, against a hold-back.

    HOLD_BACK is the commit of an earlier build that a share of the units gets again; by default
    the standing build of seven days ago. Called first, it registers the comparison and says which
    commands begin it; called later, it shows the figures beside the sum of the claims. Another
    HOLD_BACK begins another.

    With SERVICE_API_URL the running service is asked, with the project key in
    SERVICE_PROJECT_KEY; without it the store of the data directory, and --project names the
    project.
    """
    chosen = {"environment": environment, "metric": metric, "hold_back": hold_back}
    query = {name: value for name, value in chosen.items() if value is not None}
    path = f"/v1/reward/portfolio?{urlencode(query)}"
    with remote(READING_KEY, data_dir, project=project) as service:
        text = service.ask("GET", path).text
        if (members := decoded(text, Portfolio).registration) is not None:
            service.ask("POST", "/v1/reward/register", members)
            text = service.ask("GET", path).text
    if as_json:
        click.echo(text)
    else:
        _print(decoded(text, Portfolio))


def _print(figures: Portfolio) -> None:
    console = Console()
    console.print(portfolio_headline(figures), style="bold", highlight=False, markup=False)
    if figures.measurements:
        console.print(_table(figures))
    for note in (*portfolio_notes(figures), *(f"→ {step}" for step in portfolio_steps(figures))):
        # A line each, so that a command can be copied from a narrow terminal.
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def _best(line: PortfolioMeasurement) -> str:
    if line.effect is None or line.basis is None:
        return ""
    return f"{percent(line.effect)} {MOMENTS[line.basis]}"


def _table(figures: Portfolio) -> Table:
    table = Table()
    for name in ("change", "verdict", "claimed", "best estimate", "experiment"):
        table.add_column(name, justify="right" if name in ("claimed", "best estimate") else "left")
    for line in figures.measurements:
        commits = ", ".join(Text(change).plain[:12] for change in line.change)
        table.add_row(
            f"{Text(line.title).plain} ({commits})" if line.title else commits,
            line.verdict if line.decided else f"{line.verdict}, open",
            "" if line.claimed is None else percent(line.claimed),
            _best(line),
            line.experiment_id,
        )
    return table
