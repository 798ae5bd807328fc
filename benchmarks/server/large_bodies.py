"""How long a body of 16 MiB takes, and how long it holds up everybody else; run by hand.

python -m benchmarks.server.large_bodies
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks.store import measured_store
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project

_SERVE = "from api.server.process import serve; serve(port=0)"
_START_SECONDS = 30


def _graph(**members: Any) -> bytes:
    return json.dumps(
        {"schema_version": 1, "routes": [], **members}, separators=(",", ":")
    ).encode()


def _bodies() -> Iterator[tuple[str, bytes]]:
    routes = [
        {
            "path": f"/shop/{number}/[id]",
            "files": [f"app/feature-{(number * 7 + file) % 5000}/part.tsx" for file in range(45)],
        }
        for number in range(10_500)
    ]
    yield "a graph of 10,500 routes", _graph(routes=routes)
    yield "8 million zeros", _graph(x=[0] * 8_000_000)
    yield "2 million objects", _graph(x=[{"a": 0}] * 2_000_000)
    yield "5 million empty arrays", _graph(x=[[]] * 5_000_000)


@contextmanager
def _service() -> Iterator[tuple[str, str]]:
    """Runs a service; yields its address and a write key."""
    with measured_store() as store:
        with store.engine.begin() as connection:
            key = create_project(connection, "shop").keys[KeyKind.WRITE]
        log = store.folder / "api.log"
        environment = {
            **os.environ,
            "SERVICE_DATABASE_URL": store.url,
            "SERVICE_SECRET": "a secret of the benchmarks, long enough",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVE], env=environment, stdout=output, stderr=output
            )
        try:
            yield _address(log), key
        finally:
            process.terminate()
            process.wait()


def _address(log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while (found := re.search(r"running on (http://[\d.]+:\d+)", log.read_text())) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(log.read_text())
        time.sleep(0.05)
    return found[1]


@asynccontextmanager
async def _asked(url: str) -> AsyncGenerator[list[float]]:
    """Asks for the health of the process all the while; yields the seconds that each took."""
    took: list[float] = []

    async def ask() -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            while True:
                began = time.perf_counter()
                await client.get("/healthz")
                took.append(time.perf_counter() - began)
                await asyncio.sleep(0.002)

    task = asyncio.create_task(ask())
    try:
        yield took
    finally:
        task.cancel()


async def _measured(url: str, key: str, path: str, body: bytes) -> tuple[int, float, list[float]]:
    headers = {"X-Service-Project-Key": key, "Content-Type": "application/json"}
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client, _asked(url) as took:
        await asyncio.sleep(0.2)
        took.clear()
        began = time.perf_counter()
        answer = await client.post(path, content=body, headers=headers)
        return answer.status_code, time.perf_counter() - began, sorted(took)


def main() -> None:
    """Prints the table."""
    table = Table(title="bodies just under 16 MiB, /healthz asked meanwhile (ms)")
    for column in ("body", "to", "MiB", "status", "answered after", "healthz median", "longest"):
        table.add_column(column, justify="left" if column in ("body", "to") else "right")
    with _service() as (url, key):
        for name, graph in _bodies():
            deploy = b'{"commit":{"sha":"abcdef1"},"graph":' + graph + b"}"
            for path, body in (("/v1/static-graphs", graph), ("/v1/deploys", deploy)):
                status, seconds, took = asyncio.run(_measured(url, key, path, body))
                told = (seconds, took[len(took) // 2], took[-1])
                times = [f"{one * 1e3:,.0f}" for one in told]
                table.add_row(name, path, f"{len(body) / 2**20:.1f}", str(status), *times)
    Console().print(table)


if __name__ == "__main__":
    main()
