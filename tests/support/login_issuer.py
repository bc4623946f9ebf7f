"""An authorization server that users log in to. It does right until it is told otherwise, and MCP servers trust it.

async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
    issuer.protect(fake)
    async with connect(fake.url, auth=OAuth(open_page=issuer.browse, storage=MemoryStorage())) as client: ...
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit

from deltamcp.client.oauth.oauth import LoginPage
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, read_head

METHODS = ("server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call", "GET")


class IssuerRequest(NamedTuple):
    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Route: TypeAlias = Callable[[IssuerRequest], Awaitable[tuple[int, dict[str, str], bytes]]]


def as_json(value: Any, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps(value).encode()


class LoginIssuer:
    """Keeps count of what it gave, and a record of everything that was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.prefix = ""
        """What its codes and tokens begin with."""
        self.asked: list[IssuerRequest] = []
        self.metadata: dict[str, Any] = {}
        """Fields of its metadata that differ from the usual ones; None leaves one out."""
        self.redirect_with: dict[str, str | None] = {}
        """Parameters of the redirect that differ from the usual ones; None leaves one out."""
        self.token_fields: dict[str, Any] = {}
        """Fields of its tokens that differ from the usual ones; None leaves one out."""
        self.accepted: dict[str, str] = {}
        """Valid access tokens, and their scopes."""
        self.refresh_tokens: dict[str, str] = {}
        """Valid refresh tokens, and their scopes; each is good for one use."""
        self.pending_polls = 0
        """How often a device is told to wait."""
        self._codes: dict[str, dict[str, str]] = {}
        self._count = 0
        self.routes: dict[str, Route] = {
            "/.well-known/oauth-authorization-server": self._describe_itself,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._give_tokens,
            "/device": self._start_device,
            "/revoke": self._revoke,
        }

    def of(self, path: str) -> list[IssuerRequest]:
        return [asked for asked in self.asked if asked.path == path]

    def grants(self, grant: str) -> list[dict[str, str]]:
        return [asked.form for asked in self.of("/token") if asked.form.get("grant_type", "").endswith(grant)]

    # MCP servers

    def protect(self, fake: Fake, scope: str | None = None, call_scope: str | None = None, **resource: Any) -> None:
        """Has an MCP server accept only tokens of this issuer.

        Args:
            scope: the scope that every request needs.
            call_scope: the scope that `tools/call` needs beside it.
            resource: fields of the server's metadata that differ from the usual ones.
        """
        place = f"/resource/{urlsplit(fake.url).port}"
        document = {"resource": fake.url, "authorization_servers": [self.url], **resource}

        async def describe(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            return as_json(document)

        self.routes[place] = describe
        where = f'resource_metadata="{self.url}{place}"'

        async def guard(asked: FakeRequest, wire: FakeConnection) -> None:
            token = asked.headers.get("authorization", "").removeprefix("Bearer ")
            needed = [each for each in (scope, call_scope if asked.method == "tools/call" else None) if each]
            if token not in self.accepted:
                wanted = f', scope="{scope}"' if scope else ""
                await wire.answer(
                    401, www_authenticate=f'Basic realm="x", Bearer error="invalid_token"{wanted}, {where}'
                )
            elif not set(needed) <= set(self.accepted[token].split(" ")):
                challenge = f'Bearer error="insufficient_scope", scope="{needed[-1]}", {where}'
                await wire.answer(403, www_authenticate=challenge)
            else:
                await fake.answer(asked, wire)

        for method in METHODS:
            fake.always(method, guard)

    async def browse(self, page: LoginPage) -> None:
        """Does what a browser does whose user agrees at once."""

        def follow() -> None:
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(page.url, timeout=30) as answer:
                answer.read()

        await asyncio.to_thread(follow)

    # Its own pages

    async def _describe_itself(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        usual = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }
        return as_json(_differ(usual, self.metadata))

    async def _register(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        self._count += 1
        return as_json({**asked.json, "client_id": f"client-{self._count}"}, 201)

    async def _authorize(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        self._count += 1
        code = f"{self.prefix}code-{self._count}"
        self._codes[code] = asked.query
        usual = {"code": code, "state": asked.query["state"], "iss": self.url}
        query = urlencode(_differ(usual, self.redirect_with))
        return 302, {"location": f"{asked.query['redirect_uri']}?{query}"}, b""

    async def _start_device(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        page = f"{self.url}/activate"
        return as_json(
            {
                "device_code": "device-code",
                "user_code": "WDJB-MJHT",
                "verification_uri": page,
                "expires_in": 600,
                "interval": 0.01,
            }
        )

    async def _revoke(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        self.refresh_tokens.pop(asked.form["token"], None)
        return as_json({})

    async def _give_tokens(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        form = asked.form
        scope = form.get("scope", "")
        match form["grant_type"]:
            case "authorization_code":
                request = self._codes.pop(form["code"], None)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if request is None or challenge != request["code_challenge"] or "resource" not in form:
                    return as_json({"error": "invalid_grant"}, 400)
                scope = request.get("scope", "")
            case "refresh_token":
                kept = self.refresh_tokens.pop(form["refresh_token"], None)
                if kept is None:
                    self.refresh_tokens.clear()  # a second use tells of a theft
                    return as_json({"error": "invalid_grant"}, 400)
                scope = kept
            case "urn:ietf:params:oauth:grant-type:device_code":
                if self.pending_polls:
                    self.pending_polls -= 1
                    return as_json({"error": "authorization_pending"}, 400)
                scope = self.of("/device")[-1].form.get("scope", "")
            case _:
                pass
        self._count += 1
        access, refresh = f"{self.prefix}access-{self._count}", f"{self.prefix}refresh-{self._count}"
        usual = {"access_token": access, "refresh_token": refresh, "scope": scope}
        given = _differ({"token_type": "Bearer", "expires_in": 3600, **usual}, self.token_fields)
        if isinstance(given.get("access_token"), str):
            self.accepted[given["access_token"]] = scope
        if isinstance(given.get("refresh_token"), str):
            self.refresh_tokens[given["refresh_token"]] = scope
        return as_json(given)

    # HTTP

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            verb, target, headers = await read_head(reader)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            parts = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked = IssuerRequest(verb, parts.path, query, headers, body)
            self.asked.append(asked)
            route = self.routes.get(asked.path)
            status, more, answer = await route(asked) if route is not None else (404, {}, b"")
            told = "".join(f"{name}: {value}\r\n" for name, value in more.items())
            head = f"HTTP/1.1 {status} Said\r\n{told}content-length: {len(answer)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the end of a connection is never a mistake here
        finally:
            writer.close()


def _differ(usual: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**usual, **other}.items() if value is not None}


@contextlib.asynccontextmanager
async def serve_login_issuer() -> AsyncIterator[LoginIssuer]:
    issuer = LoginIssuer()
    server = await asyncio.start_server(issuer.serve_connection, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        server.close()
