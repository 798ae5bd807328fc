"""Shops in real frameworks, instrumented as the page says: what nginx logs is counted once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from domain.route import RouteTable
from storage.tenants.keys import KeyKind
from tests.api.otlp.exports import BUILD
from tests.cli.conftest import serving
from tests.clients.page import blocks, page
from tests.processes.api_process import eventually, port_of_our_own
from tests.processes.nginx import nginx
from tests.processes.registry import node_folder, node_program, python_of
from tests.world import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(900)]

PAGE = page("traces.md")
SHOPS = Path(__file__).parent / "shops"
ROUTES = ["/api/items", "/api/items/{pk}", "/api/items/{pk}/stock", "/old/{pk}", "/sub/deep/{pk}"]
GRAPH = RouteTable([*ROUTES, "/gone", "/boom"])
# A raised 404, a fault, and a path that no route has.
PATHS = ["/api/items", "/api/items/3", "/api/items/3/stock", "/old/7", "/sub/deep/3"]
PATHS += ["/gone", "/boom", "/nowhere"]
SESSIONS = [f"s-{number}" for number in range(5)]
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
SENT = text("""
SELECT event, route, session_id, commit_sha FROM runtime_events WHERE project_id = :project
""")


@contextmanager
def running(words: list[str | Path], folder: Path, **environment: str) -> Iterator[None]:
    """A program, until it has ended by itself after SIGTERM."""
    given = {"PATH": os.environ["PATH"], **environment}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=given, stdout=output, stderr=output)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        sys.stdout.write((folder / "output").read_text()[-3000:])


@contextmanager
def visited(folder: Path, port: int) -> Iterator[str]:
    """The address of nginx before a shop: it keeps the log, and names the session in baggage."""
    with port_of_our_own() as front:
        site = f"""
        log_format seen '$uri $status $cookie_session';
        server {{
            listen 127.0.0.1:{front};
            access_log {folder}/seen seen;
            location / {{
                proxy_set_header baggage session.id=$cookie_session;
                proxy_pass http://127.0.0.1:{port};
            }}
            location /healthz {{ access_log off; return 200; }}
        }}
        """
        url = f"http://127.0.0.1:{front}"
        with nginx(folder, site, answers=lambda: is_up(f"{url}/healthz")):
            yield url


def is_up(url: str) -> bool:
    try:
        return httpx2.get(url).status_code < 500
    except httpx2.TransportError:
        return False


def visit(shop: list[str | Path], folder: Path, tenant: World, **environment: str) -> None:
    """Lets visitors walk through a shop, and holds the store against nginx's log."""
    with ExitStack() as stack:
        port = stack.enter_context(port_of_our_own())
        service = stack.enter_context(serving(tenant))
        key = tenant.project.keys[KeyKind.WRITE]
        telemetry = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": service,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-service-project-key={key}",
            "OTEL_PROPAGATORS": "tracecontext,baggage",
            "OTEL_RESOURCE_ATTRIBUTES": f"vcs.ref.head.revision={BUILD}",
            # A single export, so that no pair of spans is split.
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2000",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        }
        front = stack.enter_context(visited(folder, port))
        with running(shop, folder, PORT=str(port), **telemetry, **environment):
            eventually(lambda: is_listening(port), seconds=120)
            with httpx2.Client() as client:
                for session in SESSIONS:
                    for path in PATHS:
                        client.get(front + path, headers={"Cookie": f"session={session}"})
    compare(folder / "seen", tenant)


def is_listening(port: int) -> bool:
    listed = Path("/proc/net/tcp").read_text()
    return any(
        row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
        for row in listed.splitlines()[1:]
    )


def compare(log: Path, tenant: World) -> None:
    seen = [line.split() for line in log.read_text().splitlines()]
    rows = tenant.in_store(lambda c: c.execute(SENT, {"project": tenant.project_id}).all())
    requests = Counter((GRAPH.match(path), session) for path, _, session in seen)
    errors = Counter((GRAPH.match(path), session) for path, code, session in seen if code >= "500")
    counted = {
        name: Counter(
            (GRAPH.match(row.route or ""), row.session_id) for row in rows if row.event == name
        )
        for name in ("http.server.request", "error")
    }
    assert len(seen) == len(PATHS) * len(SESSIONS)
    assert counted == {"http.server.request": requests, "error": errors}
    assert {row.commit_sha for row in rows} == {BUILD}


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
    program = blocks(PAGE, "python")[0] + (SHOPS / f"{file}_shop.py").read_text()
    (tmp_path / "shop.py").write_text(program)
    visit([python, "shop.py"], tmp_path, tenant)


@pytest.mark.parametrize("major", [20, 24])
@pytest.mark.parametrize("framework", NODE)
def test_a_shop_in_node_is_counted_as_its_log_has_it(
    framework, major, tmp_path_factory, tenant
) -> None:
    folder = tmp_path_factory.mktemp(f"{framework}-{major}")
    line = {20: 1, 24: 0}[major]
    install = blocks(PAGE, "sh")[1].splitlines()[line].split()[2:]
    node_folder(folder, [*install, *NODE[framework], "reflect-metadata@0.2", "rxjs@7"])
    (folder / "telemetry.mjs").write_text(blocks(PAGE, "js")[line] + ENDED)
    (folder / "shop.mjs").write_text((SHOPS / f"{framework}.mjs").read_text())
    program = node_program(tmp_path_factory.getbasetemp(), major)
    visit([program, "--import", "./telemetry.mjs", "shop.mjs"], folder, tenant)
