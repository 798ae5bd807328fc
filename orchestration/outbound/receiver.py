"""A receiver of posts: an exchange bounded in time and size, logged by its host alone."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from ipaddress import ip_address

import httpx2

from storage.tenants.receiver_address import Address, RefusedAddressError, range_of, require_host

TIMEOUT_SECONDS = 10.0
# So much of an answer is read and dropped, for the receiver to see it taken.


class Unanswered(Exception):  # noqa: N818 - the receiver's state, not a fault of ours
    """No answer came; the message says why in words of ours, and quotes nothing."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A receiver's answer, without its content."""

    status: int
    retry_after: timedelta

    @property
    def taken(self) -> bool:
        """Whether the receiver has it."""
        return 200 <= self.status < 300


async def post(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    private: bool,
    tls: ssl.SSLContext | None = None,
) -> Receipt:
    """Posts JSON and returns how it was answered; follows no redirect.

    Args:
        tls: What certificates are checked with, where it stands already.

    Raises:
        Unanswered: No answer came in time.
    """
    with _silence():
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await _exchange(url, body, headers=headers, private=private, tls=tls)
        except (TimeoutError, httpx2.TimeoutException):
            problem = f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
        except RefusedAddressError as refused:
            problem = str(refused)
        except httpx2.ConnectError:
            problem = "no connection"
        except Exception:  # noqa: BLE001 - whatever it is, its message could quote the address
            problem = "the exchange broke off"
    raise Unanswered(problem)


def open_tls() -> ssl.SSLContext:
    """Returns what certificates are checked with: tens of milliseconds to make, good for many."""
    return httpx2.create_ssl_context()


async def _exchange(
    url: str, body: bytes, *, headers: Mapping[str, str], private: bool, tls: ssl.SSLContext | None
) -> Receipt:
    """Posts to the first judged address that answers; none is looked up again."""
    target = httpx2.URL(url)
    addresses = await asyncio.to_thread(resolve, target.host)
    failure = httpx2.ConnectError("no address")
    for address in judged(target.host, addresses, private=private):
        try:
            return await _posted(target, address, body, headers=headers, tls=tls)
        except httpx2.ConnectError as error:
            failure = error
    raise failure


async def _posted(
    target: httpx2.URL,
    address: Address,
    body: bytes,
    *,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
) -> Receipt:
    sent = {
        "Content-Type": "application/json",
        "User-Agent": "deploy-reward",
        "Host": target.netloc.decode("ascii"),
        **headers,
    }
    # Each receiver has a client: no cookies or connections of a receiver serve another.
    async with (
        httpx2.AsyncClient(
            verify=tls or open_tls(), timeout=TIMEOUT_SECONDS, follow_redirects=False
        ) as client,
        client.stream(
            "POST",
            target.copy_with(host=str(address)),
            content=body,
            headers=sent,
            # The certificate is that of the name, wherever the name leads.
            extensions={"sni_hostname": target.host},
        ) as response,
    ):
        # The status tells; a body may come slowly, or never end.
        return Receipt(
            status=response.status_code,
            retry_after=_retry_after(response.headers.get("Retry-After"), now=datetime.now(UTC)),
        )


def _retry_after(value: str | None, *, now: datetime) -> timedelta:
    """Returns how long an answer asks to wait, by seconds or by a date (RFC 9110, 10.2.3)."""
    if value is None:
        return timedelta(0)
    if value.isascii() and value.isdigit():
        return timedelta(seconds=min(int(value[:9]), 10**6))
    try:
        moment = parsedate_to_datetime(value)
    except (OverflowError, ValueError):
        return timedelta(0)
    return max(timedelta(0), moment.replace(tzinfo=moment.tzinfo or UTC) - now)


# --- Nothing of an address in a log ---------------------------------------------------------------

_silent: ContextVar[bool] = ContextVar("silent", default=False)
# The client logs each whole address, and below it what passes in both directions.
_CLIENT_LOGS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy")))


class _Silence(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 (logging's signature)
        return not _silent.get()


for _name in _CLIENT_LOGS:
    logging.getLogger(_name).addFilter(_Silence())


@contextmanager
def _silence() -> Generator[None]:
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def judged(host: str, addresses: Sequence[str], *, private: bool) -> list[Address]:
    """Returns the addresses of a host, once each of them was judged."""
    require_host(host, private=private)
    parsed = [ip_address(address.partition("%")[0]) for address in addresses]
    for address in parsed:
        refused = range_of(address, private=private)
        if refused is not None:
            raise RefusedAddressError(f"its name leads to {refused}, where the receiver may not be")
    return parsed


def resolve(host: str) -> list[str]:
    """Returns a host's addresses as the machine's resolver gives them, none where it is unknown.

    It waits for the network: no event loop may call it.
    """
    try:
        answers = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
