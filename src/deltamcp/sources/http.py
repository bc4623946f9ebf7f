"""HTTP services: sends an operation's arguments as a request and returns the response as the operation's result."""

import asyncio
import html
import logging
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from deltamcp.catalog.operations_file import PLACEHOLDER, HttpHandler, ParameterPlace, ServiceEntry
from deltamcp.errors import ConfigurationError, ToolError, UpstreamError
from deltamcp.limits import Limits
from deltamcp.results.document import MAX_VALUES, TooManyValuesError, decode_counted
from deltamcp.runtime.http_client import quiet_client
from deltamcp.runtime.secrets import Secrets, address_secrets, load_secret, named_secrets, variable_secrets
from deltamcp.runtime.threads import Computations
from deltamcp.sources.pages import PageArguments, next_arguments
from deltamcp.values import JSON, Audio, BlobResource, EmbeddedResource, Image, ServiceResult
from deltamcp.wire import jsonrpc
from deltamcp.wire.message_bounds import MessageBoundError, check_json
from deltamcp.work import Work, WorkLimitError

if TYPE_CHECKING:
    import httpx2

    from deltamcp.sources.openapi.location import AddressRule


JSON_TYPE = re.compile(r"application/json|.+\+json|text/json")
FORM_TYPE = "application/x-www-form-urlencoded"
UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_COOKIE_UNSAFE = re.compile(r'[\x00-\x20",;\\\x7f]')
_TITLE = re.compile(r"<(title|h1)[^>]*>([^<]*)<", re.IGNORECASE)
_BLOCK = re.compile(r"<(script|style|head)\b.*?(</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_MESSAGES = (
    *("detail", "message", "error_description", "error_message", "errormessage", "msg", "reason", "description"),
    *("title", "error", "fault", "faultstring"),
)
"""The members that say what is wrong, the most telling first: RFC 9457, 3.1, RFC 6749, 5.2, and what services write."""
_LISTS = ("errors", "invalid-params", "invalid_params", "violations", "details", "error", "detail", "causes")
_PLACES = ("loc", "pointer", "field", "name", "path", "param", "parameter", "property", "location", "source")
_CODES = ("code", "type", "status")
_MAX_DEPTH = 4
_MAX_MESSAGES = 10
logger: logging.Logger = logging.getLogger("deltamcp")
_VARIABLE = re.compile(r"\$\{(?:keyring:([^{}]+)|([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?)\}")
_DEFAULT_TIMEOUT_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024
"""The same response in memory as values takes some five times as much."""
_MAX_ERROR_BYTES = 16 * 1024
_MAX_ERROR_CHARS = 500
_MAX_SHOWN_PATH = 200
_MAX_REDIRECTS = 5
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"})
_RETRIED_STATUSES = frozenset({429, 503})
_MAX_RETRY_SECONDS = 5
"""A longer wait is the caller's to decide on."""
_TEXT_TYPE = re.compile(r"text/.*|.+\+(xml|yaml)|application/(xml|javascript|yaml|x-yaml|toml|x-ndjson|jsonl|sql)")
ACCEPTED_ENCODINGS = "gzip, deflate"
_ACCEPTED = "application/json, */*;q=0.5"
"""Services that have XML and JSON mostly send the first of them to those who do not choose."""
_PIECE_BYTES = 64 * 1024


class RequestDraft(Struct, frozen=True):
    """A request without its host."""

    method: str
    path: str
    """Begins with `/`, or is empty."""
    query: str = ""
    headers: dict[str, str] = {}
    """Values by name in lower case; that of `content-type` is of the body."""
    body: bytes | None = None

    @property
    def label(self) -> str:
        """What messages call the request."""
        return f"{self.method} {self.path[:_MAX_SHOWN_PATH]}"


class ServiceResponse(Struct, frozen=True):
    """A response that is no refusal."""

    value: Any
    """JSON as Python values, text as text, other types as content; None if it is empty."""
    status: int
    kind: str
    """Its media type, in lower case and without parameters."""
    links: str
    """Its `Link` header."""


def draft_request(
    handler: HttpHandler, arguments: dict[str, JSON], content_type: str = "application/json"
) -> RequestDraft:
    """Drafts the request for an operation's arguments.

    Args:
        content_type: The type of a body that is no form, unless a parameter has the header.

    Raises:
        ToolError: an argument is missing, or its place in the request does not allow its value.
    """
    placed = [(handler.place_of(parameter), value) for parameter, value in arguments.items()]
    template, _, fixed = handler.path.partition("?")
    in_path = {place.name: _path_text(place.name, value) for place, value in _arguments_in("path", placed)}
    headers = {place.name.lower(): _header_text(place.name, value) for place, value in _arguments_in("header", placed)}
    cookies = "; ".join(
        f"{place.name}={_cookie_text(place.name, value)}" for place, value in _arguments_in("cookie", placed)
    )
    if cookies:
        headers["cookie"] = cookies
    return RequestDraft(
        method=handler.method,
        path=fill_path(template, in_path),
        query="&".join(
            part for part in (_fill_template(fixed, in_path), _encode_pairs(_arguments_in("query", placed))) if part
        ),
        headers=headers,
        body=_encode_body(placed, headers, content_type),
    )


def _encode_body(placed: list[tuple[ParameterPlace, JSON]], headers: dict[str, str], content_type: str) -> bytes | None:
    """Returns the body, and adds its type to the headers."""
    form = _encode_pairs(_arguments_in("form", placed))
    if form:
        headers.setdefault("content-type", FORM_TYPE)
        return form.encode()
    members = {place.name: value for place, value in placed if place.location == "body"}
    if not members:
        return None
    value = members.get("*", members)
    given_type = headers.setdefault("content-type", content_type)
    if isinstance(value, str) and not JSON_TYPE.fullmatch(media_type(given_type)):
        return value.encode()
    return jsonrpc.encode(value)


def _arguments_in(location: str, placed: Iterable[tuple[ParameterPlace, JSON]]) -> list[tuple[ParameterPlace, JSON]]:
    """Returns the arguments that go to one location; null arguments are left out."""
    return [(place, value) for place, value in placed if place.location == location and value is not None]


def _path_text(name: str, value: JSON) -> str:
    items = value if isinstance(value, list) else [value]
    piece = ",".join(quote(text_of(item), safe="") for item in items)
    if not piece:
        raise ToolError(f"The parameter {name} is part of an address and must not be empty.")
    return piece


def _fill_template(template: str, pieces: Mapping[str, str]) -> str:
    def piece(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in pieces:
            raise ToolError(f"The parameter {name} is part of the address and must be given.")
        return pieces[name]

    return PLACEHOLDER.sub(piece, template)


def fill_path(template: str, pieces: Mapping[str, str]) -> str:
    """Fills the arguments in a path into their places.

    Raises:
        ToolError: one is missing, or would make a segment that leads to another path.
    """
    filled = [(segment, _fill_template(segment, pieces)) for segment in template.split("/")]
    for segment, text in filled:
        if segment != text and text in (".", ".."):
            raise ToolError(f"A parameter in the address must not be {text!r}.")
    return "/".join(text for _, text in filled)


def _header_text(name: str, value: JSON) -> str:
    text = ", ".join(map(text_of, value)) if isinstance(value, list) else text_of(value)
    if UNPRINTABLE.search(text):
        raise ToolError(f"The parameter for the header {name} must not have line breaks or control characters.")
    return text


def _cookie_text(name: str, value: JSON) -> str:
    text = text_of(value)
    if _COOKIE_UNSAFE.search(text):
        raise ToolError(f"The parameter for the cookie {name} must not have spaces, quotes, commas or semicolons.")
    return text


def _encode_pairs(placed: Iterable[tuple[ParameterPlace, JSON]]) -> str:
    pairs = [
        (place.name, text_of(item))
        for place, value in placed
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    return urlencode(pairs, quote_via=quote)


def text_of(value: JSON) -> str:
    """Returns a value as text: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else jsonrpc.encode(value).decode()


def fill_variables(text: str, environment: Mapping[str, str]) -> str:
    """Fills in the variables of a text; `${NAME:-other}` becomes `other` where the variable is not set.

    `${keyring:NAME}` becomes what the user's keyring has under that name.

    Raises:
        ConfigurationError: a variable is not set and has no default, or the keyring has no such secret.
    """

    def value(match: re.Match[str]) -> str:
        secret, name, default = match.groups()
        if secret is not None:
            found = load_secret(secret)
            if found is None:
                raise ConfigurationError(
                    f"Your keyring does not have the secret {secret}; `delta-mcp secret set {secret}` puts it there."
                )
            return found
        filled = environment.get(name, default)
        if filled is None:
            raise ConfigurationError(f"The environment variable {name} is not set; set it, or write ${{{name}:-...}}.")
        return filled

    return _VARIABLE.sub(value, text)


def variable_values(texts: Iterable[str], environment: Mapping[str, str]) -> set[str]:
    """Returns the values of the variables in some texts, and the secrets of the keyring there."""
    found = [match.groups() for text in texts for match in _VARIABLE.finditer(text)]
    names = {name for _, name, _ in found if name} - {"PYTHON"}
    secrets = {value for secret, _, _ in found if secret and (value := load_secret(secret))}
    return {environment[name] for name in names if environment.get(name)} | secrets


class ServiceRefusedError(UpstreamError):
    """A service answered with an error. Callers can recognize a rate limit by the status and the headers."""

    def __init__(self, message: str, response: "httpx2.Response") -> None:
        super().__init__(message, retryable=response.status_code >= 500)
        self.status: int = response.status_code
        self.headers: httpx2.Headers = response.headers


class HttpService:
    """Calls one service through a pool of connections, which opens with the first call."""

    def __init__(
        self,
        service: ServiceEntry,
        environment: Mapping[str, str],
        computations: Computations,
        limits: Limits,
        secrets: Iterable[str] = (),
        rule: "AddressRule | None" = None,
    ) -> None:
        """
        Args:
            computations: Decodes large responses.
            limits: Bounds the values of JSON in a response.
            secrets: Further texts that no result and no message may have.
            rule: Says which addresses the service may be at; by default any, because its user named it.

        Raises:
            ConfigurationError: a variable is not set, or its value cannot be used.
        """
        base, _, self._query = fill_variables(service.base_url, environment).partition("?")
        self._base = base.rstrip("/")
        if not re.fullmatch(r"https?://[^/\s]\S*", self._base):
            raise ConfigurationError(
                f"The base_url {service.base_url!r} must give an address that begins with http:// or https://."
            )
        self._headers = {
            name.lower(): fill_variables(text, environment).strip() for name, text in service.headers.items()
        }
        for name, text in self._headers.items():
            if UNPRINTABLE.search(text):
                raise ConfigurationError(f"The header {name} gets a value with line breaks; correct its variable.")
        values = variable_values([service.base_url, *service.headers.values()], environment)
        self._secrets = Secrets(
            [
                *secrets,
                *variable_secrets(values),
                *address_secrets(f"{base}?{self._query}"),
                *named_secrets(self._headers),
            ]
        )
        refusal = None if rule is None else rule.refusal(self._base)
        if refusal is not None:
            raise ConfigurationError(f"{refusal}; set base_url, or add it to hosts, if that is where the API is.")
        self._rule = None if rule is None or rule.is_free(self._base) or _has_proxy(self._base) else rule
        self._computations = computations
        self._limits = limits
        self._timeout_seconds = service.timeout or _DEFAULT_TIMEOUT_SECONDS
        self._client: httpx2.AsyncClient | None = None

    async def call(self, handler: HttpHandler, arguments: dict[str, JSON], pages: PageArguments | None = None) -> Any:
        """Sends the request of an operation of an operations file; returns the value of the response.

        If there is a next page, it returns a `ServiceResult` that says how to ask for it.

        Args:
            pages: The arguments by which pages are asked for.

        Raises:
            ToolError: as `perform`.
        """
        content_type = self._headers.get("content-type", "application/json")
        response = await self.perform(draft_request(handler, arguments, content_type))
        following = None if pages is None else next_arguments(response.value, response.links, arguments, pages)
        return response.value if following is None else ServiceResult(response.value, following)

    @property
    def own_parameters(self) -> frozenset[str]:
        """The parameters that the service's address has in every query."""
        return frozenset(name for name, _ in parse_qsl(self._query, keep_blank_values=True))

    async def perform(self, draft: RequestDraft) -> ServiceResponse:
        """Sends a request and returns the response.

        Raises:
            ToolError: the service refused or could not be reached, or the arguments do not fit into a request.
        """
        import httpx2  # 60 ms to import, needed only by operations of HTTP services

        name = draft.label
        try:
            request = self._build_request(draft)
        except httpx2.InvalidURL:
            raise ToolError(f"{name} cannot have an address with these arguments; send shorter ones.") from None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(request, name, draft.path)
        except (TimeoutError, httpx2.TimeoutException):
            raise UpstreamError(
                f"{name} took longer than {self._timeout_seconds:g} s; try again later.", retryable=True
            ) from None
        except (httpx2.HTTPError, UnreadableBodyError):
            raise UpstreamError(
                f"{name} broke off before its answer was complete; try again later.", retryable=True
            ) from None
        except (MessageBoundError, TooManyValuesError):
            bounds = f"{MAX_VALUES:,} values or {self._limits.depth} levels of JSON"
            raise UpstreamError(f"{name} answered with more than {bounds}; ask for less.") from None
        except WorkLimitError:
            raise UpstreamError(f"{name} answered with too much; ask for less.") from None

    def learn_secret(self, text: str) -> None:
        """Adds a text that no result and no message may have, such as a token that was issued just now."""
        self._secrets.learn(text)

    async def close(self) -> None:
        """Closes the pool; a later call opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open_client(self) -> "httpx2.AsyncClient":
        if self._client is None:
            # A cookie from the response to one caller must not be sent with another caller's request.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            headers = {"user-agent": "delta-mcp", "accept": _ACCEPTED, "accept-encoding": ACCEPTED_ENCODINGS}
            connect = None if self._rule is None else self._rule.connect
            self._client = quiet_client(connect, timeout=self._timeout_seconds, cookies=jar, headers=headers)
        return self._client

    def _build_request(self, draft: RequestDraft) -> "httpx2.Request":
        query = "&".join(part for part in (self._query, draft.query) if part)
        headers = self._headers | draft.headers
        if "cookie" in self._headers and "cookie" in draft.headers:
            headers["cookie"] = f"{self._headers['cookie']}; {draft.headers['cookie']}"
        return self._open_client().build_request(
            draft.method,
            f"{self._base}{draft.path}{'?' if query else ''}{query}",
            headers=[(key.encode(), text.encode()) for key, text in headers.items()],
            content=draft.body,
        )

    async def _exchange(self, request: "httpx2.Request", name: str, path: str) -> ServiceResponse:
        response = await self._send(request, name)
        try:
            for _ in range(_MAX_REDIRECTS):
                next_request = response.next_request
                if next_request is None:
                    break
                if not _is_same_host(response.request.url, next_request.url):
                    host = self._secrets.redact(next_request.url.host)
                    raise UpstreamError(f"{name} redirects to the host {host}, which is not followed.")
                await response.aclose()
                response = await self._send(next_request, name)
            if response.status_code >= 300:
                raise await self._read_refusal(response, name)
            body, is_whole = await read_body(response, _MAX_RESPONSE_BYTES)
            if not is_whole:
                raise UpstreamError(f"{name} answered with more than {_MAX_RESPONSE_BYTES >> 20} MiB; ask for less.")

            def decode(work: Work) -> Any:
                return self._secrets.redact_result(_decode_body(body, response, path, self._limits, work), work)

            value = await self._computations.run(self._base, decode)
            kind = media_type(response.headers.get("content-type", ""))
            return ServiceResponse(value, response.status_code, kind, response.headers.get("link", ""))
        finally:
            await response.aclose()

    async def _send(self, request: "httpx2.Request", name: str) -> "httpx2.Response":
        """Sends a request; once more if that has no effect twice, and nobody answered or the service asks for that."""
        import httpx2

        attempts = 2 if request.method in _IDEMPOTENT_METHODS else 1
        for attempt in range(attempts):
            try:
                response = await self._open_client().send(request, stream=True)
                seconds = _retry_seconds(response)
                if seconds is None or attempt == attempts - 1 or seconds >= self._timeout_seconds:
                    return response
                await response.aclose()
                await asyncio.sleep(seconds)
            except (httpx2.NetworkError, httpx2.ConnectTimeout, httpx2.RemoteProtocolError) as error:
                reason = self._secrets.redact(str(error)) or type(error).__name__
                logger.warning("%s got no answer: %s", name, reason)
        raise UpstreamError(f"{name} got no answer from the service; try again later.", retryable=True)

    async def _read_refusal(self, response: "httpx2.Response", name: str) -> "ServiceRefusedError":
        try:
            body, is_whole = await read_body(response, _MAX_ERROR_BYTES)
        except UnreadableBodyError:
            body, is_whole = b"", True
        text = _decode_text(body, response).strip() or response.reason_phrase
        if is_whole:
            text = helpful_text(text, media_type(response.headers.get("content-type", "")))
        shown = self._secrets.redact_excerpt(text, is_whole, _MAX_ERROR_CHARS)
        return ServiceRefusedError(f"{name} answered {response.status_code}: {shown}", response)


def helpful_text(text: str, kind: str) -> str:
    """Returns the messages in a body of a media type; the body itself where it has none that are known."""
    if kind.endswith(("/json", "+json")):
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return text
        found = list(dict.fromkeys(_messages(value, 0)))[:_MAX_MESSAGES]
        return "; ".join(found) or text
    if kind in ("text/html", "application/xhtml+xml") or text[:100].lstrip().lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        words = " ".join(html.unescape(title[2] if title else _TAG.sub(" ", _BLOCK.sub(" ", text))).split())
        return words or text
    return text


def _messages(value: Any, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list):
        for item in value[:_MAX_MESSAGES]:
            yield from _messages(item, depth + 1)
    elif isinstance(value, dict):
        yield from _object_messages({str(key).lower(): member for key, member in value.items()}, depth)


def _object_messages(value: dict[str, Any], depth: int) -> Iterator[str]:
    message = next((text for key in _MESSAGES if isinstance(text := value.get(key), str) and text.strip()), None)
    inner = [
        member for key in dict.fromkeys((*_MESSAGES, *_LISTS)) if isinstance(member := value.get(key), dict | list)
    ]
    where = next((_place(value[key]) for key in _PLACES if value.get(key)), "")
    if message is not None:
        code = next((str(value[key]) for key in _CODES if isinstance(value.get(key), str)), "")
        mark = f" ({code})" if code and code not in message and "://" not in code and code != "about:blank" else ""
        yield f"{f'{where}: ' if where and depth else ''}{message.strip()}{mark}"
    for member in inner:
        if isinstance(member, dict) and not any(key in member for key in (*_MESSAGES, *_LISTS)):
            for name, texts in list(member.items())[:_MAX_MESSAGES]:  # such as {"email": ["is taken"]}
                for text in _messages(texts, depth + 1):
                    yield f"{name}: {text}"
        else:
            yield from _messages(member, depth + 1)


def _place(value: Any) -> str:
    if isinstance(value, list):
        return ".".join(str(part) for part in value if isinstance(part, str | int))[:200]
    if isinstance(value, dict):
        return _place(value.get("pointer") or value.get("parameter") or "")
    return str(value)[:200] if isinstance(value, str | int) else ""


def _has_proxy(url: str) -> bool:
    """Whether a proxy of the environment looks the host of a URL up, and decides where it leads."""
    from urllib.request import getproxies, proxy_bypass  # 10 ms to import

    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


def _retry_seconds(response: "httpx2.Response") -> int | None:
    """Returns after how many seconds a service wants the request again, if those are few; else None."""
    text = response.headers.get("retry-after", "").strip()
    is_few = response.status_code in _RETRIED_STATUSES and text.isdecimal() and len(text) <= 2
    return int(text) if is_few and int(text) <= _MAX_RETRY_SECONDS else None


def _is_same_host(source: "httpx2.URL", target: "httpx2.URL") -> bool:
    if source.host != target.host:
        return False
    is_upgrade = (source.scheme, target.scheme) == ("http", "https") and source.port is None and target.port is None
    return is_upgrade or (source.scheme, source.port) == (target.scheme, target.port)


def _decode_body(body: bytes, response: "httpx2.Response", path: str, limits: Limits, work: Work) -> Any:
    """
    Raises:
        MessageBoundError: the body is JSON of too many values, or nested too deeply.
        TooManyValuesError: it may have too many values.
    """
    work.scan(len(body))
    if not body:
        return None
    kind = media_type(response.headers.get("content-type", ""))
    if JSON_TYPE.fullmatch(kind):
        # A result may have more values than a request of a caller, because it is decoded in chunks.
        check_json(body, msgspec.structs.replace(limits, values=MAX_VALUES))
        try:
            return decode_counted(body, work)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode_text(body, response)
    if _TEXT_TYPE.fullmatch(kind) or (not kind and _is_utf8(body)):
        return _decode_text(body, response)
    if kind.startswith("image/"):
        return Image(body, kind)
    if kind.startswith("audio/"):
        return Audio(body, kind)
    # The service's address may contain secrets, so the URI has only the path.
    return EmbeddedResource(BlobResource(f"response:{path}", body, kind or None))


def media_type(header: str) -> str:
    """Returns the media type of a `Content-Type` header, in lower case and without parameters."""
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


class UnreadableBodyError(Exception):
    """A body is compressed in a way that was not accepted, or is not what its headers say."""


async def read_body(response: "httpx2.Response", max_bytes: int) -> tuple[bytes, bool]:
    """Reads at most `max_bytes` of a body; returns them, decompressed, and whether they are the whole body.

    Raises:
        UnreadableBodyError: the body cannot be decompressed.
    """
    body = bytearray()
    async for piece in _pieces(response):
        body += piece
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True


async def _pieces(response: "httpx2.Response") -> AsyncIterator[bytes]:
    """Yields a body in pieces of a limited size: a kilobyte may hold a megabyte."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise UnreadableBodyError
    inflate = None if encoding == "identity" else _Inflate(encoding)
    async for chunk in response.aiter_raw():
        for piece in (chunk,) if inflate is None else inflate.pieces(chunk):
            yield piece
    if inflate is not None:
        inflate.finish()


class _Inflate:
    """Decompresses a body chunk by chunk."""

    def __init__(self, encoding: str) -> None:
        self._is_gzip = encoding != "deflate"
        self._member: Any = None

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        try:
            while chunk:
                if self._member is None or (self._member.eof and self._is_gzip):  # gzip: one member may follow another
                    self._member = zlib.decompressobj(_window_bits(self._is_gzip, chunk))
                yield from self._member_pieces(chunk)
                chunk = self._member.unused_data if self._is_gzip else b""
        except zlib.error as error:
            raise UnreadableBodyError from error

    def _member_pieces(self, chunk: bytes) -> Iterator[bytes]:
        piece = self._member.decompress(chunk, _PIECE_BYTES)
        yield piece
        while self._member.unconsumed_tail or len(piece) == _PIECE_BYTES:
            piece = self._member.decompress(self._member.unconsumed_tail, _PIECE_BYTES)
            yield piece

    def finish(self) -> None:
        if self._member is not None and not self._member.eof:
            raise UnreadableBodyError


def _window_bits(is_gzip: bool, chunk: bytes) -> int:
    if is_gzip:
        return zlib.MAX_WBITS | 16
    # RFC 9110 8.4.1.2: some servers send deflate data without the zlib header.
    return zlib.MAX_WBITS if chunk[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
