"""The official SDK's client against `serve --workers 2`: every session is served, whichever worker it reaches."""

import asyncio
from collections import Counter
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client.client import Client

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import running_program
from tests.support.properties import examples

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

SERVER = """
import os
from deltamcp import DeltaServer

server = DeltaServer("shelf")

@server.tool
async def worker(number: int) -> str:
    return f"{number} {os.getpid()}"
"""
MODERN = "2026-07-28"
SESSIONS = examples(100)
CALLS = 3


async def run_session(url: str, mode: str, number: int) -> set[str]:
    """The workers that answered one session's calls."""
    found = set()
    async with Client(url, mode=mode) as client:
        for call in range(CALLS):
            result = await client.call_tool("worker", {"number": number * CALLS + call})
            [text] = result.content
            assert isinstance(text, types.TextContent)
            answered, worker = text.text.split()
            assert int(answered) == number * CALLS + call
            found.add(worker)
    return found


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_every_session_is_served(tmp_path, mode):
    (tmp_path / "shelf.py").write_text(SERVER)
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0", "--workers", "2"]
    with running_program(command, tmp_path) as program:
        url = program.wait_for(r"Serving shelf at (\S+) with 2 workers")[1]
        async with asyncio.timeout(HANG_SECONDS):
            started: set[str] = set()
            while len(started) < 2:
                started = started.union(*await asyncio.gather(*(run_session(url, MODERN, 0) for _ in range(8))))
        outcomes: Counter[str] = Counter()
        workers: set[str] = set()
        places = asyncio.Semaphore(10)

        async def one(number: int) -> None:
            async with places, asyncio.timeout(HANG_SECONDS):
                try:
                    workers.update(await run_session(url, mode, number))
                    outcomes["served"] += 1
                except Exception as error:
                    outcomes[repr(error)] += 1

        await asyncio.gather(*(one(number) for number in range(SESSIONS)))
        assert outcomes == {"served": SESSIONS}
        async with asyncio.timeout(HANG_SECONDS):
            while workers != started:  # on a busy machine one worker may have accepted them all
                await asyncio.gather(*(one(number) for number in range(10)))
