"""Whose address a request comes from, and what happens when nobody counts."""

import asyncio
import gzip
import time
from ipaddress import ip_network

import pytest
from starlette.requests import Request

from api.runtime.keyring import Caller
from api.runtime.rate_limit import RateLimit, client_address
from api.wire.problem import Problem
from storage.tenants.keys import KeyKind
from storage.tenants.settings import RateLimits, Settings

PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


def request(peer: str | None, *forwarded: str) -> Request:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    client = None if peer is None else (peer, 1)
    return Request({"type": "http", "headers": headers, "client": client})


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.7", (), "203.0.113.7"),
        ("203.0.113.7", ("198.51.100.1",), "203.0.113.7"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        # The client wrote the first entry itself; the proxies wrote the others.
        ("10.0.0.1", ("1.2.3.4, 198.51.100.1, 10.0.0.2",), "198.51.100.1"),
        ("10.0.0.1", ("1.2.3.4", "198.51.100.1", "10.0.0.2"), "198.51.100.1"),
        ("10.0.0.1", ("nonsense",), "nonsense"),
        ("2001:db8::1", ("2001:db9::1",), "2001:db9::1"),
        (None, ("1.2.3.4",), "local"),
    ],
)
def test_a_forwarded_address_is_believed_as_far_as_its_tellers_are_trusted(
    peer, forwarded, address
) -> None:
    assert client_address(request(peer, *forwarded), PROXIES) == address


def test_a_mistyped_proxy_is_trusted_by_nobody() -> None:
    settings = Settings(trusted_proxies=["nonsense", "10.0.0.0/8", "10.1.2.3/8"])
    caller = Caller(project_id=1, kind=KeyKind.PUBLIC, settings=settings, key="digest")
    assert caller.trusted_proxies == [ip_network("10.0.0.0/8")] * 2


@pytest.mark.parametrize("most", [1, 999, 2000, 12_345, 12_347])
def test_a_limit_is_exact_however_many_are_counted_at_a_time(most) -> None:
    limits = RateLimits(per_key=most, per_address=10**9)
    settings = Settings(rate_limits=limits)
    caller = Caller(project_id=1, kind=KeyKind.PUBLIC, settings=settings, key="digest")
    limit, refused = RateLimit(None), 0

    async def asked() -> None:
        nonlocal refused
        try:
            await limit.admit(caller, address="203.0.113.7")
        except Problem as problem:
            refused += problem.code == "rate_limited"

    async def all_asked() -> None:
        await asyncio.gather(*(asked() for _ in range(most + 7)))

    asyncio.run(all_asked())
    assert refused == 7


EVENT = b'{"event":"a","session_id":"s"}'


def padded(size: int) -> bytes:
    return EVENT + b" " * (size - len(EVENT))


def values(count: int) -> bytes:
    """An event that is refused, since it has so many values."""
    head, end = b'{"event":"a","session_id":"s","flags":[0', b"]}"
    return head + b",0" * (count - 5) + end


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (EVENT, 1),
        (padded(16 * 1024 - 1), 1),
        (padded(16 * 1024), 2),
        (padded(60 * 1024), 4),
        (gzip.compress(padded(60 * 1024)), 4),
        (values(511), 1),
        (values(512), 2),
        (values(2048), 5),
        # Over the limit: it was inflated as far as that.
        (gzip.compress(b" " * 2**21), 65),
    ],
)
def test_a_request_counts_by_the_bytes_and_values_of_its_body(tenant, content, count) -> None:
    tenant.settings(rate_limits={"per_key": 1000, "per_address": 2 * count + 1})
    encoding = {"Content-Encoding": "gzip"} if content.startswith(b"\x1f") else {}
    headers = {**tenant.public, "Content-Type": "application/json", **encoding}

    def posted(body: bytes) -> int:
        sent = headers if body is content else {**tenant.public, "Content-Type": "application/json"}
        return tenant.client.post("/v1/events", content=body, headers=sent).status_code

    answer = [posted(content), posted(content), posted(EVENT), posted(EVENT)]
    assert 429 not in answer[:3]
    assert answer[3] == 429


def test_a_request_that_is_larger_than_a_whole_limit_is_taken_alone(tenant) -> None:
    tenant.settings(rate_limits={"per_key": 3})
    headers = {**tenant.public, "Content-Type": "application/json"}
    answer = [
        tenant.client.post("/v1/events", content=content, headers=headers).status_code
        for content in (padded(2**20), EVENT)
    ]
    assert answer == [202, 429]


@pytest.mark.requirement("limit.rate.address")
def test_each_address_has_a_minute_of_its_own() -> None:
    settings = Settings(rate_limits=RateLimits(per_key=100, per_address=1))
    caller = Caller(project_id=1, kind=KeyKind.PUBLIC, settings=settings, key="digest")
    limit = RateLimit(None)

    async def requests() -> None:
        await limit.admit(caller, address="203.0.113.7")
        await limit.admit(caller, address="203.0.113.8")
        with pytest.raises(Problem, match="an address"):
            await limit.admit(caller, address="203.0.113.7")

    asyncio.run(requests())


def test_a_flood_is_logged_once_and_taken_again_when_its_limit_is_raised(caplog) -> None:
    caplog.set_level("INFO", logger="api")
    limit = RateLimit(None)

    async def taken(most: int) -> int:
        settings = Settings(rate_limits=RateLimits(per_key=most))
        caller = Caller(project_id=1, kind=KeyKind.PUBLIC, settings=settings, key="digest")
        for number in range(9):
            try:
                await limit.admit(caller, address="203.0.113.7")
            except Problem:
                return number
        return 9

    async def story() -> list[int]:
        return [await taken(most) for most in (2, 2, 2, 100)]

    assert asyncio.run(story()) == [2, 0, 0, 9]
    assert caplog.text.count("more are refused") == 1


def test_a_limit_reached_under_a_clock_that_ran_ahead_holds_nobody_up(monkeypatch) -> None:
    right = time.time
    limits = RateLimits(per_key=3)
    caller = Caller(
        project_id=1, kind=KeyKind.PUBLIC, settings=Settings(rate_limits=limits), key="digest"
    )
    limit = RateLimit(None)

    async def admitted(count: int) -> int:
        for number in range(count):
            try:
                await limit.admit(caller, address="203.0.113.7")
            except Problem:
                return number
        return count

    async def story() -> list[int]:
        monkeypatch.setattr(time, "time", lambda: right() + 39 * 3600)
        ahead = await admitted(9)
        monkeypatch.setattr(time, "time", right)
        # The only request that meets the old window is let in beyond the limit.
        return [ahead, await admitted(9)]

    assert asyncio.run(story()) == [3, 4]
