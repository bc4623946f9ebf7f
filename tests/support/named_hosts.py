"""Hosts with names and addresses, each of which is a server on this machine: what a client meets on the internet.

hosts = NamedHosts(monkeypatch)
hosts.add("login.example", issuer.url)
await JsonHttp("https://mcp.example/mcp").get("https://login.example/keys")
"""

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest

from deltamcp.auth.safe_url import Address
from deltamcp.client.links.http1 import BrokenExchangeError, CheckAddresses, HttpConnectionPool, HttpResponse
from deltamcp.client.oauth import json_http

PUBLIC = "93.184.216.34"


class NamedHosts:
    """Has the OAuth client reach these hosts and no others; their addresses are checked as those of any host are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._places: dict[str, tuple[str, list[Address]]] = {}
        self.missed: list[str] = []
        """Addresses that the client would have gone to, and nobody added."""
        hosts = self

        class NamedPool(HttpConnectionPool):
            """Connections to what stands for a named host, once its addresses are checked."""

            def __init__(self, url: str, max_body_bytes: int, check: CheckAddresses) -> None:
                self._url = url
                place, addresses = hosts._places.get(hosts._name(url), ("http://127.0.0.1:9", []))

                async def check_named(_: Any) -> None:
                    await check(addresses)

                super().__init__(place, max_body_bytes, check_named)

            async def exchange(self, head: bytes, body: bytes) -> HttpResponse:
                if hosts._name(self._url) not in hosts._places:
                    hosts.missed.append(self._url)
                    raise BrokenExchangeError("there is no such host", sent=False)
                return await super().exchange(head, body)

        async def resolve(host: str, port: int) -> list[Address]:
            return self._places[host][1]

        monkeypatch.setattr(json_http, "HttpConnectionPool", NamedPool)
        monkeypatch.setattr(json_http, "resolve_host", resolve)

    def add(self, name: str, place: str, *addresses: str) -> None:
        """Has a name stand for addresses, which are those of the server at `place`."""
        self._places[name] = place, [ip_address(address) for address in addresses or (PUBLIC,)]

    @staticmethod
    def _name(url: str) -> str:
        return (urlsplit(url).hostname or "").rstrip(".")
