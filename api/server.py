"""The API as a process: uvicorn, with logs that hold no query string and no value."""

from collections.abc import Mapping
from typing import Any

import uvicorn

# Longer than any commit takes, shorter than orchestrators wait before they kill.
_SHUTDOWN_SECONDS = 8

LOGGING: Mapping[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "stream": "ext://sys.stderr",
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "api": {"level": "INFO"},
        "uvicorn": {"level": "INFO"},
    },
}


def serve(*, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serves the application that the environment describes until a signal ends it.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        workers: How many processes.
    """
    uvicorn.run(
        "api.app:create_app",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        loop="uvloop",
        http="httptools",
        log_config=dict(LOGGING),
        # The application writes its own, without query strings.
        access_log=False,
        # Whose word on the client's address counts is a setting of each project.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
