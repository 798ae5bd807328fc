"""Each promise has a mutant that breaks it, and a test that catches the mutant."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
# What is no source: other mutants' tests write there at the same time.
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "node_modules", "*.egg-info"
)
# pytest's word for "tests ran, and some failed". A mutant that can't be imported gives another;
# one that breaks what a test stands on gives an error, not a failure. Neither proves anything.
SOME_FAILED = 1


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A patch that breaks a promise, and the tests that must fail under it."""

    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


MUTANTS = msgspec.convert(
    tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"], list[Mutant]
)


def names_of_tests(path: Path) -> set[str]:
    """`test_...` of a file, and `Class::test_...`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            tests = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            names |= {f"{node.name}::{test.name}" for test in tests}
    return {name for name in names if "test_" in name}


def test_every_mutant_fits_the_source_and_names_tests_that_exist() -> None:
    faults: list[str] = []
    for mutant in MUTANTS:
        count = (ROOT / mutant.file).read_text().count(mutant.old)
        if count != 1 or mutant.old == mutant.new:
            faults.append(f"{mutant.breaks!r}: its old text stands {count} times in {mutant.file}")
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if name.partition("[")[0] not in names_of_tests(ROOT / file):
                faults.append(f"{mutant.breaks!r}: there is no {test}")
    assert faults == []
    assert all(mutant.tests for mutant in MUTANTS)
    assert len({mutant.breaks for mutant in MUTANTS}) == len(MUTANTS)


class CaughtMutants:
    """The table at the end: which mutant was caught by what."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def pytest_terminal_summary(self) -> None:
        if self.rows:
            table = Table(show_lines=True)
            table.add_column("the mutant breaks this promise")
            table.add_column("and is caught by", overflow="fold")
            for row in self.rows:
                table.add_row(*row)
            Console().print(table)


@pytest.fixture(scope="module")
def caught(request: pytest.FixtureRequest) -> CaughtMutants:
    """Filled by each test, printed when all have run."""
    table = CaughtMutants()
    request.config.pluginmanager.register(table)
    return table


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A copy of the source, to break."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    yield tree
    shutil.rmtree(tree)


def is_caught(tree: Path, test: str) -> bool:
    """Whether a test fails in a copy, run against the modules of that copy."""
    # Whatever its marks; of its forms the short ones come first, and the first failure is enough.
    options = ["-p", "no:cacheprovider", "-m", "", "--maxfail=1", "--tb=line", "-q", "-rf"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, test],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(run.stdout)  # noqa: T201 - shown where it is not caught
    return run.returncode == SOME_FAILED and "\nFAILED " in run.stdout


def spoken_id(mutant: Any) -> str:
    return re.sub(r"\W+", "-", mutant.breaks).strip("-")


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", MUTANTS, ids=spoken_id)
def test_a_mutant_is_caught(mutant: Mutant, tree: Path, caught: CaughtMutants) -> None:
    mutant.apply(tree)
    survived = [test for test in mutant.tests if not is_caught(tree, test)]
    assert survived == []
    caught.rows.append((mutant.breaks, "\n".join(mutant.tests)))
