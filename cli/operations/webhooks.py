"""The command `webhooks`: where each delivery stands, and sending it again."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.store import project_transaction
from cli.table import table
from storage.verdicts.deliveries import Delivery, list_deliveries, send_again


@click.group("webhooks")
def webhooks() -> None:
    """List deliveries to webhooks, and send them again."""


@webhooks.command("list")
@click.option("--all", "arrived", is_flag=True, help="Also list deliveries that arrived.")
@project_option
@json_option
@data_dir_option
def list_command(project: str, *, arrived: bool, as_json: bool, data_dir: Path) -> None:
    """List waiting and abandoned deliveries, the newest first."""
    with project_transaction(data_dir, project) as (connection, project_id):
        deliveries = list_deliveries(connection, project_id, arrived=arrived)
    if as_json:
        listed = [{**asdict(delivery), "event": _event(delivery)} for delivery in deliveries]
        click.echo(json.dumps(listed, default=datetime.isoformat))
    elif deliveries:
        columns = ("delivery", "experiment", "event", "receiver", "attempts", "state", "problem")
        Console().print(table(map(_row, deliveries), *columns))
    else:
        click.echo("No delivery yet." if arrived else "No delivery is waiting or was given up.")


@webhooks.command("resend")
@click.argument("delivery", required=False)
@click.option("--given-up", is_flag=True, help="All that were given up.")
@project_option
@json_option
@data_dir_option
def resend(
    delivery: str | None, project: str, *, given_up: bool, as_json: bool, data_dir: Path
) -> None:
    """Send a delivery again, under the same identifier and with the same body.

    DELIVERY is its identifier in `webhooks list`. It is due at once, and tried as often as any
    that is new.
    """
    if given_up == (delivery is not None):
        raise click.UsageError("name a delivery, or say --given-up")
    with project_transaction(data_dir, project) as (connection, project_id):
        due = send_again(connection, project_id, delivery)
    if delivery is not None and not due:
        raise click.ClickException(f"the project has no delivery {delivery}")
    if as_json:
        click.echo(json.dumps({"due": due}))
    else:
        click.echo(f"{due} due now; the sensor deploy_reward_webhooks delivers.")


def _event(delivery: Delivery) -> str:
    """Returns the announced event, a breach with its metric."""
    return f"{delivery.kind}: {delivery.subject}" if delivery.subject else delivery.kind


def _row(delivery: Delivery) -> tuple[str, ...]:
    # Every delivery has such a time.
    times = {
        "arrived": delivery.delivered_at,
        "given up": delivery.given_up_at,
        "due": delivery.next_attempt_at,
    }
    state = next(f"{word} {at:%Y-%m-%d %H:%M:%S} UTC" for word, at in times.items() if at)
    return (
        delivery.announcement_id,
        delivery.experiment_id or "",
        _event(delivery),
        delivery.receiver or "no longer in the settings",
        str(delivery.attempts),
        state,
        delivery.problem or "",
    )
