"""The commands that each run a part of the service: `api`, `dagster`, `migrate`."""

import os
from contextlib import suppress
from pathlib import Path

import click
from own_postgres.server import make_data_dir
from sqlalchemy.exc import OperationalError

from cli.operations.options import data_dir_option
from cli.operations.store import any_store_url, store_url
from cli.processes import children
from cli.processes.dagster_home import (
    claim_folders,
    dagster_environment,
    write_dagster_home,
    write_workspace,
)
from cli.processes.supervisor import Supervisor, stop_on_signals
from storage.postgres.engine import opened_engine
from storage.schema.migrate import is_newest, upgrade
from storage.tenants.secret import written_secret
from storage.tenants.store_secret import store_secret


@click.command("api")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, help="The port to listen on.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that share the port.",
)
@data_dir_option
def api(host: str, port: int, workers: int, data_dir: Path) -> None:
    """Serve the REST API alone.

    Works on SERVICE_DATABASE_URL, which `deploy-reward migrate` has brought to this version, or
    on the data directory's own store. Any number may serve the same store.
    """
    from api.server.process import serve  # noqa: PLC0415 (the other commands here do without)

    if port and children.taken(host, port):
        raise click.ClickException(f"port {port} on {host} is in use; give another with --port")
    with any_store_url(data_dir) as url:
        _make_secret(url, data_dir)
        os.environ["SERVICE_DATABASE_URL"] = url
        os.environ["SERVICE_DATA_DIR"] = str(data_dir)
        serve(
            host=host,
            port=port,
            workers=workers,
            application="cli.processes.application:application",
        )


def _make_secret(url: str, data_dir: Path) -> None:
    """Make the secret of a new store; a store that cannot be asked yet has its secret."""
    with suppress(OperationalError), opened_engine(url) as engine, engine.begin() as connection:
        if is_newest(connection):
            store_secret(connection, data_dir)


@click.command("dagster")
@click.option("--port", default=3000, show_default=True, help="The web server's port.")
@data_dir_option
def dagster(port: int, data_dir: Path) -> None:
    """Run Dagster alone: code server, daemon and web server.

    Works on SERVICE_DATABASE_URL, or on the data directory's own store. Where DAGSTER_HOME names
    a folder with a dagster.yaml, that instance is used; otherwise a file is written in the data
    directory, whose records stand in the store's schema `dagster`.
    """
    if children.taken("127.0.0.1", port):
        raise click.ClickException(f"port {port} is in use; give another with --port")
    code_port = children.free_port()
    make_data_dir(data_dir)
    with (
        store_url(data_dir) as url,
        stop_on_signals() as stop,
        Supervisor(report=click.echo) as supervisor,
    ):
        with opened_engine(url) as engine, engine.begin() as connection:
            # Without it webhooks wait; another's would sign them.
            if written_secret(data_dir) is not None:
                store_secret(connection, data_dir, make=False)
        claim_folders(url, data_dir)
        home = write_dagster_home(data_dir)
        web_url = f"http://127.0.0.1:{port}"
        workspace = write_workspace(home, code_server_port=code_port)
        servers = children.Servers(
            data_dir=data_dir,
            env=dagster_environment(url, _own_dagster_home() or home, data_dir, web_url=web_url),
            workspace=workspace,
        )
        for child in (
            servers.code_server(port=code_port),
            servers.daemon(),
            servers.web_server(port=port),
        ):
            if not supervisor.add(child, stop):
                return
        click.echo(f"Dagster   {web_url}   (logs in {data_dir / 'logs'})")
        supervisor.run(stop)


def _own_dagster_home() -> Path | None:
    home = Path(os.environ.get("DAGSTER_HOME", ""))
    return home if home.is_absolute() and (home / "dagster.yaml").exists() else None


@click.command("migrate")
@data_dir_option
def migrate(data_dir: Path) -> None:
    """Make the tables of the store.

    Works on SERVICE_DATABASE_URL, or on the data directory's own store. Harmless when repeated,
    and when several run at once.
    """
    with any_store_url(data_dir) as url:
        upgrade(url)
    click.echo("The store is at this version.")
