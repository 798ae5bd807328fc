"""Shops in real frameworks, instrumented as the page says: what nginx logs is counted once."""

from pathlib import Path

import pytest

from benchmarks.outside.visits import Walk, visit
from domain.route import RouteTable
from tests.clients.page import blocks, example, page
from tests.processes.registry import node_folder, node_program, python_of

pytestmark = [pytest.mark.world, pytest.mark.timeout(900)]

PAGE = page("opentelemetry.md")
SHOPS = Path(__file__).parent / "shops"
ROUTES = ["/api/items", "/api/items/{pk}", "/api/items/{pk}/stock", "/old/{pk}", "/sub/deep/{pk}"]
# A raised 404, a fault, and a path that no route has.
PATHS = ["/api/items", "/api/items/3", "/api/items/3/stock", "/old/7", "/sub/deep/3"]
PATHS += ["/gone", "/boom", "/nowhere"]
WALK = Walk(
    requests=[("GET", path, None) for path in PATHS], graph=RouteTable([*ROUTES, "/gone", "/boom"])
)
# By program: its packages, each with the oldest version.
PYTHON = {
    "fastapi": {"fastapi": "0.115.0", "uvicorn": "0.30.0"},
    "flask": {"flask": "3.0.0"},
    "django": {"django": "4.2"},
    "rest framework": {"django": "4.2", "djangorestframework": "3.15.0"},
}
OLDEST = {"exporter-otlp-proto-http": "1.30.0", "processor-baggage": "0.51b0"}
NODE = {
    "express": ["express@5"],
    "fastify": ["fastify@5", "@fastify/otel@0.21"],
    "koa": ["koa@3", "@koa/router@15"],
    "hono": ["hono@4", "@hono/node-server@2", "@hono/otel@1"],
    "nest": ["@nestjs/core@12", "@nestjs/common@12", "@nestjs/platform-express@12"],
}
ENDED = """
process.on("SIGTERM", () => sdk.shutdown().then(() => process.exit()));
"""


@pytest.mark.parametrize("age", ["oldest", "newest"])
@pytest.mark.parametrize("framework", PYTHON)
def test_a_shop_in_python_is_counted_as_its_log_has_it(framework, age, tmp_path, tenant) -> None:
    file = "django" if framework == "rest framework" else framework
    ours = OLDEST | {f"instrumentation-{file}": "0.51b0"}
    packages = {f"opentelemetry-{name}": version for name, version in ours.items()}
    packages |= PYTHON[framework]
    pins = [f"{name}=={version}" for name, version in packages.items()]
    # The old instrumentations ask setuptools for their entry points.
    wanted = [*pins, "setuptools<81"] if age == "oldest" else list(packages)
    python = python_of(tmp_path / "venv", wanted)
    program = example("spans.py") + (SHOPS / f"{file}_shop.py").read_text()
    (tmp_path / "shop.py").write_text(program)
    visit([python, "shop.py"], tmp_path, tenant, WALK)


@pytest.mark.parametrize("major", [20, 24])
@pytest.mark.parametrize("framework", NODE)
def test_a_shop_in_node_is_counted_as_its_log_has_it(
    framework, major, tmp_path_factory, tenant
) -> None:
    folder = tmp_path_factory.mktemp(f"{framework}-{major}")
    line = {20: 1, 24: 0}[major]
    install = blocks(PAGE, "sh")[1].splitlines()[line].split()[2:]
    node_folder(folder, [*install, *NODE[framework], "reflect-metadata@0.2", "rxjs@7"])
    (folder / "telemetry.mjs").write_text(example(("spans-3.mjs", "spans-2.mjs")[line]) + ENDED)
    (folder / "shop.mjs").write_text((SHOPS / f"{framework}.mjs").read_text())
    program = node_program(tmp_path_factory.getbasetemp(), major)
    visit([program, "--import", "./telemetry.mjs", "shop.mjs"], folder, tenant, WALK)
