"""The map of the source is true, and no room holds more than a reader can take in at once."""

import ast
import re
import tomllib
from collections import Counter

import grimp
import pytest

from tests.architecture import (
    COMMAND,
    PACKAGES,
    PAGE,
    ROOT,
    architecture,
    docstring,
    packages,
    rooms,
)

# architecture.md of the design: "no folder shows more than about fifteen files".
MOST_FILES = 15
# Lines and files that the endpoints of the interface, a tick and the tools import, and parameters
# and results without a type of their own. Lower them; the goals are 32,000 in 200 files, and 80.
MOST_IN_CORE, MOST_UNTYPED = (35_900, 226), 48
_UNTYPED = re.compile(r"(dict\[str|Mapping\[str|Row\[)(, )?Any\]")


def test_the_map_is_up_to_date_to_the_byte() -> None:
    assert PAGE.read_text() == architecture(), f"run {COMMAND}"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_room_shows_few_files_and_says_what_is_inside(room) -> None:
    files = [path for path in room.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MOST_FILES
    assert docstring(room / "__init__.py")
    assert all(docstring(path) for path in files)


def test_a_room_of_the_tests_shows_few_files() -> None:
    tests = ROOT / "tests"
    paths = (path for path in tests.rglob("*") if "__pycache__" not in path.parts)
    files = (path.parent.relative_to(tests).as_posix() for path in paths if path.is_file())
    rooms = Counter(files)
    assert {name: count for name, count in rooms.items() if count > MOST_FILES} == {}


def test_the_files_on_the_way_of_an_event_are_there() -> None:
    way = architecture().split("## The way of an event")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z_/]+\.py)`", way)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_frozen_policy_is_read_by_its_struct_and_by_columns_of_its_fields() -> None:
    reads = re.compile(
        r"\bpolicy\b['\"]?\s*(->|#>|#-|\?)|jsonb_exists\(x\.policy|policy(\[['\"]|\.get\()"
    )
    files = [path for room in rooms() for path in room.glob("*.py")]
    assert [path.name for path in files if reads.search(path.read_text())] == []


def test_no_private_module_of_a_library_is_imported() -> None:
    private = re.compile(r"^\s*(?:from|import) \w+(?:\.\w+)*\._", re.MULTILINE)
    files = (path for room in rooms() for path in room.glob("*.py"))
    assert [path.name for path in files if private.search(path.read_text())] == []


def test_what_must_be_read_to_change_the_core_only_shrinks() -> None:
    beginnings = (
        *("api.routes.runtime_events", "api.routes.static_graphs", "api.routes.deploys"),
        *("api.routes.revenue_events", "api.routes.experiments", "api.routes.verdicts"),
        *("orchestration.pipeline.steps", "orchestration.dagster.assets", "mcp_server.server"),
    )
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = {*beginnings}.union(*map(graph.find_upstream_modules, beginnings))
    paths = (ROOT / module.replace(".", "/") for module in modules)
    files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
    lines = sum(file.read_text().count("\n") for file in files)
    assert len(files) <= MOST_IN_CORE[1]
    assert lines <= MOST_IN_CORE[0]


def test_no_more_parameters_and_results_are_untyped() -> None:
    edges = Counter[str]()
    for path in (path for room in rooms() for path in room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                annotations = [node.returns, *(arg.annotation for arg in _arguments(node))]
                edges[path.name] += sum(
                    bool(_UNTYPED.search(ast.unparse(each))) for each in annotations if each
                )
    assert edges.total() <= MOST_UNTYPED


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [each for each in ast.walk(node.args) if isinstance(each, ast.arg)]


def test_each_exception_of_a_contract_names_both_of_its_modules() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert "*" not in str(contracts)


def test_each_package_is_in_the_wheel_and_under_the_contract_of_packages() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    modules = [init.parent for folder in packages() for init in folder.glob("*/__init__.py")]
    wheel = settings["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {path.relative_to(ROOT).as_posix() for path in modules} == {
        name for name in wheel if name.startswith("packages/")
    }
    (held,) = (
        set(each["forbidden_modules"])
        for each in settings["importlinter"]["contracts"]
        if each["name"].startswith("A package hangs on a face")
    )
    assert held == {path.name for path in modules}
