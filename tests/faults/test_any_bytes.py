"""Whatever a client sends, it gets the answers the protocol owes it, and the server serves on.

What is owed is worked out here from the bytes alone, with the standard library's `json`.
"""

import asyncio
import contextlib
import itertools
import json
import math
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from deltamcp import Context, DeltaServer, Limits
from tests.support.conditions import HANG_SECONDS
from tests.support.properties import examples
from tests.support.raw_link import RawLink, raw_link

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "hypothesis", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIMITS = Limits(message_bytes=8_192)
LAST = "the request after"

few = settings(max_examples=examples(150), derandomize=True)
many = settings(few, max_examples=examples(500))


def make_server() -> DeltaServer:
    server = DeltaServer("any", "1", limits=LIMITS)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def join(words: list[str], by: str = " ") -> str:
        return by.join(words)

    @server.tool
    async def echo(value: Any, ctx: Context) -> Any:
        await ctx.report_progress(1)
        await ctx.log("error", "a word", value)
        return {"value": value}

    @server.tool(input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async def raw(arguments: dict[str, Any]) -> str:
        return str(arguments["n"])

    @server.resource("any://thing")
    async def thing() -> str:
        return "a thing"

    @server.resource("any://{name}/part")
    async def part(name: str) -> str:
        return name

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}"

    @server.completion(prompt="greet", argument="name")
    async def names(value: str) -> list[str]:
        return [value + "x"]

    return server


# What may come

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
atoms = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
values = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
METHODS = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "tasks/get",
    "rpc.discover",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "notifications/message",
]
METAS: list[dict[str, Any]] = [
    META,
    {**META, "progressToken": 0},
    {**META, "progressToken": "t"},
    {**META, "io.modelcontextprotocol/logLevel": "debug"},
    {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}},
    {**META, "io.modelcontextprotocol/protocolVersion": LEGACY},
    {"progressToken": 7},
    {},
]
metas = (
    st.sampled_from(METAS)
    | st.dictionaries(
        st.sampled_from([*META, "progressToken", "io.modelcontextprotocol/logLevel"]) | texts, values, max_size=4
    )
    | values
)
RIGHT: dict[str, list[Any]] = {
    "name": ["add", "join", "echo", "raw", "greet", "ad", ""],
    "arguments": [{"a": 1, "b": 2}, {"a": "1"}, {"words": ["x"]}, {"value": [1]}, {"n": 1}, {"n": "x"}, {"name": "x"}],
    "uri": ["any://thing", "any://x/part", "any://%ff/part", "any://", "file:///etc/passwd", ""],
    "cursor": ["", "MQ==", "0"],
    "level": ["debug", "loud"],
    "ref": [{"type": "ref/prompt", "name": "greet"}, {"type": "ref/resource", "uri": "any://{name}/part"}, {}],
    "argument": [{"name": "name", "value": "x"}, {"name": "other", "value": ""}, {}],
    "context": [{"arguments": {"name": "x"}}, {"arguments": 1}],
    "notifications": [{"toolsListChanged": True}, {"resourceSubscriptions": ["any://thing"]}, {}],
    "protocolVersion": [LEGACY, "2024-11-05", "2025-03-26", MODERN, "x"],
    "capabilities": [{}, {"roots": {"listChanged": True}}, {"sampling": {}, "elicitation": {}}],
    "clientInfo": [{"name": "x", "version": "1"}, {}],
    "requestId": [1, "1", LAST + "!"],
    "requestState": ["", "x", "djE="],
    "inputResponses": [{}, {"x": {"action": "accept", "content": {}}}],
    "progressToken": [1, "t"],
    "progress": [1, 0.5],
}
params = st.fixed_dictionaries(
    {}, optional={**{key: st.sampled_from(right) | values for key, right in RIGHT.items()}, "_meta": metas}
)
good_ids = st.integers(-(2**62), 2**62) | texts
ids = good_ids | st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | values
methods = st.sampled_from(METHODS) | texts
requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": good_ids, "method": methods}, optional={"params": params | st.none()}
)
almost = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | st.just("2.0") | values,
        "id": ids,
        "method": methods | values,
        "params": params | values,
        "result": values,
        "error": values | st.just({"code": -1, "message": "no"}),
        "extra": values,
    },
)
notifications = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": methods}, optional={"params": params | st.none()}
)
ENDINGS: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": 1, "message": "x"}}]
responses = st.builds(lambda id_, ending: {"jsonrpc": "2.0", "id": id_, **ending}, good_ids, st.sampled_from(ENDINGS))
messages = requests | almost | notifications | responses


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """JSON with a piece cut out, doubled, or written over."""
    data = json.dumps(draw(messages), ensure_ascii=draw(st.booleans())).encode()
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    middle = draw(
        st.sampled_from([b"", data[start:end] * 2, b"\xff", rb"\ud800", b"1e999", b"NaN", b"[" * 200, b"\x00"])
    )
    return data[:start] + middle + data[end:]


bodies = (
    st.binary(max_size=200)
    | values.map(lambda value: json.dumps(value).encode())
    | messages.map(lambda value: json.dumps(value).encode())
    | messages.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1).encode())
    | st.lists(messages, max_size=3).map(lambda value: json.dumps(value).encode())
    | broken()
)


# What is owed


class NotJsonError(ValueError):
    pass


def refuse(word: str) -> Any:
    raise NotJsonError(word)


def finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJsonError(text)
    return number


def short(text: str) -> int:
    if len(text) > 1_300:
        raise NotJsonError(text)
    return int(text)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        found["twice"] = True
    return found


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def parsed(body: bytes) -> Any:
    """The value of a body under the limits; raises where it has none."""
    text = body.decode()
    try:
        value = json.loads(text, parse_constant=refuse, parse_float=finite, parse_int=short, object_pairs_hook=once)
    except RecursionError:
        raise NotJsonError("deep") from None
    if depth(value) > LIMITS.depth:
        raise NotJsonError("deep")
    for found in strings(value):
        found.encode()
    return value


def right_id(value: Any) -> bool:
    return type(value) is int or (type(value) is str and len(value) <= LIMITS.id_chars)


def owed(body: bytes) -> tuple[str, Any]:
    """("answer", the id) · ("error", None) · ("nothing", None) · ("either", None) where the protocol leaves it open."""
    if len(body) > LIMITS.message_bytes:
        return "error", None
    try:
        value = parsed(body)
    except ValueError:
        return ("error" if body.strip() else "either"), None
    if not isinstance(value, dict):
        return "error", None
    if "twice" in value:
        return "either", None
    method, jsonrpc, given_params = value.get("method"), value.get("jsonrpc"), value.get("params")
    sound = jsonrpc == "2.0" and isinstance(method, str) and (given_params is None or isinstance(given_params, dict))
    if "method" in value and "id" in value:
        return ("answer", value["id"]) if right_id(value["id"]) else ("error", None)
    if sound:
        return "nothing", None
    answers = jsonrpc == "2.0" and not {"method", "params"} & set(value) and right_id(value.get("id"))
    if answers and "result" in value and "error" not in value:
        return "nothing", None
    return "either", None


def check_message(message: Any) -> None:
    """It is one JSON-RPC message, whatever it says."""
    assert isinstance(message, dict)
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        assert isinstance(message["method"], str)
        assert isinstance(message.get("params", {}), dict)
        return
    assert ("result" in message) != ("error" in message), message
    assert set(message) == {"jsonrpc", "id", "result" if "result" in message else "error"}
    if "error" in message:
        assert type(message["error"]["code"]) is int
        assert isinstance(message["error"]["message"], str)
        assert message["error"]["message"]
        assert "Traceback" not in message["error"]["message"]
    else:
        assert isinstance(message["result"], dict)
        assert right_id(message["id"])


def decode(data: bytes) -> Any:
    assert b"\n" not in data.rstrip(b"\n")
    return json.loads(data, parse_constant=refuse)


def is_answer(message: Any) -> bool:
    return "method" not in message


def same_id(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def request(method: str, given: dict[str, Any], id_: Any = LAST) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": given}).encode()


ADD = {"name": "add", "arguments": {"a": 2, "b": 3}, "_meta": META}
INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


# In memory


@contextlib.asynccontextmanager
async def linked(handshake: bool) -> AsyncIterator[RawLink]:
    async with raw_link(make_server().engine) as link:
        if handshake:
            link.send(request("initialize", INITIALIZE, "open"))
            assert "result" in decode(await link.receive())
            link.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield link


async def heard(link: RawLink, enough: Any) -> list[Any]:
    """What came until there is enough of it, and a moment longer."""
    found: list[Any] = []
    async with asyncio.timeout(HANG_SECONDS):
        while not enough(found):
            found.append(decode(await link.receive()))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            while True:
                found.append(decode(await link.receive()))
    return found


def answered(found: Iterable[Any], id_: Any) -> list[Any]:
    return [message for message in found if is_answer(message) and same_id(message["id"], id_)]


def subscribed(found: Iterable[Any]) -> bool:
    return any(message.get("method") == "notifications/subscriptions/acknowledged" for message in found)


async def check_one(body: bytes, handshake: bool) -> None:
    kind, id_ = owed(body)
    async with linked(handshake) as link:
        link.send(body)
        link.send(request("tools/call", ADD))

        def enough(found: list[Any]) -> bool:
            if not answered(found, LAST):
                return False
            return kind not in {"answer", "error"} or len(list(filter(is_answer, found))) > 1 or subscribed(found)

        try:
            found = await heard(link, enough)
        except TimeoutError:
            raise AssertionError(f"no answer to {body!r}") from None
        for message in found:
            check_message(message)
        (last,) = answered(found, LAST)
        assert last["result"]["content"][0]["text"] == "5"
        rest = [message for message in found if is_answer(message) and message is not last]
        if kind == "nothing":
            assert rest == []
        elif kind == "answer":
            assert len(rest) == 1 or (rest == [] and subscribed(found))
            assert all(same_id(message["id"], id_) or message["error"]["code"] == -32600 for message in rest)
        elif kind == "error":
            (message,) = rest
            assert message["id"] is None or message["error"]["code"] == -32600
            assert message["error"]["code"] in {-32700, -32600}
        else:
            assert len(rest) <= 1


@many
@given(bodies, st.booleans())
@example(b"", False)
@example(b"[]", True)
@example(b"null", False)
@example(b"\xef\xbb\xbf{}", False)
@example(b'{"jsonrpc":"","\x80":"\\u0000"}', False)
@example(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', True)
async def test_any_bytes_get_what_they_are_owed_and_the_server_serves_on(body: bytes, handshake: bool) -> None:
    await check_one(body, handshake)


@many
@given(requests, st.booleans())
async def test_every_request_is_answered_exactly_once(message: dict[str, Any], handshake: bool) -> None:
    await check_one(json.dumps(message).encode(), handshake)


@few
@given(notifications | responses, st.booleans())
async def test_no_notification_and_no_response_is_answered(message: dict[str, Any], handshake: bool) -> None:
    assert owed(json.dumps(message).encode())[0] in {"nothing", "either"}
    await check_one(json.dumps(message).encode(), handshake)


@few
@given(st.lists(bodies, max_size=8), st.booleans())
async def test_a_stream_of_anything_is_survived(stream: list[bytes], handshake: bool) -> None:
    async with linked(handshake) as link:
        for body in stream:
            link.send(body)
        link.send(request("tools/call", ADD))
        found = await heard(link, lambda found: bool(answered(found, LAST)))
        for message in found:
            for one in message if isinstance(message, list) else [message]:
                check_message(one)
        assert len(answered(found, LAST)) == 1
        link.send(request("server/discover", {"_meta": META}, "still there"))
        found = await heard(link, lambda found: bool(answered(found, "still there")))
        assert "result" in answered(found, "still there")[0]


@few
@given(st.lists(requests, min_size=2, max_size=8, unique_by=lambda message: repr(message["id"])), st.booleans())
async def test_requests_sent_together_are_each_answered_once(stream: list[dict[str, Any]], handshake: bool) -> None:
    stream = [message for message in stream if message["method"] != "subscriptions/listen"]
    async with linked(handshake) as link:
        for message in stream:
            link.send(json.dumps(message).encode())
        link.send(request("tools/call", ADD))

        def enough(found: list[Any]) -> bool:
            return len(list(filter(is_answer, found))) > len(stream)

        found = await heard(link, enough)
        for message in [*stream, {"id": LAST}]:
            assert len(answered(found, message["id"])) == 1, message


# Over ASGI

PRINTABLE = st.binary(max_size=30).filter(lambda value: not set(value) & {0, 10, 13})
HEADERS: dict[bytes, list[bytes]] = {
    b"host": [b"localhost", b"127.0.0.1:8000", b"evil.example.com", b""],
    b"origin": [b"http://localhost", b"http://evil.example.com", b"null", b""],
    b"content-type": [b"application/json", b"application/json; charset=utf-8", b"text/plain", b""],
    b"accept": [b"application/json, text/event-stream", b"text/event-stream, application/json", b"*/*", b"text/html"],
    b"content-length": [b"0", b"5", b"-1", b"99999999999999999999", b"x"],
    b"content-encoding": [b"identity", b"gzip", b""],
    b"transfer-encoding": [b"chunked"],
    b"mcp-protocol-version": [MODERN.encode(), LEGACY.encode(), b"2025-03-26", b"v999", b""],
    b"mcp-session-id": [b"nobody", b"", b"\xff"],
    b"mcp-method": [method.encode() for method in METHODS],
    b"mcp-name": [b"add", b"echo", b"any://thing", b"=?base64?YWRk?=", b"=?base64?!?="],
    b"mcp-param-region": [b"x"],
    b"last-event-id": [b"1", b"x", b"0-0"],
    b"authorization": [b"Bearer x", b"Basic"],
}
USUAL = {
    b"host": b"localhost",
    b"content-type": b"application/json",
    b"accept": b"application/json, text/event-stream",
}
header = st.sampled_from(sorted(HEADERS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name]) | PRINTABLE)
)
odd_headers = st.lists(header, max_size=5)
verbs = st.sampled_from(["POST"] * 8 + ["GET", "DELETE", "PUT", "OPTIONS", "HEAD", "PATCH", "X"])
paths = st.sampled_from(["/mcp"] * 8 + ["/", "/mcp/", "/mcp/x", "//mcp", "/mcp\x00", "/\xff"])
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 411, 413, 415, 421, 431, 501}


class Exchange:
    """One request to an ASGI application, and all it says to it."""

    def __init__(
        self, verb: str, path: str, headers: list[tuple[bytes, bytes]], pieces: list[bytes], cut: bool
    ) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8_000),
            "state": {},
        }
        self.pieces = list(pieces)
        self.cut = cut
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self.pieces:
            piece = self.pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self.pieces) or self.cut}
        if not self.cut:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    async def run(self, app: Any) -> None:
        task = asyncio.create_task(app(self.scope, self.receive, self.send))
        await asyncio.wait({task}, timeout=HANG_SECONDS if not self.waits() else 0.1)
        while not task.done() and not self.gone.is_set():
            if self.streams():
                self.gone.set()
            await asyncio.wait({task}, timeout=0.1 if not self.gone.is_set() else HANG_SECONDS)
        assert task.done(), "neither answered nor let go"
        task.result()

    def waits(self) -> bool:
        """Whether the answer may be a stream without an end."""
        return self.scope["method"] == "GET" or b"subscriptions/listen" in b"".join(self.pieces)

    def streams(self) -> bool:
        return any(value.startswith(b"text/event-stream") for name, value in self.headers() if name == b"content-type")

    def headers(self) -> list[tuple[bytes, bytes]]:
        return list(self.sent[0].get("headers", [])) if self.sent else []

    def check(self, body: bytes) -> None:
        """There is exactly one whole HTTP response, and JSON-RPC in it."""
        if self.cut and not self.sent:
            return
        start, *parts = self.sent
        assert start["type"] == "http.response.start"
        assert start["status"] in STATUSES, start
        assert all(part["type"] == "http.response.body" for part in parts)
        assert parts
        assert all(part.get("more_body", False) for part in parts[:-1])
        if not self.gone.is_set():
            assert not parts[-1].get("more_body", False)
        for name, value in self.headers():
            assert name == name.lower()
            assert not set(value) & {0, 10, 13}
        written = b"".join(part.get("body", b"") for part in parts)
        if start["status"] in {202, 204}:
            assert written == b""
        kinds = [value for name, value in self.headers() if name == b"content-type"]
        found: list[Any] = []
        if kinds == [b"text/event-stream"]:
            for block in written.decode().split("\n\n"):
                data = "\n".join(line[5:].strip() for line in block.split("\n") if line.startswith("data:"))
                if data:
                    found.append(json.loads(data, parse_constant=refuse))
        elif written:
            assert kinds == [b"application/json"]
            found.append(json.loads(written, parse_constant=refuse))
        for message in found:
            for one in message if isinstance(message, list) else [message]:
                check_message(one)
        if start["status"] >= 400 and found:
            assert "error" in found[-1]
        kind, id_ = owed(body)
        if start["status"] == 200 and self.scope["method"] == "POST" and found and not self.gone.is_set():
            assert kind in {"answer", "either"}
            if kind == "answer":
                assert [same_id(message["id"], id_) for message in found if is_answer(message)] == [True]
        if start["status"] == 202:
            assert kind in {"nothing", "either"}, body


@contextlib.asynccontextmanager
async def mounted() -> AsyncIterator[Any]:
    """The application between its lifespan's startup and shutdown."""
    app = make_server().asgi()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, events.get, said.put))
    async with asyncio.timeout(HANG_SECONDS):
        events.put_nowait({"type": "lifespan.startup"})
        assert (await said.get())["type"] == "lifespan.startup.complete"
    try:
        yield app
    finally:
        async with asyncio.timeout(HANG_SECONDS):
            events.put_nowait({"type": "lifespan.shutdown"})
            assert (await said.get())["type"] == "lifespan.shutdown.complete"
            await life


def pieces_of(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
    return [body[start:end] for start, end in itertools.pairwise(places)] or [b""]


def usual_headers(message: Any) -> dict[bytes, bytes]:
    """The headers a modern client would send with a message, as far as it can be told."""
    headers = {**USUAL, b"mcp-protocol-version": MODERN.encode()}
    if isinstance(message, dict) and isinstance(message.get("method"), str):
        headers[b"mcp-method"] = message["method"].encode()
        given_params = message.get("params")
        name = given_params.get("name", given_params.get("uri")) if isinstance(given_params, dict) else None
        if isinstance(name, str):
            headers[b"mcp-name"] = name.encode()
    return headers


async def check_http(
    verb: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes, cuts: list[int], cut: bool
) -> Exchange:
    async with mounted() as app:
        exchange = Exchange(verb, path, headers, pieces_of(body, cuts), cut)
        await exchange.run(app)
        exchange.check(body)
        last = request("tools/call", ADD)
        after = Exchange("POST", "/mcp", list(usual_headers(json.loads(last)).items()), [last], False)
        await after.run(app)
        after.check(last)
        assert after.sent[0]["status"] == 200
    return exchange


@few
@given(verbs, paths, odd_headers, st.booleans(), bodies, st.lists(st.integers(0, 999), max_size=3), st.booleans())
async def test_any_http_request_gets_exactly_one_response(
    verb: str, path: str, odd: list[tuple[bytes, bytes]], usual: bool, body: bytes, cuts: list[int], cut: bool
) -> None:
    headers = [*USUAL.items(), *odd] if usual else odd
    await check_http(verb, path, headers, body, cuts, cut)


@few
@given(bodies, st.lists(st.integers(0, 999), max_size=3))
@example(b'{"\x80":0,"jsonrpc":"","":"\\u0000"}', [])
async def test_any_body_over_http_gets_exactly_one_response(body: bytes, cuts: list[int]) -> None:
    exchange = await check_http("POST", "/mcp", list(USUAL.items()), body, cuts, False)
    if owed(body)[0] == "error":
        assert exchange.sent[0]["status"] in {400, 413}


@many
@given(requests, odd_headers)
async def test_any_modern_request_gets_exactly_one_response(
    message: dict[str, Any], odd: list[tuple[bytes, bytes]]
) -> None:
    headers = {**usual_headers(message), **dict(odd)}
    body = json.dumps(message).encode()
    exchange = await check_http("POST", "/mcp", list(headers.items()), body, [], False)
    assert exchange.sent[0]["status"] != 202


@few
@given(st.lists(messages, min_size=1, max_size=4), odd_headers)
async def test_any_message_in_a_session_gets_exactly_one_response(
    stream: list[dict[str, Any]], odd: list[tuple[bytes, bytes]]
) -> None:
    async with mounted() as app:
        opening = request("initialize", INITIALIZE)
        opened = Exchange("POST", "/mcp", list(USUAL.items()), [opening], False)
        await opened.run(app)
        opened.check(opening)
        session = dict(opened.headers())[b"mcp-session-id"]
        headers = {**USUAL, b"mcp-protocol-version": LEGACY.encode(), b"mcp-session-id": session}
        for message in stream:
            body = json.dumps(message).encode()
            exchange = Exchange("POST", "/mcp", list({**headers, **dict(odd)}.items()), [body], False)
            await exchange.run(app)
            exchange.check(body)
        last = request("ping", {})
        after = Exchange("POST", "/mcp", list(headers.items()), [last], False)
        await after.run(app)
        after.check(last)
        assert after.sent[0]["status"] == 200
