"""The command `audit-trail`: who changed what of a project and when."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.store import project_transaction
from cli.table import table
from storage.views.audit_trail import AuditEntry, audit_document, read_trail

_ENTRIES = 50


@click.command("audit-trail")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_ENTRIES, show_default=True, help="How many."
)
@click.option("--before", type=click.IntRange(min=1), help="Only entries before this number.")
@project_option
@json_option
@data_dir_option
def audit_trail(
    limit: int, before: int | None, project: str, *, as_json: bool, data_dir: Path
) -> None:
    """List who changed settings, keys and experiments, newest first.

    Freezes are of the whole service and stand in each project's trail.
    """
    with project_transaction(data_dir, project) as (connection, project_id):
        entries = read_trail(connection, project_id, limit=limit, before=before)
    if as_json:
        click.echo(json.dumps([audit_document(entry) for entry in entries]))
    elif entries:
        Console().print(table(map(_row, entries), "entry", "when", "who", "what", "changes"))
    else:
        click.echo("Nothing was changed yet.")


def _row(entry: AuditEntry) -> tuple[str, ...]:
    actor = entry.actor
    changes = (
        f"{change.member}: {json.dumps(change.after)}"
        if change.before is None
        else f"{change.member}: {json.dumps(change.before)} → {json.dumps(change.after)}"
        for change in entry.changes
    )
    return (
        str(entry.entry_id),
        f"{entry.happened_at:%Y-%m-%d %H:%M:%S}",
        escape(" ".join(filter(None, (actor.kind.value, actor.name, actor.identity)))),
        escape(" ".join(filter(None, (entry.action, entry.subject)))),
        escape("\n".join(changes)),
    )
