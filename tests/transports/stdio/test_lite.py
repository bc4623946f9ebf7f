"""MCP-lite over stdio: the messages of HTTP, one on each line."""

import argparse
import asyncio
import json
from typing import Any

import pytest

from deltamcp import Context
from deltamcp.cli.serving import network_options
from deltamcp.errors import ConfigurationError
from deltamcp.transports.stdio.server import LiteDuplex
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import HANG_SECONDS
from tests.support.lite_client import lite_client, lite_server
from tests.support.paths import ROOT
from tests.support.raw_link import RawLink, raw_link

TIMES = ("timestamp", "processing_time_ms")
SERVER = """
from tests.support.lite_client import lite_server

server = lite_server()
"""


def request(id_: Any, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def without_times(message: Any) -> Any:
    if isinstance(message, list):
        return sorted((without_times(one) for one in message), key=lambda one: str(one["id"]))  # in any order
    meta = message.get("result", {}).get("_meta", {})
    for name in TIMES:
        meta.pop(name, None)
    return message


async def exchange(link: RawLink, message: Any) -> Any:
    link.send(message if isinstance(message, bytes) else json.dumps(message).encode())
    async with asyncio.timeout(HANG_SECONDS):
        return json.loads(await link.receive())


MESSAGES: list[Any] = [
    request(1, name="add", arguments={"a": 1}),
    request("x", name="add", arguments={"a": "one"}),
    request(2, name="fails"),
    request(3, name="unknown"),
    request(4, "tools/list"),
    request(5, "initialize"),
    request(None, name="add"),
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    [request(1, name="add", arguments={"a": 1}), 3],
    [],
    [request(1, name="add")] * 17,
    b"{",
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message)[:40])
async def test_ml_124_a_line_is_answered_as_an_http_body_is(message):
    async with raw_link(lite_server().engine, LiteDuplex) as link, lite_client(lite_server()) as client:
        answered = await exchange(link, message)
        wanted = (await client.send("rpc", message)).json()
        assert without_times(answered) == without_times(wanted)


async def test_a_notification_has_no_response_and_cancels_a_call():
    server = lite_server()
    started = asyncio.Event()

    @server.tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.sleep(HANG_SECONDS)
        return ""

    async with raw_link(server.engine, LiteDuplex) as link:
        link.send(json.dumps(request(1, name="hang")).encode())
        await started.wait()
        again = await exchange(link, request(1, name="add"))
        assert again["error"]["data"]["reason"] == "INVALID_REQUEST"
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        link.send(json.dumps(cancel).encode())
        assert (await exchange(link, request(2, "ping")))["id"] == 2


async def test_a_call_without_an_id_has_no_response_in_a_batch_either():
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add"}}
    async with raw_link(lite_server().engine, LiteDuplex) as link:
        for message in (call, [call]):
            link.send(json.dumps(message).encode())
        [answer] = await exchange(link, [call, request(2, "ping")])
        assert answer["id"] == 2


async def test_progress_is_sent_to_who_asked_for_it():
    server = lite_server()

    @server.tool
    async def count(ctx: Context) -> str:
        """Count."""
        await ctx.report_progress(1, 2)
        return "done"

    async with raw_link(server.engine, LiteDuplex) as link:
        first = await exchange(link, request(1, name="count", _meta={"progressToken": "p"}))
        assert first["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        assert json.loads(await link.receive())["result"]["content"][0]["text"] == "done"


def test_ml_124_the_command_line_serves_it(tmp_path):
    (tmp_path / "shelf.py").write_text(SERVER)
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in MESSAGES[:1])
    done = run("serve", "shelf.py", "--mcp-lite", cwd=tmp_path, stdin=lines, PYTHONPATH=str(ROOT))
    assert json.loads(done.out)["result"]["_meta"]["response_type"] == "answer", done.err
    refused = run("serve", "shelf.py", "--mcp-lite", "--http", "127.0.0.1:0", cwd=tmp_path)
    assert_one_sentence(refused, 2)


def test_the_command_line_has_the_options_of_mcp_lite(tmp_path):
    verb = argparse.ArgumentParser()
    network_options.add_http_options(verb)
    words = ["--mcp-lite-option", "prompts=true", "--mcp-lite-option", "prefix=/lite"]
    assert network_options.read_http_options(verb.parse_args(words))["mcp_lite"] == {"prompts": True, "prefix": "/lite"}
    assert network_options.read_http_options(verb.parse_args(["--no-mcp-lite"]))["mcp_lite"] is False
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        network_options.read_http_options(verb.parse_args(["--mcp-lite-option", "prompts"]))
    (tmp_path / "shelf.py").write_text(SERVER)
    wrong = ("--mcp-lite-option", "prompt=true")
    refused = run("serve", "shelf.py", "--http", "127.0.0.1:0", *wrong, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert_one_sentence(refused, 2)


def test_there_is_no_other_protocol():
    with pytest.raises(ConfigurationError, match="mcp-lite"):
        lite_server().run(protocol="grpc")  # type: ignore[call-overload]
