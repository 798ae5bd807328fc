"""The command `close`: an experiment ends by hand."""

import json
from pathlib import Path

import click

from cli.changes.experiment import experiment as reached
from cli.operations.store import data_dir_option


@click.command("close")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict contract.")
@data_dir_option
def close(experiment: str, as_json: bool, data_dir: Path) -> None:
    """End an experiment by hand, without a verdict.

    At its next evaluation it is decided `abstain` with what it knows; one that is decided already
    stays as it is. With SERVICE_API_URL the running service is asked, with the project key in
    SERVICE_PROJECT_KEY; without it the store.
    """
    with reached(experiment, data_dir) as found:
        contract = found.close().text
    if as_json:
        click.echo(contract)
        return
    told = json.loads(contract)
    if told["verdict"] != "abstain":
        click.echo(f"{experiment} was decided before: {told['verdict']}.")
    elif told["power_state"]["decided"]:
        click.echo(f"{experiment} ended without a verdict before.")
    else:
        click.echo(f"{experiment} is closed: it will be decided without a verdict.")
