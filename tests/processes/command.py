"""Commands of ours as processes that a test can kill, forked where they are loaded."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes.tick import FORKS


def _run(words: Sequence[str], env: Mapping[str, str], log: str) -> None:
    from tests.processes.code_server import backfill, command  # noqa: PLC0415 - loaded there

    with Path(log).open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    os.environ.update(env)
    if words[0] == "backfill":
        backfill(env["SERVICE_DATABASE_URL"], first=words[1], last=words[2])
    else:
        command(words)


@dataclass(kw_only=True)
class Command:
    """`deploy-reward WORDS`, or Dagster's backfill of a range of days, as `backfill FIRST LAST`."""

    words: Sequence[str]
    url: str
    log: Path
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        env = {
            "SERVICE_DATABASE_URL": self.url,
            "SERVICE_SECRET": "a secret of the tests, long enough",
            # The process that it is forked from may have begun with another.
            "SERVICE_LAKE": os.environ["SERVICE_LAKE"],
        }
        self.process = FORKS.Process(target=_run, args=(self.words, env, str(self.log)))
        self.process.start()

    def running(self) -> bool:
        return self.process.is_alive()

    def ended_within(self, seconds: float) -> bool:
        """Waits for its end, so long at most."""
        self.process.join(seconds)
        return not self.running()

    def last_words(self) -> str:
        return self.log.read_text()[-4000:]

    def kill(self) -> bool:
        """Ends it at once; returns whether it was still at work."""
        self.process.kill()
        self.process.join()
        return self.process.exitcode == -9

    def succeeded(self) -> bool:
        self.process.join()
        return self.process.exitcode == 0
