"""The cost of a request: small bodies of very many values take neither memory nor time."""

import gzip
import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from tests.processes.api_process import ApiProcess
from tests.repetition import times

pytestmark = pytest.mark.process

MEBIBYTE = 2**20
MOST_MEMORY_ADDED, MOST_SECONDS_OF_A_NEIGHBOUR = 300 * MEBIBYTE, 2.0
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
AGENTS = {**JSON, "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, kw_only=True)
class Flood:
    """A body that is nearly all empty objects, and who sends it where."""

    path: str
    kind: KeyKind
    body: Callable[[int], bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    size: int = 4 * MEBIBYTE
    # The others read only what is not compressed.
    zipped: bool = False


def around(head: str, end: str) -> Callable[[int], bytes]:
    """A document with an array of as many empty objects as there is room for."""

    def body(size: int) -> bytes:
        room = (size - len(head) - len(end)) // 3
        return (head + ",".join(["{}"] * room) + end).encode()

    return body


def empty_records(size: int) -> bytes:
    """An export in protobuf of empty log records, each of two bytes."""
    scope = b"\x12\x00" * ((size - 12) // 2)
    for tag in (b"\x12", b"\x0a"):
        scope = tag + length(len(scope)) + scope
    return scope


def length(size: int) -> bytes:
    parts = bytearray()
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*parts, size])


RECORDS = around('{"resourceLogs":[{"scopeLogs":[{"logRecords":[', "]}]}]}")
SPANS = around('{"resourceSpans":[{"scopeSpans":[{"spans":[', "]}]}]}")
CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plan","arguments":{"a":['
FLOODS = {
    "logs, protobuf": Flood(
        path="/v1/logs", kind=KeyKind.PUBLIC, body=empty_records, headers=PROTOBUF, zipped=True
    ),
    "logs, JSON": Flood(path="/v1/logs", kind=KeyKind.PUBLIC, body=RECORDS, zipped=True),
    "traces, protobuf": Flood(
        path="/v1/traces", kind=KeyKind.WRITE, body=empty_records, headers=PROTOBUF, zipped=True
    ),
    "traces, JSON": Flood(path="/v1/traces", kind=KeyKind.WRITE, body=SPANS, zipped=True),
    "events, gzip": Flood(
        path="/v1/events",
        kind=KeyKind.PUBLIC,
        body=around('{"events":[', "]}"),
        size=MEBIBYTE,
        zipped=True,
    ),
    "events": Flood(
        path="/v1/events", kind=KeyKind.PUBLIC, body=around('{"events":[', "]}"), size=MEBIBYTE
    ),
    "OFREP": Flood(
        path="/ofrep/v1/evaluate/flags",
        kind=KeyKind.PUBLIC,
        body=around('{"context":{"targetingKey":"s","a":[', "]}}"),
        size=MEBIBYTE,
    ),
    "MCP": Flood(path="/mcp", kind=KeyKind.PROJECT, body=around(CALL, "]}}}"), headers=AGENTS),
    "graphs": Flood(
        path="/v1/static-graphs",
        kind=KeyKind.WRITE,
        body=around('{"schema_version":1,"routes":[', "]}"),
    ),
    "deploys": Flood(
        path="/v1/deploys",
        kind=KeyKind.WRITE,
        body=around('{"commit":{"sha":"abcdef1"},"diff":{"files":[', "]}}"),
    ),
    "revenue": Flood(
        path="/v1/revenue/events",
        kind=KeyKind.WRITE,
        body=around('{"events":[', "]}"),
        size=MEBIBYTE,
    ),
    "registrations": Flood(
        path="/v1/reward/register",
        kind=KeyKind.PROJECT,
        body=around('{"guardrails":[', "]}"),
        size=MEBIBYTE,
    ),
}


def memory(api: ApiProcess) -> int:
    """The bytes that the process which serves holds."""
    (worker,) = api.worker_pids()
    status = Path(f"/proc/{worker}/status").read_text()
    kibibytes = re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
    assert kibibytes is not None
    return int(kibibytes[1]) * 1024


@dataclass(kw_only=True)
class Watch:
    """The most memory of a process while others send, and its answers to a neighbour."""

    memory: int = 0
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


@contextmanager
def watched(api: ApiProcess, key: str) -> Iterator[Watch]:
    """Looks at the process, and sends events as a quiet project does, in turn; once at least."""
    watch, ended = Watch(), threading.Event()

    def look() -> None:
        watch.memory = max(watch.memory, memory(api))

    def ask() -> None:
        event = json.dumps({"event": "a", "session_id": "s"}).encode()
        began = time.monotonic()
        watch.statuses[posted(api, "/v1/events", event, {**JSON, KEY: key})] += 1
        watch.seconds.append(time.monotonic() - began)

    def repeat(work: Callable[[], None], pause: float) -> None:
        work()
        while not ended.wait(pause):
            work()

    threads = [
        threading.Thread(target=repeat, args=(work, pause))
        for work, pause in ((look, 0.01), (ask, 0.02))
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        ended.set()
        for thread in threads:
            thread.join()


KEY = "X-Service-Project-Key"


def posted(api: ApiProcess, path: str, body: bytes, headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=120)
    try:
        connection.request("POST", path, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


@times(gate=8, deep=200)
def test_a_body_of_nothing_but_values_is_refused_before_they_are_built(shop, api, times) -> None:
    with shop.engine.begin() as connection:
        quiet = create_project(connection, "quiet").keys[KeyKind.PUBLIC]
        apply_settings(connection, shop.project.project_id, {"ofrep": "browser"})
    for name, flood in FLOODS.items():
        headers = {**flood.headers, KEY: shop.keys[flood.kind]}
        body = flood.body(flood.size)
        if flood.zipped:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=9)
        before = memory(api)
        with watched(api, quiet) as watch, ThreadPoolExecutor(min(times, 32)) as senders:
            answers = Counter(
                senders.map(partial(posted, api, flood.path, body), [headers] * times)
            )
        seconds = sorted(watch.seconds)
        late = seconds[int(len(seconds) * 0.99)]
        Console().print(
            f"{name}: {len(body)} bytes, {times} times: {dict(answers)}; memory"
            f" {before / 1e6:.0f} -> {watch.memory / 1e6:.0f} MB; a neighbour's p99 {late:.2f} s"
        )
        # 503 where more bytes come at once than may wait.
        assert answers.keys() <= {413, 429, 503}
        assert watch.memory - before <= MOST_MEMORY_ADDED
        assert watch.statuses.keys() == {202}
        if times >= 200:
            assert late <= MOST_SECONDS_OF_A_NEIGHBOUR
