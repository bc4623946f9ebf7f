"""JSON-RPC: the messages that are read, and the reasons why others are refused."""

import dataclasses
import datetime
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel

from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.values import Malformed, Notification, Request, Response
from deltamcp.wire import jsonrpc

LIMITS = Limits()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def request(**more):
    return {"jsonrpc": "2.0", "id": 1, "method": "m", **more}


@given(st.dictionaries(st.text(), json_values, max_size=4), st.integers() | st.text(max_size=256), st.text())
def test_any_request_is_read_as_it_was_written(params, id_, method):
    body = json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()

    assert jsonrpc.read(body, LIMITS) == Request(id_, method, params)


@given(json_values)
def test_a_result_is_read_as_it_was_written(value):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()

    assert jsonrpc.read(body, LIMITS) == Response(1, result=value)


@given(json_values)
def test_encoding_loses_nothing(value):
    assert json.loads(jsonrpc.encode_finite(value)) == value


@given(st.binary())
def test_no_bytes_raise(body):
    jsonrpc.read(body, LIMITS)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"jsonrpc":"2.0","method":"n"}', Notification("n", {})),
        (b'{"jsonrpc":"2.0","method":"n","params":null}', Notification("n", {})),
        (
            b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}',
            Response("x", error={"code": 1, "message": "no"}),
        ),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":"n"}', Request(9007199254740993, "n", {})),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"n","params":{"a":18446744073709551617,"id":2,"method":"x"}}',
            Request(1, "n", {"a": 18446744073709551617, "id": 2, "method": "x"}),
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"n","params":{"a":1,"a":2}}', Request(1, "n", {"a": 2})),
        (b'{"jsonrpc":"2.0","id":1,"method":"n","extra":true}', Request(1, "n", {})),
    ],
)
def test_these_are_messages(body, expected):
    assert jsonrpc.read(body, LIMITS) == expected


@pytest.mark.parametrize(
    ("body", "fault", "id_"),
    [
        (b"", Fault.PARSE, None),
        (b"   ", Fault.PARSE, None),
        (b"{", Fault.PARSE, None),
        (b"\xff", Fault.PARSE, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', Fault.PARSE, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', Fault.PARSE, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}', Fault.PARSE, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1e400}}', Fault.PARSE, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + b"9" * 5000 + b"}}", Fault.PARSE, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + b"[" * 900 + b"]" * 900 + b"}}", Fault.PARSE, 1),
        (b"[" * 10_000 + b"]" * 10_000, Fault.PARSE, None),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, Fault.PARSE, None),
        (b"3", Fault.INVALID_REQUEST, None),
        (b"[]", Fault.INVALID_REQUEST, None),
        (b"{}", Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', Fault.INVALID_REQUEST, 1),
        (b'{"id":1,"method":"m"}', Fault.INVALID_REQUEST, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"m"}', Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1}', Fault.INVALID_REQUEST, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":3}', Fault.INVALID_REQUEST, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', Fault.INVALID_REQUEST, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","method":"m"}', Fault.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","\\u006dethod":"b"}', Fault.INVALID_REQUEST, None),
        (b'{ "jsonrpc" : "2.0", "id" : 1, "id" : 2, "method" : "m" }', Fault.INVALID_REQUEST, None),
    ],
)
def test_these_are_refused_with_their_id_where_it_can_be_read(body, fault, id_):
    message = jsonrpc.read(body, LIMITS)

    assert isinstance(message, Malformed)
    assert (message.fault, message.id) == (fault, id_), message.reason
    assert message.reason.endswith(".")


def test_the_nesting_limit_is_exact():
    def nested(levels):
        # The params object is the first level.
        return json.dumps(request(params={"a": json.loads("[" * (levels - 1) + "]" * (levels - 1))})).encode()

    limits = Limits(depth=20)

    assert isinstance(jsonrpc.read(nested(19), limits), Request)
    assert isinstance(jsonrpc.read(nested(21), limits), Malformed)


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ('"id":7', 7),
        ('"id":"a","unknown":1', "a"),
        ('"id":null', None),
        (f'"id":"{"x" * 5000}"', None),
    ],
)
def test_the_refusal_of_deep_nesting_answers_the_request(members, found):
    body = f'{{"jsonrpc":"2.0","method":"m",{members},"params":{{"v":{"[" * 30}{"]" * 30}}}}}'.encode()
    refusal = jsonrpc.read(body, Limits(depth=20))
    assert isinstance(refusal, Malformed) and refusal.reason.startswith("The message is nested deeper")
    assert refusal.id == found


def test_a_batch_is_read_item_by_item():
    body = json.dumps([request(), {"jsonrpc": "2.0", "method": "n"}, 3]).encode()

    first, second, third = jsonrpc.read(body, LIMITS)  # type: ignore[misc]

    assert isinstance(first, Request)
    assert isinstance(second, Notification)
    assert isinstance(third, Malformed)


class Model(BaseModel):
    value: float


@dataclasses.dataclass
class Data:
    value: float


class Plain(Struct):
    value: float


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda n: n, "$"),
        (lambda n: [None, {"a": [n]}], "$[1].a[0]"),
        (lambda n: {"a": (1, n)}, "$.a[1]"),
        (lambda n: [Model(value=n)], "$[0].value"),
        (lambda n: [Data(n)], "$[0].value"),
        (lambda n: [Plain(n)], "$[0].value"),
    ],
)
def test_a_number_json_lacks_is_named_by_its_place(number, wrap, place):
    with pytest.raises(ValueError) as caught:
        jsonrpc.encode_finite(wrap(number))

    assert str(caught.value).startswith(f"{place} ")


def test_what_json_lacks_is_refused_and_what_it_can_say_is_said():
    itself: list[object] = []
    itself.append(itself)
    for value in ("\ud800", object(), {(1, 2): 3}, itself):
        with pytest.raises(ValueError):
            jsonrpc.encode(value)
    assert jsonrpc.encode([datetime.date(2026, 1, 2), {1}, Model(value=2)]) == b'["2026-01-02",[1],{"value":2.0}]'
