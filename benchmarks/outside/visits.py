"""Visits to a shop behind nginx: what its log has is what the service counts."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import text

from domain.route import RouteTable
from storage.tenants.keys import KeyKind
from tests.api.otlp.exports import BUILD
from tests.cli.conftest import serving
from tests.processes.api_process import eventually, port_of_our_own
from tests.processes.nginx import nginx
from tests.world import World

REQUEST = "http.server.request"
SESSIONS = [f"s-{number}" for number in range(5)]
SENT = text("""
SELECT event, route, session_id, commit_sha FROM runtime_events
WHERE project_id = :project AND event = :event
""")


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The requests of a visitor, each a method, a path and a body, and the routes that they hit."""

    requests: Sequence[tuple[str, str, object]]
    graph: RouteTable


@contextmanager
def running(words: Sequence[str | Path], folder: Path, **environment: str) -> Iterator[None]:
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
                proxy_set_header Session $cookie_session;
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


def visit(
    shop: Sequence[str | Path],
    folder: Path,
    tenant: World,
    walk: Walk,
    *,
    flushes: bool = True,
    **environment: str,
) -> None:
    """Lets visitors walk through a shop, and holds the store against nginx's log.

    Args:
        flushes: Whether the shop sends what it has when it is stopped; else it must have sent it.
    """
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
        with running(shop, folder, PORT=str(port), **telemetry | environment):
            eventually(lambda: is_listening(port), seconds=120)
            with httpx2.Client(timeout=120) as client:
                for session in SESSIONS:
                    for method, path, body in walk.requests:
                        named = {"Cookie": f"session={session}"}
                        client.request(method, front + path, headers=named, json=body)
            if not flushes:
                eventually(lambda: len(rows_of(tenant, REQUEST)) == len(lines_of(folder)))
    compare(folder, tenant, walk)


def is_listening(port: int) -> bool:
    listed = Path("/proc/net/tcp").read_text()
    return any(
        row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
        for row in listed.splitlines()[1:]
    )


def lines_of(folder: Path) -> list[list[str]]:
    """The requests as nginx's log has them: path, status and session."""
    return [line.split() for line in (folder / "seen").read_text().splitlines()]


def rows_of(tenant: World, event: str) -> list[Any]:
    """The events that are stored under a name."""
    named = {"project": tenant.project_id, "event": event}
    return tenant.in_store(lambda connection: list(connection.execute(SENT, named)))


def compare(folder: Path, tenant: World, walk: Walk) -> None:
    seen = lines_of(folder)
    rows = rows_of(tenant, REQUEST) + rows_of(tenant, "error")
    requests = Counter((walk.graph.match(path), session) for path, _, session in seen)
    errors = Counter(
        (walk.graph.match(path), session) for path, code, session in seen if code >= "500"
    )
    counted = {
        name: Counter(
            (walk.graph.match(row.route or ""), row.session_id) for row in rows if row.event == name
        )
        for name in (REQUEST, "error")
    }
    assert len(seen) == len(walk.requests) * len(SESSIONS)
    assert counted == {REQUEST: requests, "error": errors}
    assert {row.commit_sha for row in rows} == {BUILD}
