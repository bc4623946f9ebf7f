"""What hostile MCP servers and authorization servers try at a login, as a table: what is sent, and what comes of it.

Every row begins with a user who has logged in at the honest authorization server, and ends with a look at all that the
server and the hostile one were sent: no code, verifier, secret, token or refresh token of the honest one is in it. Rows
that are marked `real` run with a published authorization server as the honest one, too.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from deltamcp.client.oauth import grants, json_http
from deltamcp.errors import ConfigurationError, UnauthorizedError
from tests.support.authorization_server import AuthorizationServer, authorization_server
from tests.support.login_issuer import IssuerRequest, LoginIssuer, as_json
from tests.support.login_scene import BACK, DOCUMENT, SECRET, LoginScene, login_scene
from tests.support.named_hosts import NamedHosts

Change: TypeAlias = Callable[[LoginScene], None]
Reply: TypeAlias = tuple[int, dict[str, str], bytes]

HARMLESS = ""
WARNED = "open_page did not return"
SERVICE = {"grant": "client_credentials", "client_id": "service", "client_secret": SECRET}
ISSUER = "/.well-known/oauth-authorization-server"
NO_RESOURCE = "another address"
ABOVE = "--resource"
UNREADABLE = "cannot be read"
UNSAFE = "The authorization leads to"
NO_TOKEN = "answered without a token"


class Attack(NamedTuple):
    """One row: what is tried, by which change of what is sent, and the sentence of the refusal."""

    name: str
    change: Change
    result: str
    """What the error says; `HARMLESS` if the login goes on, and nothing comes of the attack."""
    act: str = "log in"
    page: bool = False
    """Whether the user has seen a page by then: of an attack that comes after it, or is warned of there."""
    real: bool = False
    careful: bool = False
    check: Callable[[LoginScene], bool] = lambda scene: True
    """What else is true afterwards."""
    options: Mapping[str, Any] = MappingProxyType({})


# What is sent


def fill(scene: LoginScene, value: Any) -> Any:
    """Puts the addresses of a scene into texts."""
    if isinstance(value, str):
        marks = {"<server>": scene.server.url, "<good>": scene.good_url, "<evil>": scene.evil.url}
        for mark, url in {**marks, "<page of good>": scene.good_page}.items():
            value = value.replace(mark, url)
        return value
    if isinstance(value, list):
        return [fill(scene, one) for one in value]
    return value


def both(*changes: Change) -> Change:
    def change(scene: LoginScene) -> None:
        for one in changes:
            one(scene)

    return change


def server_says(**fields: Any) -> Change:
    """Has the server's metadata say this; ... leaves a field out."""
    return lambda scene: scene.resource.update({name: fill(scene, value) for name, value in fields.items()})


evil_is_named = server_says(authorization_servers=["<evil>"])


def server_challenges(text: str) -> Change:
    return lambda scene: setattr(scene, "challenge", fill(scene, text))


def evil_says(**fields: Any) -> Change:
    """Has the hostile authorization server, which the server names, say this about itself; None leaves a field out."""
    return both(
        evil_is_named,
        lambda scene: scene.evil.metadata.update({name: fill(scene, value) for name, value in fields.items()}),
    )


def answers(issuer: str, path: str, body: Any, status: int = 200, **headers: str) -> Change:
    """Has a host answer so at a path; bytes as they are."""

    def change(scene: LoginScene) -> None:
        host: LoginIssuer = getattr(scene, issuer)

        async def answer(asked: IssuerRequest) -> Reply:
            value = body(asked) if callable(body) else body
            more = {name.replace("_", "-"): fill(scene, text) for name, text in headers.items()}
            if isinstance(value, bytes):
                return status, {"content-type": "application/json", **more}, value
            _, usual, data = as_json({name: fill(scene, one) for name, one in value.items()})
            return status, {**usual, **more}, data

        host.routes[path] = answer

    return change


def evil_answers(path: str, body: Any, status: int = 200, **headers: str) -> Change:
    return both(evil_is_named, answers("evil", path, body, status, **headers))


def hangs(issuer: str, path: str) -> Change:
    """Has a host not answer at a path."""

    def change(scene: LoginScene) -> None:
        async def never(asked: IssuerRequest) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

        getattr(scene, issuer).routes[path] = never

    return change


def tokens(**fields: Any) -> Change:
    usual = {"access_token": "evil-token", "token_type": "Bearer"}
    return evil_answers("/token", {name: one for name, one in {**usual, **fields}.items() if one is not ...})


def registers(**fields: Any) -> Change:
    return evil_answers(
        "/register", {name: one for name, one in {"client_id": "x", **fields}.items() if one is not ...}
    )


def device(**fields: Any) -> Change:
    usual = {"device_code": "d", "user_code": "WDJB-MJHT", "verification_uri": "<evil>/activate", "expires_in": 600}
    return both(
        evil_says(device_authorization_endpoint="<evil>/device"),
        answers("evil", "/device", {name: one for name, one in {**usual, **fields}.items() if one is not ...}),
    )


def comes_back(change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Change:
    """Changes the parameters with which the browser comes back from the honest authorization server."""

    def tamper(url: str) -> str:
        return f"{BACK}?{urlencode(change(parse_qsl(urlsplit(url).query)))}"

    return lambda scene: setattr(scene, "tamper", tamper)


def with_(**parameters: str) -> Change:
    return comes_back(
        lambda query: [*((name, one) for name, one in query if name not in parameters), *parameters.items()]
    )


def without(*names: str) -> Change:
    return comes_back(lambda query: [(name, one) for name, one in query if name not in names])


def twice(name: str) -> Change:
    return comes_back(lambda query: [*query, *((one, value) for one, value in query if one == name)])


def good_has(**metadata: Any) -> Change:
    """Changes the honest authorization server's own metadata: somebody has got at it."""

    def change(scene: LoginScene) -> None:
        assert scene.good is not None
        scene.good.metadata.update({name: fill(scene, value) for name, value in metadata.items()})

    return change


def host_at(name: str, *addresses: str) -> Change:
    def change(scene: LoginScene) -> None:
        assert scene.hosts is not None
        scene.hosts.add(name, "http://127.0.0.1:9", *addresses)

    return change


def raw_document(body: bytes, status: int = 200, **headers: str) -> Change:
    return answers("server", DOCUMENT, body, status, **headers)


def shown(text: str) -> Callable[[LoginScene], bool]:
    return lambda scene: text in scene.pages[-1].notice


def polite(scene: LoginScene) -> bool:
    return bool(scene.sleeps) and all(1 <= seconds <= 60 for seconds in scene.sleeps)


DEEP = b'{"resource":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LARGE = b'{"resource":"' + b"x" * 300_000 + b'"}'
DEVICE = {"grant": "device_code"}
WAITS: tuple[Any, ...] = (0, -1, 1e-9, 0.5, 1e308, 3600, "0", None, True, [])

SERVER_ATTACKS = [
    # The resource that tokens are for (RFC 9728, 3.3)
    Attack("another server's resource", server_says(resource="https://bank.example/mcp"), NO_RESOURCE, real=True),
    Attack("the whole host", server_says(resource="<server>"), ABOVE, real=True),
    Attack("the whole host, with a slash", server_says(resource="<server>/"), ABOVE, real=True),
    Attack("the folder above", server_says(resource="<server>/tenant"), ABOVE, real=True),
    Attack("another tenant", server_says(resource="<server>/other/mcp"), NO_RESOURCE, real=True),
    Attack("a path below", server_says(resource="<server>/tenant/mcp/admin"), NO_RESOURCE, real=True),
    Attack("a path that begins the same", server_says(resource="<server>/tenant/mcp2"), NO_RESOURCE, real=True),
    Attack("dots that lead to another tenant", server_says(resource="<server>/tenant/mcp/../../o"), NO_RESOURCE),
    Attack("another port", server_says(resource="<server>:1/tenant/mcp"), NO_RESOURCE, real=True),
    Attack("the server without encryption", server_says(resource="http://mcp.example/tenant/mcp"), NO_RESOURCE),
    Attack(
        "the server as a user name", server_says(resource="https://mcp.example@evil.example/tenant/mcp"), NO_RESOURCE
    ),
    Attack("a user name at the server", server_says(resource="https://me@mcp.example/tenant/mcp"), NO_RESOURCE),
    Attack("a fragment", server_says(resource="<server>/tenant/mcp#x"), NO_RESOURCE, real=True),
    Attack("another's query", server_says(resource="<server>/tenant/mcp?tenant=other"), NO_RESOURCE, real=True),
    Attack("another path's letters", server_says(resource="<server>/Tenant/mcp"), NO_RESOURCE, real=True),
    Attack("no resource", server_says(resource=...), UNREADABLE, real=True),
    Attack("null as the resource", server_says(resource=None), UNREADABLE),
    Attack("a list of resources", server_says(resource=["<server>/tenant/mcp"]), UNREADABLE),
    Attack("control characters in the resource", server_says(resource="\x1b]0;x\x07\r\n"), NO_RESOURCE),
    Attack("an end of line behind the server", server_says(resource="<server>/tenant/mcp\n"), NO_RESOURCE, real=True),
    Attack("a tab within the server", server_says(resource="<server>/ten\tant/mcp"), NO_RESOURCE, real=True),
    Attack("a space before the server", server_says(resource=" <server>/tenant/mcp"), NO_RESOURCE, real=True),
    # Where its metadata is
    Attack(
        "metadata of another server, by the challenge",
        both(
            answers("evil", "/victim", {"resource": "https://bank.example/mcp", "authorization_servers": ["<good>"]}),
            server_challenges('Bearer resource_metadata="<evil>/victim"'),
        ),
        NO_RESOURCE,
        real=True,
    ),
    Attack(
        "metadata without encryption", server_challenges('Bearer resource_metadata="http://evil.example/x"'), UNSAFE
    ),
    Attack("metadata on this machine", server_challenges('Bearer resource_metadata="http://127.0.0.1:6379/"'), UNSAFE),
    Attack(
        "metadata at this machine's name", server_challenges('Bearer resource_metadata="https://localhost/"'), UNSAFE
    ),
    Attack("metadata in the network", server_challenges('Bearer resource_metadata="https://10.0.0.1/"'), UNSAFE),
    Attack("metadata of the cloud", server_challenges('Bearer resource_metadata="https://169.254.169.254/"'), UNSAFE),
    Attack("metadata by NAT64", server_challenges('Bearer resource_metadata="https://[64:ff9b::a9fe:a9fe]/"'), UNSAFE),
    Attack("metadata at an octal address", server_challenges('Bearer resource_metadata="https://0177.0.0.1/"'), UNSAFE),
    Attack("metadata by a script", server_challenges('Bearer resource_metadata="javascript:alert(1)"'), UNSAFE),
    Attack("metadata in a file", server_challenges('Bearer resource_metadata="file:///etc/passwd"'), UNSAFE),
    Attack(
        "metadata with a password", server_challenges('Bearer resource_metadata="https://a:b@evil.example/"'), UNSAFE
    ),
    Attack(
        "metadata at a name of this machine",
        both(
            host_at("in.evil.example", "127.0.0.1"),
            server_challenges('Bearer resource_metadata="https://in.evil.example/"'),
        ),
        "may not name",
    ),
    Attack(
        "metadata at a name of the network, among public addresses",
        both(
            host_at("in.evil.example", "93.184.216.34", "192.168.0.1"),
            server_challenges('Bearer resource_metadata="https://in.evil.example/"'),
        ),
        "may not name",
    ),
    Attack("metadata that is too large", raw_document(LARGE), "cannot be reached"),
    Attack("metadata that is too deep", raw_document(DEEP), UNREADABLE),
    Attack("metadata that is no JSON", raw_document(b"<html>", content_type="text/html"), UNREADABLE),
    Attack(
        "metadata as a stream of events",
        raw_document(b"data: {}\n\n", content_type="text/event-stream"),
        UNREADABLE,
    ),
    Attack("metadata that is a list", raw_document(b"[]"), UNREADABLE),
    Attack("metadata that is empty", raw_document(b""), UNREADABLE),
    Attack("metadata with NaN", raw_document(b'{"resource": NaN}'), UNREADABLE),
    Attack(
        "metadata with the resource twice",
        raw_document(b'{"resource":"https://mcp.example/tenant/mcp","resource":"https://bank.example/mcp"}'),
        NO_RESOURCE,
    ),
    Attack("metadata that never comes", hangs("server", DOCUMENT), "did not answer within"),
    Attack("metadata that fails", raw_document(b"{}", 500), UNREADABLE, real=True),
    Attack("metadata that is elsewhere", raw_document(b"", 302, location="<evil>/x"), UNREADABLE, real=True),
    Attack(
        "metadata that is elsewhere in turns",
        raw_document(b"", 302, location=DOCUMENT),
        "redirects more than",
        real=True,
    ),
    # The challenge
    Attack(
        "two challenges, the second of which names a hostile issuer",
        both(
            answers("evil", "/theirs", {"resource": "<server>/tenant/mcp", "authorization_servers": ["<evil>"]}),
            server_challenges('Bearer realm="x", Bearer resource_metadata="<evil>/theirs"'),
        ),
        WARNED,
        page=True,
        real=True,
        careful=True,
        check=shown("had you log in at"),
    ),
    Attack(
        "a challenge of nonsense",
        server_challenges('Bearer ="" , \\ \x00 resource_metadata=' + "x" * 20_000),
        HARMLESS,
        page=True,
    ),
    Attack(
        "a challenge for all scopes",
        lambda scene: setattr(scene, "challenge", scene.challenge + ', scope="admin delete:all"'),
        HARMLESS,
        page=True,
        check=shown("It asks for the scopes admin, delete:all."),
    ),
    Attack(
        "control characters in scopes",
        lambda scene: setattr(scene, "challenge", scene.challenge + ', scope="\x1b[31m ok \x07"'),
        HARMLESS,
        page=True,
        check=lambda scene: scene.pages[-1].scopes == ("ok",),
    ),
    Attack(
        "ten thousand scopes",
        server_says(scopes_supported=[f"s{number}" for number in range(10_000)]),
        HARMLESS,
        page=True,
        check=lambda scene: len(scene.pages[-1].scopes) == 100,
    ),
    # The authorization servers that it names
    Attack("no authorization server", server_says(authorization_servers=[]), "does not say where to log in", real=True),
    Attack("null as authorization servers", server_says(authorization_servers=None), UNREADABLE),
    Attack("numbers as authorization servers", server_says(authorization_servers=[1]), UNREADABLE),
    Attack(
        "thousands of authorization servers",
        server_says(authorization_servers=[f"https://a{number}.evil.example" for number in range(5000)]),
        "cannot be reached",
        check=lambda scene: scene.hosts is not None and len(scene.hosts.missed) == 1,
    ),
    Attack(
        "another authorization server first",
        server_says(authorization_servers=["<evil>", "<good>"]),
        HARMLESS,
        page=True,
        real=True,
        check=lambda scene: scene.pages[-1].url.startswith(scene.good_url) and scene.evil.asked == [],
    ),
    Attack(
        "another authorization server than before",
        evil_is_named,
        WARNED,
        page=True,
        real=True,
        careful=True,
        check=shown("log in only if you know that it moved"),
    ),
    Attack("the issuer with a slash", server_says(authorization_servers=["<good>/"]), "says that it is", real=True),
    Attack(
        "the issuer with its port", server_says(authorization_servers=["https://login.example:443"]), "says that it is"
    ),
    Attack(
        "the issuer in capital letters", server_says(authorization_servers=["https://LOGIN.example"]), "says that it is"
    ),
    Attack("the issuer with a dot", server_says(authorization_servers=["https://login.example."]), "says that it is"),
    Attack("the issuer in other letters", server_says(authorization_servers=["https://l\u043egin.example"]), UNSAFE),
    Attack(
        "the issuer with a query",
        server_says(authorization_servers=["<good>?x"]),
        "is no authorization server",
        real=True,
    ),
    Attack(
        "the issuer as a fragment",
        server_says(authorization_servers=["<evil>#<good>"]),
        "is no authorization server",
        real=True,
    ),
    Attack(
        "the issuer as a user name", server_says(authorization_servers=["https://login.example@evil.example"]), UNSAFE
    ),
    Attack("the issuer without encryption", server_says(authorization_servers=["http://login.example"]), UNSAFE),
    Attack("the issuer on this machine", server_says(authorization_servers=["http://localhost:8080"]), UNSAFE),
    Attack("the issuer in the network", server_says(authorization_servers=["https://192.168.1.1"]), UNSAFE),
    Attack("the issuer by a script", server_says(authorization_servers=["javascript:alert(1)"]), UNSAFE),
]

ISSUER_ATTACKS = [
    # Its metadata (RFC 8414)
    Attack("the name of the honest issuer", evil_says(issuer="<good>"), "says that it is", real=True),
    Attack("a name that looks like it", evil_says(issuer="<good>.evil.example"), "says that it is"),
    Attack("control characters in its name", evil_says(issuer="\x1b[2J\r\n"), "says that it is"),
    Attack("a page by a script", evil_says(authorization_endpoint="javascript:alert(1)"), UNSAFE, real=True),
    Attack("a page of data", evil_says(authorization_endpoint="data:text/html,x"), UNSAFE, real=True),
    Attack("a page without encryption", evil_says(authorization_endpoint="http://login.example/authorize"), UNSAFE),
    Attack("a page on this machine", evil_says(authorization_endpoint="http://127.0.0.1:631/"), UNSAFE),
    Attack("a page in the network", evil_says(authorization_endpoint="https://192.168.0.1/reboot"), UNSAFE),
    Attack(
        "a page with control characters", evil_says(authorization_endpoint="<evil>/\x1b]0;x\x07"), UNSAFE, real=True
    ),
    Attack("no page", evil_says(authorization_endpoint=None), "names no page", real=True),
    Attack(
        "the page of the honest issuer",
        evil_says(authorization_endpoint="<page of good>"),
        WARNED,
        page=True,
        real=True,
        careful=True,
        check=shown("log in only if you know that they belong together"),
    ),
    Attack(
        "the page of the honest issuer, and it says who it is",
        both(
            evil_says(authorization_endpoint="<page of good>", authorization_response_iss_parameter_supported=None),
            lambda scene: scene.evil.routes.update({"/register": scene.register_at_good}),
        ),
        "is not from the authorization server",
        page=True,
        real=True,
    ),
    Attack(
        "a page with an address of its own to come back to",
        evil_says(authorization_endpoint="<page of good>?redirect_uri=https://evil.example/"),
        "answers for the client",
        real=True,
    ),
    Attack(
        "a page with a state of its own",
        evil_says(authorization_endpoint="<evil>/authorize?state="),
        "answers for the client",
    ),
    Attack("no PKCE", evil_says(code_challenge_methods_supported=None), "PKCE", real=True),
    Attack("PKCE without a digest", evil_says(code_challenge_methods_supported=["plain"]), "PKCE", real=True),
    Attack("PKCE as a text", evil_says(code_challenge_methods_supported="S256"), UNREADABLE, real=True),
    Attack("no token endpoint", evil_says(token_endpoint=None), "names no token endpoint", real=True),
    Attack("tokens without encryption", evil_says(token_endpoint="http://evil.example/token"), UNSAFE),
    Attack("tokens from this machine", evil_says(token_endpoint="http://127.0.0.1:6379/"), UNSAFE),
    Attack("tokens from the network", evil_says(token_endpoint="https://10.1.2.3/token"), UNSAFE),
    Attack("tokens from the cloud", evil_says(token_endpoint="https://[::ffff:169.254.169.254]/"), UNSAFE),
    Attack("tokens from 6to4", evil_says(token_endpoint="https://[2002:7f00:1::]/"), UNSAFE),
    Attack(
        "tokens from a name of the network",
        both(host_at("in.evil.example", "10.1.2.3"), evil_says(token_endpoint="https://in.evil.example/token")),
        "may not name",
        page=True,
    ),
    Attack(
        "tokens from the honest issuer",
        evil_says(token_endpoint="<good>/token"),
        "gives no token",
        page=True,
        real=True,
    ),
    Attack("a number as the token endpoint", evil_says(token_endpoint=7), UNREADABLE),
    Attack("registration in the network", evil_says(registration_endpoint="https://10.0.0.1/"), UNSAFE),
    Attack("registration by a script", evil_says(registration_endpoint="javascript:x"), UNSAFE),
    Attack("no registration", evil_says(registration_endpoint=None), "lets no client register", real=True),
    Attack("a text for yes", evil_says(client_id_metadata_document_supported="yes"), UNREADABLE),
    Attack("metadata that is too large", evil_answers(ISSUER, LARGE), "cannot be reached"),
    Attack("metadata that is too deep", evil_answers(ISSUER, DEEP), UNREADABLE),
    Attack("metadata that is no JSON", evil_answers(ISSUER, b"\xff\xfe"), UNREADABLE),
    Attack("metadata that never comes", both(evil_is_named, hangs("evil", ISSUER)), "did not answer within"),
    Attack(
        "metadata that is elsewhere",
        evil_answers(ISSUER, b"", 301, location=f"<good>{ISSUER}"),
        "has no metadata",
        real=True,
    ),
    Attack(
        "metadata of another type",
        both(
            evil_is_named,
            lambda scene: answers(
                "evil",
                ISSUER,
                b'{"issuer":"https://evil.example","token_endpoint":"https://evil.example/token"}',
                content_type="text/plain",
            )(scene),
        ),
        "lets no client register",
    ),
    # What it says of the client (RFC 7591)
    Attack("a client id with control characters", registers(client_id="x\r\ny: \x1b"), "refuses to register"),
    Attack("a client id of 100,000 characters", registers(client_id="x" * 100_000), "refuses to register"),
    Attack("an empty client id", registers(client_id=""), "refuses to register"),
    Attack("a number as the client id", registers(client_id=7), "refuses to register"),
    Attack("no client id", registers(client_id=...), "refuses to register"),
    Attack(
        "another address to come back to",
        registers(redirect_uris=["https://evil.example/"]),
        HARMLESS,
        page=True,
        check=lambda scene: urlencode({"redirect_uri": BACK}) in scene.pages[-1].url,
    ),
    Attack(
        "a secret with control characters",
        registers(client_secret="a\r\nb", token_endpoint_auth_method="client_secret_basic"),
        HARMLESS,
        page=True,
    ),
    Attack("a secret that has expired", registers(client_secret="x", client_secret_expires_at=1), HARMLESS, page=True),
    Attack(
        "a secret that expires never and before",
        registers(client_secret="x", client_secret_expires_at=-1e308),
        HARMLESS,
        page=True,
    ),
    Attack("a way to authenticate that is none", registers(token_endpoint_auth_method=["none"]), HARMLESS, page=True),
    Attack(
        "a registration elsewhere",
        evil_answers("/register", b"", 307, location="<good>/register"),
        "refuses to register",
    ),
    Attack("a refusal with control characters", evil_answers("/register", {"error": "\x1b[31m"}, 400), r"HTTP 400"),
]

ANSWER_ATTACKS = [
    # With what the browser comes back (OAuth 2.1, 4.1.2; RFC 9207)
    Attack("another state", with_(state="x" * 43), "belongs to another login", page=True, real=True),
    Attack("no state", without("state"), "belongs to another login", page=True, real=True),
    Attack("an empty state", with_(state=""), "belongs to another login", page=True, real=True),
    Attack("the state twice", twice("state"), "belongs to another login", page=True, real=True),
    Attack(
        "another issuer",
        with_(iss="https://evil.example"),
        "is not from the authorization server",
        page=True,
        real=True,
    ),
    Attack(
        "no issuer, where it says that it names it",
        without("iss"),
        "is not from the authorization server",
        page=True,
        real=True,
    ),
    Attack("the issuer twice", twice("iss"), "is not from the authorization server", page=True, real=True),
    Attack(
        "the issuer twice, where it does not say that it names it",
        both(good_has(authorization_response_iss_parameter_supported=None), twice("iss")),
        "is not from the authorization server",
        page=True,
    ),
    Attack(
        "the issuer with a slash",
        lambda scene: with_(iss=f"{scene.good_url}/")(scene),
        "is not from the authorization server",
        page=True,
        real=True,
    ),
    Attack(
        "another's code", with_(code="a-code-of-somebody-else"), "gives no token: invalid_grant", page=True, real=True
    ),
    Attack("the code twice", twice("code"), "sent no code", page=True, real=True),
    Attack("no code", without("code"), "sent no code", page=True, real=True),
    Attack("an empty code", with_(code=""), "sent no code", page=True, real=True),
    Attack("an error with control characters", with_(error="\x1b]0;x\x07"), "does not say why", page=True, real=True),
    Attack("an error beside a code", with_(error="access_denied"), "was refused", page=True, real=True),
    Attack(
        "a code in the fragment",
        lambda scene: setattr(scene, "tamper", lambda url: url.replace("?", "#")),
        "another login",
        page=True,
        real=True,
    ),
    Attack(
        "an address that is none",
        lambda scene: setattr(scene, "tamper", lambda url: "https://[" + url),
        "another login",
        page=True,
        real=True,
    ),
    Attack(
        "a thousand parameters",
        comes_back(lambda query: query + [("x", "")] * 1000),
        "another login",
        page=True,
        real=True,
    ),
]

TOKEN_ATTACKS = [
    # What the token endpoint answers (OAuth 2.1, 3.2.3)
    Attack("no token", tokens(access_token=...), NO_TOKEN, page=True),
    Attack("null as the token", tokens(access_token=None), NO_TOKEN, page=True),
    Attack("a number as the token", tokens(access_token=7), NO_TOKEN, page=True),
    Attack("an object as the token", tokens(access_token={}), NO_TOKEN, page=True),
    Attack("an empty token", tokens(access_token=""), NO_TOKEN, page=True),
    Attack("a header in the token", tokens(access_token="x\r\nhost: evil"), NO_TOKEN, page=True),
    Attack("a token with a space", tokens(access_token="x y"), NO_TOKEN, page=True),
    Attack("a token that is not ASCII", tokens(access_token="\u202e"), NO_TOKEN, page=True),
    Attack("a token of 100,000 characters", tokens(access_token="x" * 100_000), NO_TOKEN, page=True),
    Attack("no type", tokens(token_type=...), "no bearer token", page=True),
    Attack("another type", tokens(token_type="DPoP"), "no bearer token", page=True),
    Attack("a list of types", tokens(token_type=["Bearer"]), "no bearer token", page=True),
    Attack(
        "a list of tokens", evil_answers("/token", b'[{"access_token":"x","token_type":"Bearer"}]'), NO_TOKEN, page=True
    ),
    Attack("tokens that are no JSON", evil_answers("/token", b"access_token=x&token_type=bearer"), NO_TOKEN, page=True),
    Attack(
        "tokens that expire never",
        evil_answers("/token", b'{"access_token":"x","token_type":"Bearer","expires_in":NaN}'),
        NO_TOKEN,
        page=True,
    ),
    Attack("tokens that are too large", evil_answers("/token", LARGE), "cannot be reached", page=True),
    Attack("tokens that never come", both(evil_is_named, hangs("evil", "/token")), "did not answer within", page=True),
    Attack(
        "tokens from elsewhere",
        evil_answers("/token", b"", 307, location="<server>/steal"),
        "HTTP 307",
        page=True,
        check=lambda scene: not scene.server.of("/steal"),
    ),
    Attack(
        "an error with control characters",
        evil_answers("/token", {"error": "\x1b]0;x\x07\r\n"}, 400),
        "HTTP 400",
        page=True,
    ),
    Attack(
        "an error that repeats what was sent",
        evil_answers(
            "/token", lambda asked: {"error": asked.body.decode(), "error_description": asked.body.decode()}, 400
        ),
        "HTTP 400",
        page=True,
    ),
    Attack(
        "an error with the status of a success", evil_answers("/token", {"error": "invalid_grant"}), NO_TOKEN, page=True
    ),
    Attack("a time that was before", tokens(expires_in=-1), HARMLESS, page=True),
    Attack("a time without end", tokens(expires_in=1e308), HARMLESS, page=True),
    Attack("a text as the time", tokens(expires_in="soon"), HARMLESS, page=True),
    Attack("more scopes than were asked for", tokens(scope="admin root"), HARMLESS, page=True),
    Attack("a number as the scope", tokens(scope=7), HARMLESS, page=True),
    Attack("a header in the refresh token", tokens(refresh_token="x\r\ny: z"), HARMLESS, page=True),
    Attack("a number as the refresh token", tokens(refresh_token=7), HARMLESS, page=True),
]

RENEWAL_ATTACKS = [
    # A login that is there already, and must not go elsewhere
    Attack("a refresh at another authorization server", evil_is_named, "wants you to log in", "renew", real=True),
    Attack(
        "a refresh at another authorization server, named first",
        server_says(authorization_servers=["<evil>", "<good>"]),
        HARMLESS,
        "renew",
        real=True,
        check=lambda scene: scene.evil.asked == [],
    ),
    Attack(
        "a refresh at the server itself",
        both(
            lambda scene: scene.server.routes.__delitem__(DOCUMENT),
            lambda scene: scene.server.routes.update({ISSUER: scene.evil.routes[ISSUER]}),
            lambda scene: scene.evil.metadata.update(issuer=scene.server.url),
            server_challenges("Bearer"),
        ),
        "wants you to log in",
        "renew",
        real=True,
    ),
    Attack("a refresh for the whole host", server_says(resource="<server>"), ABOVE, "renew", real=True),
    Attack(
        "a refresh for another server", server_says(resource="https://bank.example/"), NO_RESOURCE, "renew", real=True
    ),
    Attack(
        "a refresh by metadata on this machine",
        server_challenges('Bearer resource_metadata="http://127.0.0.1/"'),
        UNSAFE,
        "renew",
    ),
    Attack(
        "a refresh at an endpoint elsewhere", good_has(token_endpoint="<evil>/token"), "wants you to log in", "renew"
    ),
    Attack("a refresh without encryption", good_has(token_endpoint="http://login.example/token"), UNSAFE, "renew"),
    Attack(
        "a refresh that is sent elsewhere",
        answers("good", "/token", b"", 308, location="<evil>/token"),
        "HTTP 308",
        "renew",
    ),
    Attack(
        "a refresh for more scopes",
        lambda scene: setattr(
            scene, "challenge", scene.challenge.replace("invalid_token", "insufficient_scope") + ', scope="admin"'
        ),
        "wants you to log in",
        "renew",
        real=True,
    ),
    # A client of the program
    Attack(
        "a secret for another authorization server",
        evil_is_named,
        "does not trust",
        "own token",
        options=SERVICE,
        real=True,
    ),
    Attack(
        "a secret for another authorization server, which does as the honest one",
        both(evil_is_named, lambda scene: scene.evil.metadata.update(issuer=scene.good_url)),
        "does not trust",
        "own token",
        options=SERVICE,
        real=True,
    ),
    Attack(
        "a key for another authorization server",
        evil_is_named,
        "does not trust",
        "own token",
        options={**SERVICE, "client_secret": None, "client_key": SECRET},
        real=True,
    ),
    Attack(
        "a secret for the server itself",
        lambda scene: scene.resource.update(authorization_servers=[scene.server.url]),
        "does not trust",
        "own token",
        options=SERVICE,
        real=True,
    ),
    Attack(
        "a secret for a token of the whole host",
        server_says(resource="<server>"),
        ABOVE,
        "own token",
        options=SERVICE,
        real=True,
    ),
    Attack(
        "a secret at a login",
        evil_is_named,
        "does not trust",
        options={"client_id": "service", "client_secret": SECRET},
        real=True,
    ),
    Attack(
        "a client id for another authorization server",
        both(lambda scene: scene.storage._records.clear(), evil_is_named),
        "name the issuer that knows it",
        "log in there first",
        options={"client_id": "public"},
        page=True,
    ),
    # The end of a login (RFC 7009)
    Attack(
        "another authorization server at the end",
        evil_is_named,
        HARMLESS,
        "log out",
        real=True,
        check=lambda scene: scene.evil.asked == [],
    ),
    Attack("the end of a login elsewhere", good_has(revocation_endpoint="<evil>/revoke"), "at another host", "log out"),
    Attack(
        "the end of a login without encryption",
        good_has(revocation_endpoint="http://login.example/revoke"),
        UNSAFE,
        "log out",
    ),
]

DEVICE_ATTACKS = [
    # The user's other device (RFC 8628)
    *(
        Attack(f"a page {name}", device(verification_uri=url), UNSAFE, options=DEVICE)
        for name, url in (
            ("by a script", "javascript:alert(1)"),
            ("in a file", "file:///x"),
            ("without encryption", "http://evil.example/"),
            ("on this machine", "http://localhost/"),
            ("in the network", "https://192.168.1.1/"),
            ("with control characters", "<evil>/\x1b[2J"),
        )
    ),
    Attack(
        "a page with the code by a script", device(verification_uri_complete="javascript:x"), UNSAFE, options=DEVICE
    ),
    Attack("no page", device(verification_uri=...), "refuses the login", options=DEVICE),
    *(
        Attack(f"a code {name}", device(user_code=code), "sent no code", options=DEVICE)
        for name, code in (
            ("with control characters", "\x1b[31mX"),
            ("that goes on as a sentence", "X. Now call 0800 1234"),
            ("with an address", "https://evil.example"),
            ("of another direction", "\u202eX"),
            ("with lines", "X\nY"),
            ("of 65 characters", "X" * 65),
            ("without characters", ""),
            ("that is a number", 7),
            ("that is missing", ...),
        )
    ),
    Attack("a number as the device's code", device(device_code=7), "refuses the login", options=DEVICE),
    *(
        Attack(f"a wait of {interval!r}", device(interval=interval), HARMLESS, options=DEVICE, page=True, check=polite)
        for interval in WAITS
    ),
    Attack(
        "slower for ever",
        both(device(), answers("evil", "/token", {"error": "slow_down"}, 400)),
        "Nobody logged in",
        options={**DEVICE, "login_seconds": 0.3},
        page=True,
        check=polite,
    ),
    Attack("a time that was before", device(expires_in=-1), HARMLESS, options=DEVICE, page=True),
    Attack(
        "an error with control characters",
        both(device(), answers("evil", "/token", {"error": "\x1b[2J"}, 400)),
        "HTTP 400",
        options=DEVICE,
        page=True,
    ),
    Attack(
        "the page of the honest issuer, with a code of the hostile one",
        device(verification_uri="<good>/device"),
        HARMLESS,
        options=DEVICE,
        page=True,
        check=shown("log in only if you know that they belong together"),
    ),
    Attack(
        "another page in the picture of the code",
        device(verification_uri_complete="<good>/device?user_code=WDJB-MJHT"),
        HARMLESS,
        options=DEVICE,
        page=True,
        check=shown("The page is at login.example"),
    ),
    Attack(
        "a start in the network", evil_says(device_authorization_endpoint="https://10.0.0.1/"), UNSAFE, options=DEVICE
    ),
    Attack("no start", evil_is_named, "offers no login on another device", options=DEVICE),
    Attack(
        "a start elsewhere",
        both(device(), answers("evil", "/device", b"", 307, location="<good>/device")),
        "HTTP 307",
        options=DEVICE,
    ),
]

TABLES = {
    "server": SERVER_ATTACKS,
    "issuer": ISSUER_ATTACKS,
    "answer": ANSWER_ATTACKS,
    "tokens": TOKEN_ATTACKS,
    "renewal": RENEWAL_ATTACKS,
    "device": DEVICE_ATTACKS,
}
ATTACKS = [
    pytest.param(attack, id=f"{table}: {attack.name}") for table, attacks in TABLES.items() for attack in attacks
]
REAL_ATTACKS = [
    pytest.param(attack, id=f"{table}: {attack.name}")
    for table, attacks in TABLES.items()
    for attack in attacks
    if attack.real
]


# What comes of it


async def log_in(scene: LoginScene) -> None:
    await scene.access().log_in(await scene.stored_token(scene.good_url), scene.challenge)


async def log_in_there_first(scene: LoginScene) -> None:
    """The program's client id is used at the honest authorization server, and the program is started again."""
    named, scene.resource["authorization_servers"] = scene.resource["authorization_servers"], [scene.good_url]
    await scene.log_in_honestly()
    scene.resource["authorization_servers"] = named
    await log_in(scene)


async def renew(scene: LoginScene) -> None:
    await scene.access().renew(await scene.stored_token(scene.good_url), scene.challenge)


async def get_own_token(scene: LoginScene) -> None:
    await scene.access().renew(None, scene.challenge)


async def log_out(scene: LoginScene) -> None:
    problem = (await scene.access().forget()).problem
    if problem:
        raise UnauthorizedError(problem)


ACTS: dict[str, Callable[[LoginScene], Awaitable[None]]] = {
    "log in": log_in,
    "log in there first": log_in_there_first,
    "renew": renew,
    "own token": get_own_token,
    "log out": log_out,
}


async def attempt(scene: LoginScene, attack: Attack) -> None:
    """Has the user log in, changes what is sent, and looks at what comes of the attack."""
    await scene.log_in_honestly()
    for host in (scene.server, scene.evil):
        host.asked.clear()
    attack.change(scene)
    scene.is_careful = attack.careful
    scene.options = {**attack.options, **({"issuer": scene.good_url} if SECRET in attack.options.values() else {})}
    told = ""
    try:
        await ACTS[attack.act](scene)
    except (UnauthorizedError, ConfigurationError) as error:
        told = str(error)
    await scene.note_secrets()
    assert scene.leaks() == []
    assert re.search(attack.result, told) and bool(attack.result) is bool(told), told
    assert told.isascii() and told.isprintable() and len(told) < 1000
    assert all(secret not in told for secret in scene.secrets)
    assert bool(scene.pages) is (attack.page and attack.act != "log in there first"), scene.pages
    assert all(page.notice.isascii() and page.notice.isprintable() for page in scene.pages)
    assert attack.check(scene)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_attack_on_a_login_gets_anything(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_http, "_SECONDS", 0.3 if "never come" in attack.name else 20.0)
    async with login_scene(NamedHosts(monkeypatch)) as scene:

        async def sleep(seconds: float) -> None:
            scene.sleeps.append(seconds)
            await asyncio.sleep(0)

        monkeypatch.setattr(grants, "asyncio", SimpleNamespace(sleep=sleep, timeout=asyncio.timeout))
        await attempt(scene, attack)


@pytest.fixture(scope="module")
def issuer(node_modules: Path) -> Iterator[AuthorizationServer]:
    with authorization_server(node_modules) as found:
        yield found


@pytest.mark.interop
@pytest.mark.parametrize("attack", REAL_ATTACKS)
async def test_no_attack_on_a_login_at_a_published_authorization_server_gets_anything(
    attack: Attack, issuer: AuthorizationServer
) -> None:
    async with login_scene(None, issuer) as scene:
        await attempt(scene, attack)


def test_every_attack_has_a_name_of_its_own() -> None:
    for attacks in TABLES.values():
        assert len({attack.name for attack in attacks}) == len(attacks)
    assert len(ATTACKS) >= 55 <= len(REAL_ATTACKS)
