"""The pool of asyncio connections to the store; it takes a sixth of a CPU second to load."""

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from storage.postgres.engine import PATIENCE, session_options


def open_async_engine(url: str, *, pool_size: int = 10) -> AsyncEngine:
    """Opens a pool of asyncio connections; the store's functions run on it by `run_sync`."""
    return create_async_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=True,
        # A row may name a person; an error must not.
        hide_parameters=True,
        connect_args={"options": f"{session_options()} {PATIENCE}", "connect_timeout": 5},
    )
