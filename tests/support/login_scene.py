"""A login that somebody attacks: the client, its user, an MCP server, an honest authorization server and a hostile one.

The user has logged in at the honest one before. Whatever the server and the hostile one are sent is on record.
"""

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import httpx2

from deltamcp.client.oauth.oauth import LoginPage, OAuth
from deltamcp.client.oauth.server_access import ServerAccess, server_key
from deltamcp.client.oauth.token_storage import MemoryStorage, decode_record
from tests.support.authorization_server import AuthorizationServer
from tests.support.browser import Browser
from tests.support.conditions import HANG_SECONDS
from tests.support.login_issuer import IssuerRequest, LoginIssuer, as_json, serve_login_issuer
from tests.support.named_hosts import NamedHosts

BACK = "https://app.example/back"
PATH = "/tenant/mcp"
DOCUMENT = f"/.well-known/oauth-protected-resource{PATH}"
SECRET = "s3cret-of-the-program"


@dataclass
class LoginScene:
    server: LoginIssuer
    """The host of the MCP server, with what it says about its protection."""
    evil: LoginIssuer
    good_url: str
    good_page: str
    """The page at which users of the honest authorization server log in."""
    registration: str
    """Where clients register there, as this machine reaches it."""
    good: LoginIssuer | None = None
    """The honest authorization server, where it is a fake."""
    hosts: NamedHosts | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Of `OAuth`, beside the usual ones."""
    resource: dict[str, Any] = field(default_factory=dict)
    """Fields of the server's metadata that differ from the usual ones; ... leaves one out."""
    challenge: str = ""
    tamper: Callable[[str], str] = str
    """Changes the address that the browser comes back to."""
    is_careful: bool = False
    """Whether the user goes no further than to a page with a warning."""
    pages: list[LoginPage] = field(default_factory=list)
    sleeps: list[float] = field(default_factory=list)
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    secrets: set[str] = field(default_factory=lambda: {SECRET})
    """What only the honest authorization server may get."""

    @property
    def url(self) -> str:
        return f"{self.server.url}{PATH}"

    def access(self) -> ServerAccess:
        usual = {"grant": "authorization_code", "open_page": self._browse, "redirect_uri": BACK, "login_seconds": 30}
        return ServerAccess(OAuth(**{**usual, "storage": self.storage, **self.options}), self.url)

    async def log_in_honestly(self) -> None:
        await self.access().log_in(None, self.challenge)
        await self.note_secrets()
        self.pages.clear()

    async def stored_token(self, issuer: str) -> str | None:
        login = decode_record(await self.storage.load(server_key(self.url))).logins.get(issuer)
        return None if login is None or login.tokens is None else login.tokens.access_token

    async def register_at_good(self, asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
        """Registers the client of a request at the honest authorization server: the id is one that it knows."""
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
            answer = await http.post(self.registration, json=asked.json)
        return as_json(answer.json(), answer.status_code)

    async def note_secrets(self) -> None:
        """Takes down what the honest authorization server gave."""
        login = decode_record(await self.storage.load(server_key(self.url))).logins.get(self.good_url)
        if login is not None and login.tokens is not None:
            self.secrets |= {login.tokens.access_token, login.tokens.refresh_token or login.tokens.access_token}

    async def _browse(self, page: LoginPage) -> str | None:
        self.pages.append(page)
        if page.user_code is not None or (self.is_careful and page.warnings):
            return None
        if self.good is None and page.url.startswith(f"{self.good_url}/"):
            query = await Browser("alice").visit(page.url, BACK)
        else:
            query = await self._ask_fake(page.url)
        if page.url.startswith(f"{self.good_url}/"):
            self.secrets.add(query["code"])
        return self.tamper(f"{BACK}?{urlencode(query)}")

    async def _ask_fake(self, url: str) -> dict[str, str]:
        issuer = next(one for one in (self.good, self.evil) if one is not None and url.startswith(f"{one.url}/"))
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        asked = IssuerRequest("GET", parts.path, query, {}, b"")
        issuer.asked.append(asked)
        _, headers, _ = await issuer.routes[parts.path](asked)
        return {name: values[0] for name, values in parse_qs(urlsplit(headers["location"]).query).items()}

    def leaks(self) -> list[str]:
        """What reached anybody but the honest authorization server that is not for them."""
        pages = [page.url for page in self.pages if page.url.startswith(f"{self.good_url}/")]
        challenges = {value for page in pages for value in parse_qs(urlsplit(page).query).get("code_challenge", [])}
        found = [] if self.hosts is None else [url for url in self.hosts.missed if ".evil.example" not in url]
        for asked in (*self.server.asked, *self.evil.asked):
            text = _all_of(asked)
            found += [f"{secret} in {text}" for secret in self.secrets if secret in text]
            verifier = parse_qs(asked.body.decode("latin-1")).get("code_verifier", [""])[0]
            digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
            found += [f"the verifier of a page of {self.good_url} in {text}"] if digest in challenges else []
        return found


def _all_of(asked: IssuerRequest) -> str:
    """Everything in a request, decoded."""
    scheme, _, pair = asked.headers.get("authorization", "").partition(" ")
    plain = base64.b64decode(pair).decode() if scheme == "Basic" else ""
    return unquote_plus(
        f"{asked.verb} {asked.path} {asked.query} {asked.headers} {plain} {asked.body.decode('latin-1')}"
    )


@contextlib.asynccontextmanager
async def login_scene(hosts: NamedHosts | None, real: AuthorizationServer | None = None) -> AsyncIterator[LoginScene]:
    """With a real authorization server everything is on this machine; else every host has a name."""
    async with serve_login_issuer() as server, serve_login_issuer() as evil, serve_login_issuer() as good:
        good.prefix = "good-"
        if real is not None:
            page, registration = real.metadata["authorization_endpoint"], real.metadata["registration_endpoint"]
            scope = {"scopes_supported": ["books:read"]}
            scene = LoginScene(server, evil, real.issuer, page, registration, resource=scope)
        else:
            assert hosts is not None, "fakes have names"
            registration = f"{good.url}/register"
            for name, one in (("mcp.example", server), ("evil.example", evil), ("login.example", good)):
                hosts.add(name, one.url)
                one.url = f"https://{name}"
            scene = LoginScene(server, evil, good.url, f"{good.url}/authorize", registration, good, hosts)
        server.routes.clear()

        async def describe(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            usual = {"resource": scene.url, "authorization_servers": [scene.good_url]}
            document = {**usual, **scene.resource}
            return as_json({name: value for name, value in document.items() if value is not ...})

        server.routes[DOCUMENT] = describe
        scene.challenge = f'Bearer error="invalid_token", resource_metadata="{server.url}{DOCUMENT}"'
        yield scene
