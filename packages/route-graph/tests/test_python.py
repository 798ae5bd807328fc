"""The program that writes route graphs, on apps of FastAPI and Django."""

import json
import re
import sys
from typing import Any

import pytest
from programs import graph, run_python, written
from python_apps import DJANGO, FAST_API

from domain.route import RouteTable
from tests.processes.registry import output_of, python_of

APPS = {"FastAPI": FAST_API, "Django": DJANGO}


@pytest.mark.parametrize("name", APPS)
def test_each_route_of_an_app_is_found_with_the_files_that_it_reaches(name, tmp_path) -> None:
    app = APPS[name]
    (tmp_path / ".git").mkdir()
    document = graph(run_python(cwd=written(app.files, tmp_path / "services" / "shop")))
    result = {
        (route["path"], route.get("method", "")): set(route["files"])
        for route in document["routes"]
    }
    assert result.keys() == app.routes.keys()
    for (path, method), files in app.routes.items():
        expected = {f"services/shop/{file}" for file in files | app.everywhere}
        assert result[path, method] == expected, path


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.py": ""}, "no FastAPI() and no manage.py"),
        ({"main.py": "def ("}, "main.py is no Python"),
        (
            {"main.py": "import fastapi\napp = fastapi.FastAPI()\n@app.get(path())\ndef a(): ..."},
            "main.py:3: the text is computed",
        ),
        ({"manage.py": "f('DJANGO_SETTINGS_MODULE', 'a.b')"}, "no module a.b"),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_line(tmp_path, files, message) -> None:
    done = run_python(cwd=written(files, tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("route-graph: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def served(patterns: list[str]) -> set[str]:
    """Paths that a framework's patterns serve, a path each."""
    some = [
        (r"\(\?P<rest>[^)]*\)|[<{](?:path:name|cart:path)[>}]", "a/b"),
        (r"\(\?P<\w+>[^)]*\)", "7"),
    ]
    paths = set[str]()
    for pattern in patterns:
        path = pattern
        for form, value in (*some, (r"<[^>]*>|\{[^}]*\}", "7"), (r"[\^$\\]", "")):
            path = re.sub(form, value, path)
        paths.add("/" + path.strip("/"))
    return paths


def assert_each_route_is_served(document: dict[str, Any], patterns: list[str]) -> None:
    """Each path of the framework is among ours, and each of ours among theirs."""
    ours = {route["path"] for route in document["routes"]}
    table = RouteTable(ours)
    matched = {path: table.match(path) for path in served(patterns)}
    assert None not in matched.values(), matched
    assert set(matched.values()) == ours


@pytest.mark.process
def test_fastapi_itself_serves_the_same_routes(tmp_path) -> None:
    folder = written(FAST_API.files, tmp_path)
    program = """
import json, sys
sys.path.insert(0, ".")
from shop.internal import admin
from shop.main import app
print(json.dumps([list(app.openapi()["paths"]), list(admin.openapi()["paths"])]))
"""
    own, inner = json.loads(output_of([sys.executable, "-c", program], folder=folder))
    # A socket is in no OpenAPI document.
    patterns = [*own, *(f"/internal{path}" for path in inner), "/api/v1/carts/live"]
    assert_each_route_is_served(graph(run_python(cwd=folder)), patterns)


@pytest.mark.process
@pytest.mark.nightly
def test_django_itself_serves_the_same_routes(tmp_path) -> None:
    python = python_of(tmp_path / "python", ["django>=5,<6", "djangorestframework>=3.15,<4"])
    folder = written(DJANGO.files, tmp_path / "site")
    program = """
import json, os, sys
sys.path.insert(0, ".")
os.environ["DJANGO_SETTINGS_MODULE"] = "site_.settings.local"
import django
django.setup()
from django.urls import URLResolver, get_resolver
def walk(patterns, above=""):
    for pattern in patterns:
        path = above + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from walk(pattern.url_patterns, path)
        else:
            yield path
print(json.dumps(list(walk(get_resolver().url_patterns))))
"""
    patterns = json.loads(output_of([python, "-c", program], folder=folder))
    assert_each_route_is_served(graph(run_python(cwd=folder)), patterns)
