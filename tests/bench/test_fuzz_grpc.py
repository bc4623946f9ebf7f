"""The fuzzer's cases for MCP-lite and gRPC: every path and method is there, and a sample against servers in process."""

import asyncio
import logging
import random

import pytest
from google.protobuf.message import DecodeError

from bench.fuzz import server as fuzz_server
from bench.fuzz.cases import make_body_case, make_http_case
from bench.fuzz.grpc_cases import METHODS, make_connection_bytes, make_message_case, write_call
from bench.fuzz.grpc_sender import GrpcSender
from bench.fuzz.lite_messages import valid_bodies, valid_calls
from bench.fuzz.mutation import mutate_message
from bench.fuzz.verdict import FuzzTally
from bench.token_issuer import run_issuer
from deltamcp.transports.grpc.requests import lite_messages
from tests.support.conditions import HANG_SECONDS
from tests.support.properties import examples

MESSAGES, CONNECTIONS = examples(600), examples(200)


def test_every_path_of_mcp_lite_is_mutated():
    app = fuzz_server.build().asgi(**fuzz_server.make_options(fuzz_server.OPEN))
    served = {path for path in app.paths if path.startswith("/mcp-lite/")}
    assert served and served <= {path for path, _ in valid_bodies()}
    aliases = {path.removeprefix("/mcp-lite/v1") for path in served}
    assert aliases <= {path for path, _ in valid_bodies()}
    for make in (make_body_case, make_http_case):
        assert served <= {make(1, number).target for number in range(3_000)}


def test_a_call_is_the_message_that_its_parameters_stand_for():
    message = lite_messages().ToolRequest.FromString(write_call(valid_calls()[0]))
    assert (message.name, message.arguments["b"]) == ("add", 3)
    message = lite_messages().ToolRequest.FromString(write_call(valid_calls()[6]))
    assert message.meta["answers"]["count"] == 3


def test_whatever_a_mutation_makes_can_be_written_as_bytes():
    for seed in range(500):
        chance = random.Random(seed)
        assert isinstance(write_call(mutate_message(chance.choice(valid_calls()), chance)), bytes)


def test_a_case_comes_again_by_its_seed_and_number():
    for number in range(50):
        assert make_message_case(7, number) == make_message_case(7, number)
        assert make_connection_bytes(7, number) == make_connection_bytes(7, number)
    assert len({make_connection_bytes(7, number) for number in range(50)}) == 50
    assert {make_message_case(7, number).method for number in range(100)} == set(METHODS)


def test_many_messages_can_be_read_and_many_cannot():
    readable = 0
    for number in range(300):
        try:
            lite_messages().ToolRequest.FromString(make_message_case(1, number).message)
        except DecodeError:
            continue
        readable += 1
    assert 100 < readable < 295


@pytest.fixture(params=[fuzz_server.OPEN, "with access tokens"])
def auth(request):
    """What the server is started with, and a token that it accepts."""
    with run_issuer() as issuer:
        token = issuer.sign("ann", fuzz_server.RESOURCE, "call")
        yield (fuzz_server.OPEN if request.param == fuzz_server.OPEN else issuer.url), token


async def test_mutated_messages_and_connections_leave_a_server_that_serves(auth, caplog):
    caplog.set_level(logging.ERROR, "deltamcp")
    kind, token = auth
    server = fuzz_server.build().grpc(port=0, **fuzz_server.make_grpc_options(kind))
    server.announce = lambda address: None
    await server.start()
    try:
        tally = FuzzTally()
        sender = GrpcSender(server.port, 1, tally, token)
        async with asyncio.timeout(4 * HANG_SECONDS):
            await sender.send_messages(range(MESSAGES))
            messages = dict(tally.statuses)
            tally.statuses.clear()
            await sender.send_connections(range(CONNECTIONS))
            await sender.send_messages(range(50))
    finally:
        await server.stop()
    assert tally.findings == []
    assert messages["OK"] > MESSAGES / 20, "most cases do not get further than the message"
    assert tally.statuses["answered"] > CONNECTIONS / 4, "most connections do not get further than the preface"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
