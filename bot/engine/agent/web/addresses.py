"""Which addresses may be connected to: those of the open internet, and what the owner allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# The library calls some of these global; all of them may end at a host that is not.
_NEVER_4 = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "192.0.0.0/24", "192.88.99.0/24",
         "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
# Teredo, documentation, benchmarks and 6to4: they carry other addresses, or nothing.
_NEVER_6 = tuple(
    map(
        ipaddress.IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)


class BadPrivate(ValueError):
    """Not a host, an address or a network."""


def address_of(text: str) -> Address:
    """Raises ValueError. A zone after the address is left out."""
    return ipaddress.ip_address(text.partition("%")[0])


def is_open(address: Address) -> bool:
    """On the open internet, and not by way of another kind of address within it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _NEVER_4)
    return address in _GLOBAL_6 and not any(address in network for network in _NEVER_6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """What may be fetched although it is not on the open internet."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def allows(self, host: str, address: Address) -> bool:
        if host in self.hosts:
            return True
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return mapped is None and any(address in network for network in self.networks)


def private_of(entries: Sequence[str]) -> Private:
    """Hosts by name, addresses and networks; raises BadPrivate."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for entry in filter(None, map(str.strip, entries)):
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            if "/" in entry or ":" in entry or not entry.isprintable() or " " in entry:
                raise BadPrivate(f"{entry!r} is no host, address or network") from error
            hosts.add(entry.lower().rstrip("."))
    return Private(hosts=frozenset(hosts), networks=tuple(networks))
