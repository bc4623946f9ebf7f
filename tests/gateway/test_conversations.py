"""What a gateway says of changes unasked: nothing, unless its configuration says that a process is a conversation."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from tests.support import rows_server
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON

CALL = {"operation": "rows.rows", "params": {"count": 30}}


@contextlib.asynccontextmanager
async def sdk_client(folder: Path, config: str, mode: str) -> AsyncIterator[Client]:
    """The official SDK's client of a gateway that it started."""
    path = folder / "gateway.toml"
    command = f"command = {json.dumps(str(FORKED_PYTHON))}\nargs = [{json.dumps(rows_server.__file__)}]"
    path.write_text(f"{config}\n[servers.rows]\n{command}\n")
    homes = {f"XDG_{purpose}_HOME": str(folder / purpose.lower()) for purpose in ("STATE", "CACHE", "CONFIG")}
    parameters = StdioServerParameters(command=str(FORKED_PROGRAM), args=["gateway", str(path)], env=homes)
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


async def read(client: Client, **more: str) -> str:
    found = await client.call_tool("query", {**CALL, **more})
    return "\n".join(getattr(block, "text", "") for block in found.content)


async def test_by_default_only_who_names_what_it_has_is_told_what_changed(tmp_path: Path) -> None:
    async with sdk_client(tmp_path, "", "auto") as client:
        whole = await read(client)
        handle = whole.rpartition("[handle ")[2].removesuffix(".]")
        assert (await read(client)).rpartition("[")[0] == whole.rpartition("[")[0]
        assert await read(client, since=handle) == f"Executed now: same 30 lines as {handle}"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_process_that_is_one_conversation_is_told_unasked(tmp_path: Path, mode: str) -> None:
    async with sdk_client(tmp_path, 'conversation = "process"', mode) as client:
        whole = await read(client)
        assert whole.startswith("0: a line")
        assert (await read(client)).startswith("Executed now: same 30 lines; full: continue ")
        assert (await read(client, since="")).startswith(whole), "who lost its context asks for the whole"
        assert (await read(client)).startswith("Executed now: same 30 lines")
