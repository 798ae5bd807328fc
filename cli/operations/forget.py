"""The command `forget`: erases a person's events; their part of the counts stays without a name."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from sqlalchemy import Connection, Engine

from cli.operations.actor import command_actor
from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.store import store_engine
from domain.document import document_text
from domain.figures import counted
from storage.lake.lake import store_lake
from storage.tenants.projects import find_project
from storage.tenants.secret import Pseudonyms
from storage.tenants.settings import read_settings
from storage.tenants.store_secret import store_secret
from storage.upkeep.forgetting import MOST_USERS, Forgotten, TooManyUsers, forget_person, vacuum
from storage.upkeep.reading import is_rebuilding

# Erased, but for files that cannot be written anew.
INCOMPLETE = 4


@click.command("forget")
@click.option("--user-ref", help="The person's user reference, as events and revenue name it.")
@click.option("--session", help="A session of the person, where no user reference is known.")
@click.option("--unit", help="In their place a unit by name, such as an account.")
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
    unit: str | None,
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
    count as those of a new person. Files of the lake leave the person out at once,
    and are written anew at night; exits with 4 where some of them cannot be, since they are not as
    they are listed.
    """
    if sum(each is not None for each in (user_ref, session, unit)) != 1:
        raise click.UsageError("name the person by --user-ref, --session or --unit")

    def erase(engine: Engine, limit: int | None) -> Forgotten:
        with engine.begin() as connection:
            project_id = find_project(connection, project).project_id
            if is_rebuilding(connection):
                click.echo("A rebuild is under way: waiting until it has ended.", err=True)
            person: bytes | str = session or ""
            if session is None:
                secret = store_secret(connection, data_dir, make=False)
                name = None if unit is None else _property(connection, project_id)
                person = Pseudonyms(secret).of(project_id, user_ref or unit or "", unit=name)
            return forget_person(
                connection,
                project_id,
                person,
                by=command_actor(),
                lake=store_lake(engine, data_dir=data_dir),
                limit=limit,
                is_unit=unit is not None,
            )

    with store_engine(data_dir) as engine:
        try:
            erased = erase(engine, None if yes else MOST_USERS)
        except TooManyUsers as refusal:
            detail = refusal.detail
            if not sys.stdin.isatty():
                raise click.ClickException(f"{detail}: nothing is erased without --yes") from None
            click.confirm(f"{detail[0].upper()}{detail[1:]}. Go on?", abort=True, err=True)
            erased = erase(engine, refusal.users)
        vacuum(engine, erased.tables)
    click.echo(document_text(asdict(erased)) if as_json else "\n".join(_sentences(erased)))
    if erased.wrong_files:
        raise click.exceptions.Exit(INCOMPLETE)


def _property(connection: Connection, project_id: int) -> str:
    if (name := read_settings(connection, project_id).unit_property) is None:
        raise click.UsageError("--unit: the project's setting unit names no property")
    return name


def _sentences(erased: Forgotten) -> Iterator[str]:
    """Yields sentences on the erasure: of files on the part done at once, and on tonight's."""
    if erased.tables:
        yield (
            f"Erased {erased.runtime_events:,} runtime events and {erased.revenue_events:,} revenue"
            f" events of {erased.users:,} user references and {erased.sessions:,} sessions;"
            f" {erased.exposures:,} exposures stay in counts without a name."
        )
    elif erased.files:
        yield (
            "Nothing is stored of this person in the database; whatever"
            f" {counted(erased.files, 'file')} of the lake may hold is left out from now on, and"
            " goes tonight."
        )
    else:
        yield "Nothing is stored of this person in the database."
    if erased.kept_sessions:
        yield (
            f"{erased.kept_sessions:,} of the sessions keep their names and what the write key sent"
            " of them, since only the public key ties them to this person: --session erases a"
            " whole."
        )
    if erased.files and erased.tables:
        yield (
            f"From now on this person is left out wherever {counted(erased.files, 'file')} of the"
            " lake are read. Tonight's housekeeping writes those anew that hold anything of them."
        )
    if erased.wrong_files:
        yield (
            "NOT ERASED where a file is not as it is listed"
            f" ({counted(erased.wrong_files, 'file')}): nothing can be written anew from it, so"
            " its bytes keep what they hold of this person until the right file is back, or its"
            " day is dropped. The check sealed_hours_hold_what_the_log_held names each."
        )
    for experiment_id in erased.not_computed:
        yield (
            f"{experiment_id} cannot be computed any more: if it counted this person, an audit of"
            " it misses a unit."
        )
