"""The command `forget`: erases a person's events; their part of the counts stays without a name."""

import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
from sqlalchemy import Engine

from cli.operations.actor import command_actor
from cli.operations.options import data_dir_option, project_option
from cli.operations.projects import json_option
from cli.operations.store import store_engine
from domain.contract import document_text
from storage.log.lake import open_lake
from storage.schema.clock import is_rebuilding
from storage.tenants.projects import find_project
from storage.tenants.secret import Pseudonyms, service_secret
from storage.upkeep.forgetting import (
    MOST_USERS,
    Forgotten,
    TooManyUsers,
    forget_session,
    forget_user,
    vacuum,
)


@click.command("forget")
@click.option("--user-ref", help="The person's user reference, as events and revenue name it.")
@click.option("--session", help="A session of the person, where no user reference is known.")
@click.option(
    "--yes", is_flag=True, help=f"Erase more than {MOST_USERS} user references without a question."
)
@project_option
@json_option
@data_dir_option
def forget(
    *,
    user_ref: str | None,
    session: str | None,
    yes: bool,
    project: str,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Erase a person; their part of the counts stays, without a name.

    Runtime events, revenue events and exposures of the person's user references and sessions go
    at once. The write key says which of these belong together: of a session that only the public
    key ties to the person, the public key's own events go. No verdict changes, and a rebuild and
    an audit still add up. Make sure that nothing more of the person is being sent: later events
    count as those of a new person.
    """
    if (user_ref is None) == (session is None):
        raise click.UsageError("name the person by one of --user-ref and --session")

    lake = open_lake(data_dir=data_dir)

    def erase(engine: Engine, limit: int | None) -> Forgotten:
        with engine.begin() as connection:
            project_id = find_project(connection, project).project_id
            if is_rebuilding(connection):
                click.echo("A rebuild is under way: waiting until it has ended.", err=True)
            if user_ref is None:
                forgetting = partial(forget_session, session_id=session or "")
            else:
                pseudonym = Pseudonyms(_secret(data_dir)).of(project_id, user_ref)
                forgetting = partial(forget_user, pseudonym=pseudonym)
            return forgetting(connection, project_id, by=command_actor(), lake=lake, limit=limit)

    with store_engine(data_dir) as engine:
        try:
            erased = erase(engine, None if yes else MOST_USERS)
        except TooManyUsers as refusal:
            _confirm(refusal)
            erased = erase(engine, refusal.users)
        vacuum(engine, erased.tables)
    click.echo(document_text(asdict(erased)) if as_json else _as_text(erased))


def _confirm(refusal: TooManyUsers) -> None:
    if not sys.stdin.isatty():
        raise click.ClickException(f"{refusal.detail}: nothing is erased without --yes")
    click.confirm(f"{refusal.detail[0].upper()}{refusal.detail[1:]}. Go on?", abort=True, err=True)


def _secret(data_dir: Path) -> bytes:
    # A new secret, which any other command would make, knows nobody.
    if not os.environ.get("SERVICE_SECRET") and not (data_dir / "secret").exists():
        raise click.ClickException(
            f"SERVICE_SECRET is not set, and {data_dir} holds no secret: without the service's"
            " own secret nobody is found by user reference"
        )
    return service_secret(data_dir)


def _as_text(erased: Forgotten) -> str:
    if not erased.tables:
        return f"Nothing is stored of this person{_of_files(erased)}."
    return (
        f"Erased {erased.runtime_events:,} runtime events and {erased.revenue_events:,} revenue"
        f" events of {erased.users:,} user references and {erased.sessions:,} sessions;"
        f" {erased.exposures:,} exposures stay in counts without a name{_of_files(erased)}."
        f"{_of_kept_sessions(erased)}"
    )


def _of_kept_sessions(erased: Forgotten) -> str:
    """Returns a sentence on sessions that keep their names."""
    if not erased.kept_sessions:
        return ""
    return (
        f" {erased.kept_sessions:,} of the sessions keep their names and what the write key sent"
        " of them, since only the public key ties them to this person: --session erases one whole."
    )


def _of_files(erased: Forgotten) -> str:
    """Returns what becomes of events that are in the lake alone; they are not counted yet."""
    if not erased.moved_files:
        return ""
    return (
        f"; {erased.moved_files:,} files of the lake that alone hold older days leave"
        " this person out from now on, and are written anew tonight where they hold anything"
    )
