"""Lock waits: whether somebody holds a lock, and work that is tried again until it is free."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.exc import OperationalError

ResultT = TypeVar("ResultT")

# For a lock for which whoever appends or reads would wait behind us for as long as we wait.
BRIEFLY = text("SET LOCAL lock_timeout = '100ms'")


def is_locked(error: OperationalError) -> bool:
    """Tells whether somebody holds a lock for longer than we wait."""
    return getattr(error.orig, "sqlstate", None) == "55P03"


def unless_locked(work: Callable[[], ResultT], *, attempts: int) -> ResultT:
    """Returns what work returns, tried four times a second while somebody holds its lock."""
    while True:
        attempts -= 1
        try:
            return work()
        except OperationalError as error:
            if not attempts or not is_locked(error):
                raise
        time.sleep(0.25)
