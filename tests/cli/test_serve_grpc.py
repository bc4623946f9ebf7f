"""`serve --grpc`: MCP-lite over gRPC from the command line, alone, beside HTTP and in several processes."""

import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from deltamcp.auth.static_tokens import make_token
from tests.support.certificate import write_certificate
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import HANG_SECONDS
from tests.support.grpc_peer import MESSAGES, as_dict, refusal, tool_request
from tests.support.paths import PROGRAM
from tests.support.processes import free_port
from tests.support.program import RunningProgram, running_program

KITCHEN = """
import asyncio, os, pathlib
from deltamcp import DeltaServer, Limits

server = DeltaServer("kitchen", limits=Limits(drain_seconds=0.5))

@server.tool
async def process() -> int:
    return os.getpid()

@server.tool
async def wait() -> str:
    pathlib.Path("began").touch()
    await asyncio.sleep(3600)
"""
SERVING = r"Serving kitchen at grpcs?://(127\.0\.0\.1:\d+) \(Ctrl-C stops\)"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kitchen.py").write_text(KITCHEN)
    return tmp_path


def serving(folder: Path, *words: str) -> AbstractContextManager[RunningProgram]:
    return running_program([str(PROGRAM), "serve", "kitchen.py", *words], folder)


def call(channel: grpc.Channel, name: str, **options: Any) -> str:
    """The text that a tool answers with."""
    method = channel.unary_unary(
        "/mcplite.MCPLite/CallTool",
        request_serializer=MESSAGES.ToolRequest.SerializeToString,
        response_deserializer=MESSAGES.ToolResponse.FromString,
    )
    response = method(tool_request(name), timeout=HANG_SECONDS, wait_for_ready=True, **options)
    return str(as_dict(response.result)["content"][0]["text"])


def test_it_serves_grpc_and_ends_with_a_signal(folder):
    with serving(folder, "--grpc", "127.0.0.1:0") as program:
        address = program.wait_for(SERVING)[1]
        with grpc.insecure_channel(address) as channel:
            assert call(channel, "process") == str(program.process.pid)
        assert program.end() == 0


def test_calls_in_progress_are_unavailable_after_their_time(folder):
    with serving(folder, "--grpc", "127.0.0.1:0") as program:
        address = program.wait_for(SERVING)[1]
        with grpc.insecure_channel(address) as channel:
            method = channel.unary_unary("/mcplite.MCPLite/CallTool")
            waiting = method.future(tool_request("wait").SerializeToString())
            while not (folder / "began").exists():
                assert program.process.poll() is None
            program.process.send_signal(signal.SIGTERM)
            error = waiting.exception(HANG_SECONDS)
            assert refusal(error).code == "UNAVAILABLE"
        assert program.process.wait(HANG_SECONDS) == 0


def test_one_process_serves_http_and_grpc(folder):
    words = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    with serving(folder, *words) as program:
        address = program.wait_for(SERVING)[1]
        url = program.wait_for(r"Serving kitchen at (http://127\.0\.0\.1:\d+)/mcp \(Ctrl-C stops\)")[1]
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "process"}}
        reply = httpx2.post(f"{url}/mcp-lite/v1/rpc", json=message).json()
        with grpc.insecure_channel(address) as channel:
            over_grpc = call(channel, "process")
        assert reply["result"]["content"][0]["text"] == over_grpc == str(program.process.pid)
        assert program.end() == 0


def test_the_options_of_http_apply(folder):
    write_certificate(folder)
    token, line = make_token("ada")
    (folder / "tokens").write_text(line)
    (folder / "tokens").chmod(0o600)
    words = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--auth", "tokens:tokens", "--request-ids")
    with serving(folder, "--grpc", "127.0.0.1:0", *words) as program:
        address = program.wait_for(SERVING)[1]
        credentials = grpc.ssl_channel_credentials((folder / "cert.pem").read_bytes())
        with grpc.secure_channel(address, credentials) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, "process")
            found = refusal(caught.value)
            assert found.code == "UNAUTHENTICATED" and "x-request-id" in found.trailing
            assert call(channel, "process", metadata=(("authorization", f"Bearer {token}"),)).isdigit()


def test_the_options_of_mcp_lite_apply(folder):
    with serving(folder, "--grpc", "127.0.0.1:0", "--mcp-lite-option", "prompts=true") as program:
        address = program.wait_for(SERVING)[1]
        with grpc.insecure_channel(address) as channel:
            prompts = channel.unary_unary("/mcplite.ext.Prompts/GetPrompts")(b"", timeout=HANG_SECONDS)
        assert MESSAGES.PromptsList.FromString(prompts) == MESSAGES.PromptsList()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a Unix system")
def test_workers_share_the_port(folder):
    words = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--workers", "2")
    with serving(folder, *words) as program:
        port = program.wait_for(r"MCP-lite over gRPC is at port (\d+)")[1]
        seen: set[str] = set()
        while len(seen) < 2:
            # Each connection is dealt out anew.
            with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
                seen.add(call(channel, "process"))
        assert str(program.process.pid) not in seen
        assert program.end() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--grpc", "nonsense"),
        ("--grpc", "0.0.0.0:0"),
        ("--grpc", "127.0.0.1:0", "--workers", "2"),
        ("--grpc", "127.0.0.1:0", "--reload"),
        ("--grpc", "127.0.0.1:0", "--mcp-lite"),
        ("--grpc", "127.0.0.1:0", "--no-mcp-lite", "--mcp-lite-option", "prompts=true"),
        ("--grpc", "127.0.0.1:0", "--mcp-lite-option", "prompt=true"),
        ("--mcp-lite", "--mcp-lite-option", "prompts=true"),
        ("--grpc", "127.0.0.1:0", "--metrics"),
        ("--grpc", "127.0.0.1:0", "--tls-cert", "none.pem"),
    ],
)
def test_what_does_not_go_is_one_sentence(folder, words):
    assert_one_sentence(run("serve", "kitchen.py", *words, cwd=folder), 2)


def test_a_port_that_is_taken_is_one_sentence(folder):
    with serving(folder, "--grpc", f"127.0.0.1:{free_port()}") as program:
        address = program.wait_for(SERVING)[1]
        assert_one_sentence(run("serve", "kitchen.py", "--grpc", address, cwd=folder), 2)


def test_python_runs_it_too(folder):
    with (folder / "kitchen.py").open("a") as file:
        file.write('\nif __name__ == "__main__":\n    server.run("grpc", port=0)\n')
    with running_program([sys.executable, "kitchen.py"], folder) as program:
        address = program.wait_for(SERVING)[1]
        with grpc.insecure_channel(address) as channel:
            assert call(channel, "process") == str(program.process.pid)
        assert program.end(signal.SIGINT) == 0
