"""The worker processes of a server: forked, replaced when they die, stopped together."""

import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from own_postgres.child_process import end_with_parent

_log = logging.getLogger("api.workers")

# The exit code, as uvicorn's, of a server that cannot start: no other worker could either.
STARTUP_FAILURE = 3
_ENDS = (signal.SIGTERM, signal.SIGINT)
_AWAITED = (*_ENDS, signal.SIGCHLD)
# A worker that dies at once would else be started anew as fast as the machine can.
_SHORTEST_LIFE_SECONDS = 1.0
_STOP_SECONDS = 9.8


class Workers:
    """A process for each listening socket.

    They are forks of a process that has imported everything and begun nothing: a worker stands
    within milliseconds, and its code is in memory once. uvicorn's own supervisor starts workers
    that import everything anew, which takes seconds.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        *,
        work: Callable[[socket.socket], int],
        ended: Callable[[int], object],
    ) -> None:
        self._listeners = listeners
        self._work = work
        self._ended = ended
        # The socket and the start of each living worker.
        self._living: dict[int, tuple[socket.socket, float]] = {}

    def run(self) -> int:
        """Keeps the workers running until SIGTERM or SIGINT.

        Returns:
            An exit code: 0, or `STARTUP_FAILURE` where a worker says so.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        try:
            for listener in self._listeners:
                self._start(listener, mask)
            while signal.sigwait(_AWAITED) not in _ENDS:
                for pid, code, listener, begun in self._reaped():
                    if code == STARTUP_FAILURE:
                        return code
                    _log.warning("worker %d ended with code %d; starting another", pid, code)
                    time.sleep(max(begun + _SHORTEST_LIFE_SECONDS - time.monotonic(), 0))
                    self._start(listener, mask)
            return 0
        finally:
            self._stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _start(self, listener: socket.socket, mask: Iterable[int]) -> None:
        bind = end_with_parent(signal.SIGTERM)
        if (pid := os.fork()) == 0:
            # Nothing that this process holds open may be ended by a child: no `finally` runs.
            os._exit(self._outcome(listener, bind, mask))
        self._living[pid] = listener, time.monotonic()

    def _outcome(
        self, listener: socket.socket, bind: Callable[[], None], mask: Iterable[int]
    ) -> int:
        """Returns the exit code of the child that this process is now."""
        try:
            bind()
            for other in self._listeners:
                if other is not listener:
                    other.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return self._work(listener)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - a child's last words
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _reaped(self) -> Iterator[tuple[int, int, socket.socket, float]]:
        """Yields number, exit code, socket and start of each worker that has ended."""
        for pid in list(self._living):
            # Each by its number: this process may have other children.
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(pid)
                yield pid, os.waitstatus_to_exitcode(status), *self._living.pop(pid)

    def _stop(self) -> None:
        # A socket that stays open here would take connections that nobody serves any more.
        for listener in self._listeners:
            listener.close()
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._living and (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait([signal.SIGCHLD], left)
            list(self._reaped())
        self._send(signal.SIGKILL)
        for pid in self._living:
            os.waitpid(pid, 0)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._living:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
