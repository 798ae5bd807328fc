"""Dagster's web server behind the guard, as a process: `python -m orchestration.web_server`.

`dagster-webserver` itself takes no middleware, so this builds the same application by the
functions that its command calls, and serves it with the guard in front.
"""

import os

import click
import dagster as dg
import uvicorn
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__

from orchestration.dagster.upkeep.private_dagster import (
    WorkspaceFileTarget,
    WorkspaceProcessContext,
)
from orchestration.guard import Guard

# As dagster-webserver sets them by default.
_STATEMENT_MILLISECONDS = 15_000
_RECYCLE_SECONDS = 3_600
_MOST_OVERFLOW = 20


@click.command()
@click.option("--host", "-h", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", "-p", default=3000, show_default=True, help="The port to listen on.")
@click.option("--path-prefix", "-l", default="", help="The path below which it is served.")
@click.option(
    "--workspace",
    "-w",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A workspace.yaml; may be repeated.",
)
@click.option("--read-only", is_flag=True, help="Turn every mutation off.")
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["critical", "error", "warning", "info", "debug", "trace"]),
    help="What the web server logs.",
)
def main(
    *,
    host: str,
    port: int,
    path_prefix: str,
    workspace: tuple[str, ...],
    read_only: bool,
    log_level: str,
) -> None:
    """Serve Dagster's pages, to no other site's page.

    The instance is that of DAGSTER_HOME. Answered are requests for loopback names, for the host of
    SERVICE_DAGSTER_URL, and for those that SERVICE_DAGSTER_HOSTS names, separated by commas.
    """
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(_STATEMENT_MILLISECONDS, _RECYCLE_SECONDS, _MOST_OVERFLOW)
        with WorkspaceProcessContext(
            instance,
            version=__version__,
            read_only=read_only,
            workspace_load_target=WorkspaceFileTarget(paths=list(workspace)),
        ) as context:
            app = create_app_from_workspace_process_context(context, path_prefix)
            hosts = os.environ.get("SERVICE_DAGSTER_HOSTS", "").split(",")
            guarded = Guard(
                app,
                hosts=[host.strip() for host in hosts if host.strip()],
                url=os.environ.get("SERVICE_DAGSTER_URL") or None,
            )
            uvicorn.run(guarded, host=host, port=port, log_level=log_level)


if __name__ == "__main__":
    main()
