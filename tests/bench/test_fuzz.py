"""The fuzzer: its cases come again by their numbers, and a small sample of them against a server in this process."""

import asyncio
import json
import logging
import random
from collections import Counter

import pytest

from bench.fuzz import server as fuzz_server
from bench.fuzz.cases import HttpCase, make_body_case, make_http_bytes, make_http_case
from bench.fuzz.document_cases import BASES, make_document, read_document, read_documents
from bench.fuzz.in_process import find_known, send_case
from bench.fuzz.mutation import encode, mutate_bytes, mutate_message
from bench.fuzz.valid_messages import SESSION, TOKEN, valid_messages
from bench.fuzz.verdict import check_reply
from bench.token_issuer import run_issuer
from deltamcp.dialects import methods
from deltamcp.values import Era
from tests.support.conditions import HANG_SECONDS
from tests.support.properties import examples

CASES = examples(1_000)
KNOWN = {SESSION: "s" * 32, TOKEN: "t"}


def test_a_case_comes_again_by_its_seed_and_number():
    for number in range(50):
        assert make_body_case(7, number) == make_body_case(7, number)
        assert make_http_bytes(7, number, KNOWN) == make_http_bytes(7, number, KNOWN)
    assert len({make_http_bytes(7, number, KNOWN) for number in range(50)}) > 45
    assert make_body_case(7, 1) != make_body_case(8, 1)


def test_every_method_of_both_eras_is_mutated():
    tables = {Era.MODERN: methods.MODERN, Era.HANDSHAKE: methods.HANDSHAKE}
    for era, table in tables.items():
        assert set(table) <= {message.get("method") for message in valid_messages(era)}


def test_a_mutation_leaves_the_message_that_it_starts_from():
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": [1]}}
    before = json.dumps(message)
    changed = [mutate_message(message, random.Random(seed)) for seed in range(200)]
    assert json.dumps(message) == before
    assert sum(one != message for one in changed) > 180


def test_json_that_no_value_gives_stands_in_the_encoded_message():
    found = {encode(mutate_message({"a": 1}, random.Random(seed)), "json") for seed in range(500)}
    assert any(b"NaN" in body for body in found)


def test_bytes_are_changed_in_place_and_in_length():
    data = bytes(range(100))
    found = [mutate_bytes(data, random.Random(seed)) for seed in range(100)]
    assert sum(one != data for one in found) > 90
    assert {len(one) < 100 for one in found} == {True, False}


def test_the_body_is_framed_after_a_session_is_filled_in():
    case = HttpCase("POST", "/mcp", "HTTP/1.1", [("Mcp-Session-Id", SESSION)], b'"{session}"').fill_in(KNOWN)
    assert case.write(random.Random(1)).endswith(b"Content-Length: 34\r\n\r\n" + b'"' + b"s" * 32 + b'"')


@pytest.mark.parametrize(
    ("status", "content_type", "body", "expected"),
    [
        (200, "application/json", b'{"jsonrpc":"2.0","id":1,"result":{}}', ""),
        (503, "application/json", b'{"jsonrpc":"2.0","id":1,"error":{}}', ""),
        (405, "", b"", ""),
        (500, "text/plain", b"Internal Server Error", "500"),
        (200, "application/json", b'{"jsonrpc":"2.0","id":1,"result":NaN}', "no JSON"),
        (200, "application/json", b'{"jsonrpc":"2.0","id":1}', "no JSON-RPC"),
        (400, "text/plain", b"Traceback (most recent call last)", "traceback"),
    ],
)
def test_a_reply_is_wrong_if_it_is_no_answer(status, content_type, body, expected):
    found = check_reply(status, content_type, body)
    assert expected in found and bool(expected) == bool(found)


@pytest.fixture(params=[fuzz_server.OPEN, fuzz_server.COMPAT, "with access tokens"])
def auth(request):
    """What the server is started with, and a token that it accepts."""
    with run_issuer() as issuer:
        token = issuer.sign("ann", fuzz_server.RESOURCE, "call")
        yield (issuer.url if request.param == "with access tokens" else request.param), token


@pytest.mark.parametrize("make", [make_body_case, make_http_case])
async def test_mutated_requests_are_answered_and_leave_no_error_in_the_log(auth, make, caplog):
    caplog.set_level(logging.WARNING)
    kind, token = auth
    server = fuzz_server.build()
    app = server.asgi(**fuzz_server.make_options(kind))
    statuses: Counter[int] = Counter()
    known: dict[str, str] = {}
    async with server.engine.lifespan.running():
        for number in range(CASES):
            if number % 200 == 0:
                known = await find_known(app, token, kind != fuzz_server.COMPAT)
            case = make(1, number).fill_in(known)
            async with asyncio.timeout(HANG_SECONDS):
                reply = await send_case(app, case)
            statuses[reply.status] += 1
            assert check_reply(reply.status, reply.content_type, reply.body) == "", (number, case)
            assert reply.status, (number, case)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert statuses[200] > CASES / 20, "most cases do not get further than the headers"


def test_a_mutated_document_is_read_or_refused_in_a_sentence():
    tally = read_documents(7, range(examples(500)))
    assert tally.findings == [] and tally.operations > tally.read / 2


def test_a_document_of_its_kind_comes_again_by_its_seed_and_number():
    assert [make_document(7, number) for number in range(20)] == [make_document(7, number) for number in range(20)]
    assert len({make_document(7, number) for number in range(50)}) > 45


def test_every_document_that_mutations_begin_with_is_read_whole():
    assert [read_document(json.dumps(base).encode()) for base in BASES] == [3, 3, 3, 2]
