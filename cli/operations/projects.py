"""`project`, `keys` and `settings`: who may send what, and how it is judged."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy import Connection

from cli.operations.actor import command_actor
from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.store import project_transaction, store_transaction
from cli.table import table
from storage.postgres.refusal import Invalid
from storage.tenants.attestations import WebhookSecrets
from storage.tenants.keys import KeyKind
from storage.tenants.projects import (
    LONGEST_LABEL,
    create_key,
    create_project,
    list_keys,
    list_projects,
    revoke_key,
)
from storage.tenants.secret import Assignments
from storage.tenants.setting_changes import apply_settings, settings_document
from storage.tenants.settings import read_settings
from storage.tenants.store_secret import store_secret


@click.group()
def project() -> None:
    """Create and list projects."""


@project.command("create")
@click.argument("name")
@click.option(
    "--export", is_flag=True, help='Print lines for a shell: eval "$(… project create X --export)".'
)
@json_option
@data_dir_option
def create(name: str, export: bool, as_json: bool, data_dir: Path) -> None:
    """Create a project with a key of each kind, shown this once.

    With --export the keys are WRITE_KEY, PUBLIC_KEY, PROJECT_KEY and SERVICE_PROJECT_KEY of the
    shell that evaluates these lines.
    """
    if export and as_json:
        raise click.UsageError("give either --export or --json")
    with store_transaction(data_dir) as connection:
        created = create_project(connection, name, by=command_actor())
    keys = {kind.value: key for kind, key in created.keys.items()}
    document = {"project_id": created.project_id, "name": created.name, "keys": keys}
    if as_json:
        click.echo(json.dumps(document))
        return
    if export:
        for line in exported_keys(created.keys):
            click.echo(line)
        return
    console = Console()
    console.print(f"Project [bold]{created.name}[/bold] (number {created.project_id}).")
    for kind, key in keys.items():
        console.print(f"  {kind:<8} {key}", highlight=False)
    console.print("Keep them now: they are stored as digests and never shown again.")


def exported_keys(keys: Mapping[KeyKind, str]) -> list[str]:
    """Returns the lines that hand a project's keys to a shell, and so to commands and pages."""
    # Pages call it by its own name, commands read it under the interface's.
    reading = keys[KeyKind.PROJECT]
    return [
        f"export WRITE_KEY={keys[KeyKind.WRITE]} PUBLIC_KEY={keys[KeyKind.PUBLIC]}",
        f"export PROJECT_KEY={reading} SERVICE_PROJECT_KEY={reading}",
    ]


@project.command("list")
@json_option
@data_dir_option
def list_command(as_json: bool, data_dir: Path) -> None:
    """List the projects."""
    with store_transaction(data_dir) as connection:
        projects = list_projects(connection)
    rows = [
        {
            "project_id": project.project_id,
            "name": project.name,
            "created_at": project.created_at.isoformat(),
        }
        for project in projects
    ]
    _print(rows, as_json=as_json)


@click.group()
def keys() -> None:
    """Create, list and revoke keys; show those that sign."""


@keys.command("create")
@click.argument("kind", type=click.Choice([kind.value for kind in KeyKind]))
@click.option("--label", help="Who or what holds it; `list` shows it.")
@project_option
@json_option
@data_dir_option
def create_key_command(
    kind: str, label: str | None, project: str, as_json: bool, data_dir: Path
) -> None:
    """Create a key and show it this once; older keys stay live."""
    if label is not None and len(label) > LONGEST_LABEL:
        raise click.BadParameter(f"has more than {LONGEST_LABEL} characters", param_hint="--label")
    with project_transaction(data_dir, project) as (connection, project_id):
        key = create_key(connection, project_id, KeyKind(kind), label=label, by=command_actor())
    click.echo(json.dumps({"kind": kind, "key": key}) if as_json else key)


@keys.command("list")
@project_option
@json_option
@data_dir_option
def list_keys_command(project: str, as_json: bool, data_dir: Path) -> None:
    """List a project's keys by their beginnings, with their last use, roughly.

    A use is noted at most once in ten minutes: a key whose last use is older than that, and stays
    the same, is not used any more.
    """
    with project_transaction(data_dir, project) as (connection, project_id):
        keys_of_project = list_keys(connection, project_id)
    rows = [
        {
            "key": f"{key.display}…",
            "kind": key.kind.value,
            "label": key.label,
            "created_at": key.created_at.isoformat(),
            "last_used_at": key.last_used_at.isoformat() if key.last_used_at else None,
            "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
        }
        for key in keys_of_project
    ]
    _print(rows, as_json=as_json)


@keys.command("revoke")
@click.argument("key")
@project_option
@json_option
@data_dir_option
def revoke_key_command(key: str, project: str, as_json: bool, data_dir: Path) -> None:
    """End a key, named whole or by its beginning."""
    with project_transaction(data_dir, project) as (connection, project_id):
        revoked = revoke_key(connection, project_id, key, by=command_actor())
    if as_json:
        click.echo(json.dumps({"key": f"{revoked.display}…", "revoked": True}))
    else:
        click.echo(f"{revoked.display}… ({revoked.kind.value}) is revoked.")


@keys.command("assignment")
@click.option("--epoch", type=click.IntRange(min=1), help="Its number; by default the router's.")
@project_option
@json_option
@data_dir_option
def assignment_key_command(epoch: int | None, project: str, as_json: bool, data_dir: Path) -> None:
    """Show the secret that the arms' router signs with; no database holds it."""
    with project_transaction(data_dir, project) as (connection, project_id):
        chosen = read_settings(connection, project_id)
        secret = _secret_of_the_api(connection, data_dir)
    number = epoch or chosen.assignment_epochs[0]
    key = Assignments(secret).key(project_id, number)
    click.echo(json.dumps({"epoch": number, "key": key}) if as_json else key)
    if number not in chosen.assignment_epochs:
        click.echo(f"assignment_epochs does not name {number}: its tokens don't count.", err=True)


@keys.command("webhook")
@project_option
@json_option
@data_dir_option
def webhook_key_command(project: str, as_json: bool, data_dir: Path) -> None:
    """Show what receivers verify the project's webhooks with; no database holds it."""
    with project_transaction(data_dir, project) as (connection, project_id):
        key = WebhookSecrets(_secret_of_the_api(connection, data_dir)).of(project_id)
    click.echo(json.dumps({"key": key}) if as_json else key)


def _secret_of_the_api(connection: Connection, data_dir: Path) -> bytes:
    """Returns the secret; beside a store of its own address none is made, which no API had."""
    return store_secret(connection, data_dir, make="SERVICE_DATABASE_URL" not in os.environ)


@click.group()
def settings() -> None:
    """Show and apply a project's settings."""


@settings.command("show")
@project_option
@json_option
@data_dir_option
def show(project: str, as_json: bool, data_dir: Path) -> None:
    """Show all settings of a project, defaults included."""
    with project_transaction(data_dir, project) as (connection, project_id):
        chosen = read_settings(connection, project_id)
    _print_settings(settings_document(chosen), as_json=as_json)


@settings.command("apply")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@project_option
@json_option
@data_dir_option
def apply(file: Path, project: str, as_json: bool, data_dir: Path) -> None:
    """Replace the settings that a TOML file names; others stay as they are."""
    try:
        chosen = tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"{file.name} is not TOML: {error}") from error
    with project_transaction(data_dir, project) as (connection, project_id):
        try:
            stored = apply_settings(connection, project_id, chosen, by=command_actor())
        except Invalid as refused:
            place = refused.pointer.removeprefix("/").replace("/", ".")
            raise click.ClickException(
                f"{place}: {refused.detail}" if place else refused.detail
            ) from refused
    _print_settings(settings_document(stored), as_json=as_json)


def _print(rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    cells = (["" if value is None else str(value) for value in row.values()] for row in rows)
    Console().print(table(cells, *(rows[0] if rows else ())))


def _print_settings(document: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
        return
    for name, value in document.items():
        click.echo(f"{name} = {json.dumps(value)}")
