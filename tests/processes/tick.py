"""Ticks of the fast schedule with the runs that they ask for, as processes that a test can kill."""

import multiprocessing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

# Forked from a server that has loaded everything once, as a code server has.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.processes.code_server"])


def _answer(url: str, answer: Connection) -> None:
    from tests.processes.code_server import evaluate  # noqa: PLC0415 - loaded there, not here

    answer.send(evaluate(url))


@dataclass(kw_only=True)
class Tick:
    """A tick, and its run, in a process of their own."""

    url: str
    process: Any = field(init=False)
    _answer: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._answer, inner = FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(target=_answer, args=(self.url, inner))
        self.process.start()
        inner.close()

    def running(self) -> bool:
        return self.process.is_alive()

    def last_words(self) -> str:
        return self.output()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def output(self) -> str:
        """Returns its output at its end, which it must have done in order."""
        self.process.join()
        assert self.process.exitcode == 0
        return self._answer.recv()
