"""How tokens are got from an authorization server: who the client is there, the request, and how a user logs in for it.

The user logs in by a code that the browser brings back (OAuth 2.1, 4.1), or on another device (RFC 8628).
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import re
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeGuard
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from msgspec import Struct

from deltamcp.auth.safe_url import is_loopback, read_address
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import OFFLINE_ACCESS, IssuerDocument, read_scopes
from deltamcp.client.oauth.oauth import LoginPage, OAuth
from deltamcp.client.oauth.token_storage import ClientAuthMethod, ClientIdentity, IssuedTokens
from deltamcp.errors import ConfigurationError, UnauthorizedError

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_BEARER_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_ERROR_CODE = re.compile(r"[a-z_:.\-]{1,60}")
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 300
_SECRET_METHODS: tuple[ClientAuthMethod, ...] = ("client_secret_basic", "client_secret_post")
_CLIENT_TEXT = re.compile(r"[\x20-\x7e]{1,1024}")
"""Ids and secrets (RFC 6749, A.1 and A.2); longer ones make addresses that browsers do not open."""


# Who the client is (MCP, "Client Registration")


async def identify_client(
    http: JsonHttp,
    oauth: OAuth,
    issuer: IssuerDocument,
    stored: ClientIdentity | None,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> ClientIdentity:
    """Returns the client's identity: given by the program, a document of its own, stored, or registered now.

    Args:
        redirect_uri: where the user comes back to; empty if the grant has no such address.

    Raises:
        UnauthorizedError: the authorization server knows none of these ways, or refuses the registration.
    """
    if oauth.client_id is not None:
        return _given_identity(oauth, issuer, oauth.client_id, redirect_uri)
    if oauth.client_metadata_url is not None and issuer.client_id_metadata_document_supported:
        return ClientIdentity(oauth.client_metadata_url, redirect_uri=redirect_uri)
    if stored is not None and stored.is_dynamic and _is_usable(stored, redirect_uri, scopes):
        return stored
    if issuer.registration_endpoint is not None:
        return await _register(http, oauth, issuer, redirect_uri, scopes)
    raise UnauthorizedError(
        f"The authorization server {issuer.issuer[:200]} lets no client register itself; get a client id from who runs "
        "it, and give it."
    )


def _given_identity(oauth: OAuth, issuer: IssuerDocument, client_id: str, redirect_uri: str) -> ClientIdentity:
    if oauth.client_key is not None:
        return ClientIdentity(client_id, "private_key_jwt", oauth.client_key, redirect_uri=redirect_uri)
    if oauth.client_secret is None:
        return ClientIdentity(client_id, redirect_uri=redirect_uri)
    method = _choose_secret_method(issuer) or "client_secret_basic"
    return ClientIdentity(client_id, method, oauth.client_secret, redirect_uri=redirect_uri)


def _choose_secret_method(issuer: IssuerDocument) -> ClientAuthMethod | None:
    """Returns how the authorization server would have a secret sent; the first that it names, which it knows best."""
    # RFC 8414, 2: without the field, it is `client_secret_basic`.
    supported = issuer.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    return min((method for method in _SECRET_METHODS if method in supported), key=supported.index, default=None)


def _is_usable(stored: ClientIdentity, redirect_uri: str, scopes: tuple[str, ...]) -> bool:
    """Whether an earlier registration serves this login; authorization servers may compare ports and limit scopes."""
    return (
        not stored.is_expired
        and redirect_uri == stored.redirect_uri
        and (stored.scope is None or set(scopes) <= set(read_scopes(stored.scope)))
    )


async def _register(
    http: JsonHttp, oauth: OAuth, issuer: IssuerDocument, redirect_uri: str, scopes: tuple[str, ...]
) -> ClientIdentity:
    """Registers the client (RFC 7591)."""
    assert issuer.registration_endpoint is not None, "the caller has looked"
    is_public = "none" in (issuer.token_endpoint_auth_methods_supported or ())
    method: ClientAuthMethod = "none" if is_public else _choose_secret_method(issuer) or "none"
    request: dict[str, Any] = {
        "client_name": oauth.client_name,
        "redirect_uris": [redirect_uri] if redirect_uri else [],
        "grant_types": ["authorization_code" if redirect_uri else DEVICE_CODE, "refresh_token"],
        "response_types": ["code"] if redirect_uri else [],
        "token_endpoint_auth_method": method,
        # MCP 2026-07-28, "Application Type": without it, OpenID Connect refuses addresses of this machine.
        "application_type": "native" if is_loopback(urlsplit(redirect_uri).hostname or "localhost") else "web",
    }
    if scopes:
        request["scope"] = " ".join(scopes)
    reply = await http.post_json(issuer.registration_endpoint, request)
    client_id, secret = reply.value.get("client_id"), reply.value.get("client_secret")
    if reply.status not in (200, 201) or not _is_client_text(client_id):
        reason = read_error_code(reply.value) or f"HTTP {reply.status}"
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} refuses to register this client: {reason}; get a client "
            "id from who runs it, and give it."
        )
    agreed = reply.value.get("token_endpoint_auth_method", method)
    expires, scope = reply.value.get("client_secret_expires_at"), reply.value.get("scope")
    return ClientIdentity(
        client_id,
        agreed if agreed in _SECRET_METHODS and _is_client_text(secret) else "none",
        secret if _is_client_text(secret) else None,
        expires if isinstance(expires, int | float) else 0,
        redirect_uri,
        scope if isinstance(scope, str) else None,
        is_dynamic=True,
    )


def _is_client_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _CLIENT_TEXT.fullmatch(value) is not None


# The request


class TokenRefusedError(UnauthorizedError):
    """The token endpoint refused to give a token. `code` says why (OAuth 2.1, 3.2.4)."""

    def __init__(self, issuer: str, code: str) -> None:
        super().__init__(f"The authorization server {issuer[:200]} gives no token: {code}; log in again.")
        self.code = code


async def request_tokens(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    fields: Mapping[str, str],
    scopes: tuple[str, ...],
) -> IssuedTokens:
    """Posts a grant to the token endpoint.

    Args:
        fields: the grant and its parameters.
        scopes: those that were asked for.

    Raises:
        TokenRefusedError: the token endpoint refuses the grant or the client.
        UnauthorizedError: it cannot be reached, or its answer is no token.
    """
    endpoint = find_token_endpoint(http, issuer)
    own_fields, headers = authenticate_client(client, issuer.issuer)
    reply = await http.post_form(endpoint, {**fields, **own_fields}, headers)
    if reply.status != 200:
        raise TokenRefusedError(issuer.issuer, read_error_code(reply.value) or f"HTTP {reply.status}")
    return _read_tokens(reply.value, issuer.issuer, scopes)


def find_token_endpoint(http: JsonHttp, issuer: IssuerDocument) -> str:
    """
    Raises:
        UnauthorizedError: the authorization server names none, or one that it may not name.
    """
    if issuer.token_endpoint is None:
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} names no token endpoint.")
    return http.check_url(issuer.token_endpoint)


def read_error_code(value: Mapping[str, Any]) -> str | None:
    """Returns the code of an OAuth error. Its description is left out: it may quote what the client sent."""
    code = value.get("error")
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None


def authenticate_client(client: ClientIdentity, issuer: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the fields and headers by which a client says who it is."""
    secret = client.client_secret or ""
    match client.auth_method:
        case "none":
            return {"client_id": client.client_id}, {}
        case "client_secret_post":
            return {"client_id": client.client_id, "client_secret": secret}, {}
        case "client_secret_basic":
            # OAuth 2.1, 2.4.1: both are encoded before they are joined, a space so that every decoder reads it.
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}".encode()
            # mcp 2.3 looks for the client by the field.
            return {"client_id": client.client_id}, {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        case "private_key_jwt":
            fields = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": _sign_assertion(client, issuer)}
            return {"client_id": client.client_id, **fields}, {}


def _sign_assertion(client: ClientIdentity, issuer: str) -> str:
    """Returns the signed statement that stands for the client's secret, which is a private key here (RFC 7523, 3)."""
    import jwt  # 60 ms to import
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now = int(time.time())
    claims = {"iss": client.client_id, "sub": client.client_id, "aud": issuer, "jti": str(uuid.uuid4())}
    try:
        key: Any = load_pem_private_key((client.client_secret or "").encode(), None)
        algorithm = (
            {256: "ES256", 384: "ES384", 521: "ES512"}[key.key_size]
            if isinstance(key, EllipticCurvePrivateKey)
            else "RS256"
        )
        return jwt.encode({**claims, "iat": now, "exp": now + _ASSERTION_SECONDS}, key, algorithm)
    except (ValueError, TypeError, KeyError, UnsupportedAlgorithm):  # none of them says more than this
        raise ConfigurationError(
            "The client_key is a private key in PEM without a password: RSA, or EC of P-256, P-384 or P-521."
        ) from None


def _read_tokens(value: Mapping[str, Any], issuer: str, scopes: tuple[str, ...]) -> IssuedTokens:
    access, refresh, scope = value.get("access_token"), value.get("refresh_token"), value.get("scope")
    if not isinstance(access, str) or not _BEARER_TOKEN.fullmatch(access):
        raise UnauthorizedError(f"The authorization server {issuer[:200]} answered without a token.")
    if str(value.get("token_type", "")).lower() != "bearer":
        raise UnauthorizedError(f"The authorization server {issuer[:200]} gave a token that is no bearer token.")
    return IssuedTokens(
        access,
        refresh if isinstance(refresh, str) and _BEARER_TOKEN.fullmatch(refresh) else None,
        read_scopes(scope) if isinstance(scope, str) and scope else scopes,
    )


# The user logs in


class CodeRequest(Struct, frozen=True):
    """One request for a code, with what its answer is checked by."""

    url: str
    """The page that the user opens."""
    issuer: IssuerDocument
    redirect_uri: str
    state: str
    verifier: str

    def __repr__(self) -> str:
        return f"<CodeRequest to {self.issuer.issuer}>"


def make_code_request(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    resource: str,
    scopes: tuple[str, ...],
    state: str,
) -> CodeRequest:
    """
    Raises:
        UnauthorizedError: the authorization server has no PKCE with S256, which MCP demands, or no page to open.
    """
    if "S256" not in (issuer.code_challenge_methods_supported or ()):
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} does not say that it has PKCE with S256; ask who runs it."
        )
    if issuer.authorization_endpoint is None:
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} names no page to log in at.")
    endpoint = http.check_url(issuer.authorization_endpoint).partition("#")[0]
    verifier = secrets.token_urlsafe(64)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "state": state,
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if OFFLINE_ACCESS in scopes:
        query["prompt"] = "consent"  # OpenID Connect Core, 11: without it, the scope is ignored
    # OAuth 2.1, 1.4.1: no parameter occurs twice; a page could be opened with another's address to come back to.
    if query.keys() & parse_qs(urlsplit(endpoint).query, keep_blank_values=True).keys():
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} names a page that answers for the client; ask who runs it."
        )
    url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    return CodeRequest(url, issuer, client.redirect_uri, state, verifier)


def make_state() -> str:
    """Returns a text that only the page's answer can know."""
    return secrets.token_urlsafe(32)


def has_state(url: str, state: str) -> bool:
    """Whether an address that a browser asked for belongs to a request with this state."""
    return hmac.compare_digest((_read_query(url).get("state") or "").encode(), state.encode())


def read_code(request: CodeRequest, redirected: str) -> str:
    """Returns the code from the address that the browser was sent to.

    Raises:
        UnauthorizedError: this is the answer to another request or of another authorization server, or the user or the
            authorization server refused.
    """
    query = _read_query(redirected)
    if not has_state(redirected, request.state):
        raise UnauthorizedError("The page that came back belongs to another login; log in again.")
    _check_issuer(request.issuer, query.get("iss"))
    if "error" in query:
        code = read_error_code(query) or "it does not say why"
        if code == "access_denied":
            raise UnauthorizedError("The login was refused, by you or the authorization server.")
        raise UnauthorizedError(f"The authorization server {request.issuer.issuer[:200]} refuses the login: {code}.")
    code_ = query.get("code")
    if not code_:
        raise UnauthorizedError(f"The authorization server {request.issuer.issuer[:200]} sent no code back.")
    return code_


def _check_issuer(issuer: IssuerDocument, named: str | None) -> None:
    """Refuses the answer of another authorization server (RFC 9207; MCP 2026-07-28, "Response Validation")."""
    if named is None and not issuer.authorization_response_iss_parameter_supported:
        return
    if named != issuer.issuer:  # the very same text: no normalization
        raise UnauthorizedError(
            f"The page that came back is not from the authorization server {issuer.issuer[:200]}; do not log in there."
        )


def _read_query(url: str) -> dict[str, str]:
    """Returns the parameters of an address; one that occurs twice is empty, and so never right (OAuth 2.1, 1.4.1)."""
    try:
        query = parse_qs(urlsplit(url).query, keep_blank_values=True, max_num_fields=50, errors="replace")
    except ValueError:
        return {}
    return {name: values[0] if len(values) == 1 else "" for name, values in query.items()}


_USER_CODE = re.compile(r"[A-Za-z0-9-]{1,64}")
"""RFC 8628, 6.1; other characters could be taken for a part of the sentence that shows the code."""
_INTERVAL_SECONDS, _MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 5.0, 1.0, 60.0
_SLOW_DOWN_SECONDS = 5.0


async def log_in_by_device(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    resource: str,
    scopes: tuple[str, ...],
    show: Callable[[LoginPage], Awaitable[object]],
    max_seconds: float,
) -> IssuedTokens:
    """
    Raises:
        UnauthorizedError: the authorization server has no such grant, or the user refused or did not log in in time.
    """
    if issuer.device_authorization_endpoint is None:
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} offers no login on another device; use a browser."
        )
    own_fields, headers = authenticate_client(client, issuer.issuer)
    fields = {"resource": resource, **own_fields}
    if scopes:
        fields["scope"] = " ".join(scopes)
    reply = await http.post_form(issuer.device_authorization_endpoint, fields, headers)
    device_code, user_code = reply.value.get("device_code"), reply.value.get("user_code")
    page, full_page = reply.value.get("verification_uri"), reply.value.get("verification_uri_complete")
    if reply.status != 200 or not isinstance(device_code, str) or not isinstance(page, str):
        reason = read_error_code(reply.value) or f"HTTP {reply.status}"
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} refuses the login: {reason}.")
    if not isinstance(user_code, str) or not _USER_CODE.fullmatch(user_code):
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} sent no code for the user.")
    url = full_page if isinstance(full_page, str) else page
    await show(LoginPage(http.check_url(page), user_code, http.check_url(url)))
    grant = {"grant_type": DEVICE_CODE, "device_code": device_code, "resource": resource}
    interval = _read_seconds(reply.value.get("interval"), _INTERVAL_SECONDS)
    seconds = min(max_seconds, _read_seconds(reply.value.get("expires_in"), max_seconds))
    try:
        async with asyncio.timeout(seconds):
            while True:
                await asyncio.sleep(max(_MIN_INTERVAL_SECONDS, min(interval, _MAX_INTERVAL_SECONDS)))
                try:
                    return await request_tokens(http, issuer, client, grant, scopes)
                except TokenRefusedError as error:
                    if error.code == "slow_down":
                        interval += _SLOW_DOWN_SECONDS
                    elif error.code != "authorization_pending":
                        raise
    except TimeoutError:
        raise UnauthorizedError(f"Nobody logged in within {seconds:g} s; try again.") from None


def _read_seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 86400 else default


_ANY_URI = "http://127.0.0.1/callback"
_MAX_HEAD_BYTES = 16 * 1024
_READ_SECONDS = 5.0
_MAX_CONNECTIONS = 16
"""Browsers ask for icons beside the page, and open connections that they do not use. A further connection takes the
place of the one that has said nothing for longest: else whoever opens that many keeps the browser from coming back."""
_REQUEST_LINE = re.compile(rb"GET (/[\x21-\x7e]*) HTTP/1\.[01]\r\n")
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: system-ui; max-width: 34em; margin: 4em auto"><h1>{title}</h1><p>{text}</p></body></html>"""
_DONE = _PAGE.format(title="Back to your program", text="You can close this page, and return to the program.")
_UNKNOWN = _PAGE.format(title="Not here", text="This address is only for a login that is under way.")


class RedirectListener:
    """Waits for one request with the right state; answers any other with a page that says nothing."""

    def __init__(self, redirect_uri: str, state: str) -> None:
        self.redirect_uri = redirect_uri
        self._path = urlsplit(redirect_uri).path or "/"
        self._state = state
        self._redirected: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """The connections that have not sent a request yet, the oldest first."""

    async def wait(self, seconds: float) -> str:
        """Returns the address that the browser asked for.

        Raises:
            UnauthorizedError: the browser did not come back in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._redirected
        except TimeoutError:
            raise UnauthorizedError(f"Nobody logged in within {seconds:g} s; try again.") from None

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._silent) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._silent.pop(writer, None)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        line = _REQUEST_LINE.match(head)
        target = "" if line is None else line[1].decode("ascii")
        if target.partition("?")[0] != self._path or not has_state(target, self._state):
            return _response("404 Not Found", _UNKNOWN)
        if not self._redirected.done():
            self._redirected.set_result(target)
        return _response("200 OK", _DONE)


def _response(status: str, page: str) -> bytes:
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
        "content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def listen_for_redirect(redirect_uri: str, preferred_uri: str, state: str) -> AsyncIterator[RedirectListener]:
    """Listens on this machine while the login is under way.

    Args:
        redirect_uri: the http address that the program demands, at any free port if it has none; empty for any.
        preferred_uri: an address that an earlier registration names, taken if its port is free; empty for none.

    Raises:
        UnauthorizedError: the port of `redirect_uri` is taken.
    """
    listener: RedirectListener | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if listener is None:
            writer.close()
        else:
            await listener.serve_connection(reader, writer)

    server = await _bind(serve, redirect_uri, preferred_uri)
    demanded = urlsplit(redirect_uri or _ANY_URI)
    if demanded.port is None:  # RFC 8252, 7.3: an authorization server allows any port
        demanded = demanded._replace(netloc=f"{demanded.netloc}:{server.sockets[0].getsockname()[1]}")
    listener = RedirectListener(demanded.geturl(), state)
    try:
        yield listener
    finally:
        server.close()


async def _bind(serve: object, redirect_uri: str, preferred_uri: str) -> asyncio.Server:
    for uri in (redirect_uri,) if redirect_uri else (preferred_uri, _ANY_URI):
        parts = urlsplit(uri)
        if not is_loopback(parts.hostname or ""):
            continue
        host = str(parts.hostname) if redirect_uri and read_address(str(parts.hostname)) else "127.0.0.1"
        try:
            return await asyncio.start_server(serve, host, parts.port or 0, limit=_MAX_HEAD_BYTES)  # type: ignore[arg-type]
        except OSError as error:
            if uri != preferred_uri:
                reason = error.strerror or "no reason is known"
                raise UnauthorizedError(f"The browser cannot come back to this machine: {reason}.") from None
    raise AssertionError("the last attempt returns or raises")
