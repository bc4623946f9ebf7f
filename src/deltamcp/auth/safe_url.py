"""URLs that nobody on the way can forge or read: https, or http on this machine."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from deltamcp.errors import ConfigurationError


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
