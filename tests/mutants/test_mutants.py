"""Each promise has a mutant that breaks it, and a test that catches the mutant."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.mutants.mutant import Mutant, drop, read_mutants, reword, swap

ROOT = Path(__file__).parents[2]
# What is no source: other mutants' tests write there at the same time.
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "node_modules", "*.egg-info"
)
# pytest's word for "tests ran, and some failed". A mutant that can't be imported gives another;
# a mutant that breaks what a test stands on gives an error, not a failure. Neither proves anything.
SOME_FAILED = 1


MUTANTS = [
    mutant
    for name in ("log", "verdicts", "faces")
    for mutant in read_mutants(Path(__file__).with_name(f"{name}.toml"))
]


def names_of_tests(path: Path) -> set[str]:
    """`test_...` of a file, and `Class::test_...`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            tests = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            names |= {f"{node.name}::{test.name}" for test in tests}
    return {name for name in names if "test_" in name}


def test_every_mutant_fits_the_source_and_names_tests_that_exist() -> None:
    for mutant in MUTANTS:
        assert mutant.broken(ROOT) != ast.unparse(ast.parse(mutant.file(ROOT).read_text()))
        assert mutant.tests
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert name.partition("[")[0] in names_of_tests(ROOT / file), test
    assert len({mutant.breaks for mutant in MUTANTS}) == len(MUTANTS)


SOURCE = """
LIMIT = 3

class Till:
    def close(self, sales):
        # Nothing is lost.
        total = sum(sales,
                    start=0)
        self.write(total)
        return f"{total} of {LIMIT}"
"""


@pytest.fixture
def till(tmp_path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "till.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (swap("sum(sales, start=0)", "0"), "total = 0"),
        (drop("self.write(total)"), "total = sum(sales, start=0)\n        return"),
        (swap("self.write(total)", "self.flush()\nself.write(0)"), "self.flush()\n"),
        (reword(" of ", " or "), 'f"{total} or {LIMIT}"'),
    ],
)
def test_a_mutant_changes_what_it_names_however_that_is_written(till, edit, line) -> None:
    mutant = Mutant(breaks="sums", of="shop.till.Till.close", edits=[edit], tests=[])
    mutant.apply(till)
    broken = (till / "shop" / "till.py").read_text()
    assert line in broken.replace("'", '"')
    assert "LIMIT = 3" in broken


@pytest.mark.parametrize(
    ("of", "edit"),
    [
        ("shop.till.Till.open", drop("self.write(total)")),
        ("shop.till.Till.close", drop("self.write(sales)")),
        ("shop.till.Till.close", swap("total", "0")),
        ("shop.kiosk.sell", drop("pass")),
    ],
)
def test_a_mutant_that_no_longer_fits_is_refused(till, of, edit) -> None:
    with pytest.raises(LookupError):
        Mutant(breaks="sums", of=of, edits=[edit], tests=[]).apply(till)


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
def caught(request) -> CaughtMutants:
    """Filled by each test, printed when all have run."""
    table = CaughtMutants()
    request.config.pluginmanager.register(table)
    return table


@pytest.fixture
def tree(tmp_path) -> Iterator[Path]:
    """A copy of the source, to break."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    yield tree
    shutil.rmtree(tree)


def is_caught(tree: Path, test: str) -> bool:
    """Whether a test fails in a copy, run against the modules of that copy."""
    # Whatever its marks; of its forms the short ones come first, and the first failure is enough.
    options = ["-p", "no:cacheprovider", "-m", "", "--maxfail=1", "--tb=line", "-q", "-rf"]
    # Before the installed packages, which are of the source that is not broken.
    sources = os.pathsep.join(map(str, (tree, *(tree / "packages").iterdir())))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, test],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": sources},
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
def test_a_mutant_is_caught(mutant, tree, caught) -> None:
    mutant.apply(tree)
    survived = [test for test in mutant.tests if not is_caught(tree, test)]
    assert survived == []
    caught.rows.append((mutant.breaks, "\n".join(mutant.tests)))
