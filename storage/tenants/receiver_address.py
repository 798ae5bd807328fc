"""The address of a receiver: which networks webhooks may be posted to, judged after resolution.

A name says nothing of where it leads, and may lead elsewhere a moment later. So every address that
a name has is judged before each delivery, and the connection is made to an address that was judged:
there is no second resolution.
"""

import os
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

# The operator's word for all projects; any other value than `allow` refuses.
SWITCH = "SERVICE_WEBHOOK_PRIVATE"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Names that no public resolver knows: those of a cluster, a company's network, a container's
# neighbours.
_PRIVATE_NAMES = (
    ".cluster.local",
    ".home.arpa",
    ".internal",
    ".lan",
    ".local",
    ".localdomain",
    ".localhost",
    ".svc",
)
# What a parser of addresses may read as a number: 2852039166, 0xA9FEA9FE and 0251.0376.1 are all
# 169.254.169.254.
_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]*|[0-9]+")
# By IANA's registries of special-purpose addresses. The first that holds an address names it.
_NEVER: Sequence[tuple[str, str]] = (
    ("the unspecified", "0.0.0.0/8"),
    ("the unspecified", "::/128"),
    # Where clouds serve the credentials of their machines.
    ("the link-local", "169.254.0.0/16"),
    ("the link-local", "fe80::/10"),
    ("a cloud's metadata", "fd00:ec2::/32"),
    ("a cloud's metadata", "100.100.100.200/32"),
    ("a cloud's metadata", "168.63.129.16/32"),
    ("the multicast", "224.0.0.0/4"),
    ("the multicast", "ff00::/8"),
    ("the reserved", "240.0.0.0/4"),
)
_PRIVATE: Sequence[tuple[str, str]] = (
    ("the loopback", "127.0.0.0/8"),
    ("the loopback", "::1/128"),
    ("a private", "10.0.0.0/8"),
    ("a private", "172.16.0.0/12"),
    ("a private", "192.168.0.0/16"),
    ("a private", "fc00::/7"),
    ("a private", "fec0::/10"),
    ("a provider's own", "100.64.0.0/10"),
    ("a local translator's", "64:ff9b:1::/48"),
    ("the benchmarking", "198.18.0.0/15"),
    ("the documentation", "192.0.2.0/24"),
    ("the documentation", "198.51.100.0/24"),
    ("the documentation", "203.0.113.0/24"),
    ("the documentation", "2001:db8::/32"),
    ("the special-purpose", "192.0.0.0/24"),
    ("the special-purpose", "2001::/23"),
)
# IPv6 addresses that stand for the IPv4 address in these bits of them.
_EMBEDDED: Sequence[tuple[IPv6Network, int]] = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
    (IPv6Network("::/96"), 0),
)


class RefusedAddressError(ValueError):
    """A receiver may not be there; the message names the range, and never the address."""


def private_receivers_allowed() -> bool:
    """Tells whether the operator lets webhooks of projects reach private networks."""
    return os.environ.get(SWITCH, "allow") == "allow"


def is_private_host(host: str) -> bool:
    """Tells whether a host, as it is written, is on a private network: it may then lead there."""
    address = _literal(host)
    if address is None:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_PRIVATE_NAMES)
    return range_of(address, private=False) is not None


def range_of(address: Address, *, private: bool) -> str | None:
    """Returns the range for which an address is refused, such as `the loopback 127.0.0.0/8`."""
    while (embedded := _embedded(address)) is not None:
        address = embedded
    for name, written in (*_NEVER, *(() if private else _PRIVATE)):
        network: Network = ip_network(written)
        if address.version == network.version and address in network:
            return f"{name} range {written}"
    return None if private or address.is_global else "a range that is not public"


def _embedded(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv6Address) and address not in IPv6Network("::/127"):
        for network, shift in _EMBEDDED:
            if address in network:
                return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def require_host(host: str, *, private: bool) -> None:
    """Judges a host as it is written; a name is not resolved.

    Raises:
        RefusedAddressError: It is a number that parsers read differently, or an address where the
            receiver may not be.
    """
    if not private and is_private_host(host):
        raise RefusedAddressError(f"it is on a private network, which {SWITCH} refuses")
    address = _literal(host)
    if address is None:
        if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise RefusedAddressError(
                "an IPv4 address is written as four decimal numbers with dots"
            )
        return
    refused = range_of(address, private=True)
    if refused is not None:
        raise RefusedAddressError(f"it is in {refused}, where no receiver may be")
