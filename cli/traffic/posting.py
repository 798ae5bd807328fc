"""Posting: sends requests to a running service, events in batches, again when it is busy."""

import gzip
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
import httpx2
import msgspec

from cli.traffic.canary import Delivery
from cli.traffic.run_record import Posted, RunRecord

# What a request to each endpoint may hold.
BATCH_SIZES = {"/v1/events": 500, "/v1/revenue/events": 50}
# A rate limit may ask for a whole minute.
PATIENCE_SECONDS = 150.0
# The same request may succeed later: docs/sending.md.
PASSING = frozenset({408, 429, 502, 503, 504})
NOT_ADMITTED = frozenset({401, 403})
# A connection that waited longer is made anew: services close theirs, ours after five seconds.
IDLE_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0


class Refused(click.ClickException):
    """The service did not take a request."""


class NoAnswer(Refused):
    """Nothing answered at all."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Events for an endpoint, and when the last of them is due."""

    path: str
    due: datetime
    bodies: list[dict[str, Any]]


def connected(api_url: str, *, connections: int = 4) -> httpx2.Client:
    """A client of the service at `api_url`, safe to share between threads."""
    return httpx2.Client(
        base_url=api_url.rstrip("/"),
        timeout=30.0,
        limits=httpx2.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=IDLE_SECONDS,
        ),
    )


def answer(
    client: httpx2.Client,
    method: str,
    path: str,
    *,
    key: str,
    body: object = None,
    patience: float = PATIENCE_SECONDS,
) -> dict[str, Any]:
    """The JSON object of a successful answer.

    A busy service (408, 429, 502, 503, 504) or a broken connection is asked again, no sooner than
    its `Retry-After` says; every request of ours is idempotent.

    Args:
        client: Where to ask.
        method: The HTTP method.
        path: Path and query.
        key: The key for the header.
        body: What to send as JSON; nothing by default.
        patience: Seconds to go on asking.

    Raises:
        Refused: If the service refuses, or stays busy or silent for longer; with its `detail`.
    """
    request = _encoded(method, path, key=key, body=body)
    return _Job(client=client, request=request, patience=patience).run()


def batches(deliveries: Iterable[Delivery]) -> Iterator[Batch]:
    """Deliveries gathered for each endpoint, in order, as large as the endpoint takes."""
    gathered: dict[str, list[Delivery]] = {path: [] for path in BATCH_SIZES}
    for delivery in deliveries:
        gathered[delivery.path].append(delivery)
        if len(gathered[delivery.path]) == BATCH_SIZES[delivery.path]:
            yield _batch(gathered[delivery.path])
            gathered[delivery.path] = []
    yield from (_batch(rest) for rest in gathered.values() if rest)


def post(
    client: httpx2.Client,
    waiting: Iterable[Batch],
    *,
    key: str,
    replay: bool,
    paced: bool = False,
    connections: int = 4,
    record: RunRecord | None = None,
    advance: Callable[[Posted], None] | None = None,
) -> Posted:
    """Post batches over a few connections at once.

    Args:
        client: Where to post.
        waiting: The batches; the next batch is asked for when a connection is free.
        key: Write or public key; a replay needs the write key.
        replay: Store the events as received when they occurred.
        paced: Post no batch before it is due.
        connections: Requests in flight at once.
        record: The run's record; it also keeps the results of an interrupted run.
        advance: Called with the result of each request when it is answered.

    Returns:
        The sum over all requests.

    Raises:
        Refused: If the service refuses a batch.
    """
    record, over = record or RunRecord(), threading.Event()

    def bring(batch: Batch) -> None:
        path = f"{batch.path}?replay=true" if replay else batch.path
        request = _encoded("POST", path, key=key, body={"events": batch.bodies})
        job = _Job(client=client, request=request, record=record, over=over)
        began = time.monotonic()
        try:
            receipt = job.run()
            landed = Posted.of_receipt(receipt, events=len(batch.bodies))
        except Refused:
            over.set()
            raise
        now = time.monotonic()
        since_due = (datetime.now(UTC) - batch.due).total_seconds() if paced else now - began
        sampling = receipt.get("sampling")
        record.land(landed, since_due=since_due, since_sent=now - job.sent_at, sampling=sampling)
        if advance is not None:
            advance(landed)

    flying: deque[Future[None]] = deque()
    with ThreadPoolExecutor(connections) as pool:
        try:
            for batch in waiting:
                until = max(0.0, (batch.due - datetime.now(UTC)).total_seconds())
                if paced and over.wait(until):
                    break
                while flying and (flying[0].done() or len(flying) >= 2 * connections):
                    flying.popleft().result()
                flying.append(pool.submit(bring, batch))
            for last in flying:
                last.result()
        finally:
            # Requests that wait for their next attempt wait no longer; so does the first failure.
            over.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return record.posted


@dataclass(frozen=True, kw_only=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes | None


@dataclass(kw_only=True)
class _Job:
    """A request, sent until it is answered for good."""

    client: httpx2.Client
    request: _Request
    patience: float = PATIENCE_SECONDS
    record: RunRecord = field(default_factory=RunRecord)
    over: threading.Event = field(default_factory=threading.Event)
    sent_at: float = 0.0

    def run(self) -> dict[str, Any]:
        method, path = self.request.method, self.request.path
        until, attempt = time.monotonic() + self.patience, 0
        while True:
            response = self._response(again=attempt > 0)
            if response is not None and response.status_code not in PASSING:
                return _decoded(response, method, path)
            wait = pause(response and response.headers.get("retry-after"), attempt)
            attempt += 1
            if time.monotonic() + wait > until or self.over.wait(wait):
                where = f"The service at {self.client.base_url}"
                if response is None:
                    raise NoAnswer(f"{where} does not answer: {method} {path}")
                raise Refused(f"{where} stays busy: {method} {path}")

    def _response(self, *, again: bool) -> httpx2.Response | None:
        """The answer, or None where the connection broke."""
        request, self.sent_at = self.request, time.monotonic()
        try:
            response = self.client.request(
                request.method, request.path, headers=request.headers, content=request.content
            )
        except httpx2.TransportError:
            response = None
        status = None if response is None else response.status_code
        self.record.attempt(status, size=len(request.content or b""), again=again)
        return response


def pause(retry_after: str | None, attempt: int) -> float:
    """Seconds until a request may be sent again.

    Args:
        retry_after: The answer's `Retry-After`, if the answer had it; dates, which no part
            of ours sends, are ignored.
        attempt: How many attempts were made again before.

    Returns:
        The seconds that the service requests, or twice as long each time.
    """
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    return min(FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10), LONGEST_PAUSE_SECONDS)


def _batch(deliveries: list[Delivery]) -> Batch:
    return Batch(
        path=deliveries[0].path,
        due=deliveries[-1].at,
        bodies=[delivery.body for delivery in deliveries],
    )


def _encoded(method: str, path: str, *, key: str, body: object) -> _Request:
    headers = {"X-Service-Project-Key": key}
    content = None if body is None else msgspec.json.encode(body)
    if content is not None:
        headers["Content-Type"] = "application/json"
    # The only endpoint that says it takes gzip.
    if content is not None and path.startswith("/v1/events"):
        headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, compresslevel=1)
    return _Request(method=method, path=path, headers=headers, content=content)


def _decoded(response: httpx2.Response, method: str, path: str) -> dict[str, Any]:
    try:
        decoded = response.json()
    except ValueError:
        decoded = None
    if response.is_success and isinstance(decoded, dict):
        return decoded
    detail = decoded.get("detail") if isinstance(decoded, dict) else None
    refusal = f"{method} {path}: {response.status_code} {detail or response.reason_phrase}"
    if response.status_code in NOT_ADMITTED:
        needed = "project key, rk_…" if path.startswith("/v1/reward") else "write key, wk_…"
        refusal += f" (the key must be the project's {needed})"
    raise Refused(refusal)
