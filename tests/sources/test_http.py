"""Operations that send HTTP requests to a server on a socket; Python handlers and environment variables."""

import asyncio
import base64
import contextlib
import email.utils
import gzip
import json
import math
import sys
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import Audio, BlobResource, ConfigurationError, EmbeddedResource, Image, Limits, ToolError
from deltamcp.calls.rate_limits import rate_limit_result
from deltamcp.catalog.operations_file import HttpHandler, ParameterPlace, ServiceEntry
from deltamcp.runtime.threads import Computations
from deltamcp.sources import http
from deltamcp.sources.http import HttpService, fill_variables
from deltamcp.sources.operations_loader import resolve_function
from tests.support.conditions import advance_clock, wait_until
from tests.support.http_peer import Heard, Peer, listening, reply

SECRET = "sk-0123456789abcdef"
STEPS = 4_000_000


@contextlib.asynccontextmanager
async def service(answer: Any = None, /, *, base: str = "", **options: Any) -> AsyncIterator[tuple[HttpService, Peer]]:
    async with listening(answer) as peer:
        entry = ServiceEntry(base_url=f"{peer.url}{base}", **options)
        made = HttpService(entry, {"KEY": SECRET}, Computations(STEPS), Limits())
        try:
            yield made, peer
        finally:
            await made.close()


# Requests


@pytest.mark.parametrize(
    ("handler", "arguments", "target", "body"),
    [
        (HttpHandler("GET", "/a/{id}"), {"id": "x/y ?#%é"}, "/a/x%2Fy%20%3F%23%25%C3%A9", b""),
        (HttpHandler("GET", "/a/{id}.json"), {"id": 3}, "/a/3.json", b""),
        (HttpHandler("GET", "/a/{ids}"), {"ids": [1, "b,c"]}, "/a/1,b%2Cc", b""),
        (
            HttpHandler("GET", "/a", {"q": ParameterPlace("query", "search")}),
            {"q": "a&b=c d"},
            "/a?search=a%26b%3Dc%20d",
            b"",
        ),
        (HttpHandler("GET", "/a"), {"on": True, "off": False, "none": None}, "/a?on=true&off=false", b""),
        (HttpHandler("GET", "/a"), {"n": [1, None, 2.5], "o": {"x": 1}}, "/a?n=1&n=2.5&o=%7B%22x%22%3A1%7D", b""),
        (HttpHandler("GET", "/a?kind=x"), {"q": 1}, "/a?kind=x&q=1", b""),
        (HttpHandler("DELETE", "/a/{id}"), {"id": 1, "hard": True}, "/a/1?hard=true", b""),
        (HttpHandler("POST", "/a/{id}"), {"id": 1, "t": "é", "n": None}, "/a/1", '{"t":"é","n":null}'.encode()),
        (HttpHandler("POST", "/a"), {}, "/a", b""),
        (HttpHandler("PUT", "/a", {"all": ParameterPlace("body", "*")}), {"all": [1, 2]}, "/a", b"[1,2]"),
        (HttpHandler("PUT", "/a", {"all": ParameterPlace("body", "*")}), {"all": []}, "/a", b"[]"),
        (HttpHandler("PUT", "/a", {"all": ParameterPlace("body", "*")}), {"all": "x"}, "/a", b'"x"'),
        (
            HttpHandler("POST", "/a", {"f": ParameterPlace("form", "f")}),
            {"f": "a b", "g": [1, 2]},
            "/a",
            b"f=a%20b&g=1&g=2",
        ),
        (HttpHandler("GET", "/a", {"t": ParameterPlace("body", "t")}), {"t": 1}, "/a", b'{"t":1}'),
    ],
)
async def test_arguments_go_to_their_places(handler, arguments, target, body):
    async with service(base="/api/") as (made, peer):
        assert await made.call(handler, arguments) is None
    (heard,) = peer.heard
    assert (heard.method, heard.target, heard.body) == (handler.method, f"/api{target}", body)
    if body:
        form = any(place.location == "form" for place in handler.param_map.values())
        assert heard.headers["content-type"] == ("application/x-www-form-urlencoded" if form else "application/json")


async def test_headers_and_cookies_are_sent_and_the_services_own_filled_in():
    handler = HttpHandler(
        "GET",
        "/",
        {"a": ParameterPlace("header", "X-A"), "b": ParameterPlace("cookie", "b"), "c": ParameterPlace("cookie", "c")},
    )
    async with service(headers={"Authorization": "Bearer ${KEY}"}) as (made, peer):
        await made.call(handler, {"a": ["x", 1], "b": "1", "c": True})
    headers = peer.heard[0].headers
    assert (headers["authorization"], headers["x-a"], headers["cookie"]) == (f"Bearer {SECRET}", "x, 1", "b=1; c=true")


async def test_a_body_that_is_not_json_is_sent_as_it_is():
    handler = HttpHandler("POST", "/", {"text": ParameterPlace("body", "*")})
    async with service(headers={"Content-Type": "text/plain"}) as (made, peer):
        await made.call(handler, {"text": "as it is"})
    assert peer.heard[0].body == b"as it is"


async def test_a_base_with_a_query_keeps_it():
    async with service(base="/v1?key=${KEY}") as (made, peer):
        await made.call(HttpHandler("GET", "/a"), {"q": 1})
    assert peer.heard[0].target == f"/v1/a?key={SECRET}&q=1"


@pytest.mark.parametrize(
    ("handler", "arguments", "part"),
    [
        (HttpHandler("GET", "/a/{id}/b"), {"id": ".."}, "must not be '..'"),
        (HttpHandler("GET", "/a/{id}"), {"id": "."}, "must not be '.'"),
        (HttpHandler("GET", "/a/{x}{y}"), {"x": ".", "y": "."}, "must not be '..'"),
        (HttpHandler("DELETE", "/a/{id}"), {"id": ""}, "must not be empty"),
        (HttpHandler("DELETE", "/a/{id}"), {}, "id is part of the address and must be given"),
        (HttpHandler("DELETE", "/a/{id}"), {"id": None}, "must be given"),
        (HttpHandler("GET", "/", {"a": ParameterPlace("header", "X-A")}), {"a": "x\r\nEvil: 1"}, "line breaks"),
        (HttpHandler("GET", "/", {"a": ParameterPlace("cookie", "a")}), {"a": "x; b=1"}, "semicolons"),
    ],
)
async def test_arguments_that_would_change_the_request_are_refused(handler, arguments, part):
    async with service() as (made, peer):
        with pytest.raises(ToolError, match=part):
            await made.call(handler, arguments)
    assert peer.heard == []


# Responses

GET = HttpHandler("GET", "/thing")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(200, '{"a":[1,null]}'), {"a": [1, None]}),
        (reply(201, "[]", "application/problem+json; charset=utf-8"), []),
        (reply(200, "not json"), "not json"),
        (reply(200, "hé", "text/plain; charset=utf-8"), "hé"),
        (reply(200, "hé".encode("latin-1"), "text/plain; charset=latin-1"), "hé"),
        (reply(200, "hé", "text/plain; charset=nonsense"), "hé"),
        (reply(200, "<a/>", "application/atom+xml"), "<a/>"),
        (reply(200, "plain", ""), "plain"),
        (reply(200, b"\x00\xff", ""), EmbeddedResource(BlobResource("response:/thing", b"\x00\xff"))),
        (reply(200, b"\x89PNG", "image/png"), Image(b"\x89PNG", "image/png")),
        (reply(200, b"RIFF", "audio/wav"), Audio(b"RIFF", "audio/wav")),
        (
            reply(200, b"%PDF", "application/pdf"),
            EmbeddedResource(BlobResource("response:/thing", b"%PDF", "application/pdf")),
        ),
        (reply(204, kind=""), None),
        (reply(200, b""), None),
    ],
)
async def test_a_response_becomes_what_its_type_says(answer, expected):
    async with service(answer) as (made, _):
        assert await made.call(GET, {}) == expected


async def test_a_refusal_is_told_with_its_body_and_without_secrets():
    answer = reply(401, f'{{"error":"the key {SECRET} is wrong"}}', "application/json", "x-internal: hidden")
    async with service(answer, headers={"Authorization": "Bearer ${KEY}"}) as (made, _):
        with pytest.raises(ToolError) as caught:
            await made.call(GET, {"token": "asked"})
    assert str(caught.value) == "GET /thing answered 401: the key ... is wrong"


ECHOES: dict[str, tuple[bytes, str]] = {
    "json": (json.dumps({"key": [SECRET], f"a {SECRET}": 1}).encode(), "application/json"),
    "escaped json": (SECRET.join(['{"a":"', '"}']).replace("-", "\\u002d").encode(), "application/json"),
    "broken json": (f'{{"a": "{SECRET}"'.encode(), "application/json"),
    "text": (f"you sent {SECRET}".encode(), "text/plain"),
    "utf-16": (f"you sent {SECRET}".encode("utf-16"), "text/plain; charset=utf-16"),
    "base64": (base64.b64encode(f"user:{SECRET}".encode()), "text/plain"),
    "an image": (f"\x89PNG {SECRET}".encode("latin-1"), "image/png"),
    "bytes": (f"\x00{SECRET}".encode(), "application/octet-stream"),
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("kind", ECHOES)
async def test_a_secret_that_a_service_repeats_is_left_out(kind, status):
    body, media_type = ECHOES[kind]
    async with service(reply(status, body, media_type), headers={"X-Key": "${KEY}"}) as (made, _):
        try:
            answer = repr(await made.call(HttpHandler("GET", "/"), {}))
        except ToolError as refused:
            answer = str(refused)
    assert "..." in answer and SECRET not in answer
    assert base64.b64encode(SECRET.encode()).decode()[:12] not in answer


@pytest.mark.parametrize("length", range(480, 520, 3))
async def test_the_cut_of_a_refusal_does_not_reveal_the_beginning_of_a_secret(length):
    body = "x" * length + SECRET * 2_000
    async with service(reply(400, body, "text/plain"), headers={"X-Key": "${KEY}"}) as (made, _):
        with pytest.raises(ToolError) as refused:
            await made.call(HttpHandler("GET", "/"), {})
    assert SECRET[:3] not in str(refused.value)


async def test_a_host_that_is_not_followed_is_named_without_secrets():
    answer = reply(302, "", "", f"location: http://{SECRET}.example.com/")
    async with service(answer, headers={"X-Key": "${KEY}"}) as (made, _):
        with pytest.raises(ToolError) as refused:
            await made.call(HttpHandler("GET", "/"), {})
    assert "....example.com" in str(refused.value)


# Sizes


async def test_a_compressed_response_is_read():
    for encoding, body in (
        ("gzip", gzip.compress(b"hello") + gzip.compress(b" there")),
        ("deflate", zlib.compress(b"hello there")),
        ("deflate", zlib.compress(b"hello there", wbits=-15)),
    ):
        answer = reply(200, body, "text/plain", f"content-encoding: {encoding}")
        async with service(answer) as (made, peer):
            assert await made.call(HttpHandler("GET", "/"), {}) == "hello there"
            assert peer.heard[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("br", b"x"), ("gzip", b"no gzip"), ("gzip", gzip.compress(b"hello" * 100, mtime=0)[:-9]), ("gzip, gzip", b"")],
)
async def test_a_response_that_cannot_be_decompressed_is_told(encoding, body):
    async with service(reply(200, body, "text/plain", f"content-encoding: {encoding}")) as (made, _):
        with pytest.raises(ToolError, match="broke off"):
            await made.call(HttpHandler("GET", "/"), {})


@pytest.mark.parametrize("body", ["[" + "[]," * 1_000_000 + "[]]", "[" * 1_000 + "]" * 1_000])
async def test_json_of_too_many_values_is_refused_before_it_is_decoded(body, monkeypatch):
    monkeypatch.setattr(http, "decode_counted", lambda *_: 1 / 0)
    async with service(reply(200, body)) as (made, _):
        with pytest.raises(ToolError, match="500,000 values or 128 levels"):
            await made.call(HttpHandler("GET", "/"), {})


async def test_a_response_may_have_more_values_than_a_request():
    rows = [{f"field{place}": place * number for place in range(10)} for number in range(6_000)]
    async with service(reply(200, json.dumps(rows))) as (made, _):
        assert await made.call(HttpHandler("GET", "/"), {}) == rows


async def test_a_small_response_that_is_large_once_decompressed_is_refused_before_it_is_whole(monkeypatch):
    sizes: list[int] = []
    inflate = http._Inflate

    class Counted(inflate):  # type: ignore[valid-type, misc]
        def pieces(self, chunk: bytes) -> Any:
            for piece in super().pieces(chunk):
                sizes.append(len(piece))
                yield piece

    monkeypatch.setattr(http, "_Inflate", Counted)
    bomb = gzip.compress(b"\0" * 64 * 1024 * 1024)
    async with service(reply(200, bomb, "text/plain", "content-encoding: gzip")) as (made, _):
        with pytest.raises(ToolError, match="more than 8 MiB"):
            await made.call(HttpHandler("GET", "/"), {})
    assert max(sizes) <= 64 * 1024 and sum(sizes) <= 8 * 1024 * 1024 + 64 * 1024


async def test_a_long_refusal_is_cut():
    async with service(reply(500, "x" * 100_000, "text/plain")) as (made, _):
        with pytest.raises(ToolError) as caught:
            await made.call(GET, {})
    assert str(caught.value) == f"GET /thing answered 500: {'x' * 500}"


async def test_a_silent_refusal_has_the_status_line_for_a_text():
    async with service(reply(404)) as (made, _):
        with pytest.raises(ToolError, match=r"^GET /thing answered 404: Said$"):
            await made.call(GET, {})


async def test_too_many_requests_can_be_known_for_what_they_are():
    later = email.utils.formatdate(time.time() + 3600, usegmt=True)
    for said, seconds in (("17", {17}), (later, set(range(3500, 3602))), ("soon", {30})):
        async with service(reply(429, "slow down", "text/plain", f"retry-after: {said}")) as (made, _):
            with pytest.raises(ToolError, match=r"answered 429: slow down$") as raised:
                await made.call(GET, {})
        limited = rate_limit_result(raised.value, "thing", time.time())
        assert limited is not None and limited["retryAfterSeconds"] in seconds


async def test_a_response_beyond_the_cap_is_refused(monkeypatch):
    monkeypatch.setattr(http, "_MAX_RESPONSE_BYTES", 1 << 20)
    async with service(reply(200, b"x" * ((1 << 20) + 1), "text/plain")) as (made, _):
        with pytest.raises(ToolError, match="more than 1 MiB"):
            await made.call(GET, {})


async def test_redirects_are_followed_on_the_same_host_only():
    def answer(heard: Heard) -> bytes:
        where = {"/thing": "/there", "/loop": "/loop"}.get(heard.target)
        if where:
            return reply(302, "", "", f"location: {where}")
        if heard.target == "/away":
            return reply(302, "", "", "location: http://localhost:1/?stolen")
        return reply(200, "1")

    async with service(answer, headers={"X-Key": "${KEY}"}) as (made, peer):
        assert await made.call(GET, {}) == 1
        assert [heard.headers["x-key"] for heard in peer.heard] == [SECRET, SECRET]
        with pytest.raises(ToolError, match="host localhost, which is not followed"):
            await made.call(HttpHandler("GET", "/away"), {})
        with pytest.raises(ToolError, match="answered 302"):
            await made.call(HttpHandler("GET", "/loop"), {})


async def test_cookies_of_a_response_are_forgotten():
    async with service(reply(200, "1", "application/json", "set-cookie: session=theirs")) as (made, peer):
        await made.call(GET, {})
        await made.call(GET, {})
    assert "cookie" not in peer.heard[1].headers


async def test_connections_are_kept_for_the_next_call():
    async with service(reply(200, "1")) as (made, peer):
        for _ in range(3):
            await made.call(GET, {})
    assert peer.connections == 1


# Failures


@pytest.mark.parametrize(("method", "attempts"), [("GET", 2), ("PUT", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)])
async def test_only_what_may_be_repeated_is_tried_twice(method, attempts):
    async with service(lambda heard: None) as (made, peer):
        with pytest.raises(ToolError, match=f"^{method} /thing got no answer from the service; try again later.$"):
            await made.call(HttpHandler(method, "/thing"), {})
    assert len(peer.heard) == attempts


async def test_a_second_attempt_that_succeeds_is_the_answer():
    answers = iter([None, reply(200, "1")])
    async with service(lambda heard: next(answers)) as (made, _):
        assert await made.call(GET, {}) == 1


async def test_a_service_that_is_not_there_is_told_in_one_sentence():
    made = HttpService(ServiceEntry(base_url="http://127.0.0.1:1"), {}, Computations(STEPS), Limits())
    with pytest.raises(ToolError, match=r"^GET /thing got no answer from the service; try again later.$"):
        await made.call(GET, {})
    await made.close()


async def test_a_response_that_breaks_off_is_told():
    async with service(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nabc") as (made, _):
        with pytest.raises(ToolError, match=r"^GET /thing broke off before its answer was complete; try again later.$"):
            await made.call(GET, {})


async def test_a_service_that_says_nothing_is_not_waited_for():
    async with service(b"", timeout=3600) as (made, peer):
        call = asyncio.create_task(made.call(GET, {}))
        await wait_until(lambda: bool(peer.heard))
        advance_clock(3600)
        with pytest.raises(ToolError, match=r"^GET /thing took longer than 3600 s; try again later.$"):
            await call
        assert len(peer.heard) == 1


# Variables


def test_variables_are_filled_in_and_a_missing_one_is_named():
    assert fill_variables("a ${X}-${Y:-z} $X {X} ${1}", {"X": "1"}) == "a 1-z $X {X} ${1}"
    with pytest.raises(ConfigurationError, match="variable NOPE is not set"):
        fill_variables("${NOPE}", {"OTHER": SECRET})


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (ServiceEntry(base_url="${HOST}/v1"), "'\\${HOST}/v1' must give an address"),
        (ServiceEntry(base_url="http://"), "must give an address"),
        (ServiceEntry(base_url="https://x", headers={"A": "${LINES}"}), "header a gets a value with line breaks"),
        (ServiceEntry(base_url="https://x", headers={"A": "${NOPE}"}), "NOPE is not set"),
    ],
)
def test_a_service_that_cannot_work_is_told_when_it_is_made(given, part):
    with pytest.raises(ConfigurationError, match=part) as caught:
        HttpService(given, {"HOST": SECRET, "LINES": f"{SECRET}\nx"}, Computations(STEPS), Limits())
    assert SECRET not in str(caught.value)


# Functions


def test_functions_and_methods_are_found_by_name():
    assert resolve_function("math:floor") is math.floor
    assert resolve_function("json:JSONDecoder.decode") is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("ref", "part"),
    [
        ("math.floor", "package.module:function"),
        ("no_such_module:f", "There is no module no_such_module"),
        ("json.nothing:f", "There is no module json.nothing"),
        ("math:flor", "The module math has no flor"),
        ("math:pi", "must be a function; it is of type float"),
    ],
)
def test_what_is_not_there_is_told_in_one_sentence(ref, part):
    with pytest.raises(ConfigurationError, match=part):
        resolve_function(ref)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import absent_dependency", "broken_handlers could not be imported: ModuleNotFoundError.*absent_dependency"),
        ("from json import nothing", "broken_handlers could not be imported: ImportError"),
        ("1/0", "broken_handlers could not be imported: ZeroDivisionError"),
        ("def f(:", "broken_handlers could not be imported: SyntaxError"),
    ],
)
def test_a_module_that_breaks_is_not_taken_for_an_absent_one(source, part, tmp_path, monkeypatch):
    (tmp_path / "broken_handlers.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=part):
        resolve_function("broken_handlers:f")
    sys.modules.pop("broken_handlers", None)
