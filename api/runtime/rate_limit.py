"""Rate limits: how many requests, and sign-ins, a minute a key, and an address, may make.

A request with a large body counts as several: its cost grows with its inflated bytes and with its
values, however few bytes were sent.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import FixedWindowRateLimiter
from limits.errors import ConfigurationError, StorageError
from starlette.requests import Request

from api.runtime.keyring import Caller
from api.runtime.trusted_proxies import is_trusted
from api.wire.body import JSON, MEBIBYTE, read_body, values_of
from api.wire.fair_queue import Reservation
from api.wire.problem import Problem

_log = logging.getLogger("api")
_MINUTE = 60
# A request counts once for every so many bytes, or values, of its body that it begins.
BYTES_A_COUNT = 16 * 1024
VALUES_A_COUNT = 512
_PORTIONS = 1000
_DESCRIPTIONS: Mapping[str, str] = {
    "key": "requests a minute by a key",
    "address": "requests a minute by an address",
    "registration": "registrations a minute by a key",
    "sign-in-address": "sign-ins a minute by an address",
    "sign-in": "sign-ins a minute by all together",
}
# A Redis that hangs is as good as none: no event waits longer for it.
_PATIENCE_SECONDS = 0.5
# Addresses may be without number; a portion that is forgotten is only refused early.
_MOST_HELD = 10_000


@dataclass
class _Window:
    """A minute of a limit and a sender, as far as this process counts it itself."""

    limit: int
    until: float
    left: int = 0
    full: bool = False
    # Requests that the shared store had left at the last query.
    beyond: int = 0

    @property
    def lasts(self) -> bool:
        """Whether it has not ended; a minute that began under a clock that ran ahead has."""
        return 0 < self.until - time.time() <= 2 * _MINUTE


class RateLimit:
    """Counts requests in windows of a minute, in this process or in Redis for all workers.

    They are counted a thousandth of their limit at a time: the store of counts is asked once for
    all of these requests. A single process refuses exactly the requests over the limit; of several
    that share a limit each may hold back the portion it fetched, and so refuse a thousandth early.
    """

    def __init__(self, redis_url: str | None) -> None:
        self._counter = _counter(redis_url)
        self._limiter = FixedWindowRateLimiter(self._counter)
        self._windows: dict[tuple[str, str], _Window] = {}

    async def close(self) -> None:
        """Lets go of the connections to Redis."""
        if isinstance(self._counter, RedisStorage):
            # The library types what all its clients have, which is not their end.
            await self._counter.bridge.storage.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    async def body(
        self,
        request: Request,
        caller: Caller,
        *,
        limit: int = MEBIBYTE,
        media: tuple[str, ...] = (JSON,),
        gzip: bool = False,
    ) -> bytes:
        """Counts a request by a caller, and returns its body as `read_body` does.

        Raises:
            Problem: Its key, or its address, has made as many as its project's settings allow; or
                the body is none that is taken.
        """
        address = client_address(request, caller.trusted_proxies)
        await self.admit(caller, address=address, request=request)
        try:
            raw = await read_body(request, limit=limit, media=media, gzip=gzip)
        except Problem as problem:
            if problem.code == "body_too_large":
                await self.admit(caller, address=address, further=limit // BYTES_A_COUNT)
            raise
        further = max(len(raw) // BYTES_A_COUNT, values_of(request, raw) // VALUES_A_COUNT)
        if further:
            await self.admit(caller, address=address, further=further, request=request)
        reservation: Reservation = request.scope["state"]["reservation"]
        await reservation.turn()
        return raw

    async def admit(
        self, caller: Caller, *, address: str, further: int = 0, request: Request | None = None
    ) -> None:
        """Counts a request by a caller from an address.

        Args:
            request: It notes the rest of the limit, for the headers of its answer.
            further: For how many more requests it counts, once it has been counted itself: at most
                as many as leave it within a limit that nobody else has used.
        """
        limits = caller.settings.rate_limits
        for policy, limit, identity in (
            ("key", limits.per_key, caller.key),
            ("address", limits.per_address, f"{caller.project_id}/{address}"),
        ):
            count = min(further, limit - 1) if further else 1
            if count:
                await self.count(policy, limit, identity, count, request=request)

    async def admit_registration(self, request: Request, caller: Caller) -> None:
        """Counts a registration by a caller.

        Raises:
            Problem: Its key has registered as often as its project's settings allow.
        """
        limit = caller.settings.rate_limits.registrations_per_key
        await self.count("registration", limit, caller.key, request=request)

    async def count(
        self,
        policy: str,
        limit: int,
        identity: str,
        count: int = 1,
        *,
        request: Request | None = None,
    ) -> None:
        """Counts some requests of an identity under a policy, a key of `_DESCRIPTIONS`.

        Args:
            request: It notes the rest of the limit, for the headers of its answer.

        Raises:
            Problem: It has made as many as its limit allows.
        """
        window = self._windows.get((policy, identity))
        if window is not None and window.limit == limit and window.lasts:
            if window.left >= count:
                window.left -= count
                _note(request, policy, window)
                return
            if window.full:
                raise _refusal(policy, window)
        item = RateLimitItemPerMinute(limit)
        try:
            if (fetched := await self._fetched(item, policy, identity, count)) is not None:
                _note(request, policy, fetched)
                return
            window = await self._window(item, policy, identity)
            if not window.lasts:
                # Begun under a clock that ran ahead, it would refuse until time has caught up.
                await self._limiter.clear(item, policy, identity)
                return
        except StorageError:
            # Counting is a protection of ours: without it events are still taken.
            _log.warning("rate limits cannot be counted: their Redis cannot be reached")
            return
        if not window.full:
            window.full = True
            # Once a window: who floods a server must not fill its log.
            _log.info("%s: %d are made, more are refused", _DESCRIPTIONS[policy], limit)
        raise _refusal(policy, window)

    async def _fetched(
        self, item: RateLimitItem, policy: str, identity: str, count: int
    ) -> _Window | None:
        """Returns the window of a request within its limit; later ones may be counted with it."""
        portion = _portion(item.amount)
        fetched = -(-count // portion) * portion
        if not await self._limiter.hit(item, policy, identity, cost=fetched):
            return None
        window = await self._window(item, policy, identity)
        window.left += fetched - count
        return window

    async def _window(self, item: RateLimitItem, policy: str, identity: str) -> _Window:
        """Returns what this process holds of the window of now."""
        now = await self._limiter.get_window_stats(item, policy, identity)
        window = self._windows.get((policy, identity))
        if window is None or (window.limit, window.until) != (item.amount, now.reset_time):
            if len(self._windows) >= _MOST_HELD:
                self._windows.clear()
            window = _Window(limit=item.amount, until=now.reset_time)
            self._windows[policy, identity] = window
        window.beyond = now.remaining
        return window


def _refusal(policy: str, window: _Window) -> Problem:
    seconds = min(_MINUTE, max(1, math.ceil(window.until - time.time())))
    return Problem(
        "rate_limited",
        f"more than {window.limit} {_DESCRIPTIONS[policy]}",
        headers={
            "Retry-After": str(seconds),
            "RateLimit-Policy": _policy(policy, window.limit),
            "RateLimit": f'"{policy}";r=0;t={seconds}',
        },
    )


# The headers are those of draft-ietf-httpapi-ratelimit-headers-10.
@lru_cache(maxsize=1024)
def _policy(policy: str, limit: int) -> str:
    return f'"{policy}";q={limit};w={_MINUTE}'


def _note(request: Request | None, policy: str, window: _Window) -> None:
    """Notes the rest of a limit for the answer, where no other is nearer its end."""
    if request is None:
        return
    left, noted = window.left + window.beyond, request.scope["state"].get("rate_limit")
    if noted is None or left / window.limit <= noted[0]:
        seconds = max(1, math.ceil(window.until - time.time()))
        headers = (
            (b"ratelimit-policy", _policy(policy, window.limit).encode()),
            (b"ratelimit", f'"{policy}";r={left};t={seconds}'.encode()),
        )
        request.scope["state"]["rate_limit"] = (left / window.limit, headers)


@lru_cache(maxsize=1024)
def _portion(limit: int) -> int:
    """Returns how many requests are counted at a time: no remainder, or the last would be lost."""
    return next(part for part in range(max(1, limit // _PORTIONS), 0, -1) if limit % part == 0)


def _counter(redis_url: str | None) -> Storage:
    if redis_url is None:
        return MemoryStorage()
    try:
        return RedisStorage(
            f"async+{redis_url}",
            wrap_exceptions=True,
            implementation="redispy",
            socket_timeout=_PATIENCE_SECONDS,
            socket_connect_timeout=_PATIENCE_SECONDS,
        )
    except ConfigurationError as error:
        raise ValueError("SERVICE_REDIS_URL is set: install deploy-reward[redis]") from error


def client_address(request: Request, trusted: Sequence[IPv4Network | IPv6Network]) -> str:
    """Returns the address that a request came from, as the nearest trusted proxy tells it.

    `X-Forwarded-For` is read from its end, only as far as each teller is trusted.
    """
    address = request.client.host if request.client else "local"
    if not trusted:
        return address
    addresses = [
        hop.strip()
        for value in request.headers.getlist("X-Forwarded-For")
        for hop in value.split(",")
    ]
    while addresses and is_trusted(address, trusted):
        address = addresses.pop()
    return address
