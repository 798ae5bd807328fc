"""How plain the code's English is, in figures: `python -m tests.language`.

Counts names that say nothing of the thing (`told`, `one`, `found`) among 10,000 identifiers, and
clauses such as "what is slow in it" among 10,000 words of docstring. Four model codebases have up
to 0.8 and 2; docs of the design call for fewer than 5 of each.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import PACKAGES, ROOT

DIALECT = ("told", "one", "found")
CLAUSE = re.compile(r"\b[Ww]hat(?:ever)? (?:is|was|came|comes|a|an|it|its|the|no|each|has|had)\b")


def trees() -> Iterator[ast.Module]:
    """Yields the syntax trees of the source."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ast.parse(path.read_text())


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields each name where it is used or given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yields the docstrings of a module and of what it defines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def figures() -> dict[str, float]:
    """Returns the figures by their names."""
    names = Counter[str]()
    text: list[str] = []
    classes = Counter[str]()
    for tree in trees():
        names.update(identifiers(tree))
        text += docstrings(tree)
        classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    words = sum(len(line.split()) for line in text)
    clauses = sum(len(CLAUSE.findall(line)) for line in text)
    dialect = sum(names[name] for name in DIALECT)
    return {
        "told, one, found in 10,000 identifiers": 10_000 * dialect / names.total(),
        "'what is ...' in 10,000 words of docstring": 10_000 * clauses / words,
        "classes named Answer": classes["Answer"],
    }


def folders() -> dict[str, int]:
    """Returns how many files each folder of the source holds."""
    counts = Counter[Path](
        path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )
    return {folder.relative_to(ROOT).as_posix(): count for folder, count in counts.items()}


if __name__ == "__main__":
    for name, figure in figures().items():
        print(f"{figure:8.1f}  {name}")  # noqa: T201
    folder, count = max(folders().items(), key=lambda entry: entry[1])
    print(f"{count:8d}  files in the fullest folder, {folder}")  # noqa: T201
