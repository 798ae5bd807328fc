"""The envelope of answers, where most of them are refusals."""

import asyncio
import time

from httpx2 import ASGITransport, AsyncClient
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.wire.envelope import HELD_BACK_SECONDS, Envelope
from api.wire.meters import Meters

CLIENTS, EACH = 100, 5


async def asked(path: str) -> float:
    """The seconds that some clients take together, each of whom asks again upon its answer."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status = 404 if scope["path"] == "/nowhere" else 200
        await Response(status_code=status)(scope, receive, send)

    envelope = Envelope(answer, Meters())
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


def test_a_flood_over_its_limit_fills_no_log_and_another_refusal_stands_in_it(
    tenant, caplog
) -> None:
    caplog.set_level("INFO", logger="api.access")
    tenant.settings(rate_limits={"per_key": 2})
    event = {"event": "a", "session_id": "s"}
    statuses = [tenant.post("/v1/events", body).status_code for body in ({}, event, event, event)]
    assert statuses == [422, 202, 429, 429]
    assert [line.split()[2] for line in caplog.messages if line.startswith("POST")] == ["422"]
