"""The stdio transport: it owns stdout, and holds little for a client that does not read."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from deltamcp import DeltaServer, Limits
from deltamcp.transports.stdio.duplex import Duplex
from deltamcp.transports.stdio.server import _PipeConnection
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import PRINTING_SERVER
from tests.support.raw_client import META

TOOLS = [
    "on_the_loop",
    "in_a_thread",
    "by_descriptor",
    "by_child",
    "by_c_library",
    "after_the_end",
    "from_stdin",
]
PRINTED = [
    "printed before the server runs",
    "printed on the loop",
    "written to the buffer",
    "written and left in the buffer",
    "printed in a thread",
    "written to descriptor 1",
    "printed by a child",
    "put by the C library",
    "a prompt: ",
    "printed after the server ran",
    "printed by a thread that outlived its call",
]


@pytest.mark.skipif(sys.platform == "win32", reason="the C library has another name")
async def test_whatever_a_program_prints_goes_to_stderr(tmp_path: Path):
    # A copy of everything on stdout: the SDK's client stops reading before the process ends.
    copy, log = tmp_path / "stdout", tmp_path / "stderr"
    command = f'"{sys.executable}" "{PRINTING_SERVER}" | tee "{copy}"'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    faults: list[object] = []

    async def collect(message: object) -> None:
        if isinstance(message, Exception):
            faults.append(message)

    with log.open("w") as errors:
        parameters = StdioServerParameters(command="sh", args=["-c", command], env=environment)
        async with (
            stdio_client(parameters, errlog=errors) as (reads, writes),
            ClientSession(reads, writes, message_handler=collect) as session,
        ):
            await session.initialize()
            answers = [await session.call_tool(tool, {}) for tool in TOOLS]
    assert [result.content[0].model_dump()["text"] for result in answers] == ["done"] * len(TOOLS)
    assert faults == []
    assert all(line.startswith('{"jsonrpc":"2.0"') for line in copy.read_text().splitlines())
    assert [text for text in PRINTED if text not in log.read_text()] == []


SIZE = 80_000
CALLS = 30


@pytest.mark.skipif(sys.platform == "win32", reason="the loop cannot poll a pipe on Windows")
async def test_the_responses_that_nobody_reads_wait_outside_the_buffer():
    server = DeltaServer("x", limits=Limits(unsent_bytes=10_000))
    go_on = asyncio.Event()

    @server.tool
    async def produce() -> str:
        await go_on.wait()
        return "x" * SIZE

    (into, writes), (reads, out) = os.pipe(), os.pipe()
    async with server.engine.lifespan.running():
        connection = _PipeConnection(server.engine, into, out, Duplex)
        running = asyncio.create_task(connection.run())
        for number in range(CALLS):
            params = {"name": "produce", "arguments": {}, "_meta": META}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            os.write(writes, json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(HANG_SECONDS):
            while len(connection._duplex.in_flight) < CALLS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            go_on.set()
            received, largest = b"", 0
            while received.count(b"\n") < CALLS:
                await asyncio.sleep(0.001)
                transport = connection._output._transport
                assert transport is not None
                largest = max(largest, transport.get_write_buffer_size())
                os.set_blocking(reads, False)
                with contextlib.suppress(BlockingIOError):
                    received += os.read(reads, 16_384)
            os.close(writes)
            await running
    assert {json.loads(line)["id"] for line in received.splitlines()} == set(range(CALLS))
    assert 0 < largest < 2 * SIZE
    for fd in (into, reads, out):
        os.close(fd)


@pytest.mark.parametrize("output", ["file", "nothing"])
def test_input_and_output_may_be_files_which_no_event_loop_can_poll(tmp_path: Path, output: str):
    requests, responses = tmp_path / "requests", tmp_path / "responses"
    requests.write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    with requests.open() as into, (responses if output == "file" else Path(os.devnull)).open("w") as out:
        ended = subprocess.run([sys.executable, str(PRINTING_SERVER)], stdin=into, stdout=out, stderr=subprocess.PIPE)
    assert ended.returncode == 0, ended.stderr
    if output == "file":
        assert json.loads(responses.read_text().splitlines()[-1]) == {"jsonrpc": "2.0", "id": 1, "result": {}}
