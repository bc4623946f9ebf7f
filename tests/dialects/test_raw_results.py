"""Results of other servers leave to the byte in their own era, and with the same value in the other one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp
from deltamcp.limits import Limits
from deltamcp.values import SERVER_KEY, Answer, Malformed, RawResult, Request, Response
from deltamcp.wire import jsonrpc

HANDSHAKE, MODERN = HandshakeMcp(), ModernMcp({"name": "gateway", "version": "1"}, 60)
BLANKS = st.sampled_from([b"", b"", b" ", b"  ", b"\t", b" \t "])
NUMBERS = st.sampled_from([b"0", b"-0", b"1.0", b"1.10", b"1e5", b"1E+2", b"12e-1", b"123456789012345678901234567890"])
ESCAPES = st.sampled_from([rb"\u00e9", "é".encode(), rb"\/", rb"\n", rb"\"", rb"\ud83d\ude00", "😀".encode(), b"a"])
METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "completion/complete"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A JSON string, as any of its encodings."""
    return b'"%b"' % b"".join(draw(st.lists(ESCAPES, max_size=6)))


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    items = [draw(BLANKS) + item + draw(BLANKS) for item in draw(st.lists(inner, max_size=3))]
    return b"[%b]" % (b",".join(items) or draw(BLANKS))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[bytes], first: bytes = b"") -> bytes:
    """A JSON object in any encoding, whose keys differ and stand in any order."""
    keys = draw(st.permutations([b"content", b"_meta", b"messages", b"x-unknown", rb"cont\u0065nt2"]))
    members = [
        b'%b"%b"%b:%b%b%b' % (draw(BLANKS), key, draw(BLANKS), draw(BLANKS), draw(inner), draw(BLANKS))
        for key in keys[: draw(st.integers(0, 5))]
    ]
    if first:
        members.insert(draw(st.integers(0, len(members))), first)
    return b"{%b}" % (b",".join(members) or draw(BLANKS))


values = st.recursive(
    NUMBERS | texts() | st.sampled_from([b"true", b"false", b"null"]),
    lambda inner: lists(inner) | objects(inner),
    max_leaves=8,
)
COMPLETE = b'"resultType" : "complete"'


def received(encoded: bytes) -> RawResult:
    """The result of a message as an upstream sent it."""
    response = jsonrpc.read_reply(b'{"id": 3 ,"result": %b ,"jsonrpc":"2.0"}' % encoded, Limits())
    assert isinstance(response, Response), response
    return RawResult(jsonrpc.encoded_result(response), response.result)


def written(dialect: Any, raw: RawResult, method: str) -> bytes:
    version = "2025-11-25" if dialect is HANDSHAKE else "2026-07-28"
    message: bytes = dialect.write(Request(9, method, {}), Answer(raw), version)
    assert message.startswith(b'{"jsonrpc":"2.0","id":9,"result":')
    return message[len(b'{"jsonrpc":"2.0","id":9,"result":') : -1]


@given(objects(values), METHODS)
def test_a_handshake_result_leaves_to_the_byte_for_its_own_era_and_gains_what_the_other_demands(
    encoded: bytes, method: str
) -> None:
    raw = received(encoded)
    assert written(HANDSHAKE, raw, method) == encoded
    modern = json.loads(written(MODERN, raw, method))
    demanded = {"resultType": "complete"}
    if method == "resources/read":
        demanded |= {"ttlMs": 0, "cacheScope": "private"}  # type: ignore[dict-item]
    assert modern == {**demanded, **json.loads(encoded)}


@given(objects(values, COMPLETE))
def test_a_modern_result_leaves_to_the_byte_for_its_own_era_and_loses_what_the_other_lacks(encoded: bytes) -> None:
    raw = received(encoded)
    assert written(MODERN, raw, "tools/call") == encoded
    handshake = json.loads(encoded)
    del handshake["resultType"]
    assert json.loads(written(HANDSHAKE, raw, "tools/call")) == handshake


def test_the_upstreams_name_does_not_pass_to_the_handshake_era() -> None:
    fields = {"resultType": "complete", "content": [], "_meta": {SERVER_KEY: {"name": "x"}}}
    assert json.loads(written(HANDSHAKE, received(json.dumps(fields).encode()), "tools/call")) == {"content": []}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_result_on_several_lines_leaves_on_one(end: bytes) -> None:
    injected = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    encoded = b'{"content":[%b%b%b]}' % (end, injected, end)
    [*lines] = written(HANDSHAKE, received(encoded), "tools/call").splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0]) == json.loads(encoded)


def test_a_line_break_inside_a_string_is_no_json() -> None:
    read = jsonrpc.read_reply(b'{"jsonrpc":"2.0","id":1,"result":{"a":"x\ny"}}', Limits())
    assert isinstance(read, Malformed)
