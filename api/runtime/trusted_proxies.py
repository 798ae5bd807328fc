"""Trusted proxies: the networks whose word on a visitor's address, name and groups is believed."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from storage.tenants.settings import Settings


def trusted_networks(settings: Settings) -> list[IPv4Network | IPv6Network]:
    """Returns the networks of the proxies that a project trusts."""
    networks: list[IPv4Network | IPv6Network] = []
    for entry in settings.trusted_proxies:
        try:
            networks.append(ip_network(entry, strict=False))
        except ValueError:
            # A mistyped entry is believed by nobody.
            continue
    return networks


def is_trusted(address: str, trusted: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Tells whether an address is in any of the networks."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in trusted)
