"""The command `dashboard`: a link that signs a browser in, once, or the end of every sign-in."""

import os
from pathlib import Path

import click

from cli.operations.actor import command_actor
from cli.operations.options import data_dir_option, project_option
from cli.operations.store import project_transaction
from storage.tenants.keys import Role
from storage.tenants.sign_ins import LINK_LIFETIME, create_link, end_sign_ins


def sign_in_link(url: str, code: str) -> str:
    """Returns the address that signs a browser in by a link's code."""
    # Behind the #, which browsers keep to themselves: the code is in no log of any server.
    return f"{url.rstrip('/')}/dashboard/sign-in#{code}"


@click.command()
@project_option
@click.option("--owner", is_flag=True, help="Also let it change the project's settings.")
@click.option(
    "--sign-out-all",
    is_flag=True,
    help="Instead end every sign-in to the project, and every link that was not opened yet.",
)
@click.option(
    "--url",
    default=lambda: os.environ.get("SERVICE_PUBLIC_URL") or "http://127.0.0.1:8000",
    show_default="SERVICE_PUBLIC_URL, or http://127.0.0.1:8000",
    help="The address of the API, as the browser reaches it.",
)
@data_dir_option
def dashboard(project: str, owner: bool, sign_out_all: bool, url: str, data_dir: Path) -> None:
    """Print a link that signs a browser in, once.

    It is good for 15 minutes. Whoever opens it first is signed in: to read for a week, with --owner
    to change settings for 12 hours.
    """
    if sign_out_all:
        if owner:
            raise click.UsageError("--sign-out-all makes no link: leave --owner out")
        with project_transaction(data_dir, project) as (connection, project_id):
            ended = end_sign_ins(connection, project_id, by=command_actor())
        click.echo(f"Sign-ins that were ended: {ended}. Links that were not opened are void.")
        return
    role = Role.OWNER if owner else Role.READ
    with project_transaction(data_dir, project) as (connection, project_id):
        code = create_link(connection, project_id, role, by=command_actor())
    click.echo(sign_in_link(url, code))
    minutes = LINK_LIFETIME.total_seconds() / 60
    click.echo(f"It signs in once, within {minutes:.0f} minutes.", err=True)
