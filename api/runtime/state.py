"""The state that the endpoints of an API process share while it runs."""

from dataclasses import dataclass

from starlette.requests import Request

from api.runtime.admissions import Admissions
from api.runtime.keyring import Keyring
from api.runtime.rate_limit import RateLimit
from api.runtime.settings import ApiSettings
from api.runtime.store import Store
from api.wire.meters import Meters
from api.wire.signature import Signatures
from storage.log.events import EventWriter
from storage.tenants.secret import Pseudonyms
from storage.verdicts.polling import VerdictReader


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
