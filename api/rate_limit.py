"""Rate limits: how many requests a minute a key, and an address, may make."""

import logging
import math
import time
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import FixedWindowRateLimiter
from limits.errors import ConfigurationError, StorageError
from starlette.requests import Request

from api.keyring import Caller
from api.problem import Problem

_log = logging.getLogger("api")
_MINUTE = 60


class RateLimit:
    """Counts requests in windows of a minute, in this process or in Redis for all workers."""

    def __init__(self, redis_url: str | None) -> None:
        self._limiter = FixedWindowRateLimiter(_counter(redis_url))

    async def admit(self, caller: Caller, *, address: str) -> None:
        """Counts a request by a caller from an address.

        Raises:
            Problem: Its key, or its address, has made as many as its project's settings allow.
        """
        limits = caller.settings.rate_limits
        await self._count("key", limits.per_key, caller.key)
        await self._count("address", limits.per_address, f"{caller.project_id}/{address}")

    async def _count(self, policy: str, most: int, identity: str) -> None:
        item = RateLimitItemPerMinute(most)
        try:
            if await self._limiter.hit(item, policy, identity):
                return
            seconds = await self._seconds_left(item, policy, identity)
        except StorageError:
            # Counting is a protection of ours: without it events are still taken.
            _log.warning("rate limits cannot be counted: their Redis cannot be reached")
            return
        raise Problem(
            "rate_limited",
            f"more than {most} requests a minute by one {policy}",
            headers={
                "Retry-After": str(seconds),
                # draft-ietf-httpapi-ratelimit-headers-10
                "RateLimit-Policy": f'"{policy}";q={most};w={_MINUTE}',
                "RateLimit": f'"{policy}";r=0;t={seconds}',
            },
        )

    async def _seconds_left(self, item: RateLimitItem, *identity: str) -> int:
        window = await self._limiter.get_window_stats(item, *identity)
        return min(max(1, math.ceil(window.reset_time - time.time())), _MINUTE)


def _counter(redis_url: str | None) -> Storage:
    if redis_url is None:
        return MemoryStorage()
    try:
        return RedisStorage(f"async+{redis_url}", wrap_exceptions=True, implementation="redispy")
    except ConfigurationError as error:
        raise ValueError("SERVICE_REDIS_URL is set: install deploy-reward[redis]") from error


def client_address(request: Request, trusted: Sequence[IPv4Network | IPv6Network]) -> str:
    """Returns the address that a request came from, as the nearest trusted proxy tells it.

    `X-Forwarded-For` is read from its end, only as far as each teller is trusted.
    """
    address = request.client.host if request.client else "local"
    if not trusted:
        return address
    told = [
        hop.strip()
        for value in request.headers.getlist("X-Forwarded-For")
        for hop in value.split(",")
    ]
    while told and _is_trusted(address, trusted):
        address = told.pop()
    return address


def _is_trusted(address: str, trusted: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in trusted)
