"""`list`: the experiments of a project, the newest first."""

from pathlib import Path
from urllib.parse import urlencode

import click
from rich.console import Console

from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.remote import READING_KEY, decoded, remote
from cli.table import table
from domain.listing import ListedVerdict, VerdictList


@click.command("list")
@click.option("--status", type=click.Choice(["open", "decided"]), help="Only these; default: all.")
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=50,
    show_default=True,
    help="So many at most, the newest first.",
)
@json_option
@project_option
@data_dir_option
def list_experiments(
    *, status: str | None, limit: int, as_json: bool, project: str, data_dir: Path
) -> None:
    """List a project's experiments with their verdicts.

    With SERVICE_API_URL the running service is asked, with the project key in
    SERVICE_PROJECT_KEY; without it the store of the data directory, and --project names the
    project.
    """
    query = urlencode({"limit": limit, **({} if status is None else {"status": status})})
    with remote(READING_KEY, data_dir, project=project) as service:
        text = service.ask("GET", f"/v1/reward?{query}").text
    if as_json:
        click.echo(text)
        return
    page = decoded(text, VerdictList)
    if not page.experiments:
        click.echo("No experiment: `deploy-reward register` makes one.", err=True)
        return
    columns = ("experiment", "change", "metric", "verdict", "registered")
    listed = table(map(_row, page.experiments), *columns)
    # Whole: it is what the next command takes.
    listed.columns[0].no_wrap = True
    Console().print(listed)
    if page.next_cursor is not None:
        click.echo("There are more: --limit, or the dashboard's list.", err=True)


def _row(listed: ListedVerdict) -> tuple[str, ...]:
    return (
        listed.experiment_id,
        (listed.treatment_commit or "the next deploy")[:12],
        listed.metric,
        listed.headline,
        f"{listed.registered_at:%d %b %H:%M}",
    )
