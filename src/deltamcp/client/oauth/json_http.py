"""HTTP requests about authorization: to addresses that a server named, so with limits on where, how much and how long.

An address is https, or on this machine if the MCP server is on this machine, too. What a name stands for is checked
where it is connected to; behind a proxy, which looks names up itself, only the name is.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from deltamcp.auth.safe_url import Address, AddressRange, is_loopback, range_of, read_address
from deltamcp.client.links.http1 import BrokenExchangeError, HttpConnectionPool, origin, resolve_host
from deltamcp.errors import ConfigurationError, UnauthorizedError

_MAX_BYTES = 256 * 1024
_MAX_URL_CHARS = 2048
_SECONDS = 20.0
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"(?=.{1,254}$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
"""A host's name; what else urlsplit takes for one, such as `a\\b` and `a%2eb`, other programs read otherwise."""
_FORM = "application/x-www-form-urlencoded"


class JsonReply(NamedTuple):
    """The status of a response, and its JSON object; an empty one if the body is none."""

    status: int
    value: dict[str, Any]


class JsonHttp:
    """Sends requests on behalf of one MCP server, at addresses that this server may name."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url

    def check_url(self, url: str) -> str:
        """Returns a URL that may be fetched or shown to the user.

        Raises:
            UnauthorizedError: the URL is not https, or is on this machine or a private address although the MCP server
                is not.
        """
        reason = unsafe_reason(url, self._server_url)
        if reason is not None:
            shown = "".join(filter(_PRINTABLE.fullmatch, url))[:200]
            raise UnauthorizedError(f"The authorization leads to {shown}, which {reason}; ask who runs the server.")
        return url

    async def _check_addresses(self, url: str, addresses: Sequence[Address]) -> None:
        """Checks all addresses of the host of a URL, before one of them is connected to.

        Raises:
            UnauthorizedError: one of them is not where the URL may be.
        """
        parts, server = urlsplit(url), urlsplit(self._server_url).hostname or ""
        ranges = set(map(range_of, addresses))
        is_local = is_loopback(server)
        allowed = {AddressRange.PUBLIC}
        if parts.scheme == "http":
            allowed = {AddressRange.THIS_MACHINE}
        elif is_local:
            allowed |= {AddressRange.THIS_MACHINE, AddressRange.PRIVATE}
        elif parts.hostname == server:  # the client is connected to it anyway
            return
        elif AddressRange.PRIVATE in ranges and await _is_private(server):
            allowed.add(AddressRange.PRIVATE)
        if not ranges <= allowed:
            raise UnauthorizedError(
                f"The authorization leads to {_label(url)}, which is at an address that its server may not name; "
                "ask who runs the server."
            )

    async def get(self, url: str) -> JsonReply:
        """Fetches a document, and follows redirects within its origin."""
        for _ in range(1 + _MAX_REDIRECTS):
            reply, location = await self._exchange("GET", url, {"accept": "application/json"}, b"")
            if location is None:
                return reply
            url = location
        raise UnauthorizedError(f"{_label(url)} redirects more than {_MAX_REDIRECTS} times; ask who runs the server.")

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> JsonReply:
        """Posts a form. The caller's secrets go to this URL only: a redirect is not followed."""
        all_headers = {"accept": "application/json", "content-type": _FORM, **headers}
        return (await self._exchange("POST", url, all_headers, urlencode(fields).encode()))[0]

    async def post_json(self, url: str, value: Mapping[str, Any]) -> JsonReply:
        headers = {"accept": "application/json", "content-type": "application/json"}
        return (await self._exchange("POST", url, headers, msgspec.json.encode(value)))[0]

    async def _exchange(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> tuple[JsonReply, str | None]:
        """Returns the response, and where it redirects to within its origin."""
        self.check_url(url)
        try:
            pool = HttpConnectionPool(url, _MAX_BYTES, lambda addresses: self._check_addresses(url, addresses))
        except ConfigurationError as error:
            raise UnauthorizedError(str(error)) from None
        try:
            async with asyncio.timeout(_SECONDS):
                response = await pool.exchange(pool.head(method, url, headers), body)
        except TimeoutError:
            raise UnauthorizedError(f"{_label(url)} did not answer within {_SECONDS:g} s; try later.") from None
        except BrokenExchangeError as error:
            raise UnauthorizedError(f"{_label(url)} cannot be reached: {error}.") from None
        finally:
            pool.close()
        if response.status in _REDIRECTS:
            target = _join_url(url, response.headers.get(b"location", b"").decode("latin-1"))
            if unsafe_reason(target, self._server_url) is None and origin(target) == origin(url):
                return JsonReply(response.status, {}), target
        return JsonReply(response.status, read_object(response.body)), None


def _join_url(url: str, location: str) -> str:
    """Returns where a redirect leads to; an empty text if that is no address."""
    try:
        return urljoin(url, location) if location else ""
    except ValueError:
        return ""


def read_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object that a body is; an empty one if it is none."""
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _label(url: str) -> str:
    parts = urlsplit(url)
    return f"The authorization server's {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path[:200]}"


def unsafe_reason(url: str, server_url: str) -> str | None:
    """Returns why the client neither fetches nor opens a URL that an MCP server named; None if it does."""
    if not _PRINTABLE.fullmatch(url) or len(url) > _MAX_URL_CHARS:
        return "is no address"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018 - the property raises if the port is invalid
    except ValueError:
        return "is no address"
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        return "is no https address"
    address, server = read_address(host), urlsplit(server_url).hostname or ""
    if "%" in host or (address is None and not _NAME.fullmatch(host)):
        return "is no address"
    if is_loopback(host):
        return None if is_loopback(server) else "is on this machine, and the server is not"
    if parts.scheme != "https":
        return "is not https"
    if address is None or host == server:
        return None
    match range_of(address):
        case AddressRange.PUBLIC:
            return None
        case AddressRange.PRIVATE:
            server_address = read_address(server)
            is_near = server_address is not None and range_of(server_address) is not AddressRange.PUBLIC
            return None if is_near or is_loopback(server) else "is a private address, and the server's is not"
        case _:
            return "is an address that nobody may name"


async def _is_private(host: str) -> bool:
    """Whether a server has no public address."""
    try:
        found = await resolve_host(host, 443)
    except OSError:
        return False
    return AddressRange.PUBLIC not in set(map(range_of, found))
