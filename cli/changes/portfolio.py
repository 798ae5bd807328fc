"""`portfolio`: the standing build against a hold-back, set up and read by a single command."""

from pathlib import Path
from urllib.parse import urlencode

import click
from rich.console import Console
from rich.text import Text

from cli.operations.options import data_dir_option, project_option
from cli.operations.remote import READING_KEY, decoded, remote
from cli.table import table
from domain.figures import percent
from domain.ledger.portfolio import Portfolio, PortfolioMeasurement
from domain.ledger.sentences import portfolio_headline, portfolio_notes, portfolio_steps
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
        return
    console, figures = Console(), decoded(text, Portfolio)
    console.print(portfolio_headline(figures), style="bold", highlight=False, markup=False)
    if figures.measurements:
        columns = ("change", "verdict", ">claimed", ">best estimate", "experiment")
        console.print(table(map(_row, figures.measurements), *columns))
    for note in (*portfolio_notes(figures), *(f"→ {step}" for step in portfolio_steps(figures))):
        # A line each, so that a command can be copied from a narrow terminal.
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def _row(line: PortfolioMeasurement) -> tuple[str, ...]:
    commits = ", ".join(Text(change).plain[:12] for change in line.change)
    known = None if line.effect is None or line.basis is None else (line.effect, line.basis)
    return (
        f"{Text(line.title).plain} ({commits})" if line.title else commits,
        line.verdict if line.decided else f"{line.verdict}, open",
        "" if line.claimed is None else percent(line.claimed),
        "" if known is None else f"{percent(known[0])} {MOMENTS[known[1]]}",
        line.experiment_id,
    )
