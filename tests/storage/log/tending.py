"""A night of the lake as a process that ends itself before any of its steps."""

import multiprocessing
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from storage.lake.erasures import rewrite_files
from storage.lake.removal import delete_unlisted, sweep
from storage.lake.sealing import Sealer
from storage.postgres.engine import open_engine
from tests.storage.log.conftest import WatchedLake

# Forked from a server that has loaded everything once.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.storage.log.tending"])


@dataclass(kw_only=True)
class _Steps:
    """Ends the process before the step of a number."""

    last: int
    done: int = field(default=0)

    def __call__(self, _step: str) -> None:
        if self.done == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.done += 1


def tend(url: str, folder: str, last: int) -> int:
    """Seals, rewrites, deletes and sweeps; returns how many steps there were."""
    steps = _Steps(last=last)
    lake, engine = WatchedLake(Path(folder), steps), open_engine(url)
    try:
        Sealer(engine=engine, lake=lake).seal()
        rewrite_files(engine, lake)
        delete_unlisted(engine, lake)
        sweep(engine, lake)
    finally:
        engine.dispose()
    return steps.done


def tend_and_die(url: str, folder: Path, *, before: int) -> bool:
    """Does so in a process of its own; returns whether that process was killed."""
    process = _FORKS.Process(target=tend, args=(url, str(folder), before))
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL
