"""The manifest of requirements: every row has a test that shows it, every mark has a row."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import TESTS

MANIFEST = tomllib.loads(Path(__file__).with_name("requirements.toml").read_text())


def is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"


def marks_of(path: Path) -> Iterator[str]:
    """The ids that a file's tests of the gate name; a mark anywhere else would show nothing."""
    tree = ast.parse(path.read_text())
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not any(ast.unparse(mark) == "pytest.mark.nightly" for mark in node.decorator_list)
    ]
    marks = [mark for test in tests for mark in test.decorator_list if is_mark(mark)]
    everywhere = [node for node in ast.walk(tree) if is_mark(node)]
    assert len(marks) == len(everywhere), f"{path.name} marks what is no test of the gate"
    for mark in marks:
        assert isinstance(mark, ast.Call)
        assert mark.args, f"{path.name}:{mark.lineno} names no requirement"
        yield from (ast.literal_eval(argument) for argument in mark.args)


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    marks = Counter(
        name for folder in TESTS for path in folder.rglob("test_*.py") for name in marks_of(path)
    )
    requirements = MANIFEST["requirements"]
    print(  # noqa: T201 - the count that `pytest -rP` shows
        f"{len(requirements)} requirements, {marks.total()} marks"
    )
    assert sorted(requirements.keys() - marks.keys()) == [], "no test shows these"
    assert sorted(marks.keys() - requirements.keys()) == [], "the manifest does not have these"


def test_every_requirement_is_a_sentence_of_its_own() -> None:
    for table in MANIFEST.values():
        for name, sentence in table.items():
            assert sentence.endswith("."), name
        assert len(set(table.values())) == len(table)
