"""The sender: a load of page views, each request when it is due, whatever became of the others."""

import heapq
import http.client
import math
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
import numpy as np

from cli.traffic.posting import IDLE_SECONDS, PASSING, Refused, pause
from cli.traffic.run_record import Posted, RunRecord

PATH = "/v1/events"
ANSWER_SECONDS = 30.0
# How long a service that has never answered is asked.
UNHEARD_SECONDS = 5.0
# After the last request was due: retries that the service put off come to their end.
PATIENCE_SECONDS = 90.0
# What was in flight at an interrupt may still be answered.
FAREWELL_SECONDS = 2.0
# Retries are spread over half as long again, or all would come back in one instant.
SPREAD = 0.5
# Stand in the encoded body where each request puts in its own; no label of a user's holds them.
_TOKEN = "\u2460" * 16
_MOMENT = "\u2461" * 20


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much is sent, and what.

    Attributes:
        rate: Events a second; None for as many as the service answers.
        batch: Events in a request.
        connections: Requests in flight at most.
        seconds: How long requests become due.
        control: Commit of every other event.
        treatment: Commit of the rest.
        route: Route of all events.
        environment: Environment of all events.
        run: Eight hexadecimal digits that no other run's sessions have.
    """

    rate: float | None
    batch: int
    connections: int
    seconds: float
    control: str
    treatment: str
    route: str
    environment: str
    run: str

    @property
    def requests(self) -> float:
        """How many requests become due; infinitely many without a rate."""
        return math.inf if self.rate is None else math.ceil(self.seconds * self.rate / self.batch)

    def due(self, number: int) -> float:
        """Seconds after the start when a request is due; without a rate, always."""
        return 0.0 if self.rate is None else number * self.batch / self.rate


class Bodies:
    """The bodies of a load's requests, encoded once but for what makes each another."""

    def __init__(self, load: Load) -> None:
        events = [_event(load, place) for place in range(load.batch)]
        self._encoded = msgspec.json.encode(events[0] if load.batch == 1 else {"events": events})
        self._run = load.run

    def body(self, number: int, occurred_at: datetime) -> bytes:
        """The body of a request; the same number names the same sessions and events."""
        token = f"{self._run}{number & 0xFFFFFFFF:08x}"
        moment = f"{occurred_at:%Y-%m-%dT%H:%M:%SZ}"
        body = self._encoded.replace(_TOKEN.encode(), token.encode())
        return body.replace(_MOMENT.encode(), moment.encode())


def _event(load: Load, place: int) -> dict[str, Any]:
    return {
        "event": "page_view",
        "session_id": f"{_TOKEN}-{place:03d}",
        "occurred_at": _MOMENT,
        "commit": load.treatment if place % 2 else load.control,
        "route": load.route,
        "environment": load.environment,
        "event_id": f"{_TOKEN}-{place:03d}",
    }


@dataclass(frozen=True, kw_only=True, order=True)
class _Due:
    """A request, when it may be sent, and when it should have been sent first."""

    at: float
    number: int
    first_at: float
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class _Answer:
    status: int | None
    retry_after: str | None = None
    content: bytes = b""


class _Line:
    """A connection that is kept while it is used, and made anew where it broke."""

    def __init__(self, address: SplitResult, key: str) -> None:
        host, port = address.hostname or "", address.port
        if address.scheme == "https":
            context = ssl.create_default_context()
            self._http = http.client.HTTPSConnection(
                host, port, timeout=ANSWER_SECONDS, context=context
            )
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        self._path = address.path + PATH
        self._headers = {"X-Service-Project-Key": key, "Content-Type": "application/json"}
        self._used_at = time.monotonic()

    def post(self, body: bytes) -> _Answer:
        if time.monotonic() - self._used_at > IDLE_SECONDS:
            self._http.close()
        try:
            self._http.request("POST", self._path, body, self._headers)
            response = self._http.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            return _Answer(status=None)
        self._used_at = time.monotonic()
        retry_after = response.getheader("Retry-After")
        return _Answer(status=response.status, retry_after=retry_after, content=content)

    def close(self) -> None:
        self._http.close()


class Sender:
    """Sends a load over its connections, each a thread with one request in flight.

    With a rate the loop is open: a request is due when it is due, whatever became of those before
    it, and its answer's time counts from then. A service that stalls is charged with every
    request that it kept waiting, as its users would charge it: Gil Tene, "How NOT to Measure
    Latency", calls the opposite coordinated omission. Without a rate each connection sends again
    once it was answered, and a request is due when it is sent.
    """

    def __init__(self, load: Load, *, api_url: str, key: str, record: RunRecord) -> None:
        self._load, self._record = load, record
        self._address, self._key = urlsplit(api_url.rstrip("/")), key
        self._bodies = Bodies(load)
        self._jitter = np.random.default_rng(int(load.run, 16))
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._running, self._ended = 0, threading.Condition()
        self._retries: list[_Due] = []
        self._number, self._sent = 0, 0
        self._heard = False
        self._started_at, self._began = datetime.now(UTC), time.monotonic()
        self.refusal: Refused | None = None

    def run(self, watch: Callable[[float], None]) -> None:
        """Send until all is answered, the service refuses, or somebody interrupts.

        Args:
            watch: Told some times a second how many seconds have passed.

        Raises:
            KeyboardInterrupt: The user interrupted; requests in flight had a moment to end.
        """
        threads = [
            threading.Thread(target=self._connection, daemon=True)
            for _ in range(self._load.connections)
        ]
        self._started_at, self._began = datetime.now(UTC), time.monotonic()
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
                    watch(self.passed)
        finally:
            self._over.set()
            # Counted here: Python 3.11 takes a thread whose `join` was interrupted for ended.
            with self._ended:
                self._ended.wait_for(lambda: self._running == 0, FAREWELL_SECONDS)

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def failed(self) -> int:
        """Requests that were sent and not stored: refused, or not sent again in time."""
        return self._sent - self._record.posted.requests

    def _connection(self) -> None:
        with self._ended:
            if self._over.is_set():
                return
            self._running += 1
        line = _Line(self._address, self._key)
        try:
            while (due := self._next()) is not None:
                if self._over.wait(max(0.0, due.at - self.passed)):
                    break
                self._send(line, due)
        except Refused as refusal:
            self.refusal = refusal
            self._over.set()
        finally:
            line.close()
            with self._ended:
                self._running -= 1
                self._ended.notify_all()

    def _next(self) -> _Due | None:
        """The earliest request that no connection has taken; None when there is none left."""
        with self._lock:
            fresh_at = self._fresh_at()
            if self._retries and (fresh_at is None or self._retries[0].at <= fresh_at):
                return heapq.heappop(self._retries)
            if fresh_at is None:
                return None
            self._number += 1
            return _Due(at=fresh_at, number=self._number - 1, first_at=fresh_at)

    def _fresh_at(self) -> float | None:
        """When the next new request is due, if there is one."""
        if self._load.rate is not None:
            there_is = self._number < self._load.requests
            return self._load.due(self._number) if there_is else None
        # As fast as it goes, a request that was put off keeps its connection: retries go first.
        passed = self.passed
        put_off = self._retries[0].at if self._retries else 0.0
        return max(passed, put_off) if passed < self._load.seconds else None

    def _send(self, line: _Line, due: _Due) -> None:
        occurred_at = self._started_at + timedelta(seconds=due.first_at)
        body = self._bodies.body(due.number, occurred_at)
        if due.attempt == 0:
            with self._lock:
                self._sent += 1
        sent_at = self.passed
        answer = line.post(body)
        self._heard = self._heard or answer.status is not None
        self._record.attempt(answer.status, size=len(body), again=due.attempt > 0)
        if answer.status is None or answer.status in PASSING:
            self._put_off(due, answer)
        elif answer.status < 500:
            posted = self._posted(answer)
            passed = self.passed
            self._record.land(posted, since_due=passed - due.first_at, since_sent=passed - sent_at)

    def _put_off(self, due: _Due, answer: _Answer) -> None:
        """Have a request sent again, no sooner than the service says."""
        if not self._heard and self.passed > UNHEARD_SECONDS:
            raise Refused(f"The service at {self._address.netloc} does not answer")
        wait = pause(answer.retry_after, due.attempt)
        with self._lock:
            at = self.passed + wait * (1 + SPREAD * float(self._jitter.random()))
            if at <= self._load.seconds + PATIENCE_SECONDS:
                again = _Due(
                    at=at, number=due.number, first_at=due.first_at, attempt=due.attempt + 1
                )
                heapq.heappush(self._retries, again)

    def _posted(self, answer: _Answer) -> Posted:
        try:
            receipt = msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            receipt = None
        if answer.status == 202 and isinstance(receipt, dict):
            return Posted.of_receipt(receipt, events=self._load.batch)
        detail = receipt.get("detail") if isinstance(receipt, dict) else "no answer of the service"
        raise Refused(f"POST {PATH}: {answer.status} {detail}")
