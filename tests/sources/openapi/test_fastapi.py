"""A whole API with its own document behind `add_openapi`, used by the official SDK's client through the meta-tools."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import uvicorn
from mcp.client.client import Client

from deltamcp import ApiSettings, ClientCredentials, ConfigurationError, DeltaServer, Disclosure
from tests.support import warehouse_api as warehouse
from tests.support.http_server import serve_uvicorn
from tests.support.sdk_streams import sdk_streams

CREDENTIALS: dict[str, str | ClientCredentials] = {
    "bearer": "${BEARER}",
    "headerKey": "${HEADER_KEY}",
    "queryKey": "${QUERY_KEY}",
    "cookieKey": "${COOKIE_KEY}",
    "basic": f"{warehouse.USER}:${{PASSWORD}}",
    "robot": ClientCredentials(client_id=warehouse.CLIENT_ID, client_secret="${CLIENT_SECRET}"),
}
SECRETS = ("BEARER", "HEADER_KEY", "QUERY_KEY", "COOKIE_KEY", "PASSWORD", "CLIENT_SECRET")


DISCLOSURE = Disclosure("meta", query=True, destructive=True)


class Scene(NamedTuple):
    client: Client
    state: warehouse.State
    operations: list[str]

    async def run(self, operation: str, meta: str = "execute", **arguments: Any) -> tuple[bool, str]:
        """Whether the call of an operation failed, and its text."""
        outer: dict[str, Any] = {name: arguments.pop(name) for name in ("pages", "fields", "grep") if name in arguments}
        return await self.ask(meta, operation=operation, params=arguments, **outer)

    async def ask(self, meta: str, **arguments: Any) -> tuple[bool, str]:
        """Whether the call of a meta-tool failed, and its text."""
        called = await self.client.call_tool(meta, arguments)
        texts = [one.text if one.type == "text" else one.type for one in called.content]
        return bool(called.is_error), "\n".join(texts)


@contextlib.asynccontextmanager
async def scene(credentials: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Scene]:
    app = warehouse.make_app()
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off")
    async with serve_uvicorn(uvicorn.Server(config)) as address:
        server = DeltaServer("warehouse", disclosure=DISCLOSURE)
        chosen = ApiSettings(credentials=CREDENTIALS if credentials is None else credentials, **settings)
        # It waits for the document, which this loop serves.
        api = await asyncio.to_thread(server.add_openapi, f"{address}/openapi.json", chosen)
        assert not api.faults
        async with Client(sdk_streams(server), mode="auto") as client:
            yield Scene(client, app.state.warehouse, [one.id for one in api.operations])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, getattr(warehouse, name))


def skus(text: str) -> list[str]:
    """The rows that a text has, in its order."""
    return [word for word in re.findall("[a-z]+", text) if word in warehouse.SKUS]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


PARTY: dict[str, Any] = {"name": "Ada", "address": {"street": "Main 1", "city": "Bern"}}
STORED = '{"id":1,"name":"Ada","address":{"street":"Main 1","city":"Bern","country":"CH"},"note":null}'
# What a call of each operation says, by its id; those of the four collections come first.
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{name}.{action}": (arguments, told)
        for name in ("customers", "suppliers", "carriers", "branches")
        for action, arguments, told in (
            ("create", PARTY, STORED),
            ("list_all", {}, '"total":1'),
            ("read", {"number": 1}, STORED),
            ("replace", {"number": 1, **PARTY, "note": "n"}, '"note":"n"'),
            ("remove", {"number": 1}, "(empty result)"),
        )
    },
    "auth.with_bearer": ({}, "bearer"),
    "auth.with_header_key": ({}, "header"),
    "auth.with_query_key": ({"page": 2}, "query 2"),
    "auth.with_cookie_key": ({"lang": "fr"}, "cookie fr"),
    "auth.with_basic": ({}, "basic"),
    "auth.with_robot": ({}, "robot"),
    "pages.by_link": ({"per_page": 3}, "charlie"),
    "pages.by_cursor": ({"limit": 3}, "charlie"),
    "pages.by_address": ({}, "juliett"),
    "pages.by_offset": ({"limit": 3}, "charlie"),
    "pages.by_number": ({"size": 3}, "charlie"),
    "pages.by_last_id": ({"limit": 3}, "charlie"),
    "pages.while_full": ({"limit": 3}, "charlie"),
    "pages.that_break": ({"size": 3}, "charlie"),
    "shipments.ship": ({"body": {"kind": "parcel", "grams": 5}, "express": True}, '"grams":5,"express":true'),
    "shipments.plant": ({"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}, "3"),
    "shipments.log_in": ({"username": "ü&=", "roles": ["a", "b"]}, '{"username":"ü&=","roles":["a","b"]}'),
    "shipments.search": (
        {"q": "a b&c", "tag": ["x", "y"], "x-trace": "t", "lang": "de"},
        '{"q":"a b&c","tag":["x","y"],"x_trace":"t","lang":"de"}',
    ),
    "files.add_photos": ({"title": "t", "photos": [b64(b"123"), b64(b"12")]}, '"sizes":[3,2]'),
    "files.add_invoice": ({"invoice": b64(bytes(100))}, "100"),
    "files.add_bytes": ({"body": b64(bytes(7))}, "7"),
    "files.add_words": ({"body": "six words"}, "9"),
    "files.read_text": ({}, "plain words"),
    "files.read_image": ({}, "image"),
    "files.read_binary": ({}, "resource"),
    "files.look_at_binary": ({}, "(empty result)"),
    "odd.break_the_promise": ({}, '{"id":"seven"}'),
    "odd.redirect_here": ({}, "plain words"),
    "errors.be_busy_once": ({}, "done"),
    "errors.echo_secrets": ({}, "delta-mcp"),
}
FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "odd.redirect_away": ({}, "redirects to the host other.example, which is not followed."),
    "errors.fail": ({"status": 409}, "answered 409: this is 409"),
    "errors.fail_by_problem": ({}, "answered 403: Your balance is 30, but that costs 50."),
    "errors.fail_by_page": ({}, "answered 502: 502 Bad Gateway"),
    "errors.be_busy_for_posts": ({}, "answered 503: busy"),
}


async def test_every_operation_is_callable():
    async with scene() as warehouse_:
        assert len(warehouse_.operations) >= 40
        assert sorted(warehouse_.operations) == sorted([*CALLS, *FAILURES])
        for operation, (arguments, told) in CALLS.items():
            destroys = operation.endswith("remove")
            meta = "execute_destructive" if destroys else "execute"
            failed, text = await warehouse_.run(operation, meta, **arguments)
            assert not failed and told in text, (operation, text)
        for operation, (arguments, told) in FAILURES.items():
            failed, text = await warehouse_.run(operation, **arguments)
            assert failed and text.endswith(told), (operation, text)


async def test_what_an_operation_does_is_found_and_described():
    async with scene() as warehouse_:
        _, found = await warehouse_.ask("discover", query=["add photos"])
        assert "files.add_photos" in found
        _, described = await warehouse_.ask("get_schema", operation=["customers.create"])
        assert re.search(r"address:\{street.*city", described)


async def test_reading_operations_are_for_query_and_others_are_not():
    async with scene() as warehouse_:
        assert await warehouse_.run("files.read_text", meta="query") == (False, "plain words")
        failed, text = await warehouse_.run("customers.remove", meta="query", number=1)
        assert failed and "destructive" in text


# Errors


async def test_a_status_is_told_as_it_is():
    async with scene() as warehouse_:
        for status in (400, 401, 404, 418, 500, 502, 503):
            failed, text = await warehouse_.run("errors.fail", status=status)
            assert failed and text == f"GET /errors/{status} answered {status}: this is {status}"


async def test_too_many_requests_is_a_result_that_says_how_long_to_wait():
    async with scene() as warehouse_:
        _, text = await warehouse_.run("errors.fail", status=429)
    told = json.loads(text)
    assert (told["type"], told["retryAfterSeconds"]) == ("rate_limited", 120)


async def test_a_refused_argument_of_the_service_is_told_in_its_words():
    async with scene() as warehouse_:
        failed, text = await warehouse_.run("customers.list_all", limit=1, offset=0)
        assert not failed
        failed, text = await warehouse_.run("customers.create", name="a", address={"street": 1})
        assert failed and "address" in text and "city" in text


async def test_a_missing_credential_is_named_and_no_secret_is_told():
    async with scene(credentials={}) as warehouse_:
        failed, text = await warehouse_.run("auth.with_bearer")
    assert failed and "answered 401: Not authenticated" in text and "No credential is set for bearer" in text


async def test_a_wrong_credential_is_a_401_and_not_repeated():
    async with scene(credentials={"bearer": "wrong-0123456789"}) as warehouse_:
        failed, text = await warehouse_.run("auth.with_bearer")
    assert failed and text == "GET /auth/bearer answered 401: Not authenticated"


def test_a_credential_for_no_scheme_is_told_when_the_server_is_made():
    app = warehouse.make_app()
    with pytest.raises(ConfigurationError, match="no security scheme 'nobody'"):
        DeltaServer("warehouse").add_openapi(
            app.openapi(), ApiSettings(base_url="https://api.example", credentials={"nobody": "x"})
        )


async def test_tokens_of_a_client_are_kept_and_renewed_when_they_are_refused():
    async with scene() as warehouse_:
        for _ in range(3):
            assert await warehouse_.run("auth.with_robot") == (False, "robot")
        assert warehouse_.state.tokens_issued == 1
        warehouse_.state.valid_tokens.clear()
        assert await warehouse_.run("auth.with_robot") == (False, "robot")
        assert warehouse_.state.tokens_issued == 2


async def test_a_client_that_is_refused_is_told(monkeypatch):
    monkeypatch.setenv("CLIENT_SECRET", "another-secret")
    async with scene() as warehouse_:
        failed, text = await warehouse_.run("auth.with_robot")
    assert failed and "issued no token: invalid_client" in text and "another-secret" not in text


async def test_only_what_may_be_repeated_is_sent_again_after_retry_after():
    async with scene() as warehouse_:
        assert await warehouse_.run("errors.be_busy_once") == (False, "done")
        assert warehouse_.state.busy == 2
        assert (await warehouse_.run("errors.be_busy_for_posts"))[0]
        assert warehouse_.state.busy == 3


# Results


async def test_a_response_that_does_not_match_its_schema_is_noted_and_given():
    async with scene() as warehouse_:
        failed, text = await warehouse_.run("odd.break_the_promise")
    assert not failed
    value, note = text.split("\n", 1)
    assert json.loads(value) == {"id": "seven"} and note.startswith("(The response does not match its schema: ")


PAGED = ["by_link", "by_cursor", "by_address", "by_offset", "by_number", "by_last_id", "while_full"]


async def test_the_reply_names_the_next_call_until_there_is_none():
    async with scene() as warehouse_:
        for operation in PAGED:
            arguments: dict[str, Any] | None = {}
            seen: list[str] = []
            while arguments is not None and len(seen) < 2 * warehouse.ROWS:
                failed, text = await warehouse_.run(f"pages.{operation}", **arguments)
                assert not failed
                seen += skus(text)
                note = re.search(r"\(Next page: the same call with (\{.*\}); pages=N reads N at once\.\)", text)
                arguments = json.loads(note[1]) if note else None
            assert seen == warehouse.SKUS, operation


async def test_pages_are_followed_as_far_as_the_caller_asks():
    async with scene() as warehouse_:
        for operation in PAGED:
            for meta in ("query", "execute"):
                _, two = await warehouse_.run(f"pages.{operation}", meta, pages=2)
                _, all_of_it = await warehouse_.run(f"pages.{operation}", meta, pages=9)
                assert skus(two) == warehouse.SKUS[:20], operation
                assert "(2 pages.)" in two and "Next page" in two
                assert skus(all_of_it) == warehouse.SKUS, operation
                assert "(3 pages, all there are.)" in all_of_it


async def test_a_query_is_asked_of_all_pages():
    async with scene() as warehouse_:
        _, text = await warehouse_.run("pages.by_cursor", "query", pages=9, fields="length(data)")
    assert text.startswith("23")


async def test_a_page_that_fails_does_not_lose_those_before_it():
    async with scene() as warehouse_:
        failed, text = await warehouse_.run("pages.that_break", pages=3)
    assert not failed and len(skus(text)) == 10
    assert "(Page 2 could not be read: GET /pages/broken answered 500: the index is being built)" in text


async def test_a_number_of_pages_that_cannot_be_is_refused():
    async with scene() as warehouse_:
        for pages in (0, 21, "x", 1.5, True):
            failed, text = await warehouse_.run("pages.by_cursor", pages=pages)
            assert failed and "pages must be a number from 1 to 20" in text


async def test_pages_are_only_followed_where_nothing_changes():
    async with scene() as warehouse_:
        failed, text = await warehouse_.run("customers.create", pages=2, **PARTY)
    assert failed and "not declared read-only" in text


async def test_definitions_say_pages_only_where_some_operation_has_pages():
    def properties(server: DeltaServer) -> list[set[str]]:
        tools = {tool["name"]: tool for tool in server.engine.catalog.view()._meta_definitions.values()}
        return [set(tools[name]["inputSchema"]["properties"]) for name in ("execute", "query", "execute_destructive")]

    with_pages, without = DeltaServer("a", disclosure=DISCLOSURE), DeltaServer("b", disclosure=DISCLOSURE)
    url = "https://api.example"
    with_pages.add_openapi(warehouse.make_app().openapi(), ApiSettings(base_url=url))
    without.add_openapi(
        warehouse.make_app().openapi(), ApiSettings(base_url=url, deny=("tag:pages", "*list_all", "*query_key"))
    )
    assert ["pages" in one for one in properties(with_pages)] == [True, True, False]
    assert ["pages" in one for one in properties(without)] == [False, False, False]
