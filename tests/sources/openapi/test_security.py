"""What requests carry so that the service knows who sends them, and where they go: only to hosts that may get that."""

import base64
import json
from typing import Any

import keyring
import pytest

from deltamcp import ApiSettings, ClientCredentials, ConfigurationError, DeltaServer, connect
from deltamcp.client.links import http1
from deltamcp.sources.openapi import location
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.document import OpenApiDocument
from tests.support.http_peer import Heard, Peer, listening, reply

KEY = "sk-0123456789abcdef"


def document(schemes: dict[str, Any], security: list[dict[str, list[str]]], **more: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.1",
        "info": {"title": "Safe", "version": "1"},
        "paths": {
            "/thing": {"get": {"operationId": "look"}, "post": {"operationId": "change"}},
        },
        "components": {"securitySchemes": schemes},
        "security": security,
        **more,
    }


async def heard_by(given: dict[str, Any], credentials: dict[str, Any], operation: str = "look") -> Heard:
    async with listening() as peer:
        server = DeltaServer("safe")
        server.add_openapi(given, ApiSettings(base_url=peer.url, credentials=credentials))
        async with connect(server) as client:
            await client.call_tool(operation, {})
    return peer.heard[-1]


@pytest.mark.parametrize(
    ("scheme", "credential", "place", "expected"),
    [
        ({"type": "apiKey", "in": "header", "name": "X-Key"}, KEY, "x-key", KEY),
        ({"type": "apiKey", "in": "query", "name": "key"}, "a&b=c", "target", "/thing?key=a%26b%3Dc"),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, KEY, "cookie", f"sid={KEY}"),
        ({"type": "http", "scheme": "bearer"}, KEY, "authorization", f"Bearer {KEY}"),
        ({"type": "http", "scheme": "bearer"}, f"Bearer {KEY}", "authorization", f"Bearer {KEY}"),
        (
            {"type": "http", "scheme": "basic"},
            "ada:pässword",
            "authorization",
            f"Basic {base64.b64encode('ada:pässword'.encode()).decode()}",
        ),
        ({"type": "http", "scheme": "DPoP"}, KEY, "authorization", f"DPoP {KEY}"),
        ({"type": "openIdConnect", "openIdConnectUrl": "https://x.example"}, KEY, "authorization", f"Bearer {KEY}"),
        (
            {"type": "oauth2", "flows": {"authorizationCode": {"tokenUrl": "https://x.example"}}},
            KEY,
            "authorization",
            f"Bearer {KEY}",
        ),
    ],
)
async def test_a_credential_goes_where_its_scheme_says(scheme, credential, place, expected, monkeypatch):
    monkeypatch.setenv("CREDENTIAL", credential)
    heard = await heard_by(document({"one": scheme}, [{"one": []}]), {"one": "${CREDENTIAL}"})
    assert (heard.target if place == "target" else heard.headers[place]) == expected


async def test_of_several_alternatives_the_first_whose_credentials_are_set_is_sent():
    schemes = {
        name: {"type": "apiKey", "in": "header", "name": f"X-{name}"} for name in ("none", "first", "second", "third")
    }
    given = document(schemes, [{"none": []}, {"first": [], "none": []}, {"second": [], "third": []}, {"first": []}])
    heard = await heard_by(given, {"first": "111111", "second": "222222", "third": "333333"})
    sent = {name: text for name, text in heard.headers.items() if name.startswith("x-")}
    assert sent == {"x-second": "222222", "x-third": "333333"}


async def test_an_operation_that_needs_no_credential_gets_none():
    given = document({"one": {"type": "http", "scheme": "bearer"}}, [{"one": []}])
    given["paths"]["/thing"]["get"]["security"] = []
    assert "authorization" not in (await heard_by(given, {"one": KEY})).headers


async def test_no_model_is_asked_for_a_credential_and_none_can_replace_it():
    scheme = {"type": "apiKey", "in": "header", "name": "X-Key"}
    given = document({"one": scheme}, [{"one": []}])
    given["paths"]["/thing"]["get"]["parameters"] = [{"name": "X-Key", "in": "header", "schema": {"type": "string"}}]
    async with listening() as peer:
        server = DeltaServer("safe")
        api = server.add_openapi(given, ApiSettings(base_url=peer.url, credentials={"one": KEY}))
        assert api.operations[0].input_schema["properties"] == {}
        async with connect(server, validate=False) as client:
            reply_ = await client.call_tool("look", {"X-Key": "mine"})
    assert reply_.is_error and not peer.heard


async def test_a_secret_of_the_keyring_is_filled_in(monkeypatch):
    def get_password(service: str, name: str) -> str | None:
        return KEY if name == "safe-api" else None

    monkeypatch.setattr(keyring, "get_password", get_password)
    given = document({"one": {"type": "http", "scheme": "bearer"}}, [{"one": []}])
    heard = await heard_by(given, {"one": "${keyring:safe-api}"})
    assert heard.headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(ConfigurationError, match="delta-mcp secret set other"):
        await heard_by(given, {"one": "${keyring:other}"})


@pytest.mark.parametrize("place", ["body", "error"])
async def test_what_a_service_repeats_of_a_credential_is_left_out(place):
    given = document({"one": {"type": "http", "scheme": "basic"}}, [{"one": []}])
    encoded = base64.b64encode(f"ada:{KEY}".encode()).decode()
    answer = reply(200 if place == "body" else 400, json.dumps({"message": f"{KEY} {encoded}"}))
    async with listening(answer) as peer:
        server = DeltaServer("safe")
        server.add_openapi(given, ApiSettings(base_url=peer.url, credentials={"one": f"ada:{KEY}"}))
        async with connect(server) as client:
            told = (await client.call_tool("look", {})).text
    assert KEY not in told and encoded not in told and "..." in told


# Where requests go


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "10.1.2.3", "192.168.1.1", "169.254.169.254", "[::1]", "0.0.0.0", "2130706433"]
)
def test_a_document_names_no_private_address(host):
    given = document({}, [], servers=[{"url": f"http://{host}/v1"}])
    with pytest.raises(ConfigurationError, match="no public address, and nobody named it; set base_url"):
        DeltaServer("safe").add_openapi(given)
    for settings in (ApiSettings(hosts=(host.strip("[]"),)), ApiSettings(base_url=f"http://{host}/v1")):
        DeltaServer("safe").add_openapi(given, settings)


async def test_a_name_that_stands_for_a_private_address_is_not_connected_to(monkeypatch):
    async with listening() as peer:
        port = int(peer.url.rpartition(":")[2])

        async def resolve(host: str, at: int) -> list[Any]:
            assert (host, at) == ("api.example", port)
            return await http1.resolve_host("127.0.0.1", at)

        monkeypatch.setattr(location, "resolve_host", resolve)
        given = document({}, [], servers=[{"url": f"http://api.example:{port}"}])
        for hosts in ((), ("api.example",)):
            server = DeltaServer("safe")
            server.add_openapi(given, ApiSettings(hosts=hosts))
            async with connect(server) as client:
                told = await client.call_tool("look", {})
            if not hosts:
                assert told.is_error and "api.example is at an address that is not public" in told.text
                assert not peer.heard and not peer.connections


async def test_an_operation_with_a_server_of_its_own_goes_there_only_if_that_may_be(monkeypatch):
    given = document({}, [], servers=[{"url": "https://api.example"}])
    given["paths"]["/thing"]["get"]["servers"] = [{"url": "http://127.0.0.1:1/internal"}]
    server = DeltaServer("safe")
    server.add_openapi(given)
    async with connect(server) as client:
        told = await client.call_tool("look", {})
    assert told.is_error and "127.0.0.1 is no public address" in told.text


async def test_redirects_stay_on_the_origin_and_credentials_with_them():
    async with listening() as other:

        def answer(heard: Heard) -> bytes:
            return reply(307, "", "", f"location: {other.url}/stolen")

        async with listening(answer) as peer:
            server = DeltaServer("safe")
            given = document({"one": {"type": "http", "scheme": "bearer"}}, [{"one": []}])
            server.add_openapi(given, ApiSettings(base_url=peer.url, credentials={"one": KEY}))
            async with connect(server) as client:
                told = await client.call_tool("look", {})
    assert told.is_error and "which is not followed" in told.text and not other.heard


# Servers


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "https://eu.api.example/v1"),
        ({"variables": {"region": "us"}}, "https://us.api.example/v1"),
        ({"server": 1}, "https://test.example"),
        ({"server": "https://test.example/"}, "https://test.example"),
        ({"base_url": "https://mine.example"}, "https://mine.example"),
    ],
)
def test_the_server_is_the_one_that_the_user_chooses(settings, url):
    servers = [
        {
            "url": "https://{region}.api.example/v1",
            "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}},
        },
        {"url": "https://test.example/"},
    ]
    assert Api(OpenApiDocument(document({}, [], servers=servers)), ApiSettings(**settings)).base_url == url
    with pytest.raises(ConfigurationError, match="must be one of eu, us"):
        assert Api(OpenApiDocument(document({}, [], servers=servers)), ApiSettings(variables={"region": "x"})).base_url


def test_a_document_that_does_not_say_where_the_api_is_needs_base_url():
    with pytest.raises(ConfigurationError, match="does not say where the API is; set base_url"):
        DeltaServer("safe").add_openapi(document({}, []))


# OAuth 2


def token_document(token_url: str) -> dict[str, Any]:
    flow = {"tokenUrl": token_url, "scopes": {"a": "", "b": ""}}
    return document({"robot": {"type": "oauth2", "flows": {"clientCredentials": flow}}}, [{"robot": ["a", "b"]}])


def issuer(heard: list[Heard], reads_header: bool) -> Any:
    def answer(one: Heard) -> bytes:
        heard.append(one)
        if one.target != "/token":
            return reply(200, "1")
        if ("authorization" in one.headers) != reads_header:
            return reply(401, '{"error":"invalid_client"}')
        return reply(200, '{"access_token":"issued-0123456789","token_type":"Bearer"}')

    return answer


@pytest.mark.parametrize("reads_header", [True, False])
async def test_a_client_gets_a_token_by_the_header_or_the_form(reads_header):
    heard: list[Heard] = []
    async with listening(issuer(heard, reads_header)) as peer:
        robot = ClientCredentials(client_id="robot", client_secret="a secret&more")
        server = DeltaServer("safe")
        server.add_openapi(
            token_document(f"{peer.url}/token"), ApiSettings(base_url=peer.url, credentials={"robot": robot})
        )
        async with connect(server) as client:
            assert [await client.call("look") for _ in range(2)] == [1, 1]
    asked = [one for one in heard if one.target == "/token"]
    assert len(asked) == (1 if reads_header else 2)
    fields = asked[-1].body.decode()
    assert fields.startswith("grant_type=client_credentials&scope=a+b")
    assert ("client_secret=a+secret%26more" in fields) != reads_header
    assert [one.headers["authorization"] for one in heard if one.target == "/thing"] == ["Bearer issued-0123456789"] * 2


@pytest.mark.parametrize(
    ("token_url", "part"),
    [
        ("http://issuer.example/token", "which is not https"),
        ("https://10.0.0.1/token", "is no public address"),
        ("https://169.254.169.254/latest", "is no public address"),
    ],
)
def test_a_document_lures_no_secret_to_an_unsafe_address(token_url, part):
    robot = ClientCredentials(client_id="robot", client_secret="secret-0123456789")
    with pytest.raises(ConfigurationError, match=part) as told:
        DeltaServer("safe").add_openapi(
            token_document(token_url), ApiSettings(base_url="https://api.example", credentials={"robot": robot})
        )
    assert "secret-0123456789" not in str(told.value)


@pytest.mark.parametrize(("operation", "attempts"), [("look", 2), ("change", 1)])
async def test_retry_after_is_waited_for_where_the_request_has_no_effect_twice(operation, attempts):
    async with listening(reply(503, "", "", "retry-after: 0")) as peer:
        await _call(peer, operation)
        assert len(peer.heard) == attempts
    async with listening(reply(503, "", "", "retry-after: 60")) as peer:
        await _call(peer, operation)
        assert len(peer.heard) == 1


async def _call(peer: Peer, operation: str) -> None:
    server = DeltaServer("safe")
    server.add_openapi(document({}, []), ApiSettings(base_url=peer.url))
    async with connect(server) as client:
        assert (await client.call_tool(operation, {})).is_error
