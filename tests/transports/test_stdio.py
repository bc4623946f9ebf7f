"""The stdio transport owns stdout: nothing that a program prints reaches the client."""

import os
import sys
from pathlib import Path

import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.paths import PRINTING_SERVER

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
