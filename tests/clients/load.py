"""Load: clients that each send a thing after another, until each is acknowledged."""

import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from storage.tenants.keys import KeyKind
from tests.clients.delivery import DEPLOYS, INVOICES, SESSIONS, VIEWS, Delivery, Kind
from tests.processes.api_process import eventually

# Sooner than a client would: the Retry-After of two seconds is for those who have time.
_PAUSE_SECONDS = 0.1
# Asks for patience; anything else that is no success is a fault.
_COME_BACK = {429, 503}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A request that got no answer; `written_at` is None unless all of it had been written."""

    written_at: float | None
    error: str


@dataclass(kw_only=True)
class Client(threading.Thread):
    """Sends deliveries of a kind, never the next before the last is acknowledged."""

    url: str
    key: str
    kind: Kind
    number: int
    ended: threading.Event
    deliveries: list[Delivery] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    cuts: list[Cut] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    # Names that an answer called new: each may be called so once.
    accepted: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    # When the last acknowledged request was begun, and when it was answered.
    last_asked: float = 0
    last_answered: float = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    # Threads differ by what they are, not by what they hold.
    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        with httpx2.Client(headers={"X-Service-Project-Key": self.key}, timeout=30) as client:
            while not self.ended.is_set():
                first = len(self.deliveries) * self.kind.size
                names = [f"{self.number:02x}{first + i:07x}" for i in range(self.kind.size)]
                delivery = Delivery(kind=self.kind, names=names)
                self.deliveries.append(delivery)
                while not (delivery.acknowledged or self.faults):
                    self._attempt(client, delivery)

    def _attempt(self, client: httpx2.Client, delivery: Delivery) -> None:
        written_at: float | None = None

        def trace(name: str, _: Mapping[str, Any]) -> None:
            nonlocal written_at
            if name == "http11.send_request_body.complete":
                written_at = time.monotonic()

        delivery.attempts += 1
        asked = time.monotonic()
        try:
            answer = client.post(
                self.url + self.kind.path,
                json=delivery.body,
                headers={"Idempotency-Key": delivery.names[0]} if self.kind is DEPLOYS else None,
                extensions={"trace": trace},
            )
        except httpx2.TransportError as error:
            self.cuts.append(Cut(written_at=written_at, error=type(error).__name__))
            time.sleep(_PAUSE_SECONDS)
            return
        self.statuses[answer.status_code] += 1
        if answer.is_success:
            self.last_asked, self.last_answered = asked, time.monotonic()
            self._count_accepted(answer)
            delivery.acknowledged = True
            self.acknowledged += 1
        elif answer.status_code in _COME_BACK:
            time.sleep(_PAUSE_SECONDS)
        else:
            self.faults.append(f"{answer.status_code} {answer.text}")

    def _count_accepted(self, answer: httpx2.Response) -> None:
        if self.kind is INVOICES:
            for result in answer.json()["results"]:
                self.accepted[result["idempotency_key"]] += result["status"] == "accepted"


@dataclass(frozen=True, kw_only=True)
class Load:
    clients: Sequence[Client]

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for client in self.clients for delivery in client.deliveries]

    @property
    def statuses(self) -> Counter[int]:
        return sum((client.statuses for client in self.clients), Counter[int]())

    @property
    def cuts(self) -> list[Cut]:
        return [cut for client in self.clients for cut in client.cuts]

    @property
    def faults(self) -> list[str]:
        return [fault for client in self.clients for fault in client.faults]

    @property
    def accepted(self) -> Counter[str]:
        return sum((client.accepted for client in self.clients), Counter[str]())

    def unanswered(self, *, since: float, until: float) -> list[Cut]:
        """Requests that were wholly written within this time, and cut off."""
        return [cut for cut in self.cuts if cut.written_at and since < cut.written_at < until]

    def run_on(self, *, each: int = 5) -> None:
        """Waits until every client was acknowledged a few times more."""
        seen = [client.acknowledged for client in self.clients]
        eventually(
            lambda: (
                self.faults
                or all(
                    client.acknowledged >= before + each
                    for client, before in zip(self.clients, seen, strict=True)
                )
            )
        )
        assert self.faults == []

    def seconds_to_serve(self, since: float) -> float:
        """How long after `since` the last client's first new request was acknowledged."""
        eventually(lambda: all(client.last_asked > since for client in self.clients))
        return max(client.last_answered for client in self.clients) - since

    def finish(self) -> None:
        """Lets every client bring its last delivery home."""
        for client in self.clients:
            client.ended.set()
        for client in self.clients:
            client.join(60)
        assert not any(client.is_alive() for client in self.clients)


@contextmanager
def load(
    url: str,
    keys: Mapping[KeyKind, str],
    kinds: Sequence[Kind] = (VIEWS, VIEWS, SESSIONS, SESSIONS, INVOICES, INVOICES, DEPLOYS),
) -> Generator[Load]:
    """Load on an address, for as long as the context lasts."""
    ended = threading.Event()
    under_way = Load(
        clients=[
            Client(url=url, key=keys[kind.key], kind=kind, number=number, ended=ended)
            for number, kind in enumerate(kinds)
        ]
    )
    for client in under_way.clients:
        client.start()
    try:
        yield under_way
    except BaseException:
        # Perhaps nobody is left to answer: what is under way is given up.
        for client in under_way.clients:
            client.faults.append("given up")
        raise
    finally:
        under_way.finish()
