"""How plain the code's English is, in figures: `python -m tests.language`.

Counts names that say nothing of the thing (`told`, `one`, `found`) among 10,000 identifiers and
among 10,000 words of comment, of the source and of the tests, of the source's strings, and of the
pages that users read; and clauses such as "what is slow in it" among 10,000 words of docstring.
Four model codebases have up to 0.8, 3.4 and 2; the design asks for fewer than 5 of each.
SQLAlchemy's `Result.one()` is not ours to name and does not count. And it lists the words that
modules and classes are named by.
"""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.architecture import PACKAGES, ROOT

DIALECT = ("told", "one", "found")
CLAUSE = re.compile(r"\b[Ww]hat(?:ever)? (?:is|was|came|comes|a|an|it|its|the|no|each|has|had)\b")


@cache
def nodes(*folders: str) -> dict[Path, Sequence[ast.AST]]:
    """Returns the nodes of the source's syntax by their files, or those of other folders."""
    return {
        path: list(ast.walk(ast.parse(path.read_text())))
        for package in folders or PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def identifiers(of_file: Sequence[ast.AST]) -> Iterator[str]:
    """Yields each name where it is used or defined, without leading underscores."""
    calls = (node.func for node in of_file if isinstance(node, ast.Call))
    rows = {id(method) for method in calls if isinstance(method, ast.Attribute)}
    for node in of_file:
        if isinstance(node, ast.Name):
            yield node.id.lstrip("_")
        elif isinstance(node, ast.arg):
            yield node.arg.lstrip("_")
        elif isinstance(node, ast.Attribute):
            if node.attr != "one" or id(node) not in rows:
                yield node.attr.lstrip("_")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name.lstrip("_")


def docstrings(of_file: Sequence[ast.AST]) -> Iterator[str]:
    """Yields the docstrings of a module and of what it defines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in of_file:
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def comments(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def dialect_in(texts: Iterable[str]) -> float:
    """Returns how often texts hold a word of the dialect, in 10,000 words."""
    words = Counter(word for line in texts for word in re.findall(r"[a-z]+", line.lower()))
    return 10_000 * sum(words[name] for name in DIALECT) / words.total()


def dialect_of(files: Mapping[Path, Sequence[ast.AST]]) -> float:
    """Returns how often identifiers are words of the dialect, in 10,000."""
    names = Counter(name for file in files.values() for name in identifiers(file))
    return 10_000 * sum(names[name] for name in DIALECT) / names.total()


def strings(of_file: Sequence[ast.AST]) -> Iterator[str]:
    """Yields the strings of a file that hold words: messages, labels, SQL; no docstrings."""
    alone = {id(node.value) for node in of_file if isinstance(node, ast.Expr)}
    for node in of_file:
        text = node.value if isinstance(node, ast.Constant) and id(node) not in alone else None
        if isinstance(text, str) and " " in text:
            yield text


def pages() -> Iterator[str]:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        yield path.read_text()


def figures() -> dict[str, float]:
    source, tests = nodes(), nodes("tests")
    text: list[str] = []
    classes = Counter[str]()
    for file in source.values():
        text += docstrings(file)
        classes.update(node.name for node in file if isinstance(node, ast.ClassDef))
    words = sum(len(line.split()) for line in text)
    clauses = sum(len(CLAUSE.findall(line)) for line in text)
    of_tests = [text for file in tests.values() for text in docstrings(file)]
    return {
        "told, one, found in 10,000 identifiers": dialect_of(source),
        "... in 10,000 words of comment": dialect_in(line for f in source for line in comments(f)),
        "... in 10,000 words of docstring": dialect_in(text),
        "... in 10,000 words of string": dialect_in(s for f in source.values() for s in strings(f)),
        "... in 10,000 identifiers of the tests": dialect_of(tests),
        "... in 10,000 words of the tests' comments": dialect_in(
            line for file in tests for line in comments(file)
        ),
        "... in 10,000 words of the tests' docstrings": dialect_in(of_tests),
        "... in 10,000 words of the pages": dialect_in(pages()),
        "'what is ...' in 10,000 words of docstring": 10_000 * clauses / words,
        "classes named Answer": classes["Answer"],
    }


def words() -> dict[str, str]:
    """Returns the words that modules and classes are named by, each with such a name."""
    named = defaultdict[str, list[str]](list)
    for path, of_file in nodes().items():
        if path.parent.name == "versions":  # a migration's name is the change that it makes
            continue
        module = path.parent.name if path.stem == "__init__" else path.stem
        classes = (node.name for node in of_file if isinstance(node, ast.ClassDef))
        for name in (module, *classes):
            for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name):
                named[word.lower()].append(name)
    return {word: names[0] for word, names in named.items()}


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
