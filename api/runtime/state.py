"""The state that the endpoints of an API process share while it runs."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from starlette.requests import Request

from api.runtime.admissions import Admissions
from api.runtime.agents import Agents
from api.runtime.checklists import Checklists
from api.runtime.gauges import StoreGauges
from api.runtime.keyring import Keyring
from api.runtime.rate_limit import RateLimit
from api.runtime.settings import ApiSettings
from api.runtime.store import Store
from api.wire.meters import Meters
from api.wire.signature import Signatures
from storage.log.events import EventWriter
from storage.postgres.engine import open_async_engine
from storage.tenants.secret import Assignments, Pseudonyms
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
    checklists: Checklists
    pseudonyms: Pseudonyms
    signatures: Signatures
    meters: Meters
    gauges: StoreGauges
    agents: Agents


@contextlib.asynccontextmanager
async def running(settings: ApiSettings, meters: Meters, agents: Agents) -> AsyncGenerator[Runtime]:
    """Opens the shared state; at the end, every waiting event is written first."""
    engine = open_async_engine(settings.database_url)
    # Their own: requests that hold every other connection must not keep an event from its key.
    keys = open_async_engine(settings.database_url, pool_size=2)
    store, keyring = Store(engine), Keyring(Store(keys))
    rate_limit = RateLimit(settings.redis_url)
    try:
        async with (
            Admissions(store).running() as admissions,
            EventWriter(settings.database_url).running() as writer,
            VerdictReader(settings.database_url).running() as reader,
            agents,
        ):
            yield Runtime(
                settings=settings,
                store=store,
                writer=writer,
                reader=reader,
                keyring=keyring,
                rate_limit=rate_limit,
                admissions=admissions,
                checklists=Checklists(store, kept_seconds=settings.checklist_seconds),
                pseudonyms=Pseudonyms(settings.secret),
                signatures=Signatures(assignments=Assignments(settings.secret), meters=meters),
                meters=meters,
                gauges=StoreGauges(store),
                agents=agents,
            )
    finally:
        await keyring.close()
        await rate_limit.close()
        await keys.dispose()
        await engine.dispose()


def runtime(request: Request) -> Runtime:
    """Returns the shared state of the process, from a request to it."""
    shared: Runtime = request.scope["state"]["runtime"]
    return shared
