"""The courier: brings requests to a running service, events in batches, again when it is busy."""

import gzip
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import click
import httpx2
import msgspec

from cli.traffic import Delivery

# What one request to each endpoint may hold.
BATCH_SIZES = {"/v1/events": 500, "/v1/revenue/events": 50}
PATIENCE_SECONDS = 60.0
BUSY = frozenset({429, 503})


class Refused(click.ClickException):
    """The service did not take a request."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Events for one endpoint, and when the last of them is due."""

    path: str
    due: datetime
    bodies: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Posted:
    """What the service said of the events it was sent; sums add.

    Attributes:
        requests: Requests that were answered.
        events: Events sent.
        accepted: Events stored.
        duplicates: Revenue events known before.
        late: Events that came after everything they could count for had closed.
        rejected: Events that broke a rule.
    """

    requests: int = 0
    events: int = 0
    accepted: int = 0
    duplicates: int = 0
    late: int = 0
    rejected: int = 0

    def __add__(self, other: "Posted") -> "Posted":
        names = [column.name for column in fields(self)]
        return Posted(**{name: getattr(self, name) + getattr(other, name) for name in names})


def connected(api_url: str, *, connections: int = 4) -> httpx2.Client:
    """A client of the service at `api_url`, safe to share between threads."""
    return httpx2.Client(
        base_url=api_url.rstrip("/"),
        timeout=30.0,
        limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
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

    A busy service (429, 503) or a broken connection is asked again; every request of ours is
    idempotent.

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
    until = time.monotonic() + patience
    while True:
        response = _response(client, method, path, key, body)
        if response is not None and response.status_code not in BUSY:
            return _decoded(response, method, path)
        wait = _wait(response)
        if time.monotonic() + wait > until:
            state = "does not answer" if response is None else "stays busy"
            raise Refused(f"The service at {client.base_url} {state}: {method} {path}")
        time.sleep(wait)


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
    connections: int = 4,
    advance: Callable[[Posted], None] | None = None,
) -> Posted:
    """Post batches over a few connections at once.

    Args:
        client: Where to post.
        waiting: The batches; the next one is asked for when a connection is free.
        key: Write or public key; a replay needs the write key.
        replay: Store the events as received when they occurred.
        connections: Requests in flight at once.
        advance: Told what each request added, as it is answered.

    Returns:
        The sum over all requests.

    Raises:
        Refused: If the service refuses a batch.
    """
    total, flying = Posted(), deque[Future[Posted]]()
    with ThreadPoolExecutor(connections) as pool:

        def land() -> None:
            nonlocal total
            landed = flying.popleft().result()
            total += landed
            if advance is not None:
                advance(landed)

        try:
            for batch in waiting:
                while flying and (flying[0].done() or len(flying) >= 2 * connections):
                    land()
                flying.append(pool.submit(_post_one, client, batch, key=key, replay=replay))
            while flying:
                land()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return total


def _post_one(client: httpx2.Client, batch: Batch, *, key: str, replay: bool) -> Posted:
    path = f"{batch.path}?replay=true" if replay else batch.path
    told = answer(client, "POST", path, key=key, body={"events": batch.bodies})
    return Posted(
        requests=1,
        events=len(batch.bodies),
        accepted=told["accepted"],
        duplicates=told.get("duplicates", 0),
        late=told.get("late", 0),
        rejected=len(told.get("rejected", ())),
    )


def _batch(deliveries: list[Delivery]) -> Batch:
    return Batch(
        path=deliveries[0].path,
        due=deliveries[-1].at,
        bodies=[delivery.body for delivery in deliveries],
    )


def _response(
    client: httpx2.Client, method: str, path: str, key: str, body: object
) -> httpx2.Response | None:
    """The answer, or None where the connection broke."""
    headers = {"X-Service-Project-Key": key}
    content = None if body is None else msgspec.json.encode(body)
    if content is not None:
        headers["Content-Type"] = "application/json"
    # The one endpoint that says it takes gzip.
    if content is not None and path.startswith("/v1/events"):
        headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, compresslevel=1)
    try:
        return client.request(method, path, headers=headers, content=content)
    except httpx2.TransportError:
        return None


def _wait(response: httpx2.Response | None) -> float:
    """Seconds until the next attempt."""
    told = "" if response is None else response.headers.get("retry-after", "")
    return min(float(told), 10.0) if told.isdigit() else 0.5


def _decoded(response: httpx2.Response, method: str, path: str) -> dict[str, Any]:
    try:
        decoded = response.json()
    except ValueError:
        decoded = None
    if response.is_success and isinstance(decoded, dict):
        return decoded
    detail = decoded.get("detail") if isinstance(decoded, dict) else None
    raise Refused(f"{method} {path}: {response.status_code} {detail or response.reason_phrase}")
