"""The state that the endpoints of an API process share while it runs."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from api.runtime.keyring import Keyring
from api.runtime.rate_limit import RateLimit
from api.runtime.settings import ApiSettings
from api.runtime.store import Store
from api.wire.event_batch import Rejected
from api.wire.meters import Meters
from api.wire.problem import Problem
from api.wire.signature import Signatures
from storage.log.events import EventWriter
from storage.tenants.secret import Pseudonyms
from storage.verdicts.polling import VerdictReader


class Admissions(Protocol):
    """Counts what projects send, for their checklists; no request waits for it."""

    def took(
        self,
        project_id: int,
        *,
        accepted: int,
        late: int,
        names: Sequence[str],
        trusted: bool = False,
        sources: Container[str] = (),
        rejected: Sequence[Rejected] = (),
        unknown: Iterable[str] = (),
        sampled_out: int = 0,
        notes: Mapping[str, int] = {},
    ) -> None:
        """Counts a request whose events were stored, and has their names noted."""
        ...

    def received(self, project_id: int, names: Sequence[str]) -> None:
        """Counts events by their names."""
        ...

    def lacked(self, project_id: int, members: Sequence[str]) -> None:
        """Counts members, of a request to any address, that said nothing."""
        ...

    def refused(self, project_id: int, problem: Problem) -> None:
        """Counts a refused request."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The store, and the parts of a process that stand before it."""

    settings: ApiSettings
    store: Store
    writer: EventWriter
    reader: VerdictReader
    keyring: Keyring
    rate_limit: RateLimit
    admissions: Admissions
    pseudonyms: Pseudonyms
    signatures: Signatures
    meters: Meters


def runtime(request: Request) -> Runtime:
    """Returns the shared state of the process, from a request to it."""
    shared: Runtime = request.scope["state"]["runtime"]
    return shared
