"""Dagster's daemon, which goes on after the clock was set back: `python -m orchestration.daemon`.

Takes the words of `dagster-daemon`. The daemon's loops wait for the clock to pass a time that they
remember, so after a step back they stand still: this process ends then, for its supervisor to start
it again. At each start, ticks of ours that lie in the future are put back to the present.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import entry_points

import dagster as dg

from orchestration.dagster.upkeep.future_ticks import TOLERANCE_SECONDS, put_back_future_ticks

_LOOK_SECONDS = 5.0
_SET_BACK = 75  # EX_TEMPFAIL of sysexits.h: worth another start


def main() -> None:
    """Run the daemon until a signal, or until the clock is set back."""
    with dg.DagsterInstance.get() as instance:
        for name in put_back_future_ticks(instance, as_of=datetime.now(UTC)):
            _say(f"the last tick of {name} lay in the future; it ticks again from now on")
    watch = threading.Thread(target=_end_when_set_back, name="clock", daemon=True)
    watch.start()
    (command,) = entry_points(group="console_scripts", name="dagster-daemon")
    run: Callable[[], None] = command.load()
    run()


def _end_when_set_back() -> None:
    """End the process once the clock has gone back, as measured by the monotonic clock.

    Nothing is lost: a tick is evaluated by the code server, and a tick that breaks off is finished.
    """
    ahead = time.time() - time.monotonic()
    while True:
        time.sleep(_LOOK_SECONDS)
        now = time.time() - time.monotonic()
        ahead = max(ahead, now)
        if ahead - now > TOLERANCE_SECONDS:
            _say(f"the clock was set back by {ahead - now:.0f} s; starting again")
            os._exit(_SET_BACK)


def _say(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
