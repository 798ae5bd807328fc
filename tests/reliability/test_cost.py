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
from storage.tenants.setting_changes import apply_settings
from tests.processes.api_process import ApiProcess
from tests.repetition import times

pytestmark = pytest.mark.process

MEBIBYTE = 2**20
MOST_MEMORY_ADDED, MOST_SECONDS_OF_A_NEIGHBOUR = 100 * MEBIBYTE, 1.0
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
AGENTS = {**JSON, "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, kw_only=True)
class Flood:
    """A body that is nearly all small elements, and who sends it where."""

    path: str
    kind: KeyKind
    body: Callable[[int], bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    size: int = 4 * MEBIBYTE
    # The others read only what is not compressed.
    zipped: bool = False


def around(head: str, end: str, element: str = "{}") -> Callable[[int], bytes]:
    """A document with an array, or object, of as many elements as there is room for."""

    def body(size: int) -> bytes:
        room = (size - len(head) - len(end)) // (len(element) + 1)
        return (head + ",".join([element] * room) + end).encode()

    return body


def inside(element: bytes, *tags: int) -> Callable[[int], bytes]:
    """A message of protobuf of as many elements as there is room for, in fields of these tags."""

    def body(size: int) -> bytes:
        message = element * ((size - 6 * len(tags)) // len(element))
        for tag in reversed(tags):
            message = bytes([tag]) + length(len(message)) + message
        return message

    return body


def length(size: int) -> bytes:
    parts = bytearray()
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*parts, size])


# An export's resource, its scope, its record, an attribute, its value, and that value's array.
VALUES_OF_AN_ARRAY = (0x0A, 0x12, 0x12, 0x32, 0x12, 0x2A)
RECORDS = around('{"resourceLogs":[{"scopeLogs":[{"logRecords":[', "]}]}]}")
ATTRIBUTES = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"attributes":['
SPANS = around('{"resourceSpans":[{"scopeSpans":[{"spans":[', "]}]}]}")
CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plan","arguments":{"a":['
FLOODS = {
    **{
        f"{path}, protobuf, {name}": Flood(
            path=path, kind=KeyKind.WRITE, body=body, headers=PROTOBUF, zipped=True
        )
        for path, name, body in (
            ("/v1/logs", "empty records", inside(b"\x12\x00", 0x0A, 0x12)),
            ("/v1/logs", "records of a severity", inside(b"\x12\x02\x10\x01", 0x0A, 0x12)),
            ("/v1/logs", "attributes", inside(b"\x32\x03\x0a\x01a", 0x0A, 0x12, 0x12)),
            ("/v1/logs", "resources", inside(b"\x0a\x03\x1a\x01a")),
            ("/v1/logs", "values of an array", inside(b"\x0a\x02\x10\x01", *VALUES_OF_AN_ARRAY)),
            ("/v1/logs", "numbers of no field", inside(b"\x78\x01")),
            ("/v1/traces", "empty spans", inside(b"\x12\x00", 0x0A, 0x12)),
            ("/v1/traces", "events", inside(b"\x5a\x02\x20\x01", 0x0A, 0x12, 0x12)),
        )
    },
    "logs, JSON": Flood(path="/v1/logs", kind=KeyKind.PUBLIC, body=RECORDS, zipped=True),
    "logs, JSON, attributes": Flood(
        path="/v1/logs",
        kind=KeyKind.PUBLIC,
        body=around(ATTRIBUTES, "]}]}]}]}", '{"key":"a"}'),
        zipped=True,
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
    "events, properties": Flood(
        path="/v1/events",
        kind=KeyKind.PUBLIC,
        body=around('{"event":"a","session_id":"s","properties":{', "}}", '"abcdefg":1'),
        size=MEBIBYTE,
        zipped=True,
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
