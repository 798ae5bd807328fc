"""The gate: whatever must hold before a change lands, in stages; the nightly tests beside it.

The cuts are `make test`, `make quick` and `make nightly`.

Needs no installed package, since its first stage installs them. A stage that fails hides none of
the later ones, and the exit code says whether all passed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = ROOT / os.environ.get("VENV", ".venv") / "bin"
# Each worker has a PostgreSQL of its own.
CORES = min(os.cpu_count() or 1, 8)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the gate: the commands that must all succeed, which run side by side."""

    name: str
    commands: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    stage: str
    passed: bool
    seconds: float


def pytest_stage(name: str, *selection: str, workers: int = CORES) -> Stage:
    """Returns a stage of tests, which names its ten slowest ones."""
    options = ["--quiet", "--durations", "10", "--numprocesses", str(workers)]
    return Stage(name=name, commands=[["pytest", *options, "--dist", "worksteal", *selection]])


def paths(*names: str) -> list[str]:
    return [f"tests/{name}" for name in names]


INSTALL = Stage(name="install", commands=[["make", "--silent", "install"]])
FORM = Stage(name="form", commands=[["ruff", "format", "--check", "."], ["ruff", "check", "."]])
CONTRACTS = Stage(name="import contracts", commands=[["lint-imports"]])
_CHECKER = ["basedpyright", "--pythonpath", str(BIN / "python")]
TYPES = Stage(name="types", commands=[[*_CHECKER, "--threads", str(CORES)]])
# The files of the tests' own folder look at the requirements and the source.
_TOP = sorted(path.name for path in (ROOT / "tests").glob("test_*.py"))
STATISTICS_ROOMS = (*paths("domain", "stats", "mutants", *_TOP), "benchmarks/calibration/tests")
STATISTICS = pytest_stage("statistics", *STATISTICS_ROOMS, *paths("pages/test_docs.py"))
# Those that start processes wait for them half of the time, which the others then use: one stage,
# in which each worker begins at another place of this order. Pages of a browser come first: later,
# workers take tests from each other, and each would make the dashboard's world anew. On two cores
# three workers took 621 s, four 505 and five 538.
TESTS = pytest_stage(
    "tests",
    *paths("browser"),
    "packages",
    "examples/tests",
    *paths("reliability", "orchestration", "pages", "cli", "mcp_server"),
    *paths("api", "pipeline", "storage"),
    *STATISTICS_ROOMS,
    workers=CORES + 2,
)
# In a fresh clone to find the tests is to compile them and all that they import: once, and not in
# each worker.
_FOUND_AND_RUN = f"pytest --collect-only -qqq; exec {shlex.join(TESTS.commands[0])}"
# What reads the source alone takes the core that finding the tests leaves. At a lower priority the
# checker then takes the time in which the tests wait; two threads of it took 1.4 times the CPU.
ALL = Stage(
    name="form, import contracts, types and tests",
    commands=[
        *FORM.commands,
        *CONTRACTS.commands,
        ["nice", "-n", "5", *_CHECKER],
        ["sh", "-c", _FOUND_AND_RUN],
    ],
)
# Other forms and other worlds of what the gate's tests promise too.
NIGHTLY = pytest_stage(
    "nightly", "-m", "nightly and not deep and not calibration", workers=CORES + 1
)

CHECK = (FORM, CONTRACTS, TYPES)
QUICK = (INSTALL, FORM, CONTRACTS, STATISTICS)
WHOLE = (INSTALL, ALL)
CUTS = {"check": CHECK, "quick": QUICK, "whole": WHOLE, "nightly": (INSTALL, NIGHTLY)}


def run(stage: Stage) -> Outcome:
    """Runs a stage's commands, each with what it prints."""
    say(f"\n== {stage.name}")
    begin = time.monotonic()
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    # Images of Python often forbid it. Each process of a test would compile all that it imports
    # anew: four seconds of a core for Dagster's definitions, instead of 1.5.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = [subprocess.Popen(words, cwd=ROOT, env=environment) for words in stage.commands]
    passed = [process.wait() for process in started] == [0] * len(started)
    return Outcome(stage=stage.name, passed=passed, seconds=time.monotonic() - begin)


def passes(stages: Sequence[Stage]) -> bool:
    """Runs stages and prints their times; without an installation none of the others can run."""
    outcomes: list[Outcome] = []
    for stage in stages:
        outcomes.append(run(stage))
        if stage is INSTALL and not outcomes[-1].passed:
            break
    say("\n== the gate, in seconds")
    for outcome in outcomes:
        word = "passed" if outcome.passed else "FAILED"
        say(f"{outcome.seconds:8.1f}  {word}  {outcome.stage}")
    say(f"{sum(outcome.seconds for outcome in outcomes):8.1f}  in all")
    return all(outcome.passed for outcome in outcomes)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cut", choices=CUTS)
    sys.exit(0 if passes(CUTS[parser.parse_args().cut]) else 1)
