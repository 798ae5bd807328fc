"""Connections to the store, with the session settings that every reader and writer shares."""

import re
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from sqlalchemy import Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import StatementError

SCHEMA = "deploy_reward"
_OPTIONS = f"-c search_path={SCHEMA} -c timezone=UTC -c jit=off"
# A transaction of the pipeline waits while an engine of whole days computes: many managed servers
# would end it within minutes. No blank is in it: libpq reads a `+` of a URL as it is.
LONG_COMPUTATIONS = "--idle_in_transaction_session_timeout=0"


class StoreUnavailable(Exception):  # noqa: N818 - a state of the store, retried by the client
    """The store cannot be reached or written, or more waits for it than it takes."""


# By SQLSTATE: what keeps a store that answers from being written.
_NOT_WRITABLE = {"53100": "its disk is full", "25006": "it is read-only"}


def unavailable(error: BaseException) -> StoreUnavailable:
    """Returns a message for a driver's error of the store."""
    reason = _NOT_WRITABLE.get(getattr(error, "sqlstate", None) or "")
    if reason is None:
        return StoreUnavailable("the store cannot be reached")
    return StoreUnavailable(f"the store cannot be written: {reason}")


# Limit for processes that answer requests: a locked table is no reason to hang.
PATIENCE = "-c lock_timeout=8s"


def connection_string(url: str) -> str:
    """Returns the URL in libpq's form, for psycopg without SQLAlchemy."""
    plain = make_url(url).set(drivername="postgresql")
    return plain.render_as_string(hide_password=False)


def open_engine(url: str, *, pool_size: int = 5) -> Engine:
    """Opens a pool of blocking connections, by psycopg 3 whatever driver the URL names."""
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        pool_pre_ping=True,
        # A row may name a person; an error must not.
        hide_parameters=True,
        connect_args={"options": f"{_OPTIONS} {LONG_COMPUTATIONS}", "connect_timeout": 5},
    )
    event.listen(engine, "handle_error", _mask_values)
    return engine


@contextmanager
def opened_engine(url: str) -> Generator[Engine]:
    """Yields a pool of blocking connections, closed at the end."""
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _mask_values(context: ExceptionContext) -> None:
    """Take the values of rows out of an error, whose text ends in logs and in Dagster's records.

    PostgreSQL quotes them in DETAIL and CONTEXT, and unreadable ones (SQLSTATE class 22) in
    the message itself. Names of tables and constraints stay.
    """
    error, outer = context.original_exception, context.sqlalchemy_exception
    if not isinstance(error, psycopg.Error):
        return
    message = re.split(r"\n(?:DETAIL|CONTEXT|LINE \d+):", str(error))[0]
    if (error.sqlstate or "").startswith("22"):
        message = re.sub(r'"[^"]*"', '"…"', message)
    error.args = (message,)
    if isinstance(outer, StatementError):
        outer.args = (f"({type(error).__module__}.{type(error).__qualname__}) {message}",)


def session_options() -> str:
    """Returns the libpq `options` under which plain psycopg connections see the same store."""
    return _OPTIONS
