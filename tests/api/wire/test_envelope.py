"""The envelope of answers, where most of them are refusals."""

import asyncio
import time

from httpx2 import ASGITransport, AsyncClient
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.wire.envelope import HELD_BACK_SECONDS, Envelope, Refusals
from api.wire.meters import Meters

CLIENTS, EACH = 100, 5


async def asked(path: str) -> float:
    """The seconds that some clients take together, each of whom asks again upon its answer."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status = 404 if scope["path"] == "/nowhere" else 200
        await Response(status_code=status)(scope, receive, send)

    envelope = Envelope(answer, meters=Meters(), refusals=Refusals())
    began = time.monotonic()
    async with AsyncClient(
        transport=ASGITransport(envelope), base_url="http://testserver"
    ) as client:

        async def ask() -> None:
            for _ in range(EACH):
                await client.get(path)

        await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    return time.monotonic() - began


def test_who_asks_again_upon_each_refusal_is_held_back() -> None:
    assert asyncio.run(asked("/nowhere")) >= HELD_BACK_SECONDS
