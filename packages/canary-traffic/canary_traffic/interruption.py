"""An interruption: Ctrl-C, or a request to stop, as the same exception in the main thread."""

import signal
from collections.abc import Generator
from contextlib import contextmanager

# Exit code that a shell reports after Ctrl-C.
INTERRUPTED = 130


@contextmanager
def interruptible() -> Generator[None]:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt, also where the starter ignores them."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
