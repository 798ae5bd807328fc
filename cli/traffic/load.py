"""The command `simulate load`: page views at a chosen rate, against a running service."""

import json
import secrets
import sys
import time
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.traffic.interruption import INTERRUPTED, interruptible
from cli.traffic.run_record import RunRecord, rows
from cli.traffic.sender import Load, Sender

# The rate beside the bar is that of the last second or so.
RATE_SECONDS = 1.0


@click.command("load")
@click.option("--api-url", envvar="SERVICE_API_URL", default="http://127.0.0.1:8000")
@click.option("--key", required=True, help="The public key, or the write key.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Events a second; by default as many as the service answers.",
)
@click.option("--batch", type=click.IntRange(1, 500), default=100, help="Events in a request.")
@click.option(
    "--connections", type=click.IntRange(1, 1000), default=16, help="Requests in flight at most."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=30.0)
@click.option("--environment", default="load", help="Keeps the load apart from real traffic.")
@click.option("--route", default="/", help="Route of every event.")
@click.option("--control", default="c0ffee0", help="Commit of every other event.")
@click.option("--treatment", default="bada550", help="Commit of the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def load(
    *,
    api_url: str,
    key: str,
    rate: float | None,
    batch: int,
    connections: int,
    seconds: float,
    environment: str,
    route: str,
    control: str,
    treatment: str,
    as_json: bool,
) -> None:
    """Send page views as fast as asked, or as fast as it goes, for a given time.

    With --rate a request is sent when it is due, whether or not those before it are answered, and
    its answer's time counts from then. Busy answers (429, 503 and the like) are sent again when
    the service says. Ctrl-C ends the load with the summary so far.
    """
    plan = Load(
        rate=rate,
        batch=batch,
        connections=connections,
        seconds=seconds,
        control=control,
        treatment=treatment,
        route=route,
        environment=environment,
        run=secrets.token_hex(4),
    )
    record = RunRecord()
    sender = Sender(plan, api_url=api_url, key=key, record=record)
    console = Console(stderr=as_json)
    busy, interrupted = time.process_time(), False
    with interruptible():
        try:
            watched(sender, plan, record, console)
        except KeyboardInterrupt:
            interrupted = True
    passed = max(sender.passed, 1e-9)
    document = {
        **record.document(passed),
        "failed": sender.failed,
        "interrupted": interrupted,
        "client_cpu": round((time.process_time() - busy) / passed, 2),
        "asked": asdict(plan),
    }
    if as_json:
        click.echo(json.dumps(document))
    else:
        console.print(_table(document))
    if sender.refusal is not None:
        raise sender.refusal
    if interrupted:
        sys.exit(INTERRUPTED)


def watched(sender: Sender, plan: Load, record: RunRecord, console: Console) -> None:
    """Send a load with a bar on the console.

    Raises:
        KeyboardInterrupt: Somebody interrupted.
    """
    columns = (
        TextColumn("load"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("of {task.total:g} s  {task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=plan.seconds)
        before, events = 0.0, 0

        def watch(passed: float) -> None:
            nonlocal before, events
            progress.update(bar, completed=min(passed, plan.seconds))
            if passed - before >= RATE_SECONDS:
                now = record.posted.events
                pace = f"{(now - events) / (passed - before):,.0f} events/s, {now:,} so far"
                progress.update(bar, description=pace)
                before, events = passed, now

        sender.run(watch)


def _table(document: dict[str, Any]) -> Table:
    plan = document["asked"]
    rate = f"{plan['rate']:,g} events a second" if plan["rate"] else "as fast as it goes"
    form = f"{plan['batch']} a request, {plan['connections']} connections"
    title = "Load, interrupted" if document["interrupted"] else "Load"
    table = Table(title=title, show_header=False)
    table.add_row("asked", f"{rate}, {form}, {plan['seconds']:g} s")
    for name, value in rows(document):
        table.add_row(name, value)
    table.add_row("requests that failed", f"{document['failed']:,}")
    table.add_row("this client's CPU", f"{document['client_cpu']:.0%} of a core")
    return table
