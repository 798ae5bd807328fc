"""The command `close`: an experiment ends by hand."""

import json
from pathlib import Path

import click

from cli.changes.experiment import experiment as reached
from cli.operations.options import data_dir_option


@click.command("close")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict contract.")
@data_dir_option
def close(experiment: str, as_json: bool, data_dir: Path) -> None:
    """End an experiment by hand, without a verdict.

    At its next evaluation it is decided `abstain` with its current evidence; a decided experiment
    stays as it is. With SERVICE_API_URL the running service does it, with the project key in
    SERVICE_PROJECT_KEY; without it the store.
    """
    with reached(experiment, data_dir) as handle:
        contract = handle.close().text
    if as_json:
        click.echo(contract)
        return
    document = json.loads(contract)
    if document["verdict"] != "abstain":
        click.echo(f"{experiment} was decided before: {document['verdict']}.")
    elif document["power_state"]["decided"]:
        click.echo(f"{experiment} ended without a verdict before.")
    else:
        click.echo(f"{experiment} is closed: it will be decided without a verdict.")
