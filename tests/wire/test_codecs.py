"""JSON, compact JSON and CBOR: the same message three ways, over every transport that has them.

Bytes in hexadecimal were written by cbor-x 1.6, the library of the original Delta-MCP, or read by it as noted. The
numbers of cases are those of the original's conformance scenarios.
"""

import asyncio
import json
import math
from typing import Any

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel

from deltamcp import Context, DeltaServer, Limits
from deltamcp.dialects import progressive_disclosure
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.progressive_disclosure import ENCODINGS, LINE_ENCODINGS
from deltamcp.values import Failure, Malformed, Notification, Request
from deltamcp.wire import codecs, jsonrpc
from deltamcp.wire.codecs import CBOR_CODEC, CODECS, COMPACT_CODEC, JSON_CODEC, SHORT_KEYS, Codec
from tests.support.asgi_client import AsgiClient, AsgiExchange, asgi_client
from tests.support.conditions import HANG_SECONDS
from tests.support.equality import is_same
from tests.support.properties import examples
from tests.support.raw_client import META
from tests.support.raw_link import RawLink, raw_link

LIMITS = Limits()
DELTA = "delta-mcp/0.2.0"
HOSTILE = [*SHORT_KEYS, *SHORT_KEYS.values(), "~", "~n", "~~deep", "~name", "toString", "constructor", "__proto__"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.sampled_from([2**32 - 1, 2**32, -(2**32), -(2**32) - 1, 2**53, 2**53 + 1, 2**64, -(2**64) - 1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(HOSTILE) | texts, inner, max_size=6),
    max_leaves=20,
)
messages = values.map(lambda value: {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"value": value}})
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo", "arguments": {"value": 1}}}


# The key map


@given(values)
def test_cs_05_06_lengthening_undoes_shortening(value):
    before = json.dumps(value)
    assert is_same(codecs.restore_keys(codecs.shorten_keys(value)), value)
    assert json.dumps(value) == before


def test_cs_05_08_short_codes_are_unique_and_no_words_themselves():
    assert len(SHORT_KEYS) == len(set(SHORT_KEYS.values())) == 16
    assert not set(SHORT_KEYS) & set(SHORT_KEYS.values())


@pytest.mark.parametrize(
    ("plain", "compact"),
    [
        (
            {"jsonrpc": "2.0", "id": 3, "result": {"name": "x", "inputSchema": {"type": "object", "properties": {}}}},
            b'{"j":"2.0","i":3,"r":{"n":"x","s":{"tp":"object","properties":{}}}}',
        ),
        (
            {"jsonrpc": "2.0", "id": 4, "error": {"code": -32602, "message": "Unknown tool: zzz"}},
            b'{"j":"2.0","i":4,"e":{"c":-32602,"msg":"Unknown tool: zzz"}}',
        ),
        ({"properties": {"name": {}, "t": {}}}, b'{"properties":{"n":{},"~t":{}}}'),
        pytest.param({"jsonrpc": "2.0", "method": "tools/list"}, b'{"j":"2.0","m":"tools/list"}', id="CS-05-05"),
        pytest.param({"custom": "x", "nested": {"other": 1}}, b'{"custom":"x","nested":{"other":1}}', id="CS-05-07"),
        pytest.param({"n": 1, "t": 2, "d": 3, "i": 4, "c": 5}, b'{"~n":1,"~t":2,"~d":3,"~i":4,"~c":5}', id="CS-05-11"),
        pytest.param({"name": 1, "n": 2, "description": 3, "d": 4}, b'{"n":1,"~n":2,"d":3,"~d":4}', id="CS-05-12"),
        pytest.param(
            {"toString": 1, "constructor": 2, "hasOwnProperty": 3},
            b'{"toString":1,"constructor":2,"hasOwnProperty":3}',
            id="CS-05-13",
        ),
        pytest.param({"~n": 1, "~~deep": {"~": 2}}, b'{"~~n":1,"~~~deep":{"~~":2}}', id="CS-05-14"),
        ({"tools": [{"content": [{"type": "text", "text": "name"}]}]}, b'{"t":[{"cnt":[{"tp":"text","tx":"name"}]}]}'),
        ({"outputSchema": {}, "method": "m", "params": []}, b'{"os":{},"m":"m","p":[]}'),
    ],
)
def test_compact_json_has_the_originals_bytes(plain, compact):
    assert COMPACT_CODEC.encode(plain) == compact
    assert COMPACT_CODEC.decode(compact) == plain


def test_long_keys_are_read_as_they_are():
    assert COMPACT_CODEC.decode(jsonrpc.encode(CALL)) == CALL
    assert COMPACT_CODEC.decode(b'{"a":{"name":1,"n":2}}') == {"a": {"name": 2}}


@pytest.mark.parametrize("body", [b'{"id":1,"i":2}', b'{"i":1,"i":2}', b'{"i":1,"\\u0069":2}'])
def test_a_key_that_is_there_twice_is_refused_in_the_envelope(body):
    with pytest.raises(ValueError, match="twice"):
        COMPACT_CODEC.decode(body)


# Any codec


@pytest.mark.parametrize(
    "codec",
    [
        pytest.param(COMPACT_CODEC, id="CS-05-04"),
        pytest.param(JSON_CODEC, id="CS-05-09"),
        pytest.param(CBOR_CODEC, id="CS-05-10"),
    ],
)
@given(value=values)
def test_what_is_read_is_what_was_written(codec: Codec, value):
    found = codec.decode(codec.encode(value))
    assert found == value
    if codec is not CBOR_CODEC:
        assert is_same(found, value)


@every_codec
@given(value=values)
def test_a_body_of_json_can_be_written_another_way(codec: Codec, value):
    assert codec.decode(codecs.transcode(jsonrpc.encode(value), codec)) == value


def test_json_is_not_touched():
    body = b'{ "a" : 1.0 }'
    assert codecs.transcode(body, JSON_CODEC) is body


class Point(Struct):
    x: int
    name: str


class Model(BaseModel):
    n: float


@every_codec
def test_an_authors_types_are_written_as_in_json(codec: Codec):
    written = codec.encode({"point": Point(1, "x"), "model": Model(n=2.5), "pair": (1, 2), "data": b"x"})
    expected = {"point": {"x": 1, "name": "x"}, "model": {"n": 2.5}, "pair": [1, 2], "data": "eA=="}
    assert codec.decode(written) == expected


@every_codec
@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}, "\ud800", object(), [10**5000]])
def test_what_json_cannot_say_is_not_written(codec: Codec, value):
    with pytest.raises(ValueError):
        codec.encode(value)


@every_codec
def test_a_result_nested_as_deep_as_json_goes_is_written(codec: Codec):
    body = b"[" * 600 + b"]" * 600
    assert len(codecs.transcode(body, codec)) >= 600


@every_codec
@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(codec: Codec, body):
    try:
        value = codec.decode(body)
    except ValueError as error:
        assert str(error).startswith(("The message ", "A message ")) and str(error).endswith(".")
        assert isinstance(codec.read_messages(body, LIMITS), Malformed)
    else:
        assert codec.decode(codec.encode(value)) == value


@every_codec
@given(message=messages, cut=st.integers(0, 400), piece=st.binary(max_size=3))
def test_a_broken_message_is_refused_or_another_message(codec: Codec, message, cut, piece):
    body = codec.encode(message)
    codec.read_messages(body[:cut] + piece + body[cut + len(piece) :], LIMITS)
    with pytest.raises(ValueError):
        codec.decode(body[: min(cut, len(body) - 1)])


@every_codec
@given(message=messages)
def test_a_request_is_read_as_from_json(codec: Codec, message):
    assert codec.read_messages(codec.encode(message), LIMITS) == jsonrpc.read(jsonrpc.encode(message), LIMITS)


@every_codec
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "n"},
        {"jsonrpc": "2.0", "method": "n", "params": None, "extra": 1},
        {"jsonrpc": "2.0", "id": "x" * 257, "method": "n"},
        {"jsonrpc": "2.0", "id": None, "method": "n"},
        {"jsonrpc": "2.0", "id": True, "method": "n"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "n"},
        {"jsonrpc": "2.0", "id": 2**32, "method": "n"},
        {"jsonrpc": "2.0", "id": 2**53 + 1, "method": "n"},
        {"jsonrpc": "2.0", "id": 1, "method": "n", "params": [1]},
        {"jsonrpc": "1.0", "id": 1, "method": "n"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        [{"jsonrpc": "2.0", "id": 1, "method": "n"}, 3],
        [],
        3,
        None,
    ],
)
def test_the_rules_of_json_rpc_are_the_same(codec: Codec, message):
    assert codec.read_messages(codec.encode(message), LIMITS) == jsonrpc.read(jsonrpc.encode(message), LIMITS)


@every_codec
@pytest.mark.parametrize("levels", [126, 127, 128, 400, 100_000])
def test_the_nesting_limit_is_the_same(codec: Codec, levels):
    body = jsonrpc.encode({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 0}})
    body = body.replace(b"0}}", b"[" * levels + b"]" * levels + b"}}")
    if codec is CBOR_CODEC:
        body = cbor2.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 0}})[:-1]
        body += b"\x81" * (levels - 1) + b"\x80"
    message = codec.read_messages(body, LIMITS)
    assert isinstance(message, Request) == (levels + 2 <= LIMITS.depth)
    if isinstance(message, Malformed):
        assert message.id == 1
        assert "nested" in message.reason or (levels > 1000 and "values" in message.reason)


# CBOR

REQUEST = "b90004676a736f6e72706363322e3062696401666d6574686f646a746f6f6c732f6c69737466706172616d73f7"
CALL_WITH_ODDITIES = (
    "b90004676a736f6e72706363322e3062696407666d6574686f646a746f6f6c732f63616c6c66706172616d73b90002646e616d65636164646961"
    "7267756d656e7473b900056161016162fb41f0000000000000656c696d6974f76474616773826178f7626174c1fb41d954fc4007df3b"
)


def test_a_request_of_cbor_x_is_read():
    assert CBOR_CODEC.read_messages(bytes.fromhex(REQUEST), LIMITS) == Request(1, "tools/list", {})


def test_what_a_javascript_peer_cannot_say_in_json_is_read_as_what_it_would_have_said():
    arguments = {"a": 1, "b": 4294967296, "tags": ["x", None], "at": "2023-11-14T22:13:20.123Z"}
    message = CBOR_CODEC.read_messages(bytes.fromhex(CALL_WITH_ODDITIES), LIMITS)
    assert isinstance(message, Request)
    assert is_same(message.params, {"name": "add", "arguments": arguments})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("b90000", {}),
        ("83010203", [1, 2, 3]),
        ("b900016161b90001616283f6f5f4", {"a": {"b": [None, True, False]}}),
        ("1affffffff", 4294967295),
        ("fb41f0000000000000", 4294967296),
        ("20", -1),
        ("3affffffff", -4294967296),
        ("fbc1f0000000100000", -4294967297),
        ("fb43b0000000000000", 2**60),
        ("fb444b1ae4d6e2ef50", 1e21),
        ("1bab54a98ceb1f0ad2", 12345678901234567890),
        ("3bab54a98ceb1f0ad1", -12345678901234567890),
        ("c249400000000000000000", 2**70),
        ("fb3ff8000000000000", 1.5),
        ("fb3fb999999999999a", 0.1),
        ("65c3a9e29c8d", "é✍"),
        ("c11a6553f100", "2023-11-14T22:13:20.000Z"),
        ("c1fbbff8000000000000", "1969-12-31T23:59:58.500Z"),
        # Not cbor-x's own, but read by it so:
        ("f93e00", 1.5),
        ("fa3fc00000", 1.5),
        ("bf616101ff", {"a": 1}),
        ("bf6161f7ff", {}),
        ("9f0102ff", [1, 2]),
        ("a1016161", {"1": "a"}),
        ("c349010000000000000000", -(2**64) - 1),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
    ],
)
def test_cbor_of_others_is_read(written, value):
    assert is_same(CBOR_CODEC.decode(bytes.fromhex(written)), value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, None]}, "a161618201f6"),
        (2**32 - 1, "1affffffff"),
        # cbor-x makes a BigInt of every integer of eight bytes, so those a double can hold are sent as one.
        (2**32, "fb41f0000000000000"),
        (2**53, "fb4340000000000000"),
        (2**53 + 1, "1b0020000000000001"),
        (2**64, "c249010000000000000000"),
        (-(2**64) - 1, "c349010000000000000000"),
        (1.5, "fb3ff8000000000000"),
        ("é✍", "65c3a9e29c8d"),
    ],
)
def test_cbor_is_written_as_cbor_x_reads_it(value, written):
    assert CBOR_CODEC.encode(value).hex() == written


@given(values)
def test_cbor_of_another_library_is_read(value):
    assert CBOR_CODEC.decode(cbor2.dumps(value)) == value
    assert CBOR_CODEC.decode(cbor2.dumps(value, indefinite_containers=True)) == value


@given(values)
def test_another_library_reads_our_cbor(value):
    assert cbor2.loads(CBOR_CODEC.encode(value)) == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "cut short"),
        ("9bffffffffffffffff", "cut short"),
        ("bbffffffffffffffff", "cut short"),
        ("7bffffffffffffffff", "cut short"),
        ("9b7fffffffffffffff00", "cut short"),
        ("5bffffffffffffffff", "byte string"),
        ("c25bffffffffffffffff", "digits"),
        ("c25907d0" + "ff" * 2000, "digits"),
        ("c26161", "out of range"),
        ("1901", "cut short"),
        ("fb00", "cut short"),
        ("9f01", "cut short"),
        ("a16161", "cut short"),
        ("0000", "after its end"),
        ("01ff", "after its end"),
        ("ff", "not valid"),
        ("81ff", "not valid"),
        ("bf6161ff", "not valid"),
        ("1c", "not valid"),
        ("f7", "undefined"),
        ("426869", "byte string"),
        ("a1414101", "byte string"),
        ("7f61616162ff", "indefinite length"),
        ("5f4101ff", "indefinite length"),
        ("d901028101", "tag"),
        ("d90103a1016161", "tag"),
        ("d81c81d81d00", "tag"),
        ("c482010a", "tag"),
        ("d8236128", "tag"),
        ("f0", "simple value"),
        ("f8ff", "simple value"),
        ("fb7ff8000000000000", "not finite"),
        ("fb7ff0000000000000", "not finite"),
        ("f97c00", "not finite"),
        ("62c328", "UTF-8"),
        ("63eda080", "UTF-8"),
        ("a1f501", "not text"),
        ("a18001", "not text"),
        ("a1f701", "not text"),
        ("a1fb3ff800000000000001", "not text"),
        ("a2616101616102", "twice"),
        ("a20161616131f5", "twice"),
        ("c1fb429f6ea086000000", "out of range"),
        ("c11bffffffffffffffff", "out of range"),
        ("c1c24a" + "ff" * 10, "out of range"),
        ("c16161", "date"),
        ("c001", "date"),
        ("c1" * 2000 + "00", "nested"),
    ],
)
def test_cbor_that_is_no_json_is_refused_with_the_reason(body, reason):
    with pytest.raises(ValueError, match=reason):
        CBOR_CODEC.decode(bytes.fromhex(body))


@given(
    st.recursive(
        st.sampled_from(["f6", "00", "c100", "c24101"]),
        lambda i: st.lists(i, max_size=5).map(lambda items: f"{0x80 + len(items):x}" + "".join(items)),
        max_leaves=30,
    ),
    st.binary(max_size=8),
    st.integers(0, 60),
)
@example("c1", b"\xc2\x4a" + b"\xff" * 10, 0)
def test_nothing_in_cbor_raises_anything_else(written, noise, place):
    body = bytes.fromhex(written)
    try:
        CBOR_CODEC.decode(body[:place] + noise + body[place:])
    except ValueError as error:
        assert str(error).startswith("The message ")


# Headers


@pytest.mark.parametrize(
    ("header", "codec"),
    [
        ("application/json", JSON_CODEC),
        ("application/json; charset=utf-8", JSON_CODEC),
        ("application/json; variant=compact", COMPACT_CODEC),
        ("application/json;variant=compact;charset=utf-8", COMPACT_CODEC),
        ("application/cbor", CBOR_CODEC),
        ("application/cbor; variant=compact", CBOR_CODEC),
        ("text/plain", JSON_CODEC),
        ("", JSON_CODEC),
    ],
)
def test_content_types_name_a_codec(header, codec):
    assert codecs.codec_for_content_type(header) is codec
    assert codecs.codec_for_content_type(codec.content_type) is codec


@pytest.mark.parametrize(
    ("header", "asked", "codec"),
    [
        ("application/cbor, application/json", JSON_CODEC, CBOR_CODEC),
        ("application/cbor;q=0, application/json", JSON_CODEC, CBOR_CODEC),
        ("application/json; variant=compact, application/json", JSON_CODEC, COMPACT_CODEC),
        ("application/json, text/event-stream", CBOR_CODEC, JSON_CODEC),
        ("text/event-stream", CBOR_CODEC, CBOR_CODEC),
        ("*/*", COMPACT_CODEC, COMPACT_CODEC),
        ("", JSON_CODEC, JSON_CODEC),
    ],
)
def test_accept_names_a_codec_or_leaves_it_at_the_requests(header, asked, codec):
    assert codecs.codec_for_accept(header, asked) is codec


# Negotiation


@pytest.mark.parametrize(
    ("offered", "ours", "agreed"),
    [
        pytest.param({"compactJson": True, "cbor": True}, ENCODINGS, "cbor", id="CS-05-01"),
        ({"cbor": True}, ENCODINGS, "cbor"),
        pytest.param({"compactJson": True, "cbor": True}, LINE_ENCODINGS, "compact-json", id="CS-05-02"),
        ({"compactJson": True, "cbor": False}, ENCODINGS, "compact-json"),
        ({"compactJson": {}}, ENCODINGS, "compact-json"),
        ({"cbor": True}, LINE_ENCODINGS, "json"),
        pytest.param({}, ENCODINGS, "json", id="CS-05-03"),
        (None, ENCODINGS, "json"),
        ({"compactJson": 0, "cbor": ""}, ENCODINGS, "json"),
    ],
)
def test_the_best_encoding_that_both_have_is_agreed_on(offered, ours, agreed):
    capabilities = {} if offered is None else {"encoding": offered}
    agreement = DeltaMcp().agree({"protocolVersion": "delta-mcp/0.2.0", "capabilities": capabilities}, ours)
    assert not isinstance(agreement, Failure) and agreement.encoding == agreed


def test_every_encoding_we_name_is_one_we_have():
    assert {"json", *ENCODINGS} == set(CODECS)
    assert set(LINE_ENCODINGS) <= set(ENCODINGS)


# Over HTTP


@pytest.fixture
def server():
    server = DeltaServer("x", "1")

    @server.tool(output_schema={"type": "object"})
    async def echo(value: Any) -> dict[str, Any]:
        return {"value": value}

    @server.tool(output_schema={"type": "object"})
    async def talks(ctx: Context, value: Any) -> dict[str, Any]:
        await ctx.report_progress(1)
        return {"value": value}

    return server


def initialize(**encoding: bool) -> dict[str, Any]:
    capabilities = {"tools": {"progressiveDisclosure": True}, "encoding": encoding}
    params = {"protocolVersion": DELTA, "capabilities": capabilities, "clientInfo": {"name": "x", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def post(client: AsgiClient, body: bytes, codec: Codec, accept: str | None = None, **headers: str) -> AsgiExchange:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    accept = f"{codec.content_type}, application/json" if accept is None else accept
    headers = {**client.headers, "content-type": codec.content_type, "accept": accept, **named}
    return AsgiExchange(client._app, "POST", headers, body)


async def answer(exchange: AsgiExchange, codec: Codec, status: int = 200) -> Any:
    found, headers = await exchange.start()
    assert (found, headers["content-type"]) == (status, codec.content_type)
    body = (await exchange.next())["body"]
    assert int(headers["content-length"]) == len(body)
    return codec.decode(body)


async def opened(client: AsgiClient, **encoding: bool) -> dict[str, Any]:
    exchange = client.post(initialize(**encoding))
    status, headers = await exchange.start()
    assert (status, headers["content-type"]) == (200, "application/json")
    client.headers["mcp-session-id"] = headers["mcp-session-id"]
    result: dict[str, Any] = (await exchange.json())["result"]
    return result


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [({"compactJson": True}, COMPACT_CODEC), ({"compactJson": True, "cbor": True}, CBOR_CODEC), ({}, JSON_CODEC)],
)
async def test_08_04_a_client_initialises_and_switches(server, offered, agreed):
    async with asgi_client(server) as client:
        introduction = await opened(client, **offered)
        assert introduction["capabilities"]["encoding"] == {"compactJson": True, "cbor": True}
        codec = CODECS[introduction["encoding"]["format"]]
        assert codec is agreed
        note = post(client, codec.encode({"jsonrpc": "2.0", "method": "notifications/initialized"}), codec)
        assert (await note.start())[0] == 202
        listed = await answer(post(client, codec.encode({**CALL, "method": "tools/list"}), codec), codec)
        assert [sorted(tool) for tool in listed["result"]["tools"]] == [["description", "name"]] * 2
        found = await answer(post(client, codec.encode(CALL), codec), codec)
        assert json.loads(found["result"]["content"][0]["text"]) == {"value": 1}


async def test_08_03_compact_in_is_compact_out(server):
    async with asgi_client(server) as client:
        await opened(client)
        body = b'{"j":"2.0","i":"q","m":"ping"}'
        exchange = post(client, body, COMPACT_CODEC)
        assert (await exchange.start())[1]["content-type"] == "application/json; variant=compact"
        assert (await exchange.next())["body"] == b'{"j":"2.0","i":"q","r":{}}'


@every_codec
async def test_a_codec_is_chosen_by_the_request_whatever_was_agreed(server, codec):
    async with asgi_client(server) as client:
        await opened(client, compactJson=True)
        for other in CODECS.values():
            exchange = post(client, codec.encode(CALL), codec, f"{other.content_type}, text/event-stream")
            assert (await answer(exchange, other))["id"] == 7
        assert (await answer(post(client, codec.encode(CALL), codec, "*/*"), codec))["id"] == 7


@every_codec
async def test_initialize_is_answered_as_accept_says(server, codec):
    async with asgi_client(server) as client:
        body = JSON_CODEC.encode(initialize())
        found = await answer(post(client, body, JSON_CODEC, f"{codec.content_type}, text/event-stream"), codec)
        assert found["result"]["protocolVersion"] == DELTA


@every_codec
@pytest.mark.parametrize("value", [1, 2**53 + 1, 2**70, 0.1, {"n": 1, "name": 2, "~n": {"~~deep": [{"tx": None}]}}])
async def test_data_comes_back_as_it_went(server, codec, value):
    async with asgi_client(server) as client:
        await client.initialize()
        call = {**CALL, "params": {"name": "echo", "arguments": {"value": value}}}
        found = await answer(post(client, codec.encode(call), codec), codec)
        assert found["result"]["structuredContent"] == {"value": value}


@every_codec
async def test_the_modern_era_has_them_too(server, codec):
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "echo"}
    async with asgi_client(server) as client:
        call = {**CALL, "params": {**CALL["params"], "_meta": META}}  # type: ignore[dict-item]
        found = await answer(post(client, codec.encode(call), codec, **headers), codec)
        assert found["result"]["structuredContent"] == {"value": 1}
        headers["mcp_name"] = "other"
        found = await answer(post(client, codec.encode(call), codec, **headers), codec, 400)
        assert (found["id"], found["error"]["code"]) == (7, -32020)
        discover = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
        headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "server/discover"}
        found = await answer(post(client, codec.encode(discover), codec, **headers), codec)
        extension = found["result"]["capabilities"]["extensions"][progressive_disclosure.NAME]
        assert extension["encodings"] == ["compact-json", "cbor"]


@pytest.mark.parametrize("codec", [COMPACT_CODEC, CBOR_CODEC], ids=lambda codec: codec.name)
async def test_events_are_json_whatever_else_is_accepted(server, codec):
    async with asgi_client(server) as client:
        await client.initialize()
        params = {"name": "talks", "arguments": {"value": {"n": 1}}, "_meta": {"progressToken": 1}}
        accept = f"{codec.content_type}, text/event-stream"
        exchange = post(client, codec.encode({**CALL, "params": params}), codec, accept)
        assert (await exchange.start())[1]["content-type"] == "text/event-stream"
        await exchange.event()
        assert json.loads((await exchange.event())["data"])["method"] == "notifications/progress"
        result = json.loads((await exchange.event())["data"])["result"]
        assert result["structuredContent"] == {"value": {"n": 1}}


@every_codec
@pytest.mark.parametrize("body", [b"", b"\xff", b"{", bytes.fromhex("9bffffffffffffffff"), b"\x81" * 5000 + b"\x80"])
async def test_what_cannot_be_read_gets_400_in_plain_json(server, codec, body):
    async with asgi_client(server) as client:
        for headers in ({}, {"mcp_protocol_version": "2026-07-28"}):
            found = await answer(post(client, body, codec, **headers), JSON_CODEC, 400)
            assert (found["id"], found["error"]["code"]) == (None, -32700)
        found = await answer(post(client, codec.encode(42), codec), JSON_CODEC, 400)
        assert (found["id"], found["error"]["code"]) == (None, -32600)
        found = await answer(post(client, codec.encode(CALL), codec, mcp_session_id="nobody"), JSON_CODEC, 404)
        assert "error" in found


@settings(max_examples=examples(60))
@given(body=st.binary(max_size=60), codec=st.sampled_from([COMPACT_CODEC, CBOR_CODEC]))
@example(bytes.fromhex(REQUEST), CBOR_CODEC)
async def test_any_bytes_over_http_get_an_answer(body, codec):
    server = DeltaServer("x")
    async with asgi_client(server) as client:
        status, _ = await post(client, body, codec).start()
        assert status == 400
        assert (await post(client, codec.encode(initialize()), codec).start())[0] == 200


async def test_a_batch_is_answered_in_its_codec(server):
    async with asgi_client(server) as client:
        await client.initialize("2025-03-26")
        batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
        found = await answer(post(client, CBOR_CODEC.encode(batch), CBOR_CODEC), CBOR_CODEC)
        assert [item["id"] for item in found] == [1, 2]


@pytest.mark.parametrize(
    ("content_type", "accept", "status"),
    [
        ("text/plain; variant=compact", "*/*", 415),
        ("application/cbor-seq", "*/*", 415),
        ("text/plain", "*/*", 415),
        ("", "*/*", 415),
        ("Application/JSON", "Application/CBOR", 200),
        ("application/json", "application/cbor", 200),
        ("application/json", "application/xml", 406),
    ],
)
async def test_other_media_types_are_refused_as_ever(server, content_type, accept, status):
    async with asgi_client(server) as client:
        exchange = post(client, JSON_CODEC.encode(initialize()), JSON_CODEC, accept, content_type=content_type)
        assert (await exchange.start())[0] == status


async def test_13_a_compact_session_and_a_plain_one_do_not_disturb_each_other(server):
    async with asgi_client(server) as one, asgi_client(server) as other:
        other._app = one._app
        await opened(one, compactJson=True)
        await other.initialize()
        for _ in range(2):
            listed = await answer(
                post(one, COMPACT_CODEC.encode({**CALL, "method": "tools/list"}), COMPACT_CODEC), COMPACT_CODEC
            )
            assert "inputSchema" not in listed["result"]["tools"][0]
            exchange = other.request(3, "tools/list")
            assert (await exchange.start())[1]["content-type"] == "application/json"
            assert "inputSchema" in (await exchange.json())["result"]["tools"][0]


# On one connection


async def exchange(link: RawLink, message: Any, codec: Codec = JSON_CODEC) -> bytes:
    link.send(codec.encode(message))
    async with asyncio.timeout(HANG_SECONDS):
        return await link.receive()


async def test_a_connection_switches_after_the_answer_to_initialize(server):
    async with raw_link(server.engine) as link:
        raw = await exchange(link, initialize(compactJson=True, cbor=True))
        assert json.loads(raw)["result"]["encoding"] == {"format": "compact-json"}
        assert json.loads(raw)["result"]["capabilities"]["encoding"] == {"compactJson": True}
        raw = await exchange(link, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, COMPACT_CODEC)
        assert raw == b'{"j":"2.0","i":1,"r":{}}'
        # 7.1: plain JSON is read, too, as long keys stay as they are.
        assert await exchange(link, {"jsonrpc": "2.0", "id": 2, "method": "ping"}) == b'{"j":"2.0","i":2,"r":{}}'
        params = {"name": "echo", "arguments": {"value": {"n": 1, "name": 2, "~": 3}}}
        found = COMPACT_CODEC.decode(await exchange(link, {**CALL, "params": params}, COMPACT_CODEC))
        assert json.loads(found["result"]["content"][0]["text"]) == {"value": {"n": 1, "name": 2, "~": 3}}
        link.send(b"{")
        assert (await link.receive()).startswith(b'{"j":"2.0","i":null,"e":{"c":-32700,"msg":')
        again = COMPACT_CODEC.decode(await exchange(link, initialize(), COMPACT_CODEC))
        assert again["error"]["code"] == -32600


async def test_notifications_and_questions_are_compact_too(server):
    @server.tool
    async def asks(ctx: Context) -> list[str]:
        return [root["name"] for root in await ctx.roots()]

    async with raw_link(server.engine) as link:
        message = initialize(compactJson=True)
        message["params"]["capabilities"]["roots"] = {}
        await exchange(link, message)
        link.send(b'{"j":"2.0","m":"notifications/initialized"}')
        params = {"name": "talks", "arguments": {"value": 1}, "_meta": {"progressToken": 1}}
        heard = await exchange(link, {**CALL, "params": params}, COMPACT_CODEC)
        assert heard.startswith(b'{"j":"2.0","m":"notifications/progress","p":{')
        assert COMPACT_CODEC.decode(await link.receive())["id"] == 7
        question = await exchange(link, {**CALL, "params": {"name": "asks"}}, COMPACT_CODEC)
        assert question == b'{"j":"2.0","i":"s1","m":"roots/list"}'
        link.send(b'{"j":"2.0","i":"s1","r":{"roots":[{"n":"here","uri":"file:///x"}]}}')
        assert b"here" in await link.receive()
        server.remove_tool("asks")
        assert await link.receive() == b'{"j":"2.0","m":"notifications/tools/list_changed"}'


@pytest.mark.parametrize("encoding", [{}, {"cbor": True}, {"compactJson": False}])
async def test_who_offers_no_compact_json_keeps_json(server, encoding):
    async with raw_link(server.engine) as link:
        raw = await exchange(link, initialize(**encoding))
        assert json.loads(raw)["result"]["encoding"] == {"format": "json"}
        raw = await exchange(link, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert raw == b'{"jsonrpc":"2.0","id":1,"result":{}}'


async def test_a_plain_client_that_offers_encodings_keeps_json(server):
    async with raw_link(server.engine) as link:
        message = initialize(compactJson=True)
        message["params"]["protocolVersion"] = "delta-mcp/9.0.0"
        assert b"compactJson" not in await exchange(link, message)
        raw = await exchange(link, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert raw == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_a_notification_with_an_undefined_id_is_one():
    body = cbor2.dumps({"jsonrpc": "2.0", "method": "n", "id": cbor2.undefined})
    assert CBOR_CODEC.read_messages(body, LIMITS) == Notification("n", {})
