"""Bodies over HTTP that are no message, and odd bodies that are one."""

import json
from typing import Any

import pytest

from tests.support.http_faults import (
    META,
    FaultServer,
    HttpEra,
    both_eras,
    call_params,
    echo_body,
    message,
    nested,
    open_session,
    parse_events,
    send_http,
    still_serves,
)

NOT_MESSAGES = {
    "words": (b"this is not JSON", -32700),
    "nothing": (b"", -32700),
    "blank": (b" \r\n\t ", -32700),
    "half a message": (b'{"jsonrpc":"2.0","id":1,"meth', -32700),
    "a message and more": (echo_body(b"1") + b"}", -32700),
    "two messages": (echo_body(b"1") + b"\n" + echo_body(b"1"), -32700),
    "trailing comma": (echo_body(b"[1,]"), -32700),
    "single quotes": (b"{'jsonrpc':'2.0'}", -32700),
    "null byte": (echo_body(b'"\x00"'), -32700),
    "raw newline in text": (echo_body(b'"a\nb"'), -32700),
    "byte order mark, UTF-16": (echo_body(b"1").decode().encode("utf-16"), -32700),
    "nesting 129": (echo_body(nested(129)), -32700),
    "nesting 900": (echo_body(nested(900)), -32700),
    "nesting 10,000": (echo_body(nested(10_000)), -32700),
    "nesting 50,000 that never closes": (b"[" * 50_000, -32700),
    "objects 10,000 deep": (echo_body(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), -32700),
    "invalid UTF-8": (echo_body(b'"\xff\xfe"'), -32700),
    "overlong UTF-8": (echo_body(b'"\xc0\xaf"'), -32700),
    "invalid UTF-8 in a key, beside an escape": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","\x80":"\\u0041"}',
        -32700,
    ),
    "UTF-8 of a surrogate": (echo_body(b'"\xed\xa0\x80"'), -32700),
    "lone high surrogate": (echo_body(rb'"\ud800"'), -32700),
    "lone low surrogate": (echo_body(rb'"\udc00 text"'), -32700),
    "surrogates the wrong way round": (echo_body(rb'"\udc00\ud800"'), -32700),
    "integer of 5,000 digits": (echo_body(b"9" * 5_000), -32700),
    "1e400": (echo_body(b"1e400"), -32700),
    "-1e400": (echo_body(b"-1e400"), -32700),
    "NaN": (echo_body(b"NaN"), -32700),
    "Infinity": (echo_body(b"Infinity"), -32700),
    "-Infinity": (echo_body(b"-Infinity"), -32700),
    "leading zero": (echo_body(b"01"), -32700),
    "hexadecimal": (echo_body(b"0x10"), -32700),
    "a number": (b"1", -32600),
    "null": (b"null", -32600),
    "text": (b'"tools/call"', -32600),
    "an empty object": (b"{}", -32600),
    "empty batch": (b"[]", -32600),
    "batch": (b"[" + echo_body(b"1") + b"," + echo_body(b"2", b"2") + b"]", -32600),
    "batch of rubbish": (b"[1,2,3]", -32600),
    "id null": (echo_body(b"1", b"null"), -32600),
    "id float": (echo_body(b"1", b"1.5"), -32600),
    "id true": (echo_body(b"1", b"true"), -32600),
    "id object": (echo_body(b"1", b"{}"), -32600),
    "id array": (echo_body(b"1", b"[1]"), -32600),
    "id of 1 MB": (echo_body(b"1", b'"' + b"x" * 1_000_000 + b'"'), -32600),
    "id of 257 characters": (echo_body(b"1", b'"' + b"x" * 257 + b'"'), -32600),
    "id of 300 digits": (echo_body(b"1", b"1" * 300), -32600),
    "no jsonrpc": (b'{"id":1,"method":"tools/list"}', -32600),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', -32600),
    "jsonrpc a number": (b'{"jsonrpc":2.0,"id":1,"method":"tools/list"}', -32600),
    "method a number": (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    "method null": (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
    "params a number": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":7}', -32600),
    "params an array": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32600),
    "neither call nor answer": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', -32600),
    "method twice": (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}', -32600),
    "method twice, once in escapes": (
        rb'{"jsonrpc":"2.0","id":1,"method":"tools/list","\u006dethod":"tools/call"}',
        -32600,
    ),
    "params twice": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{},"params":{}}', -32600),
    "jsonrpc twice": (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/list"}', -32600),
}


@both_eras
@pytest.mark.parametrize("fault", NOT_MESSAGES)
async def test_a_body_that_is_no_message_gets_400_with_the_right_code(
    served: FaultServer, era: HttpEra, fault: str
) -> None:
    body, code = NOT_MESSAGES[fault]
    reply = await send_http(served.port, era.plain(body), await era.headers(served.port))
    assert (reply.status, reply.error()["code"]) == (400, code), reply.body[:300]
    assert len(reply.body) < 1_000, "the fault is not sent back"


async def test_a_broken_body_without_any_header_of_an_era_gets_400_too(served: FaultServer) -> None:
    for fault in ("words", "nothing", "batch of rubbish", "id null", "nesting 10,000", "invalid UTF-8", "id of 1 MB"):
        body, code = NOT_MESSAGES[fault]
        reply = await send_http(served.port, body, {})
        assert (reply.status, reply.error()["code"]) == (400, code), fault
    await still_serves(served.port)


# The same faults where the server has no reason to look

HIDDEN_PLACES = {
    "beside the envelope": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%META%},"x":%FAULT%}',
    "in unknown params": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%META%,"x":%FAULT%}}',
    "in _meta": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":%FAULT%,%INNER%}}}',
    "in a notification": b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"x":%FAULT%}}',
    "in a result": b'{"jsonrpc":"2.0","id":1,"result":{"x":%FAULT%}}',
}
HIDDEN_FAULTS = {
    "nesting": b"[" * 200 + b"]" * 200,
    "invalid UTF-8": b'"\xff"',
    "lone surrogate": rb'"\ud83d"',
    "lone surrogate as key": rb'{"\ud83d":1}',
    "1e400": b"1e400",
    "5,000 digits": b"1" * 5_000,
    "NaN": b"NaN",
}


@both_eras
@pytest.mark.parametrize("place", HIDDEN_PLACES)
async def test_what_is_no_json_is_refused_wherever_it_hides(served: FaultServer, era: HttpEra, place: str) -> None:
    wrong = {}
    headers = await era.headers(served.port, "tools/list", {})
    meta = json.dumps(META if era.modern else {"progressToken": 1}).encode()
    for fault, value in HIDDEN_FAULTS.items():
        body = HIDDEN_PLACES[place].replace(b"%FAULT%", value).replace(b"%META%", meta).replace(b"%INNER%", meta[1:-1])
        reply = await send_http(served.port, body, headers)
        if reply.status != 400 or reply.error()["code"] != -32700:
            wrong[fault] = (reply.status, reply.body[:200])
    assert not wrong


# What is odd, and right


KEPT = {
    "2^64+1": b"18446744073709551617",
    "-2^63-1": b"-9223372036854775809",
    "30 digits": b"123456789012345678901234567890",
    "tiny": b"5e-324",
    "fraction": b"0.1",
    "negative": b"-1",
    "nesting at the limit": nested(128),
    "brackets in text": b'"' + b"[{" * 5_000 + b'"',
    "brackets after an escaped quote": rb'"\"' + b"[" * 500 + rb"\\" + b'"',
    "a pair of surrogates": rb'"\ud83d\ude00"',
    "every control in escapes": json.dumps("".join(map(chr, range(32)))).encode(),
    "line separators": '"\u2028\u2029\x7f\ufffe"'.encode(),
    "empty key": b'{"":0}',
    "many keys": json.dumps({f"k{n}": n for n in range(2_000)}).encode(),
}


@both_eras
@pytest.mark.parametrize("case", KEPT)
async def test_odd_values_come_back_as_they_went(served: FaultServer, era: HttpEra, case: str) -> None:
    value = KEPT[case]
    reply = await send_http(served.port, era.plain(echo_body(value)), await era.headers(served.port))
    assert reply.status == 200, reply
    assert json.loads(reply.text()) == {"value": json.loads(value)}


@both_eras
async def test_the_last_of_two_equal_keys_wins_inside_arguments(served: FaultServer, era: HttpEra) -> None:
    body = echo_body(b"1").replace(b'"value":1', b'"value":1,"value":2')
    reply = await send_http(served.port, era.plain(body), await era.headers(served.port))
    assert json.loads(reply.text()) == {"value": 2}


IDS = [0, -1, 2**53 + 1, 2**63, "", "0", "text", "\U0001f600", '"\\\n', "x" * 256]


@both_eras
@pytest.mark.parametrize("id_", IDS, ids=[repr(id_)[:12] for id_ in IDS])
async def test_ids_come_back_with_their_type(served: FaultServer, era: HttpEra, id_: Any) -> None:
    reply = await era.ask(served.port, "tools/call", call_params("add", a=1, b=2), id_)
    found = reply.json()["id"]
    assert (found, type(found)) == (id_, type(id_))


async def test_a_batch_is_served_to_the_one_version_that_has_batches(served: FaultServer) -> None:
    headers = await open_session(served.port, "2025-03-26")
    body = b"[" + message("ping", {}, 1) + b"," + message("tools/call", call_params("add", a=1, b=2), "x") + b"]"
    reply = await send_http(served.port, body, headers)
    assert reply.status == 200, reply
    if reply.headers["content-type"] == "application/json":
        answers = json.loads(reply.body)
    else:
        found = list(parse_events(reply.body))
        answers = found[0] if isinstance(found[0], list) else found
    assert {answer["id"] for answer in answers} == {1, "x"}
