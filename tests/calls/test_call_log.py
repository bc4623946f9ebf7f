"""The log of calls: one line for each, without its arguments."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deltamcp import DeltaServer
from deltamcp.calls.observers import outcome_word
from deltamcp.errors import Fault
from deltamcp.values import (
    Answer,
    Failure,
    InputRequired,
    Promise,
    PromiseStatus,
    ResourceRequired,
    ToolResult,
)
from tests.support.meta_tools import community_server, meta_tool_client, scoped_server
from tests.support.raw_client import answer_text, raw_client


async def test_the_call_log_never_breaks_a_call(caplog):
    server = DeltaServer("x")

    @server.tool
    async def double(number: int) -> str:
        return str(number % 7)

    caplog.set_level(logging.INFO, "deltamcp.calls")
    async with raw_client(server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="double", arguments={"number": 10**400})
    assert answer_text(answer) == str(10**400 % 7)
    assert "operation=double" in caplog.text


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (None, "cancelled"),
        (Answer(ToolResult([])), "done"),
        (Answer(ToolResult([], is_error=True)), "error"),
        (Failure(Fault.INVALID_PARAMS, "x"), "invalid_params"),
        (InputRequired({}, None), "input_required"),
        (ResourceRequired("x", [], None), "resource_required"),
        (Promise("prom_0", PromiseStatus.QUEUED, 1.0, 1.0, 2.0, 0.5), "promise"),
    ],
)
def test_every_outcome_has_a_word(outcome, word):
    assert outcome_word(outcome) == word


# Audit


@pytest.fixture
def call_log(caplog) -> Iterator[Any]:
    with caplog.at_level(logging.INFO, "deltamcp.calls"):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "deltamcp.calls"]


async def test_every_call_leaves_a_line_without_its_arguments(call_log, era):
    async with meta_tool_client(community_server(), era) as peer:
        await peer.text_of("execute", operation="posts.create", params={"space_id": 1, "name": "hunter2"})
        await peer.text_of("create_post", space_id=1, name="hunter2")
        await peer.text_of("execute", operation="create_post", space_id=1, name="hunter3")
        await peer.refusal_of("execute", operation="posts.create", params={"space_id": "hunter2"})
        await peer.answer_question("decline", "execute", {"operation": "posts.delete", "params": {"id": 7654321}})
    lines = call_log()
    created = [line for line in lines if "posts.create" in line]
    assert len(created) == 4 and any("posts.delete" in line for line in lines)
    assert all("local" in line and "ms" in line for line in lines)
    assert not any("hunter" in line or "7654321" in line for line in lines)
    hashes = [re.search(r"\b[0-9a-f]{12,64}\b", line) for line in created]
    assert all(hashes)
    assert hashes[0][0] == hashes[1][0] != hashes[2][0]  # type: ignore[index]
    assert created[0].split("ms")[0] != created[3].split("ms")[0]


async def test_a_call_of_what_is_not_there_leaves_a_line_too(call_log):
    async with meta_tool_client(scoped_server()) as peer:
        await peer.refusal_of("execute", operation="vault.open")
    assert len(call_log()) == 1


async def test_a_line_cannot_be_forged(call_log):
    async with meta_tool_client(community_server()) as peer:
        await peer.refusal_of("execute", operation="x\nINFO:deltamcp.calls:operation=posts.delete outcome=done")
        await peer.refusal_of("execute", operation="posts.list", params={"x\noperation=fake": 1})
    assert not any("\n" in line for line in call_log())
