"""What client libraries that strangers published put before the model: texts alone, within the server's budget.

`make test` runs three of them, `make interop` all of the table. A program of `programs/` uses each library in its own
environment; the test plays the model.
"""

import asyncio
import contextlib
import json
import os
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp.tokens import count
from tests.interop import budgeted_server
from tests.interop.budgeted_server import BUDGET, ROWS
from tests.interop.client_libraries import CLIENT_LIBRARIES
from tests.interop.install import client_program, folder
from tests.interop.servers import OFFLINE
from tests.support.paths import FORKED_PROGRAM

pytestmark = pytest.mark.interop

SECONDS = 120
"""Bounds the wait for one answer; the slowest library takes ten seconds to import on a busy machine."""
LINE_BYTES = 1 << 24

ALL = os.environ.get("DELTA_MCP_INTEROP") == "all"
NAMES = [name for name, library in CLIENT_LIBRARIES.items() if library.ci or ALL]

SERVER = [str(FORKED_PROGRAM), "serve", str(Path(budgeted_server.__file__))]


class Conversation:
    """A model's conversation with the budgeted server, by a client library."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text that reaches the model for a call; anything but text within the budget fails the test."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n")
        async with asyncio.timeout(SECONDS):
            while not (line := await self._process.stdout.readline()).startswith(b"["):
                assert line, "the program ended"
        parts = json.loads(line)
        assert [part for part in parts if not isinstance(part, str)] == []
        text = "\n".join(parts)
        assert count(text) <= BUDGET
        return text


@contextlib.asynccontextmanager
async def conversation(name: str, home: Path) -> AsyncIterator[Conversation]:
    try:
        words = [*client_program(name), *SERVER]
    except FileNotFoundError:
        pytest.fail(f"{name} is not installed: run `python -m tests.interop.install {name}`")
    environment = {**os.environ, **OFFLINE, "HOME": str(home), "MCP_USE_ANONYMIZED_TELEMETRY": "false"}
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, cwd=folder(name), env=environment, limit=LINE_BYTES
    )
    try:
        yield Conversation(process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("name", NAMES)
async def test_the_model_gets_texts_within_the_budget_reads_on_and_may_send_null(name, tmp_path):
    async with conversation(name, tmp_path) as model:
        await read_results(model)
        if CLIENT_LIBRARIES[name].sends_null:
            await send_null(model)


async def read_results(model: Conversation) -> None:
    assert "issues.list(" in await model.call("discover", query=["list issues"])
    for operation, shown in (
        ("issues.list", r"of 1000 rows"),
        ("issues.export", r"of 1000 rows"),
        ("issues.log", r"of \d+ characters"),
        ("issues.get", r'"…" marks what is cut'),
    ):
        text = await model.call("execute", operation=operation)
        handle = re.search(r'handle="(\w+)"', text)
        assert handle and re.search(shown, text), text
        assert await model.call("continue", handle=handle[1], offset=1)
    assert "Issue" in await model.call("execute", operation="issues.list", params={"limit": 40}, fields="id,title")


async def send_null(model: Conversation) -> None:
    """Sends null for an argument that is left out: strict schemas make models send all, and mcp-use adds others."""
    found = await model.call("discover", query=["list issues"], category=None, cursor=None)
    assert "issues.list(" in found
    assert "project" in await model.call("get_schema", operation=["issues.list"], detail=None)
    nulls = {"project": None, "limit": 5}
    text = await model.call("execute", operation="issues.list", params=nulls, fields=None)
    assert "of docs" in text
    text = await model.call("execute", operation="issues.list", params=None, fields=None)
    handle = re.search(r'handle="(\w+)"', text)
    assert handle
    nulls = dict.fromkeys(("page", "path", "fields", "grep"))
    assert f"{ROWS - 1}" in await model.call("continue", handle=handle[1], offset=ROWS - 1, **nulls)
