"""Who is reached at an address: this machine, a network that is not public, anybody, or none that a name may mean."""

import enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")


class AddressRange(enum.Enum):
    """The part of the network that an address is in."""

    THIS_MACHINE = enum.auto()
    PRIVATE = enum.auto()
    PUBLIC = enum.auto()
    OTHER = enum.auto()
    """Neither: unspecified, link-local (there clouds have what a machine may know of itself), site-local, multicast,
    reserved, or a way from IPv6 to an IPv4 address that is not public."""


def range_of(address: Address) -> AddressRange:
    """Returns the range of an address. That of an IPv4 address in IPv6 is its own, however it is written or reached."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return range_of(address.ipv4_mapped)
        reached = _reached_ipv4(address)
        if reached is not None:
            return AddressRange.PUBLIC if range_of(reached) is AddressRange.PUBLIC else AddressRange.OTHER
        if address in _LOCAL_NAT64 or address.is_site_local:
            return AddressRange.OTHER
    elif address in _THIS_NETWORK:
        return AddressRange.OTHER
    if address.is_loopback:
        return AddressRange.THIS_MACHINE
    if address.is_unspecified or address.is_link_local or address.is_multicast or address.is_reserved:
        return AddressRange.OTHER
    return AddressRange.PUBLIC if address.is_global else AddressRange.PRIVATE


def _reached_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that a gateway on the way makes of an IPv6 address; None if there is none."""
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):  # RFC 6052; RFC 4291, 2.5.5.1
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or (address.teredo[1] if address.teredo is not None else None)
