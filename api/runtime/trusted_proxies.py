"""Trusted proxies: the networks whose word on a visitor's address, name and groups is believed."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.requests import Request

from storage.tenants.keys import Role
from storage.tenants.settings import Settings

_LONGEST_NAME = 256


@dataclass(frozen=True, kw_only=True)
class ProxiedVisitor:
    """A visitor for whom an authenticating proxy vouches, with the role that a project gives."""

    name: str
    role: Role


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


def proxied_visitor(request: Request, settings: Settings) -> ProxiedVisitor | None:
    """Returns the visitor whom the proxy before us names, with the role in a project.

    Args:
        request: Its connection must come from a proxy that the project trusts.

    Returns:
        None where the project gives no group a role, the connection comes from elsewhere, a header
        is missing or there twice, or no group of the visitor has a role.
    """
    if not (settings.owner_groups or settings.reader_groups) or request.client is None:
        return None
    if not is_trusted(request.client.host, trusted_networks(settings)):
        return None
    name = _header(request, settings.name_header)
    groups = {group.strip() for group in _header(request, settings.groups_header).split(",")}
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        return None
    if groups & {*settings.owner_groups}:
        return ProxiedVisitor(name=name, role=Role.OWNER)
    return ProxiedVisitor(name=name, role=Role.READ) if groups & {*settings.reader_groups} else None


def _header(request: Request, name: str) -> str:
    """Returns the value of a header that is there once: of two, either may be the visitor's own."""
    values = request.headers.getlist(name)
    return values[0].strip() if len(values) == 1 else ""
