"""`serve --tracing` exports spans as the environment says."""

import asyncio
import json
import os

from deltamcp import connect
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import running_program

SHELF = """
from deltamcp import DeltaServer
server = DeltaServer("shelf")

@server.tool
def find() -> str:
    return "here"
"""


async def test_spans_go_where_the_environment_says(tmp_path):
    (tmp_path / "shelf.py").write_text(SHELF)
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0", "--tracing"]
    with running_program(command, tmp_path, env={**os.environ, "OTEL_TRACES_EXPORTER": "console"}) as program:
        async with connect(program.wait_for(r"http://\S+")[0]) as client:
            await client.call_tool("find")
        await asyncio.to_thread(program.end)
        text = program.text()
    span = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert span["name"] == "tools/call find"
    assert span["resource"]["attributes"]["service.name"] == "shelf"


async def test_an_exporter_that_is_not_installed_is_told_in_one_sentence(tmp_path):
    (tmp_path / "shelf.py").write_text(SHELF)
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--tracing"]
    with running_program(command, tmp_path, env={**os.environ, "OTEL_TRACES_EXPORTER": "pigeon"}) as program:
        assert await asyncio.to_thread(program.process.wait) == 2
    assert program.text() == (
        "delta-mcp: There is no exporter pigeon for OTEL_TRACES_EXPORTER; "
        "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http.\n"
    )
