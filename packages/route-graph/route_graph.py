#!/usr/bin/env python3
"""The program that writes the route graph of an app of FastAPI or Django, for Python alone.

    python route_graph.py [APP] [--root REPOSITORY] [--base-path /PATH] [--settings MODULE]

It is written to the standard output. APP is the folder from which the app's modules are imported
(default: here). docs/ci.md says which routes and files it
finds. Nothing of the app is run.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

_METHODS = frozenset({"get", "post", "put", "patch", "delete", "head", "options", "trace"})
_ROUTING = _METHODS | {"api_route", "websocket", "add_api_route", "add_api_websocket_route"}
_LEFT_OUT = re.compile(r"^(?:\..*|__pycache__|node_modules|site-packages|v?env|build|dist|tests?)$")
_TEMPLATE = re.compile(r"[\w./-]+\.(?:html?|txt|xml|jinja2?|j2)")
_TEMPLATE_ASKED = re.compile(r"{%-?\s*(?:extends|include|import|from)\s+[\"']([^\"']+)[\"']")


class GraphError(Exception):
    """The app's routes cannot be listed without running it."""


# --- Modules -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Symbol:
    """A name of a module; the module itself, where the name is empty."""

    file: Path
    name: str = ""


@dataclass
class Module:
    """A file of Python.

    Attributes:
        tree: Its syntax tree.
        bindings: The symbols that its imports bind names to.
        stars: The modules of which it imports every name.
        imported: The files that importing it runs.
    """

    file: Path
    tree: ast.Module
    bindings: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    stars: list[Path] = field(default_factory=list[Path])
    imported: set[Path] = field(default_factory=set[Path])

    @cached_property
    def values(self) -> dict[str, ast.expr]:
        """The values that are assigned to names of the module."""
        values: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                values |= {
                    name.id: node.value for name in node.targets if isinstance(name, ast.Name)
                }
            if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
                values[node.target.id] = node.value
        return values

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the module."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    def constants(self) -> Iterator[str]:
        """Yields every text in the module."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


class Modules:
    """The modules below an app's folder."""

    def __init__(self, app: Path, root: Path) -> None:
        self.app, self.root = app, root
        self._roots = list(dict.fromkeys([app, app / "src", root]))
        self._known: dict[Path, Module] = {}

    def every(self) -> Iterator[Module]:
        """Yields each module of the app."""
        for file in sorted(_below(self.app)):
            if file.suffix == ".py":
                yield self.of(file)

    def of(self, file: Path) -> Module:
        """Returns a file's module.

        Raises:
            GraphError: It is no Python.
        """
        if file not in self._known:
            try:
                tree = ast.parse(file.read_bytes(), str(file))
            except (SyntaxError, ValueError) as error:
                raise GraphError(f"{file} is no Python of this version: {error}") from None
            self._known[file] = module = Module(file=file, tree=tree)
            for node in _running(tree):
                self._note(module, node)
        return self._known[file]

    def named(self, name: str) -> Path | None:
        """Returns the file of a module by its whole name."""
        files = (_module_file(root, name.split(".")) for root in self._roots)
        return next((file for file in files if file is not None), None)

    def _note(self, module: Module, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                for length in range(1, len(parts) + 1):
                    if file := self.named(".".join(parts[:length])):
                        module.imported.add(file)
                        if alias.asname is None:
                            module.bindings[".".join(parts[:length])] = Symbol(file)
                        elif length == len(parts):
                            module.bindings[alias.asname] = Symbol(file)
        elif isinstance(node, ast.ImportFrom):
            self._note_from(module, node)

    def _note_from(self, module: Module, node: ast.ImportFrom) -> None:
        source = self._source(module, node)
        for alias in node.names:
            inner = _module_file(source[0], [*source[1], alias.name])
            own = _module_file(source[0], source[1])
            if alias.name == "*" and own:
                module.stars.append(own)
            elif inner and inner != own:
                module.bindings[alias.asname or alias.name] = Symbol(inner)
                module.imported.add(inner)
            elif own:
                module.bindings[alias.asname or alias.name] = Symbol(own, alias.name)
        for length in range(1, len(source[1]) + 1):
            if file := _module_file(source[0], source[1][:length]):
                module.imported.add(file)

    def _source(self, module: Module, node: ast.ImportFrom) -> tuple[Path, list[str]]:
        """Returns the folder and the names below it that an import is from."""
        parts = node.module.split(".") if node.module else []
        if node.level:
            return module.file.parents[node.level - 1], parts
        roots = (root for root in self._roots if _module_file(root, parts[:1]))
        return next(roots, self.app), parts

    # --- Names ---

    def resolved(self, symbol: Symbol) -> Symbol:
        """Returns where a symbol is defined, through modules that only pass it on."""
        seen: set[Symbol] = set()
        while symbol.name and symbol not in seen:
            seen.add(symbol)
            module = self.of(symbol.file)
            if symbol.name in module.bindings and symbol.name not in module.values:
                symbol = module.bindings[symbol.name]
        return symbol

    def symbol(self, module: Module, node: ast.expr) -> Symbol | None:
        """Returns the symbol that a name in a module stands for, if it is of this repository."""
        name = _dotted(node)
        if name is None:
            return None
        parts = name.split(".")
        if parts[0] in module.values:
            return Symbol(module.file, parts[0]) if len(parts) == 1 else None
        for length in range(len(parts), 0, -1):
            bound = module.bindings.get(".".join(parts[:length]))
            if bound is not None:
                return self._member(self.resolved(bound), parts[length:])
        return Symbol(module.file, parts[0]) if len(parts) == 1 else None

    def _member(self, symbol: Symbol, parts: Sequence[str]) -> Symbol:
        for part in parts:
            if symbol.name:
                return symbol
            folder = symbol.file.parent if symbol.file.name == "__init__.py" else None
            inner = folder and _module_file(folder, [part])
            symbol = Symbol(inner) if inner else self.resolved(Symbol(symbol.file, part))
        return symbol

    def value(self, symbol: Symbol) -> tuple[Module, ast.expr] | None:
        """Returns the expression that is assigned to a name, with its module."""
        symbol = self.resolved(symbol)
        module = self.of(symbol.file)
        if symbol.name in module.values:
            return module, module.values[symbol.name]
        inherited = (self.value(Symbol(star, symbol.name)) for star in module.stars)
        return next((value for value in inherited if value is not None), None)

    def text(self, module: Module, node: ast.expr | None) -> str:
        """Returns the text that an expression is.

        Raises:
            GraphError: It is computed.
        """
        if node is None:
            return ""
        text = self._text(module, node)
        if text is None:
            raise GraphError(f"{module.file}:{node.lineno}: the text is computed")
        return text

    def _text(self, module: Module, node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.FormattedValue):
            return self._text(module, node.value)
        if isinstance(node, (ast.JoinedStr, ast.BinOp)):
            joined = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            parts = [self._text(module, part) for part in joined]
            return None if None in parts else "".join(part or "" for part in parts)
        if isinstance(node, ast.Attribute) and (text := self._setting(module, node)) is not None:
            return text
        symbol = self.symbol(module, node)
        value = symbol and self.value(symbol)
        return self._text(*value) if value else None

    def _setting(self, module: Module, node: ast.Attribute) -> str | None:
        """Returns the default of a member of a settings' object: `settings.API_PREFIX`."""
        symbol = self.symbol(module, node.value)
        value = symbol and self.value(symbol)
        if not value or not isinstance(value[1], ast.Call):
            return None
        kind = self.symbol(value[0], value[1].func)
        classes = self.of(kind.file).classes if kind else {}
        members = classes[kind.name].body if kind and kind.name in classes else []
        for member in members:
            if (
                isinstance(member, ast.AnnAssign)
                and isinstance(member.target, ast.Name)
                and member.target.id == node.attr
                and member.value is not None
            ):
                return self._text(value[0], member.value)
        return None

    # --- Files ---

    def reachable(
        self, starts: Iterable[Path], without: frozenset[tuple[Path, Path]] = frozenset()
    ) -> set[Path]:
        """Returns all files that importing some leads to, and the templates that they name.

        Args:
            starts: These included.
            without: Imports that only gather their neighbours.
        """
        seen = dict.fromkeys(starts)
        waiting = list(seen)
        while waiting:
            file = waiting.pop()
            if file.suffix == ".py":
                module = self.of(file)
                files = {other for other in module.imported if (file, other) not in without}
                files |= self.templates(module.constants())
            else:
                text = file.read_text(errors="replace")
                files = self.templates(_TEMPLATE_ASKED.findall(text))
            waiting += [other for other in files if other not in seen]
            seen |= dict.fromkeys(files)
        return set(seen)

    @cached_property
    def _template_files(self) -> Mapping[str, list[Path]]:
        templates: dict[str, list[Path]] = {}
        for file in _below(self.app):
            parts = file.relative_to(self.app).parts
            if "templates" in parts:
                name = "/".join(parts[parts.index("templates") + 1 :])
                templates.setdefault(name, []).append(file)
        return templates

    def templates(self, names: Iterable[str]) -> set[Path]:
        """Returns the templates that some texts name."""
        asked = {name for name in names if _TEMPLATE.fullmatch(name)}
        return {file for name in asked for file in self._template_files.get(name, ())}


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not _LEFT_OUT.match(path.name):
            yield from _below(path)
        elif path.is_file():
            yield path


def _module_file(folder: Path, parts: Sequence[str]) -> Path | None:
    path = folder.joinpath(*parts)
    choices = (path / "__init__.py", *([path.with_name(f"{path.name}.py")] if parts else []))
    return next((file for file in choices if file.is_file()), None)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run with a module, or later: not those that types alone need."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and (_dotted(child.test) or "").endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _running(child)


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


def _called(node: ast.AST, *names: str) -> ast.Call | None:
    """Returns a call of a function by any of some names, of whatever module."""
    if not isinstance(node, ast.Call):
        return None
    name = (_dotted(node.func) or "").rpartition(".")[2]
    return node if name in names else None


def _given(call: ast.Call, position: int | None, keyword: str) -> ast.expr | None:
    """Returns an argument of a call, by its position, if it may have a position, or by its name."""
    named = (given.value for given in call.keywords if given.arg == keyword)
    if position is not None and len(call.args) > position:
        return call.args[position]
    return next(named, None)


# --- Routes --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route.

    Attributes:
        path: Its pattern.
        kind: `page` or `api`.
        method: Its method, in capitals; None for any.
        file: The file of its code.
        starts: Further files that lead to its code.
        alone: Files that count without their imports.
    """

    path: str
    kind: str
    file: Path
    method: str | None = None
    starts: frozenset[Path] = frozenset()
    alone: frozenset[Path] = frozenset()


def _joined(*parts: str) -> str:
    return "/" + "/".join(part for text in parts for part in text.split("/") if part)


def _pattern(path: str) -> str:
    """Returns a path whose segments are each a literal or a parameter."""
    parts = (
        f"{{{re.sub(r'[^0-9A-Za-z]+', '_', part).strip('_')}}}"
        if "{" in part and not re.fullmatch(r"\{[^{}]+\}", part)
        else part
        for part in path.split("/")
    )
    return "/".join(parts)


# --- FastAPI -------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Router:
    """A router, or an app: its own routes, and the routers that it includes."""

    prefix: str
    is_app: bool
    routes: list[Route] = field(default_factory=list[Route])
    included: list[tuple[str, Symbol, Path]] = field(default_factory=list[tuple[str, Symbol, Path]])


class FastApi:
    """The routes of all apps of FastAPI below a folder."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._routers: dict[Symbol, Router] = {}
        every = list(modules.every())
        for module in every:
            self._note_routers(module)
        for module in every:
            for node in ast.walk(module.tree):
                self._note(module, node)

    def routes(self) -> list[Route]:
        """Returns the routes.

        Raises:
            GraphError: There is no app.
        """
        inner = {symbol for router in self._routers.values() for _, symbol, _ in router.included}
        apps = [symbol for symbol, router in self._routers.items() if router.is_app]
        if not apps:
            raise GraphError(f"no FastAPI() and no manage.py below {self._modules.app}")
        outer = [symbol for symbol in apps if symbol not in inner]
        return [route for symbol in outer for route in self._of(symbol, "", frozenset(), ())]

    @property
    def gathering(self) -> frozenset[tuple[Path, Path]]:
        """Imports by which a module only puts routers together."""
        holding = {route.file for router in self._routers.values() for route in router.routes}
        gatherers = {file for router in self._routers.values() for *_, file in router.included}
        packages = {
            module.file
            for module in self._modules.every()
            if module.file.name == "__init__.py" and module.file not in holding
        }
        return frozenset((file, other) for file in gatherers | packages for other in holding)

    def _of(
        self, symbol: Symbol, above: str, around: frozenset[Path], seen: tuple[Symbol, ...]
    ) -> Iterator[Route]:
        router = self._routers.get(symbol)
        if router is None or symbol in seen:
            return
        own, around = above + router.prefix, around | {symbol.file}
        for route in router.routes:
            path = _pattern(own + route.path) or "/"
            yield replace(route, path=path, starts=around)
        for prefix, inner, file in router.included:
            yield from self._of(inner, own + prefix, around | {file}, (*seen, symbol))

    def _note_routers(self, module: Module) -> None:
        for node in ast.walk(module.tree):
            call = isinstance(node, (ast.Assign, ast.AnnAssign)) and _called(
                node.value or node, "APIRouter", "FastAPI"
            )
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and call:
                prefix = self._modules.text(module, _given(call, None, "prefix"))
                router = Router(prefix=prefix, is_app=_called(call, "FastAPI") is not None)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    self._routers[Symbol(module.file, _dotted(target) or "")] = router

    def _note(self, module: Module, node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call):
                    self._note_route(module, decorator)
        elif _called(node, "add_api_route", "add_api_websocket_route"):
            self._note_route(module, node)
        elif call := _called(node, "include_router", "mount"):
            self._note_included(module, call)

    def _router(self, module: Module, call: ast.Call) -> Router | None:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        symbol = self._symbol(module, owner)
        return self._routers.get(symbol) if symbol else None

    def _symbol(self, module: Module, node: ast.expr | None) -> Symbol | None:
        """Returns the symbol of a router: also a router that a function makes for itself."""
        own = Symbol(module.file, _dotted(node) or "") if node is not None else None
        if own in self._routers or node is None:
            return own
        return self._modules.symbol(module, node)

    def _note_route(self, module: Module, node: ast.AST) -> None:
        call = _called(node, *_ROUTING)
        if call is None or (router := self._router(module, call)) is None:
            return
        word = (_dotted(call.func) or "").rpartition(".")[2]
        methods = [word.upper()] if word in _METHODS else self._methods(call)
        file, endpoint = module.file, _given(call, 1, "endpoint")
        if word.startswith("add_api") and endpoint is not None:
            symbol = self._modules.symbol(module, endpoint)
            file = symbol.file if symbol else file
        path = self._modules.text(module, _given(call, 0, "path"))
        router.routes += [
            Route(path=path, kind="api", method=method, file=file) for method in methods
        ]

    def _methods(self, call: ast.Call) -> Sequence[str | None]:
        listed = _given(call, None, "methods")
        names = (
            [node.value for node in ast.walk(listed) if isinstance(node, ast.Constant)]
            if listed
            else []
        )
        return [str(name).upper() for name in names] or [None]

    def _note_included(self, module: Module, call: ast.Call) -> None:
        router = self._router(module, call)
        is_mount = _called(call, "mount") is not None
        inner = _given(call, 1, "app") if is_mount else _given(call, 0, "router")
        symbol = self._symbol(module, inner)
        if router is None or symbol is None:
            return
        prefix = _given(call, 0, "path") if is_mount else _given(call, None, "prefix")
        router.included.append((self._modules.text(module, prefix), symbol, module.file))


# --- Django --------------------------------------------------------------------------------------


class Django:
    """The routes of a site of Django, by its ROOT_URLCONF."""

    def __init__(self, modules: Modules, settings: str) -> None:
        self._modules = modules
        file = modules.named(settings)
        if file is None:
            raise GraphError(f"there is no module {settings}, which the settings are")
        self._settings = file
        urls = self._text("ROOT_URLCONF")
        file = modules.named(urls) if urls else None
        if file is None:
            raise GraphError(f"{file} names no ROOT_URLCONF of this repository")
        self._urls = file

    @property
    def shared(self) -> set[Path]:
        """The files behind every route: the settings, and middleware of this repository."""
        files = {self._settings}
        value = self._modules.value(Symbol(self._settings, "MIDDLEWARE"))
        for node in ast.walk(value[1]) if value else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                file = self._modules.named(node.value.rpartition(".")[0])
                files |= {file} if file else set()
        return files

    def routes(self) -> list[Route]:
        """Returns the routes."""
        return list(self._of_file(self._urls, "", frozenset()))

    def _text(self, name: str) -> str:
        value = self._modules.value(Symbol(self._settings, name))
        return self._modules.text(*value) if value else ""

    def _of_file(self, file: Path, above: str, around: frozenset[Path]) -> Iterator[Route]:
        if file in around:
            return
        module, around = self._modules.of(file), around | {file}
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            if any(_dotted(target) == "urlpatterns" for target in targets):
                value = getattr(node, "value", None)
                yield from self._of_list(module, value, above, around)

    def _of_list(
        self, module: Module, node: ast.expr | None, above: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        if isinstance(node, ast.BinOp):
            yield from self._of_list(module, node.left, above, around)
            yield from self._of_list(module, node.right, above, around)
        elif isinstance(node, (ast.List, ast.Tuple)):
            for item in node.elts:
                inner = item.value if isinstance(item, ast.Starred) else item
                yield from self._of_item(module, inner, above, around)
        elif node is not None:
            yield from self._of_item(module, node, above, around)

    def _of_item(
        self, module: Module, node: ast.expr, above: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        if call := _called(node, "path", "re_path", "url"):
            text = self._modules.text(module, _given(call, 0, "route"))
            shown = _of_path(text) if _called(call, "path") else _of_expression(text)
            yield from self._of_target(module, _given(call, 1, "view"), above + shown, around)
        elif call := _called(node, "i18n_patterns"):
            for item in call.args:
                yield from self._of_item(module, item, f"{above}{{language}}/", around)
        elif isinstance(node, ast.Attribute) and node.attr == "urls":
            yield from self._of_router(module, node.value, above, around)
        elif isinstance(node, ast.Name) and (
            value := self._modules.value(Symbol(module.file, node.id))
        ):
            yield from self._of_list(*value, above, around)

    def _of_target(
        self, module: Module, target: ast.expr | None, path: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        if target is not None and (call := _called(target, "include")):
            yield from self._of_included(module, call.args[0], path, around)
        elif isinstance(target, ast.Tuple):
            yield from self._of_included(module, target, path, around)
        elif isinstance(target, ast.Attribute) and target.attr == "urls":
            yield _elsewhere(module, path, around)
        elif target is not None:
            yield self._of_view(module, target, path, around)

    def _of_included(
        self, module: Module, node: ast.expr, path: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        if isinstance(node, ast.Tuple):
            node = node.elts[0]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            file = self._modules.named(node.value)
            if file is None:
                yield _elsewhere(module, path, around)
            else:
                yield from self._of_file(file, path, around)
        elif (symbol := self._modules.symbol(module, node)) and not symbol.name:
            yield from self._of_file(symbol.file, path, around)
        else:
            # Routes that a call returns, as django-oscar's applications do, are somebody else's.
            routes = list(self._of_list(module, node, path, around))
            yield from routes or [_elsewhere(module, path, around)]

    def _of_view(
        self, module: Module, target: ast.expr, path: str, around: frozenset[Path]
    ) -> Route:
        """Returns the route of a view, whichever decorators are called around it."""
        files = [
            symbol.file
            for node in ast.walk(target)
            if isinstance(node, (ast.Name, ast.Attribute))
            and (symbol := self._modules.symbol(module, node))
            and symbol.file != module.file
        ]
        texts = (node.value for node in ast.walk(target) if isinstance(node, ast.Constant))
        templates = self._modules.templates(text for text in texts if isinstance(text, str))
        return Route(
            path=_pattern(_joined(path)),
            kind="page",
            file=files[0] if files else module.file,
            starts=frozenset({*files, *templates}),
            alone=around,
        )

    def _of_router(
        self, module: Module, owner: ast.expr, above: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        """Yields the routes of a router of the REST framework."""
        symbol = self._modules.symbol(module, owner)
        home = self._modules.of(symbol.file) if symbol else module
        name = symbol.name if symbol else ""
        for node in ast.walk(home.tree):
            call = _called(node, "register")
            owned = call and isinstance(call.func, ast.Attribute) and _dotted(call.func.value)
            if call and owned == name:
                yield from self._of_registered(home, call, above, around | {home.file})

    def _of_registered(
        self, module: Module, call: ast.Call, above: str, around: frozenset[Path]
    ) -> Iterator[Route]:
        text = self._modules.text(module, _given(call, 0, "prefix"))
        base = _joined(above, _of_expression(text))
        view = _given(call, 1, "viewset")
        symbol = self._modules.symbol(module, view) if view is not None else None
        file = symbol.file if symbol else module.file
        kind = self._modules.of(file).classes.get(symbol.name) if symbol else None
        for path in ("", "/{pk}", *(_actions(kind) if kind else ())):
            yield Route(path=base + path, kind="api", file=file, alone=around)


def _elsewhere(module: Module, path: str, around: frozenset[Path]) -> Route:
    """Returns a route for all pages of somebody else's site, such as the admin's, and its first."""
    return Route(path=_joined(path, ":rest*"), kind="page", file=module.file, alone=around)


def _actions(kind: ast.ClassDef) -> Iterator[str]:
    """Yields the paths of a viewset's own actions, below its prefix."""
    for method in kind.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in method.decorator_list:
            if call := _called(decorator, "action"):
                detail, path = _given(call, 1, "detail"), _given(call, 2, "url_path")
                name = path.value if isinstance(path, ast.Constant) else method.name
                is_detail = isinstance(detail, ast.Constant) and detail.value is True
                yield f"{'/{pk}' if is_detail else ''}/{name}"


def _of_path(text: str) -> str:
    """Returns a path of Django's `path()` as a pattern."""
    return re.sub(
        r"<(?:(\w+):)?(\w+)>",
        lambda match: f"{{{match[2]}{':path' if match[1] == 'path' else ''}}}",
        text,
    )


def _of_expression(text: str) -> str:
    """Returns a regular expression of a path as a pattern; an open part is a parameter."""
    bare = text.removeprefix("^").removesuffix("$").removesuffix("\\Z")
    group = re.compile(r"\((?:\?P<(\w+)>|\?:)?((?:[^()\\]|\\.)*)\)\??")

    def parameter(match: re.Match[str]) -> str:
        wide = "/" in match[2] or ".*" in match[2] or ".+" in match[2]
        return f"{{{match[1] or 'value'}{':path' if wide else ''}}}"

    bare = re.sub(r"\\(\W)", r"\1", group.sub(parameter, bare))
    parts = [
        "{value}" if re.search(r"[\[\]()*+?|\\^$]", part) else part for part in bare.split("/")
    ]
    return "/".join(parts)


# --- The graph -----------------------------------------------------------------------------------


def graph(
    app: Path, *, root: Path, base_path: str = "", settings: str | None = None
) -> dict[str, object]:
    """Returns the graph of the app in a folder.

    Args:
        app: The folder from which its modules are imported.
        root: The repository's, from which files are named.
        base_path: The path before every path.
        settings: The module of Django's settings; by default the module that manage.py names.

    Raises:
        GraphError: There is no app, or its routes are computed.
    """
    if not app.is_relative_to(root) or not app.is_dir():
        raise GraphError(f"{app} is no folder within {root}")
    modules = Modules(app, root)
    chosen = settings or _settings_of(app)
    shared: set[Path] = set()
    without: frozenset[tuple[Path, Path]] = frozenset()
    if chosen:
        site = Django(modules, chosen)
        routes, shared = site.routes(), site.shared
    else:
        api = FastApi(modules)
        routes, without = api.routes(), api.gathering
    entries: dict[tuple[str, str, str], dict[str, object]] = {}
    for route in routes:
        starts = {route.file, *route.starts, *shared} - route.alone
        files = modules.reachable(starts, without) | route.alone
        _add(entries, route, base_path, {_named(file, root) for file in files}, root)
    ordered = sorted(
        entries.values(), key=lambda entry: (str(entry["path"]), str(entry.get("method")))
    )
    framework = "django" if chosen else "fastapi"
    return {
        "schema_version": 1,
        "generator": "route-graph",
        "framework": framework,
        "routes": ordered,
    }


def _add(
    entries: dict[tuple[str, str, str], dict[str, object]],
    route: Route,
    base_path: str,
    files: set[str],
    root: Path,
) -> None:
    """Adds a route; routes with the same addresses, `/{id}` and `/{id}.pdf`, are the same."""
    path = _joined(base_path, route.path)
    shown: dict[str, object] = {"path": path, "kind": route.kind, "file": _named(route.file, root)}
    if route.method:
        shown["method"] = route.method
    key = (re.sub(r"\{\w+\}", "{}", path), route.method or "", route.kind)
    before = entries.get(key, {**shown, "files": []})
    known = before["files"]
    files |= set(known) if isinstance(known, list) else set()
    # The shorter name is the plain name.
    chosen = min(shown, before, key=lambda entry: (len(str(entry["path"])), str(entry["path"])))
    entries[key] = {**chosen, "files": sorted(files)}


def _named(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _settings_of(app: Path) -> str | None:
    """Returns the settings that manage.py names; None where there is none."""
    manage = app / "manage.py"
    if not manage.is_file():
        return None
    named = re.search(r"DJANGO_SETTINGS_MODULE[\"']\s*,\s*[\"']([\w.]+)[\"']", manage.read_text())
    return named[1] if named else None


def _repository(app: Path) -> Path:
    above = (folder for folder in (app, *app.parents) if (folder / ".git").exists())
    return next(above, app)


def main() -> int:
    """Writes the graph, or why there is none, in a line."""
    parser = argparse.ArgumentParser(prog="route_graph.py", description=__doc__)
    parser.add_argument("app", nargs="?", default=".")
    parser.add_argument("--root")
    parser.add_argument("--base-path", default="")
    parser.add_argument("--settings")
    given = parser.parse_args()
    app = Path(given.app).resolve()
    root = Path(given.root).resolve() if given.root else _repository(app)
    try:
        shown = graph(app, root=root, base_path=given.base_path, settings=given.settings)
    except (GraphError, OSError) as error:
        sys.stderr.write(f"route-graph: {error}\n")
        return 1
    sys.stdout.write(json.dumps(shown) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
