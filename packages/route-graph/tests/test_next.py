"""The program that writes a Next.js app's static graph."""

from pathlib import Path

import pytest
from node_apps import NEXT, NEXT_EVERYWHERE, NEXT_ROUTES
from programs import graph, run_node, written


@pytest.fixture
def repository(tmp_path) -> Path:
    return written(NEXT, tmp_path / "repository")


def in_repository(files: set[str]) -> set[str]:
    return {name if name.startswith("packages/") else f"apps/web/{name}" for name in files}


def test_each_route_of_an_app_is_found_with_the_files_that_it_reaches(repository) -> None:
    result = {
        (route["path"], route["kind"]): set(route["files"])
        for route in graph(run_node(cwd=repository / "apps" / "web"))["routes"]
    }
    assert result.keys() == NEXT_ROUTES.keys()
    for key, files in NEXT_ROUTES.items():
        assert result[key] == in_repository(files | NEXT_EVERYWHERE), key


def test_the_file_of_a_route_is_its_own_page(repository) -> None:
    routes = graph(run_node("apps/web", "--base-path", "", cwd=repository))["routes"]
    files = {route["path"]: route["file"] for route in routes}
    assert files["/checkout/[id]"] == "apps/web/app/(shop)/checkout/[id]/page.tsx"
    assert "/" in files


SLOTS = {
    # The slot's rest is shown wherever no page of the slot fits better.
    ("dash/layout", "dash/@header/[...dir]/page", "dash/home/page", "dash/[id]/settings/page"): {
        "/dash/[...dir]": ["dash/layout", "dash/@header/[...dir]/page"],
        "/dash/home": ["dash/layout", "dash/@header/[...dir]/page", "dash/home/page"],
        "/dash/[id]/settings": [
            *("dash/layout", "dash/@header/[...dir]/page", "dash/[id]/settings/page")
        ],
    },
    (
        "@nav/[[...all]]/page",
        "@nav/shop/[id]/page",
        "@nav/shop/[id]/layout",
        "page",
        "shop/a/page",
    ): {
        "/": ["@nav/[[...all]]/page", "page"],
        "/[[...all]]": ["@nav/[[...all]]/page", "@nav/shop/[id]/page", "@nav/shop/[id]/layout"],
        "/shop/[id]": ["@nav/shop/[id]/page", "@nav/shop/[id]/layout"],
        "/shop/a": ["@nav/shop/[id]/page", "@nav/shop/[id]/layout", "shop/a/page"],
    },
    ("(g)/@m/(h)/[slug]/page", "(g)/@m/(.)[id]/edit/page", "(g)/[id]/page", "(g)/[id]/edit/page"): {
        "/[id]": ["(g)/@m/(h)/[slug]/page", "(g)/[id]/page"],
        "/[id]/edit": ["(g)/@m/(.)[id]/edit/page", "(g)/[id]/edit/page"],
    },
}


@pytest.mark.parametrize("files", SLOTS, ids=lambda files: files[0])
def test_a_route_reaches_the_pages_that_slots_show_beside_it(tmp_path, files) -> None:
    written({f"app/{name}.tsx": "export default () => null" for name in files}, tmp_path)
    routes = {
        route["path"]: set(route["files"]) for route in graph(run_node(cwd=tmp_path))["routes"]
    }
    expected = {
        path: {f"app/{name}.tsx" for name in reached} for path, reached in SLOTS[files].items()
    }
    assert routes == expected


def test_a_folder_without_an_app_is_refused_in_one_line(tmp_path) -> None:
    done = run_node(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("route-graph: ")
    assert done.stderr.count("\n") == 1
