"""`delta-mcp new` writes a small project: a server or a gateway that runs, and a test of it."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from deltamcp.cli.terminal.output import print_line
from deltamcp.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.IGNORECASE)

_SERVER = '''\
"""A server that keeps notes: `delta-mcp serve @FILE@` runs it."""

from deltamcp import DeltaServer, ResultPolicy, ToolError

server = DeltaServer("@NAME@", version="0.1", results=ResultPolicy(max_tokens=2000))
notes: dict[str, str] = {}


@server.tool(annotations={"destructiveHint": False, "idempotentHint": True})
async def write_note(name: str, text: str) -> str:
    """Write a note under a name."""
    notes[name] = text
    return f"There are {len(notes)} notes."


@server.tool(annotations={"readOnlyHint": True})
async def read_note(name: str) -> str:
    """Read a note."""
    if name not in notes:
        raise ToolError(f"There is no note {name}; list_notes has those there are.")
    return notes[name]


@server.tool(annotations={"readOnlyHint": True})
async def list_notes() -> list[dict[str, str]]:
    """List the notes."""
    return [{"name": name, "text": text} for name, text in notes.items()]


if __name__ == "__main__":
    server.run()
'''

_SERVER_TEST = '''\
"""Run it with `python test_server.py`, or with pytest."""

import asyncio

from deltamcp import CallFailedError, connect
from server import server


async def use_notes() -> None:
    async with connect(server) as client:
        assert await client.call("write_note", name="milk", text="Buy milk.") == "There are 1 notes."
        assert await client.call("read_note", name="milk") == "Buy milk."
        try:
            await client.call("read_note", name="tea")
        except CallFailedError as error:
            assert "no note tea" in str(error)
        else:
            raise AssertionError("a note that nobody wrote was read")


def test_notes_are_written_and_read() -> None:
    asyncio.run(use_notes())


if __name__ == "__main__":
    test_notes_are_written_and_read()
    print("The server does what its test says.")
'''

_PYPROJECT = """\
[project]
name = "@NAME@"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["delta-mcp"]

[dependency-groups]
dev = ["pytest"]
"""

_SERVER_README = """\
# @NAME@

An MCP server.

    python test_server.py                            # tests it
    delta-mcp call server.py list_notes              # calls a tool
    delta-mcp dev server.py                          # opens it in the MCP Inspector (needs Node)
    delta-mcp serve server.py --http 127.0.0.1:8000  # serves it at http://127.0.0.1:8000/mcp

A host starts it with the command `delta-mcp` and the arguments `serve @FOLDER@/server.py`.
"""

_GATEWAY = """\
# A gateway: `delta-mcp gateway --check gateway.toml` tells what each server costs a model, with it and without.

name = "@NAME@"

[results]
max_tokens = 20_000     # of one result; the model can read on

[servers.notes]         # a server of your own
command = "delta-mcp"
args = ["serve", "notes.py"]

# [servers.memory]      # one from npm, which needs Node
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-memory"]

# [servers.github]      # one on the network, whose token your keyring has: delta-mcp secret set github
# url = "https://api.githubcopilot.com/mcp/"
# headers = { Authorization = "Bearer ${keyring:github}" }
"""

_GATEWAY_TEST = '''\
"""Run it with `python test_gateway.py`, or with pytest."""

import asyncio
from pathlib import Path

from deltamcp import connect

CONFIGURATION = Path(__file__).with_name("gateway.toml")


async def use_the_gateway() -> None:
    async with connect(["delta-mcp", "gateway", str(CONFIGURATION)], progressive=False) as client:
        assert "discover" in [tool.name for tool in await client.tools()]
        assert "write_note" in str(await client.call("discover", query=["write a note"]))
        note = {"operation": "notes.write_note", "params": {"name": "milk", "text": "Buy milk."}}
        assert "1 notes" in (await client.call_tool("execute", note)).text


def test_a_tool_is_found_and_run() -> None:
    asyncio.run(use_the_gateway())


if __name__ == "__main__":
    test_a_tool_is_found_and_run()
    print("The gateway does what its test says.")
'''

_GATEWAY_README = """\
# @NAME@

A gateway in front of MCP servers.

    python test_gateway.py                                  # tests it
    delta-mcp gateway --check gateway.toml                  # what each server costs a model, with it and without
    delta-mcp gateway gateway.toml --http 127.0.0.1:8000    # serves it at http://127.0.0.1:8000/mcp

A host starts it with the command `delta-mcp` and the arguments `gateway @FOLDER@/gateway.toml`.
"""

PROJECTS: Mapping[str, Mapping[str, str]] = {
    "server": {
        "server.py": _SERVER,
        "test_server.py": _SERVER_TEST,
        "pyproject.toml": _PYPROJECT,
        "README.md": _SERVER_README,
    },
    "gateway": {
        "gateway.toml": _GATEWAY,
        "notes.py": _SERVER,
        "test_gateway.py": _GATEWAY_TEST,
        "README.md": _GATEWAY_README,
    },
}
"""The files of each kind of project; `@NAME@`, `@FOLDER@` and `@FILE@` are filled in."""


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = "Writes a project of a few files into a new folder. It runs as it is, and has a test."
    verb.add_argument(
        "kind",
        choices=tuple(PROJECTS),
        metavar="|".join(PROJECTS),
        help="a server written in Python, or a gateway before servers",
    )
    verb.add_argument("name", metavar="NAME", help="the folder, which is made, and what clients call the server")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    folder = Path(args.name)
    if not _NAME.fullmatch(folder.name):
        raise ConfigurationError(
            f"{folder.name!r} is no name for a project; it begins with a letter, and has letters, digits, - and _."
        )
    files = PROJECTS[args.kind]
    try:
        folder.mkdir(parents=True)
        for name, text in files.items():
            for mark, value in (("@NAME@", folder.name), ("@FOLDER@", str(folder.resolve())), ("@FILE@", name)):
                text = text.replace(mark, value)
            (folder / name).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigurationError(f"{folder} is there already; choose another name, or remove it.") from None
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}.") from None
    print_line(f"{folder} has {', '.join(files)}. Try it:")
    print_line(f"  cd {folder}")
    print_line(f"  python test_{args.kind}.py")
