"""The program that writes route graphs, on apps of React Router and SvelteKit."""

import json
import re
from typing import Any

import pytest
from node_apps import FLAT_ROUTES, REACT_ROUTER, SVELTE_KIT, SVELTE_LAYOUT
from programs import graph, run_node, written

from tests.processes.registry import node_folder, output_of

APPS = {"React Router": REACT_ROUTER, "flat routes": FLAT_ROUTES, "SvelteKit": SVELTE_KIT}
OF_REACT_ROUTER = (
    *("@react-router/dev@7", "@react-router/fs-routes@7", "@react-router/node@7", "react-router@7"),
    *("react@19", "react-dom@19", "isbot@5", "vite@6", "typescript@5"),
)
OF_SVELTE_KIT = ("@sveltejs/kit@2", "svelte@5", "vite@6", "@sveltejs/vite-plugin-svelte@5")


@pytest.mark.parametrize("name", APPS)
def test_each_route_of_an_app_is_found_with_the_files_that_it_reaches(name, tmp_path) -> None:
    app = APPS[name]
    (tmp_path / ".git").mkdir()
    document = graph(run_node(cwd=written(app.files, tmp_path / "apps" / "web")))
    result = {(route["path"], route["kind"]): set(route["files"]) for route in document["routes"]}
    assert result.keys() == app.routes.keys()
    for (path, kind), files in app.routes.items():
        around = SVELTE_LAYOUT if app is SVELTE_KIT and kind == "page" else set[str]()
        expected = {f"apps/web/{file}" for file in files | app.everywhere | around}
        assert result[path, kind] == expected, path


def test_the_file_of_a_page_of_svelte_is_its_component(tmp_path) -> None:
    routes = graph(run_node(cwd=written(SVELTE_KIT.files, tmp_path)))["routes"]
    files = {route["path"]: route["file"] for route in routes}
    assert files["/shop/docs/[[...path]]"].endswith("+page.svelte")
    assert files["/shop/products/[sku=sku]"].endswith("+page.svelte")


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("export default readRoutes();", "computes its routes"),
        ("export default [route(`a/${b}`, file)];", "computes its routes"),
        ("export const routes = [];", "computes its routes"),
    ],
)
def test_routes_that_are_computed_are_refused_in_one_line(tmp_path, routes, message) -> None:
    written(REACT_ROUTER.files, tmp_path)
    (tmp_path / "app/routes.ts").write_text(routes)
    done = run_node(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_framework_may_be_named_and_an_unknown_one_is_refused(tmp_path) -> None:
    written(REACT_ROUTER.files, tmp_path)
    done = run_node("--framework", "sveltekit", cwd=tmp_path)
    assert "src/routes is no folder" in done.stderr
    done = run_node("--framework", "angular", cwd=tmp_path)
    assert "one of next, react-router, sveltekit" in done.stderr


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["React Router", "flat routes"])
def test_react_router_itself_tells_of_the_same_routes(name, tmp_path) -> None:
    app = APPS[name]
    node_folder(tmp_path, OF_REACT_ROUTER)
    written(app.files, tmp_path)
    answer = json.loads(
        output_of(["npx", "--no-install", "react-router", "routes", "--json"], folder=tmp_path)
    )
    paths = set(paths_of(answer, ""))
    base = "/shop" if app is REACT_ROUTER else ""
    optional = {path for path in paths if "?" in path}
    expected = {re.sub(r"/$", "", base + path) or "/" for path in paths - optional}
    for path in optional:
        expected |= {base + path.replace("?", ""), base + re.sub(r"/[^/]*\?", "", path)}
    assert {route["path"] for route in graph(run_node(cwd=tmp_path))["routes"]} == expected


def paths_of(nodes: list[dict[str, Any]], above: str) -> list[str]:
    """The paths at which a route answers: its own, and those of the routes inside of it."""
    result: list[str] = []
    for node in nodes:
        path = f"{above}/{node['path']}" if node.get("path") else above
        if node.get("index") or node.get("path"):
            result.append(path or "/")
        result += paths_of(node.get("children", []), path)
    return result


@pytest.mark.process
@pytest.mark.nightly
def test_sveltekit_itself_tells_of_the_same_pages(tmp_path) -> None:
    node_folder(tmp_path, OF_SVELTE_KIT)
    written(SVELTE_KIT.files, tmp_path)
    output_of(["npx", "--no-install", "svelte-kit", "sync"], folder=tmp_path)
    output = (tmp_path / ".svelte-kit/generated/client/app.js").read_text()
    pages = set(re.findall(r'^\s+"(/[^"]*)": \[', output, re.MULTILINE))
    ours = {
        re.sub(r"^src/routes|/\+page[^/]*$", "", route["file"]) or "/"
        for route in graph(run_node(cwd=tmp_path))["routes"]
        if route["kind"] == "page"
    }
    assert pages == ours
