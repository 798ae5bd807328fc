"""The worker processes of one server: forked, replaced when they die, stopped together."""

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from api.server.uvicorn_protocol import STARTUP_FAILURE

_log = logging.getLogger("api.workers")

_ENDS = (signal.SIGTERM, signal.SIGINT)
_HEARD = (*_ENDS, signal.SIGCHLD)
_TURN_SECONDS = 1.0
# A worker that dies at once would else be started anew as fast as the machine can.
_SHORTEST_LIFE_SECONDS = 1.0
STOP_SECONDS = 9.8

# As the standard library's stubs have it: signals it knows, and numbers of others.
_Mask = set[signal.Signals] | set[int | signal.Signals]


class Workers:
    """Processes that do one work.

    They are forks of a process that has imported everything and begun nothing: a worker stands
    within milliseconds, and its code is in memory once.
    """

    def __init__(
        self,
        *,
        count: int,
        work: Callable[[int, int], int],
        before_stop: Callable[[], None],
        ended: Callable[[int], object],
    ) -> None:
        """Makes none yet.

        Args:
            count: How many.
            work: The function that each runs. It gets its worker's number, which the one that
                replaces it takes over, and a file descriptor that comes to its end when this
                process does; it returns the worker's exit code.
            before_stop: Called before the workers are asked to end.
            ended: Called with the number of each process that has ended.
        """
        self._work = work
        self._before_stop = before_stop
        self._ended = ended
        # The place and the start of each that lives; the places to be taken, and from when on.
        self._living: dict[int, tuple[int, float]] = {}
        self._due: dict[int, float] = dict.fromkeys(range(count), 0.0)
        self._life, self._own_life = os.pipe()

    def run(self) -> int:
        """Keeps the workers running until SIGTERM or SIGINT.

        Returns:
            An exit code: 0, or that of a worker which says that none can start.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        try:
            self._start_due(mask)
            while (code := self._turn(mask)) is None:
                pass
        finally:
            self._stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return code

    def _turn(self, mask: _Mask) -> int | None:
        received = signal.sigtimedwait(_HEARD, _TURN_SECONDS)
        if received is not None and received.si_signo in _ENDS:
            return 0
        for pid, code in self._buried():
            if code == STARTUP_FAILURE:
                return code
            _log.warning("worker %d ended with code %d; starting another", pid, code)
            place, begun = self._living.pop(pid)
            self._due[place] = begun + _SHORTEST_LIFE_SECONDS
        self._start_due(mask)
        return None

    def _start_due(self, mask: _Mask) -> None:
        now = time.monotonic()
        for place in [place for place, due in self._due.items() if due <= now]:
            del self._due[place]
            self._living[self._start(place, mask)] = (place, now)

    def _start(self, place: int, mask: _Mask) -> int:
        pid = os.fork()
        if pid == 0:
            # Nothing of what this process holds open may be ended by a child: no `finally` runs.
            os._exit(self._outcome(place, mask))
        return pid

    def _outcome(self, place: int, mask: _Mask) -> int:
        """Returns the exit code of the child that we now are."""
        try:
            os.close(self._own_life)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return self._work(place, self._life)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - the child's last words
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _buried(self) -> Sequence[tuple[int, int]]:
        """Returns the number and exit code of each worker that has ended since last asked."""
        ended: list[tuple[int, int]] = []
        for pid in list(self._living):
            # Each by its number: this process may have other children.
            known, status = os.waitpid(pid, os.WNOHANG)
            if known:
                self._ended(pid)
                ended.append((pid, os.waitstatus_to_exitcode(status)))
        return ended

    def _stop(self) -> None:
        self._before_stop()
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._living and (left := deadline - time.monotonic()) > 0:
            for pid, _ in self._buried():
                del self._living[pid]
            if self._living:
                signal.sigtimedwait([signal.SIGCHLD], min(left, _TURN_SECONDS))
        self._send(signal.SIGKILL)
        for pid in self._living:
            os.waitpid(pid, 0)
        os.close(self._life)
        os.close(self._own_life)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._living:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
