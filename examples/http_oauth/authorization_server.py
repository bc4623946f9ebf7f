"""An authorization server for development only: it lets in whoever types a name, and forgets all when it ends.

It has what an MCP client and server ask of one: metadata (RFC 8414), keys (RFC 7517), registration of clients (RFC
7591), authorization codes with PKCE (RFC 7636) for one resource (RFC 8707), refresh tokens, and access tokens as RFC
9068 has them. In public, use a product that people maintain.

    python -m examples.http_oauth.authorization_server        # from the root of the repository
"""

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

PORT = 9000
CODE_SECONDS = 60
TOKEN_SECONDS = 300
MAX_BODY_BYTES = 64 * 1024
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PAGE = """<!doctype html><title>Log in</title>
<p>{client} asks to act for you at {resource} with {scope}.</p>
<form method="post" action="/authorize">{hidden}<input name="user" placeholder="your name" required>
<button>Allow</button></form>
"""


class RequestError(Exception):
    """A request is refused with an error of RFC 6749, 5.2."""


class Grant(NamedTuple):
    """What a user has allowed a client."""

    client_id: str
    user: str
    scope: str
    resource: str
    expires_at: float
    redirect_uri: str = ""
    challenge: str = ""


class AuthorizationServer:
    """Listens on this machine, in a thread, while it is entered."""

    def __init__(self, port: int = PORT) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"server_of": self}))
        self.issuer = f"http://127.0.0.1:{self._http.server_port}"
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = secrets.token_hex(8)
        self._redirect_uris: dict[str, list[str]] = {}
        self._codes: dict[str, Grant] = {}
        self._refresh_tokens: dict[str, Grant] = {}

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def make_token(self, user: str, scope: str, resource: str, client_id: str = "curl") -> str:
        """Returns an access token for a resource."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": user,
            "aud": resource,
            "scope": scope,
            "client_id": client_id,
            "iat": now,
            "exp": now + TOKEN_SECONDS,
            "jti": secrets.token_hex(16),
        }
        return jwt.encode(claims, self._key, "RS256", {"typ": "at+jwt", "kid": self._key_id})

    # What its addresses answer

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def key_set(self) -> dict[str, Any]:
        public = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(self._key.public_key()))
        return {"keys": [{**public, "kid": self._key_id, "use": "sig", "alg": "RS256"}]}

    def register(self, about: dict[str, Any]) -> dict[str, Any]:
        uris = about.get("redirect_uris") or []
        if not uris or any(urlsplit(uri).hostname not in LOOPBACK for uri in uris):
            raise RequestError("invalid_redirect_uri")
        client_id = secrets.token_urlsafe(16)
        self._redirect_uris[client_id] = uris
        return {**about, "client_id": client_id, "token_endpoint_auth_method": "none"}

    def login_page(self, asked: dict[str, str]) -> str:
        self._check_authorization(asked)
        hidden = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in asked.items()
        )
        shown = {name: html.escape(asked.get(name, "")) for name in ("client_id", "resource", "scope")}
        return PAGE.format(client=shown["client_id"], resource=shown["resource"], scope=shown["scope"], hidden=hidden)

    def authorize(self, asked: dict[str, str]) -> str:
        """Returns the address that the browser is sent to."""
        self._check_authorization(asked)
        code = secrets.token_urlsafe(32)
        self._codes[code] = Grant(
            asked["client_id"],
            asked["user"],
            asked.get("scope", ""),
            asked["resource"],
            time.time() + CODE_SECONDS,
            asked["redirect_uri"],
            asked["code_challenge"],
        )
        query = {"code": code, "state": asked.get("state", ""), "iss": self.issuer}
        return f"{asked['redirect_uri']}?{urlencode(query)}"

    def _check_authorization(self, asked: dict[str, str]) -> None:
        if asked.get("redirect_uri") not in self._redirect_uris.get(asked.get("client_id", ""), ()):
            raise RequestError("invalid_client")
        if asked.get("response_type") != "code" or asked.get("code_challenge_method") != "S256":
            raise RequestError("invalid_request")
        if not asked.get("code_challenge") or not asked.get("resource"):
            raise RequestError("invalid_request")

    def exchange(self, asked: dict[str, str]) -> dict[str, Any]:
        """Returns tokens for a code or a refresh token, either of which can be used once."""
        match asked.get("grant_type"):
            case "authorization_code":
                grant = self._codes.pop(asked.get("code", ""), None)
                digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                given = (challenge, asked.get("redirect_uri"))
                if grant is None or given != (grant.challenge, grant.redirect_uri):
                    raise RequestError("invalid_grant")
            case "refresh_token":
                grant = self._refresh_tokens.pop(asked.get("refresh_token", ""), None)
            case _:
                raise RequestError("unsupported_grant_type")
        if grant is None or grant.client_id != asked.get("client_id") or grant.expires_at < time.time():
            raise RequestError("invalid_grant")
        if asked.get("resource", grant.resource) != grant.resource:
            raise RequestError("invalid_target")
        refresh = secrets.token_urlsafe(32)
        self._refresh_tokens[refresh] = grant._replace(expires_at=time.time() + 3600)
        return {
            "access_token": self.make_token(grant.user, grant.scope, grant.resource, grant.client_id),
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
            "refresh_token": refresh,
            "scope": grant.scope,
        }


class _Handler(BaseHTTPRequestHandler):
    """Reads requests, and writes what the server answers."""

    server_of: ClassVar[AuthorizationServer]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        try:
            match path:
                case "/.well-known/oauth-authorization-server":
                    self._send_json(self.server_of.metadata())
                case "/jwks":
                    self._send_json(self.server_of.key_set())
                case "/authorize":
                    self._send(200, "text/html; charset=utf-8", self.server_of.login_page(dict(parse_qsl(query))))
                case _:
                    self._send_json({"error": "not_found"}, 404)
        except RequestError as error:
            self._send_json({"error": str(error)}, 400)

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        if not 0 <= size <= MAX_BODY_BYTES:
            self._send_json({"error": "invalid_request"}, 413)
            return
        body = self.rfile.read(size).decode()
        try:
            match self.path:
                case "/register":
                    self._send_json(self.server_of.register(json.loads(body)), 201)
                case "/authorize":
                    self._redirect(self.server_of.authorize(dict(parse_qsl(body))))
                case "/token":
                    self._send_json(self.server_of.exchange(dict(parse_qsl(body))))
                case _:
                    self._send_json({"error": "not_found"}, 404)
        except (RequestError, KeyError, ValueError) as error:
            self._send_json({"error": str(error) if isinstance(error, RequestError) else "invalid_request"}, 400)

    def _redirect(self, address: str) -> None:
        self.send_response(303)
        self.send_header("location", address)
        self.send_header("content-length", "0")
        self.end_headers()

    def _send_json(self, value: dict[str, Any], status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(value))

    def _send(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: addresses have codes in them."""


if __name__ == "__main__":
    with AuthorizationServer() as running:
        print(f"The authorization server is {running.issuer} (Ctrl-C stops)")
        threading.Event().wait()
