"""The commands `freeze` and `unfreeze`: no verdict is to be acted on for a while."""

import json
from pathlib import Path

import click

from cli.operations.actor import command_actor
from cli.operations.options import data_dir_option, json_option
from cli.operations.store import store_transaction
from storage.releases.freeze import Freeze, current_freeze
from storage.releases.freeze import freeze as put_in_force
from storage.releases.freeze import unfreeze as end


@click.command("freeze")
@click.option("--reason", required=True, help="Why; shown by each gate and page.")
@json_option
@data_dir_option
def freeze(reason: str, as_json: bool, data_dir: Path) -> None:
    """Hold every webhook back; evidence goes on.

    For the whole service, until `unfreeze`. Frozen already, it stays as it is, since when and why
    it was.
    """
    with store_transaction(data_dir) as connection:
        new = put_in_force(connection, reason, by=command_actor())
        in_force = current_freeze(connection)
    if in_force is None:
        raise click.ClickException("it was unfrozen at the same moment")
    if as_json:
        click.echo(json.dumps({"frozen": True, "new": new, **_document(in_force)}))
    else:
        click.echo(f"{'Frozen' if new else 'Frozen already'}, {_as_text(in_force)}")


@click.command("unfreeze")
@json_option
@data_dir_option
def unfreeze(as_json: bool, data_dir: Path) -> None:
    """End a freeze and send the webhooks that waited."""
    with store_transaction(data_dir) as connection:
        ended = end(connection, by=command_actor())
    if as_json:
        click.echo(json.dumps({"frozen": False, **({} if ended is None else _document(ended))}))
    elif ended is None:
        click.echo("Not frozen.")
    else:
        click.echo(f"No longer frozen. It was {_as_text(ended)}")


def _document(in_force: Freeze) -> dict[str, str]:
    return {"frozen_at": in_force.frozen_at.isoformat(), "reason": in_force.reason}


def _as_text(in_force: Freeze) -> str:
    return f"since {in_force.frozen_at:%Y-%m-%d %H:%M:%S} UTC: {in_force.reason}"
