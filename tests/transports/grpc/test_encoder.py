"""Where responses of gRPC are written, and what those that wait count for."""

import asyncio
import threading
from typing import Any

import pytest

from deltamcp import Limits
from deltamcp.dialects.mcp_lite import Stamp
from deltamcp.dialects.mcp_lite_bodies import LiteResponse
from deltamcp.transports.grpc import responses as grpc_responses
from deltamcp.transports.grpc.responses import GrpcEncoder, ResponseForm, encode_part, encode_response
from deltamcp.values import Text
from deltamcp.wire.protobuf import StructError
from tests.support.grpc_peer import MESSAGES, as_dict

STAMP = Stamp(0.0, 0)
SMALL = {"content": [Text("x" * 1_000)], "structuredContent": {"numbers": list(range(100))}}
LARGE: list[dict[str, Any]] = [
    {"content": [Text("x" * 100_000)]},
    {"content": [], "structuredContent": list(range(5_000))},
    {"content": [], "structuredContent": [[{}] * 100] * 100},
]


def make_response(result: dict[str, Any], **meta: Any) -> LiteResponse:
    return LiteResponse(result, {"response_type": "answer", **meta})


class Written:
    """Sees where messages are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_loop: list[bool] = []
        self.begun = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()
        for function in (encode_response, encode_part):
            monkeypatch.setattr(grpc_responses, function.__name__, self._watch(function))

    def _watch(self, function: Any) -> Any:
        def encode(*arguments: Any, **named: Any) -> bytes:
            self.on_loop.append(threading.current_thread() is threading.main_thread())
            self.begun.set()
            self.may_write.wait()
            encoded: bytes = function(*arguments, **named)
            return encoded

        return encode


@pytest.mark.parametrize("result", LARGE)
async def test_a_large_response_and_a_large_part_are_written_in_a_thread(monkeypatch, result):
    written, encoder, form = Written(monkeypatch), GrpcEncoder(Limits()), ResponseForm()
    response = await encoder.write_response("ada", make_response(result), STAMP, form)
    assert response == encode_response(make_response(result), STAMP, form)
    assert await encoder.write_part("ada", result, form, 1.0) == encode_part(result, form)
    assert written.on_loop == [False, False] and encoder.unsent.held == 0


async def test_a_small_response_is_written_at_once_unless_its_metadata_is_large(monkeypatch):
    written, encoder, form = Written(monkeypatch), GrpcEncoder(Limits()), ResponseForm()
    await encoder.write_response("ada", make_response(SMALL), STAMP, form)
    await encoder.write_part("ada", SMALL, form, 1.0)
    await encoder.write_response("ada", make_response(SMALL, session_context=[{}] * 6_000), STAMP, form)
    assert written.on_loop == [True, True, False]


async def test_large_responses_that_wait_to_be_written_count_for_their_caller(monkeypatch):
    written = Written(monkeypatch)
    encoder, form = GrpcEncoder(Limits(response_bytes=400_000, account_share=0.5)), ResponseForm()
    response = make_response({"content": [Text("x" * 150_000)]})
    written.may_write.clear()
    first = asyncio.ensure_future(encoder.write_response("ada", response, STAMP, form))
    await asyncio.to_thread(written.begun.wait)
    assert await encoder.write_response("ada", response, STAMP, form) is None
    other = asyncio.ensure_future(encoder.write_response("bob", response, STAMP, form))
    written.may_write.set()
    assert await first == await other == encode_response(response, STAMP, form)
    assert encoder.unsent.held == 0


@pytest.mark.parametrize("takes_json", [False, True])
@pytest.mark.parametrize("result", [{"content": [Text("x" * 20_000)]}, {"content": [], "items": [0] * 20_000}])
def test_a_result_that_is_surely_too_large_is_never_written(monkeypatch, takes_json, result):
    form = ResponseForm(takes_json=takes_json, max_bytes=10_000)
    seen: list[dict[str, Any]] = []
    write = grpc_responses._write_result

    def watch(message: Any, found: dict[str, Any], form: ResponseForm) -> list[str]:
        seen.append(found)
        return write(message, found, form)

    monkeypatch.setattr(grpc_responses, "_write_result", watch)
    message = MESSAGES.ToolResponse.FromString(encode_response(make_response(result), STAMP, form))
    with pytest.raises(StructError, match="larger"):
        encode_part(result, form)
    assert [found["error"]["code"] for found in seen] == ["RESULT_TOO_LARGE"]
    assert takes_json or "10000 bytes" in as_dict(message.result)["content"][0]["text"]
