"""Dagster's web server behind the guard, as a process: `python -m orchestration.web_server`.

Takes the words of `dagster-webserver`, which itself takes no middleware: its command hands the
application to `uvicorn.run`, and so this hands on a guarded application.
"""

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from orchestration.guard import Guard


def main() -> None:
    """Serve Dagster's pages, to no other site's page.

    Answered are requests for loopback names, for the host of SERVICE_DAGSTER_URL, and for those
    that SERVICE_DAGSTER_HOSTS names, separated by commas.
    """
    serve, hosts = uvicorn.run, os.environ.get("SERVICE_DAGSTER_HOSTS", "").split(",")

    def serve_guarded(app: ASGIApp, **options: Any) -> None:  # noqa: ANN401 - of uvicorn
        guarded = Guard(
            app,
            hosts=[host.strip() for host in hosts if host.strip()],
            url=os.environ.get("SERVICE_DAGSTER_URL") or None,
        )
        serve(guarded, **options)

    uvicorn.run = serve_guarded
    (command,) = entry_points(group="console_scripts", name="dagster-webserver")
    run: Callable[[], None] = command.load()
    run()


if __name__ == "__main__":
    main()
