"""The tests nearest to a change, nearest first: `make near FILES="stats/gates/vif.py"`.

It reads imports and runs nothing to choose. Ring 1 holds the tests of the changed file's own room
that reach it by imports, and those that import it themselves; ring 2 adds those of other rooms, and
ring 3 all of rooms whose tests take a store or start a process. What a test reaches only through a
process that it starts is in no ring: that is the gate's. A run that the time has ended fails, as it
is not whole.
"""

import argparse
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import grimp
import pytest

from tests.architecture import PACKAGES, ROOT, TESTS
from tests.gate import STATISTICS_ROOMS


@dataclass(frozen=True, kw_only=True)
class NearTest:
    """A file of tests that reaches a change: its ring, 1 to 3, and how near it is there."""

    file: str
    ring: int
    shared: int
    distance: int


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def near_tests(changed: Collection[str]) -> list[NearTest]:
    """Returns the files of tests that reach a changed file, the nearest first."""
    roots = (*PACKAGES, "tests", "benchmarks.calibration", "examples.tests")
    graph = grimp.build_graph(*roots, cache_dir=None)
    targets = {file: _module(file) for file in changed if _module(file) in graph.modules}
    pages = [file for file in changed if not file.endswith(".py")]

    def steps(importers: Collection[str], target: str) -> list[int]:
        chains = (graph.find_shortest_chain(each, target) for each in importers if each != target)
        return [0] * (target in importers) + [len(chain) - 1 for chain in chains if chain]

    near: list[NearTest] = []
    for path in (path for folder in TESTS for path in folder.rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        # Their fixtures; that of all tests would reach everything.
        conftests = [(folder / "conftest.py").as_posix() for folder in Path(file).parents[:-2]]
        importers = {_module(each) for each in (file, *conftests)} & graph.modules
        nearest = {
            name: min(steps(importers, target), default=None) for name, target in targets.items()
        }
        hits = {name: distance for name, distance in nearest.items() if distance is not None}
        hits |= {name: 1 for name in pages if Path(name).name in path.read_text()}
        if hits:
            shared = max(_shared_folders(file, name) for name in hits)
            distance = min(hits.values())
            wide = 1 if shared or distance == 1 else 2
            ring = wide if file.startswith(STATISTICS_ROOMS) else 3
            near.append(NearTest(file=file, ring=ring, shared=shared, distance=distance))
    return sorted(near, key=lambda test: (test.ring, -test.shared, test.distance, test.file))


def _shared_folders(test: str, changed: str) -> int:
    """Counts folders that both paths begin with; a test named after the file counts once more."""
    path, of = Path(test), Path(changed)
    pairs = zip(path.parent.parts[1:], of.parent.parts, strict=False)
    folders = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return folders + (path.name == f"test_{of.name}")


def changed_files() -> list[str]:
    """Returns the files that differ from `main`, and those that git does not know yet."""
    commands = [
        ["git", "diff", "--name-only", "--merge-base", "main"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ]
    lines = [
        subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        for words in commands
    ]
    return "".join(lines).split()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="changed files; without any, those beside main")
    parser.add_argument("--ring", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args(arguments)
    near = near_tests(asked.files or changed_files())
    chosen = [test.file for test in near if test.ring <= asked.ring]
    rings = [sum(test.ring == ring for test in near) for ring in (1, 2, 3)]
    print(f"Files of tests that reach the change, by ring: {rings}; the gate has all.")  # noqa: T201
    # The workers of xdist would wait for a third process that loads the same packages first.
    options = ["-q", "--session-timeout", str(asked.seconds)]
    halves = [half for half in (chosen[::2], chosen[1::2]) if half]
    runs = [subprocess.Popen([sys.executable, "-m", "pytest", *options, *half]) for half in halves]
    codes = {run.wait() for run in runs}
    return int(not codes <= {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
