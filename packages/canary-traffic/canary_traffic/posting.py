"""Posting: sends requests to a running service, events in batches, again when it is busy."""

import gzip
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import click
import httpx2
import msgspec

from domain.document import time_text

# A body holds a MiB, also where each event names two hundred flags.
MOST_EVENTS = 200
# A rate limit may ask for a whole minute.
PATIENCE_SECONDS = 150.0
# The same request may succeed later: docs/sending.md.
PASSING = frozenset({408, 429, 502, 503, 504})
NOT_ADMITTED = frozenset({401, 403})
# A connection that waited longer is made anew: services close theirs, ours after five seconds.
IDLE_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
_SUMMED = ("accepted", "duplicates", "late", "sampled_out")
_COUNTS = ("requests", "events", *_SUMMED, "rejected")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An event, and when it reaches the service."""

    at: datetime
    body: dict[str, Any]


class Refused(click.ClickException):
    """The service did not take a request."""


class NoAnswer(Refused):
    """Nothing answered at all."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Events of a request, and when the last of them is due."""

    due: datetime
    bodies: list[dict[str, Any]]


@dataclass(kw_only=True)
class Posted:
    """The sums of the receipts of events."""

    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_COUNTS, 0)))
    sampling: dict[str, Any] | None = None
    advance: Callable[[int], None] | None = None

    def add(self, events: int, receipt: Mapping[str, Any]) -> None:
        """Adds the receipt of a request of so many events."""
        self.counts.update({name: receipt.get(name, 0) for name in _SUMMED})
        self.counts.update(requests=1, events=events, rejected=len(receipt.get("rejected", ())))
        self.sampling = receipt.get("sampling") or self.sampling
        if self.advance is not None:
            self.advance(events)


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
    over: threading.Event | None = None,
) -> dict[str, Any]:
    """The JSON object of a successful answer.

    A busy service (408, 429, 502, 503, 504) or a broken connection is asked again, no sooner than
    its `Retry-After` says; every request of ours is idempotent.

    Args:
        method: The HTTP method.
        body: What to send as JSON; nothing by default.

    Raises:
        Refused: If the service refuses, or stays busy or silent for longer; with its `detail`.
    """
    headers, content = _encoded(path, key=key, body=body)
    over, until = over or threading.Event(), time.monotonic() + patience
    for attempt in count():
        try:
            response = client.request(method, path, headers=headers, content=content)
        except httpx2.TransportError:
            response = None
        if response is not None and response.status_code not in PASSING:
            return _decoded(response, method, path)
        wait = pause(response and response.headers.get("retry-after"), attempt)
        if time.monotonic() + wait > until or over.wait(wait):
            where = f"The service at {client.base_url}"
            if response is None:
                raise NoAnswer(f"{where} does not answer: {method} {path}")
            raise Refused(f"{where} stays busy: {method} {path}")
    raise AssertionError("count ends never")  # pragma: no cover


def deploy_body(
    sha: str,
    at: datetime,
    *,
    base: str | None = None,
    allocation: float | None = None,
    files: Sequence[Mapping[str, str]] = (),
    **commit: object,
) -> dict[str, Any]:
    """Returns the body of a deploy.

    Args:
        base: The commit that it was built on; None where nothing says so.
        allocation: The share of units that gets it; None where none is declared.
        commit: Further members of the commit; None of those that are left out.
    """
    named = {name: value for name, value in commit.items() if value is not None}
    body: dict[str, Any] = {"commit": {"sha": sha, **named}, "deployed_at": time_text(at)}
    if base is not None:
        body["diff"] = {"base_commit": base, "files": list(files)}
    return body if allocation is None else {**body, "allocation": allocation}


def batches(deliveries: Iterable[Delivery]) -> Iterator[Batch]:
    """Deliveries in their order, as many together as a request may hold."""
    rest = iter(deliveries)
    while some := list(islice(rest, MOST_EVENTS)):
        yield Batch(due=some[-1].at, bodies=[delivery.body for delivery in some])


def post(
    client: httpx2.Client,
    waiting: Iterable[Batch],
    *,
    key: str,
    replay: bool,
    posted: Posted,
    paced: bool = False,
    connections: int = 4,
) -> None:
    """Post batches over a few connections at once.

    Raises:
        Refused: If the service refuses a batch.
    """
    over, in_turn = threading.Event(), threading.Lock()

    def bring(batch: Batch) -> None:
        path = "/v1/events?replay=true" if replay else "/v1/events"
        try:
            receipt = answer(
                client, "POST", path, key=key, body={"events": batch.bodies}, over=over
            )
        except Refused:
            over.set()
            raise
        with in_turn:
            posted.add(len(batch.bodies), receipt)

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


def pause(retry_after: str | None, attempt: int) -> float:
    """Seconds until a request may be sent again.

    Args:
        retry_after: The answer's `Retry-After`, if the answer had it; dates, which no part
            of ours sends, are ignored.

    Returns:
        The seconds that the service requests, or twice as long each time.
    """
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    return min(FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10), LONGEST_PAUSE_SECONDS)


def _encoded(path: str, *, key: str, body: object) -> tuple[dict[str, str], bytes | None]:
    """Returns the headers and the content of a request."""
    headers = {"X-Service-Project-Key": key}
    content = None if body is None else msgspec.json.encode(body)
    if content is not None:
        headers["Content-Type"] = "application/json"
    # The only endpoint that says it takes gzip.
    if content is not None and path.startswith("/v1/events"):
        headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, compresslevel=1)
    return headers, content


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
