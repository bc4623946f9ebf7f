"""JSON documents of authorization servers, fetched within limits of origin, size and time."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import msgspec

from deltamcp.auth.safe_url import is_safe_origin
from deltamcp.runtime.http_client import quiet_client
from deltamcp.values import JSON

if TYPE_CHECKING:
    import httpx2

FETCH_SECONDS = 5.0
_MAX_BYTES = 512 * 1024
"""Key sets have some 10 kB, metadata less."""
_MAX_REDIRECTS = 3


class DocumentError(Exception):
    """A document cannot be fetched, or is no JSON object; the text is for the server's log."""


def issuer_document_urls(issuer: str) -> list[str]:
    """Returns where an authorization server's metadata may be, in the order of MCP 2026-07-28, "Authorization Server
    Discovery"."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.rstrip("/")
    urls = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


def open_client() -> "httpx2.AsyncClient":
    """Opens an HTTP client that follows no redirects and logs no addresses."""
    headers = {"user-agent": "delta-mcp", "accept": "application/json", "accept-encoding": "identity"}
    return quiet_client(timeout=FETCH_SECONDS, headers=headers, follow_redirects=False)


async def fetch_document(url: str) -> dict[str, JSON]:
    """Fetches a JSON object. It follows redirects within the origin.

    Raises:
        DocumentError: it cannot be fetched, or is something else.
    """
    async with open_client() as client:
        for _ in range(_MAX_REDIRECTS + 1):
            status, headers, document = await send_request(client, "GET", url)
            if status not in (301, 302, 303, 307, 308):
                break
            target = urljoin(url, headers.get("location", ""))
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                raise DocumentError(f"{url} redirects to another origin")
            url = target
    if status != 200:
        raise DocumentError(f"{url} answers with the status {status}")
    if document is None:
        raise DocumentError(f"{url} is no JSON object")
    return document


async def send_request(
    client: "httpx2.AsyncClient", method: str, url: str, **options: object
) -> tuple[int, Mapping[str, str], dict[str, JSON] | None]:
    """Sends a request; returns the status, the headers, and the JSON object in the body, if there is one.

    Raises:
        DocumentError: the URL is not safe to fetch, or there is no whole response in time and within the size.
    """
    import httpx2

    try:
        if not is_safe_origin(urlsplit(url)):
            raise DocumentError(f"{url} is neither https nor on this machine")
        async with asyncio.timeout(FETCH_SECONDS):
            async with client.stream(method, url, **options) as response:  # type: ignore[arg-type]
                body = bytearray()
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise DocumentError(f"{url} is larger than {_MAX_BYTES} bytes")
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise DocumentError(f"{url} cannot be fetched: {type(error).__name__}") from None
    try:
        document = msgspec.json.decode(bytes(body))
    except (ValueError, RecursionError):
        document = None
    return response.status_code, response.headers, document if isinstance(document, dict) else None
