"""Which addresses requests to services may go to: public ones, and those of hosts that the user named."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deltamcp.auth.safe_url import Address, AddressRange, is_loopback, range_of, read_address
from deltamcp.client.links.http1 import resolve_host
from deltamcp.errors import UpstreamError

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream


class AddressRule:
    """Says to which hosts requests may go. A document may name public ones; private ones only its user may."""

    def __init__(self, named: Collection[str]) -> None:
        """
        Args:
            named: The hosts that the user named, in lower case.
        """
        self._named = frozenset(named)

    def is_free(self, url: str) -> bool:
        """Whether requests to a URL may go to any address, because the user named its host."""
        return (urlsplit(url).hostname or "").lower() in self._named

    def refusal(self, url: str) -> str | None:
        """Returns why no request may go to a URL, as far as its text tells, as the end of a sentence."""
        host = (urlsplit(url).hostname or "").lower()
        address = read_address(host)
        is_public = not is_loopback(host) and (address is None or range_of(address) is AddressRange.PUBLIC)
        return None if host in self._named or is_public else f"{host} is no public address, and nobody named it"

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Returns the addresses that a host's name stands for.

        Raises:
            UpstreamError: one of them is not public, although the user did not name the host.
            OSError: the name stands for none.
        """
        found = await resolve_host(host, port)
        self.check(host, found)
        return found

    def check(self, host: str, found: Iterable[Address]) -> None:
        """
        Raises:
            UpstreamError: one of a host's addresses is not public, although the user did not name the host.
        """
        if host.lower() not in self._named and any(range_of(address) is not AddressRange.PUBLIC for address in found):
            raise UpstreamError(
                f"{host} is at an address that is not public; who runs this server may name it, in base_url or hosts."
            )

    async def connect(self, host: str, port: int, timeout: float | None) -> "AsyncNetworkStream":
        """Connects to a host at an address that was checked, so that its name cannot stand for another one by then.

        Raises:
            UpstreamError: as `addresses`.
            httpcore2.ConnectError: none of them can be connected to.
        """
        import httpcore2  # with the HTTP client, which most servers do not need

        try:
            found = await self.addresses(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception = httpcore2.ConnectError("the name stands for no address")
        for address in found:
            try:
                return await httpcore2.AnyIOBackend().connect_tcp(str(address), port, timeout)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure
