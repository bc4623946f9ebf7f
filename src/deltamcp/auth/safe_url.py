"""URLs that nobody on the way can forge or read: https, or http on this machine; and who is reached at an address."""

import enum
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from deltamcp.errors import ConfigurationError

Address: TypeAlias = IPv4Address | IPv6Address

_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host, given as a name or an address.

    0.0.0.0 is not such a host: whoever listens there is reached by others, too.
    """
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    address = read_address(host)
    return address is not None and address.is_loopback


def read_address(host: str) -> IPv4Address | IPv6Address | None:
    """Returns the address that a host is given by, in any notation that resolvers read, such as 127.1; None for a
    name."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def split_url(url: str, name: str) -> SplitResult:
    """Splits the URL of a resource, an issuer or an endpoint; `name` is what an error calls it.

    Raises:
        ConfigurationError: it is neither an https URL nor an http URL of this machine, or has a fragment or a password.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if not is_safe_origin(parts) or parts.fragment or "@" in parts.netloc or not url.isascii() or " " in url:
        raise ConfigurationError(
            f"{name} must be an https URL without a fragment, such as https://tools.example/mcp, or http on localhost; "
            f"it is {url!r}."
        )
    return parts


def is_safe_origin(parts: SplitResult) -> bool:
    """Whether nobody between here and the URL's host can change what it says: https, or this machine."""
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )


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
