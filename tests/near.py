"""The tests nearest to a change, nearest first: `make near FILES="stats/gates/vif.py"`.

It reads imports and runs nothing to choose. Ring 1 holds the tests of the changed file's own room
that reach it by imports, and those that import it themselves; ring 2 adds those of other rooms, and
ring 3 all that take a store or start a process. What a test reaches only through a process that it
starts is in no ring: that is the gate's. A run that the time has ended fails, as it is not whole.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests.architecture import ROOT, TESTS

# The fixture that each store comes from; what starts a process.
_SERVER = "postgres_url"
_ROOT = "tests/conftest.py"
_STARTERS = ("tests/processes/", "subprocess")
_PROCESS_MARK = "pytest.mark.process"
# To parse all of the source would take a third of the time that the tests have.
_IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.+))?", re.MULTILINE)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class NearTest:
    """A file of tests that reaches a change: its ring, 1 to 3, and how near it is there."""

    file: str
    ring: int
    shared: int
    distance: int


@cache
def statements(file: str) -> Sequence[ast.stmt]:
    """Returns the statements of a file, those inside others too."""
    nodes = list(ast.parse((ROOT / file).read_text()).body)
    for node in nodes:
        for part in ("body", "orelse", "handlers", "finalbody"):
            nodes += getattr(node, part, ())
    return nodes


@cache
def imports_of(file: str) -> frozenset[str]:
    """Returns the files of this repository that a file imports, and names of other packages."""
    imports: set[str] = set()
    for module, names in _IMPORT.findall((ROOT / file).read_text()):
        imports |= {_file_of(module, name) for name in re.findall(r"\w+", names) or [""]}
    return frozenset(imports)


def _file_of(module: str, name: str = "") -> str:
    path = module.replace(".", "/")
    for file in (f"{path}/{name}.py", f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / file).is_file():
            return file
    return module


def distances(starts: Collection[str], within: str = "") -> Mapping[str, int]:
    """Returns what files import, directly or by others, with the length of the shortest chain."""
    distance = dict.fromkeys(starts, 0)
    files = list(starts)
    for file in files:
        if file.endswith(".py") and file.startswith(within):
            for imported in imports_of(file) - distance.keys():
                distance[imported] = distance[file] + 1
                files.append(imported)
    return distance


@cache
def fixtures_of(file: str) -> Mapping[str, Sequence[str]]:
    """Returns the fixtures of a file, each with the names that it takes."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in statements(file)
        if isinstance(node, Function)
        and any("fixture" in ast.unparse(mark) for mark in node.decorator_list)
    }


def _names_taken(file: str) -> Iterator[str]:
    for node in statements(file):
        if isinstance(node, Function):
            yield from (argument.arg for argument in node.args.args)
            marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
            used = [mark for mark in marks if ast.unparse(mark.func).endswith("usefixtures")]
            yield from (ast.literal_eval(name) for mark in used for name in mark.args)


def fixtures_taken(file: str) -> frozenset[tuple[str, str]]:
    """Returns the fixtures that a file of tests takes, each after the file that defines it."""
    conftests = [(folder / "conftest.py").as_posix() for folder in Path(file).parents]
    owners = [file, *(path for path in conftests if (ROOT / path).is_file())]
    wanted = [(name, owners) for name in _names_taken(file)]
    taken: set[tuple[str, str]] = set()
    for name, candidates in wanted:
        owner = next((path for path in candidates if name in fixtures_of(path)), "")
        if owner and (owner, name) not in taken:
            taken.add((owner, name))
            # A fixture that takes its own name takes that of a farther conftest.
            outer = owners[owners.index(owner) + 1 :]
            wanted += [(n, outer if n == name else owners) for n in fixtures_of(owner)[name]]
    return frozenset(taken)


def starts_something(file: str, fixtures: Collection[tuple[str, str]]) -> bool:
    """Returns whether the tests of a file take a store or start processes."""
    support = distances({file, *(owner for owner, _ in fixtures)} - {_ROOT}, within="tests/")
    return (
        _PROCESS_MARK in (ROOT / file).read_text()
        or any(name == _SERVER for _, name in fixtures)
        or any(name.startswith(_STARTERS) for name in support)
    )


def near_tests(changed: Collection[str]) -> list[NearTest]:
    """Returns the files of tests that reach a changed file, the nearest first."""
    near: list[NearTest] = []
    pages = [name for name in changed if not name.endswith(".py")]
    for path in (path for folder in TESTS for path in folder.rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        fixtures = fixtures_taken(file)
        reached = distances({file, *(owner for owner, _ in fixtures)})
        hits = {name: reached[name] for name in changed if name in reached}
        hits |= {name: 1 for name in pages if Path(name).name in path.read_text()}
        if hits:
            shared = max(_shared_folders(file, name) for name in hits)
            distance = min(hits.values())
            wide = 1 if shared or distance == 1 else 2
            ring = 3 if starts_something(file, fixtures) else wide
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
