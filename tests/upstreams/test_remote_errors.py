"""A JSON-RPC error of an upstream reaches the client as if the client had asked the upstream itself."""

from typing import Any

import pytest

from deltamcp.calls.failures import remote_failure
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp
from deltamcp.errors import PeerError, RemoteError
from deltamcp.gateway.config import GatewayConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.promises.record import decode_outcome, encode_outcome
from deltamcp.values import Request
from deltamcp.wire import jsonrpc
from tests.support.era_client import ERAS, era_client
from tests.support.fake_upstream import fronted, upstream_config

ERRORS: list[dict[str, Any]] = [
    {"code": -32603, "message": "Not today.", "data": {"why": 1, "nested": [None, 1.5]}},
    {"code": -32602, "message": "Unknown tool: x"},
    {"code": -32601, "message": "Nothing of the kind."},
    {"code": 1234, "message": "A code of its own.", "data": "text"},
    {"code": -32600, "message": "Invalid."},
]


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error["code"]))
async def test_an_upstreams_error_passes_with_code_message_and_data(
    front: str, behind: str, error: dict[str, Any]
) -> None:
    async with fronted(front, behind) as client:
        answer = await client.ask("tools/call", name="raw", arguments={"answer": {"error": error}})
    assert answer["error"] == error


def _code(dialect: Any, failure: Any) -> int:
    code: int = jsonrpc.decode(dialect.write(Request(1, "resources/read", {}), failure, "2025-11-25"))["error"]["code"]
    return code


@pytest.mark.parametrize(
    ("code", "data", "handshake", "modern"),
    [
        (-32002, {"uri": "x://y"}, -32002, -32602),
        (-32002, None, -32002, -32602),
        (-32602, {"uri": "x://y"}, -32002, -32602),
        (-32602, {"argument": "x"}, -32602, -32602),
        (-32021, {"requiredCapabilities": {"sampling": {}}}, -32602, -32021),
        # What the upstream says of the gateway's own request would mislead the client.
        (-32022, {"supported": ["1999-01-01"]}, -32603, -32603),
        (-32020, None, -32603, -32603),
        (-32000, None, -32000, -32000),
    ],
)
def test_codes_that_differ_between_eras_are_the_clients(code: int, data: Any, handshake: int, modern: int) -> None:
    failure = remote_failure(RemoteError(PeerError(code, "Why.", data), "resources/read"))
    assert _code(HandshakeMcp(), failure) == handshake
    assert _code(ModernMcp({"name": "x", "version": "1"}, 0), failure) == modern
    assert decode_outcome(encode_outcome(failure)) == failure


async def test_a_model_that_ran_the_tool_by_a_meta_tool_reads_the_error() -> None:
    server = Gateway(GatewayConfig(upstreams=[upstream_config("modern")])).server
    async with era_client(server) as client:
        arguments = {"operation": "fake.raw", "arguments": {"answer": {"error": ERRORS[0]}}}
        assert "Not today." in await client.refusal_of("execute", **arguments)
