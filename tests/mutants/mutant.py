"""A mutant: a small program that breaks a promise in a copy of the source.

The TOML files beside this module hold them. A mutant names a function, class or constant by its import path, and changes an expression, a statement or
a text in it. What it looks for is compared as Python reads it: neither line breaks nor comments nor
anything that stands beside it matter.
"""

import ast
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

# Changes a part of the source, and returns in how many places.
Edit = Callable[[ast.AST], int]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A promise broken by edits that each fit in exactly a place; each of the tests must fail."""

    breaks: str
    of: str
    edits: Sequence[Edit]
    tests: Sequence[str]

    def file(self, tree: Path) -> Path:
        return tree.joinpath(*self._module(tree).split(".")).with_suffix(".py")

    def broken(self, tree: Path) -> str:
        """Returns what the file holds once the promise is broken."""
        source = ast.parse(self.file(tree).read_text())
        part = _part(source, self.of.removeprefix(self._module(tree)).split(".")[1:])
        for number, edit in enumerate(self.edits):
            if (places := edit(part)) != 1:
                raise LookupError(f"edit {number} fits {self.of} in {places} places, not in one")
        return ast.unparse(ast.fix_missing_locations(source))

    def apply(self, tree: Path) -> None:
        self.file(tree).write_text(self.broken(tree))

    def _module(self, tree: Path) -> str:
        names = self.of.split(".")
        for end in range(len(names), 0, -1):
            if tree.joinpath(*names[:end]).with_suffix(".py").is_file():
                return ".".join(names[:end])
        raise LookupError(f"no module holds {self.of}")


def read_mutants(path: Path) -> list[Mutant]:
    """Returns the mutants of a TOML file, whose edits are named like the functions below."""
    return [
        Mutant(**(entry | {"edits": list(map(_edit, entry["edits"]))}))
        for entry in tomllib.loads(path.read_text())["mutants"]
    ]


def _edit(entry: Mapping[str, str]) -> Edit:
    match entry:
        case {"swap": old, "by": new}:
            return swap(old, new)
        case {"reword": old, "by": new}:
            return reword(old, new)
        case _:
            return drop(entry["drop"])


def swap(old: str, new: str) -> Edit:
    """Puts an expression or statements in the place of others; of nothing, takes them out."""
    before, after = ast.parse(dedent(old)).body, ast.parse(dedent(new)).body
    if len(before) == len(after) == 1 and isinstance(before[0], ast.Expr):
        each = after[0]
        assert isinstance(each, ast.Expr)
        return _swap_expression(before[0].value, each.value)
    return _swap_statements(before, after)


def drop(old: str) -> Edit:
    return swap(old, "")


def reword(old: str, new: str) -> Edit:
    """Changes a part of a text, such as SQL."""

    def edit(part: ast.AST) -> int:
        places = 0
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                places += node.value.count(old)
                node.value = node.value.replace(old, new)
        return places

    return edit


def _part(source: ast.Module, names: Sequence[str]) -> ast.AST:
    part: ast.AST = source
    for name in names:
        inside = [node for node in getattr(part, "body", ()) if name in _names(node)]
        if len(inside) != 1:
            raise LookupError(f"{name} stands in {len(inside)} places, not in one")
        part = inside[0]
    return part


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _swap_expression(old: ast.expr, new: ast.expr) -> Edit:
    wanted = ast.dump(old)

    def edit(part: ast.AST) -> int:
        places = 0
        for parent in list(ast.walk(part)):
            for name, value in ast.iter_fields(parent):
                if isinstance(value, ast.AST) and ast.dump(value) == wanted:
                    setattr(parent, name, new)
                    places += 1
                elif isinstance(value, list):
                    result = [isinstance(v, ast.AST) and ast.dump(v) == wanted for v in value]
                    value[:] = [new if hit else v for hit, v in zip(result, value, strict=True)]
                    places += sum(result)
        return places

    return edit


def _swap_statements(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Edit:
    wanted = [ast.dump(statement) for statement in old]

    def edit(part: ast.AST) -> int:
        bodies = [
            value
            for node in ast.walk(part)
            for _, value in ast.iter_fields(node)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt)
        ]
        places = [
            (body, begin)
            for body in bodies
            for begin in range(len(body))
            if [ast.dump(each) for each in body[begin : begin + len(old)]] == wanted
        ]
        for body, begin in places:
            body[begin : begin + len(old)] = new
            if not body:
                body.append(ast.Pass())
        return len(places)

    return edit
