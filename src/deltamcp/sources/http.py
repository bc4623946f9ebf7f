"""HTTP services: an operation's arguments as a request, and the response as what the operation gives back."""

import asyncio
import logging
import re
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from deltamcp.catalog.operations_file.document import HttpHandler, ServiceEntry
from deltamcp.errors import ConfigurationError, ToolError
from deltamcp.sources.environment import fill_variables, variable_values
from deltamcp.sources.http_request import UNPRINTABLE, RequestDraft, draft_request
from deltamcp.sources.secrets import Secrets, quiet_client
from deltamcp.values import JSON, Audio, BlobResource, EmbeddedResource, Image
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("deltamcp")

_DEFAULT_TIMEOUT_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_MAX_ERROR_CHARS = 500
_MAX_REDIRECTS = 5
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_JSON_TYPE = re.compile(r"application/json|.+\+json|text/json")
_TEXT_TYPE = re.compile(r"text/.*|.+\+(xml|yaml)|application/(xml|javascript|yaml|x-yaml|toml|x-ndjson|jsonl|sql)")


class ServiceRefusedError(ToolError):
    """A service's refusal. Status and headers let a limit on requests be known for one."""

    def __init__(self, message: str, response: "httpx2.Response") -> None:
        super().__init__(message)
        self.status = response.status_code
        self.headers = response.headers


class HttpService:
    """One service over one pool of connections, which opens with the first call."""

    def __init__(self, service: ServiceEntry, environment: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigurationError: a variable is not set, or what it holds is of no use.
        """
        base, _, self._query = fill_variables(service.base_url, environment).partition("?")
        self._base = base.rstrip("/")
        if not re.fullmatch(r"https?://[^/\s]\S*", self._base):
            raise ConfigurationError(
                f"The base_url {service.base_url!r} must come to an address that begins with http:// or https://."
            )
        self._headers = {
            name.lower(): fill_variables(text, environment).strip() for name, text in service.headers.items()
        }
        for name, text in self._headers.items():
            if UNPRINTABLE.search(text):
                raise ConfigurationError(f"The header {name} comes to a text with line breaks; mend its variable.")
        # Services like to repeat a key they refuse.
        hidden = variable_values([service.base_url, *service.headers.values()], environment)
        self._secrets = Secrets({*hidden, *self._headers.get("authorization", "").split()[1:]})
        self._timeout_seconds = service.timeout or _DEFAULT_TIMEOUT_SECONDS
        self._client: httpx2.AsyncClient | None = None

    async def call(self, handler: HttpHandler, arguments: dict[str, JSON]) -> Any:
        """What the service answered: JSON as Python values, text as text, anything else as content, nothing as None.

        Raises:
            ToolError: it refused or could not be reached, or the arguments make no request.
        """
        import httpx2  # 60 ms to import, needed only where an operation is such a service's

        drafted = draft_request(handler, arguments)
        name = f"{handler.method} {drafted.path}"
        try:
            request = self._build_request(handler.method, drafted)
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(request, name, drafted.path)
        except (TimeoutError, httpx2.TimeoutException):
            raise ToolError(f"{name} took longer than {self._timeout_seconds:g} s; try again later.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise ToolError(f"{name} broke off before its answer was complete; try again later.") from None

    async def close(self) -> None:
        """Ends the pool; a later call opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open_client(self) -> "httpx2.AsyncClient":
        if self._client is None:
            # A cookie from one caller's response must not travel with another's request.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self._client = quiet_client(timeout=self._timeout_seconds, cookies=jar, headers={"user-agent": "delta-mcp"})
        return self._client

    def _build_request(self, method: str, drafted: RequestDraft) -> "httpx2.Request":
        query = "&".join(part for part in (self._query, drafted.query) if part)
        headers = self._headers | drafted.headers
        if "cookie" in self._headers and "cookie" in drafted.headers:
            headers["cookie"] = f"{self._headers['cookie']}; {drafted.headers['cookie']}"
        content = None
        if drafted.form is not None:
            content = drafted.form.encode()
            headers.setdefault("content-type", "application/x-www-form-urlencoded")
        elif drafted.json is not UNSET:
            kind = headers.setdefault("content-type", "application/json")
            as_text = isinstance(drafted.json, str) and not _JSON_TYPE.fullmatch(_media_type(kind))
            content = drafted.json.encode() if as_text else jsonrpc.encode(drafted.json)
        return self._open_client().build_request(
            method,
            f"{self._base}{drafted.path}{'?' if query else ''}{query}",
            headers=[(key.encode(), text.encode()) for key, text in headers.items()],
            content=content,
        )

    async def _exchange(self, request: "httpx2.Request", name: str, path: str) -> Any:
        response = await self._send(request, name)
        try:
            for _ in range(_MAX_REDIRECTS):
                following = response.next_request
                if following is None:
                    break
                if not _is_same_host(response.request.url, following.url):
                    raise ToolError(f"{name} leads on to the host {following.url.host}, where it is not followed.")
                await response.aclose()
                response = await self._send(following, name)
            if response.status_code >= 300:
                raise await self._read_refusal(response, name)
            return _decode_body(await _read_body(response, name), response, path)
        finally:
            await response.aclose()

    async def _send(self, request: "httpx2.Request", name: str) -> "httpx2.Response":
        import httpx2

        for _ in range(2 if request.method in _IDEMPOTENT_METHODS else 1):
            try:
                return await self._open_client().send(request, stream=True)
            except (httpx2.NetworkError, httpx2.ConnectTimeout, httpx2.RemoteProtocolError) as error:
                logger.warning("%s got no answer: %s", name, error or type(error).__name__)
        raise ToolError(f"{name} got no answer from the service; try again later.")

    async def _read_refusal(self, response: "httpx2.Response", name: str) -> "ServiceRefusedError":
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > 8 * _MAX_ERROR_CHARS:
                break
        text = _decode_text(body, response).strip() or response.reason_phrase
        text = self._secrets.redact(text)[:_MAX_ERROR_CHARS]
        return ServiceRefusedError(f"{name} answered {response.status_code}: {text}", response)


def _is_same_host(here: "httpx2.URL", there: "httpx2.URL") -> bool:
    if here.host != there.host:
        return False
    upgraded = (here.scheme, there.scheme) == ("http", "https") and here.port is None and there.port is None
    return upgraded or (here.scheme, here.port) == (there.scheme, there.port)


async def _read_body(response: "httpx2.Response", name: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MAX_RESPONSE_BYTES:
            raise ToolError(f"{name} answered with more than {_MAX_RESPONSE_BYTES >> 20} MiB; ask for less.")
    return bytes(body)


def _decode_body(body: bytes, response: "httpx2.Response", path: str) -> Any:
    if not body:
        return None
    kind = _media_type(response.headers.get("content-type", ""))
    if _JSON_TYPE.fullmatch(kind):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode_text(body, response)
    if _TEXT_TYPE.fullmatch(kind) or (not kind and _is_utf8(body)):
        return _decode_text(body, response)
    if kind.startswith("image/"):
        return Image(body, kind)
    if kind.startswith("audio/"):
        return Audio(body, kind)
    # The service's own address may hold what is not the model's to know, so the URI has the path alone.
    return EmbeddedResource(BlobResource(f"response:{path}", body, kind or None))


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _decode_text(body: bytes, response: "httpx2.Response") -> str:
    try:
        return body.decode(response.charset_encoding or "utf-8", errors="replace")
    except LookupError:
        return body.decode(errors="replace")


def _is_utf8(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False
