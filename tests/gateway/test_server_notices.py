"""A server that is down, still starting or not logged in is named where its tools would be; only the local user is told
what it wrote."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaClient, DeltaServer, connect
from deltamcp.auth.authenticator import PresenceOnly
from deltamcp.errors import ClientError, PeerError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.tokens import count
from deltamcp.values import LOCAL
from tests.support.command_line import run
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.http_server import serve_http
from tests.support.listing_upstream import ListingUpstream, gateway, tool
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import free_port

SLEEPER = """
import pathlib, runpy, sys, time
go_on, *sys.argv = sys.argv[1:]
while not pathlib.Path(go_on).exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SECRET = "pa55-w0rd-of-the-database"
CRASH = "import os, sqlite3\nraise AttributeError(f'no\\x1b {os.environ[\"DB_PASSWORD\"]}\\u202e here')"


def crashing(name: str = "sqlite") -> UpstreamConfig:
    """A server that exits with a traceback, in which there is a secret."""
    entry = {"command": sys.executable, "args": ["-c", CRASH], "env": {"DB_PASSWORD": SECRET}}
    return UpstreamConfig(name=name, entry=entry, promise="never")


def sleeping(folder: Path, name: str = "slow", **options: Any) -> UpstreamConfig:
    """A server that begins once there is a file `go on`."""
    ListingUpstream(folder, name, tools=[tool("nap")])
    program = str(ROOT / "tests" / "support" / "listing_server.py")
    args = ["-c", SLEEPER, str(folder / "go on"), program, str(folder / f"{name}.json")]
    return UpstreamConfig(name=name, entry={"command": sys.executable, "args": args}, promise="never", **options)


def login(name: str = "books") -> UpstreamConfig:
    """A server at which nobody has logged in; nobody asks it anything before."""
    return UpstreamConfig(name=name, entry={"url": "http://127.0.0.1:9/mcp"}, auth="oauth", promise="never")


def working(folder: Path, number: int) -> UpstreamConfig:
    name = ("notes", "files", "mail", "maps", "chat", "photos", "music", "tasks", "wiki", "bank")[number]
    tools = [tool("list", annotations={"readOnlyHint": True}), tool("insert_row"), tool("remove")]
    return ListingUpstream(folder, name, tools=tools).config()


@contextlib.asynccontextmanager
async def client_of(made: Gateway, transport: str = "memory", era: str = "modern") -> AsyncIterator[DeltaClient]:
    speak: Any = era
    async with contextlib.AsyncExitStack() as stack:
        target: Any = made.server
        if transport == "http":
            target = await stack.enter_async_context(serve_http(made.server))
        yield await stack.enter_async_context(connect(target, speak=speak, progressive=False))


async def text(client: DeltaClient, meta: str, **arguments: Any) -> str:
    return (await client.call_tool(meta, arguments)).text


def states(made: Gateway) -> dict[str, str]:
    return made.server.engine.catalog.notices(LOCAL).texts


async def until_only_slow_is_starting(made: Gateway) -> None:
    await wait_until(lambda: all("starting" not in one or name == "slow" for name, one in states(made).items()))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_one_call_of_discover_tells_which_of_ten_servers_can_be_used(
    tmp_path: Path, transport: str, era: str
) -> None:
    well = [working(tmp_path, number) for number in range(7)]
    made = gateway(
        tmp_path, *well, crashing(), sleeping(tmp_path), login(), disclosure="meta", wait_seconds=0, query=False
    )
    async with client_of(made, transport, era) as client:
        await until_only_slow_is_starting(made)
        overview = await text(client, "discover")
        named = {line.partition(":")[0]: line.partition(": ")[2] for line in overview.splitlines()}
        assert {one.name: named[one.name] for one in well} == dict.fromkeys(
            (one.name for one in well), "list insert_row remove"
        )
        assert named["slow"] == "still starting; a call waits for it"
        if transport == "memory":
            assert named["sqlite"] == "not running: exit code 1, AttributeError: no ... here."
            assert named["books"] == "not logged in: call log_in_books"
        else:  # nobody knows who calls
            assert named["sqlite"] == "not running; the gateway's log says why"
            assert named["books"] == "needs a login, and this gateway does not know who calls"
        assert SECRET not in overview and len(named) == 7 + 3 + 1  # and log_in_books itself
        (tmp_path / "go on").touch()
        await wait_until(lambda: "slow" not in states(made))
        assert "slow: nap" in (await text(client, "discover")).splitlines()


async def test_nothing_is_said_while_all_are_well(tmp_path: Path) -> None:
    """What three servers that cannot be used cost is what their lines cost."""
    ten = [working(tmp_path, number) for number in range(10)]
    (tmp_path / "a").mkdir()
    async with client_of(gateway(tmp_path / "a", *ten, disclosure="meta")) as client:
        well = await text(client, "discover")
    assert len(well.splitlines()) == 10 and count(well) <= 100
    made = gateway(tmp_path, *ten[:7], crashing(), sleeping(tmp_path), login(), disclosure="meta", wait_seconds=0)
    async with client_of(made) as client:
        await until_only_slow_is_starting(made)
        broken = await text(client, "discover")
        assert count(broken) <= count(well) + 60
        (tmp_path / "go on").touch()


async def test_a_server_that_crashed_is_named_wherever_a_model_looks_for_it(tmp_path: Path) -> None:
    made = gateway(tmp_path, working(tmp_path, 0), crashing(), disclosure="meta", query=True)
    line = "sqlite: not running: exit code 1, AttributeError"
    async with client_of(made) as client:
        await wait_until(lambda: "sqlite" in states(made) and "starting" not in states(made)["sqlite"])
        found = await text(client, "discover", query=["insert a row into sqlite"])
        first, second, *hits = found.splitlines()
        assert first.startswith(line) and second == "Of others:" and hits[0].startswith("notes.insert_row")
        assert "sqlite" not in await text(client, "discover", query=["insert a row into notes"])
        for meta in ("execute", "query"):
            assert (await text(client, meta, operation="sqlite.write_query")).startswith(line)
        for named in ("sqlite.write_query", "sqlite/write_query", "sqlite_write_query", "SQLite"):
            assert (await text(client, "get_schema", operation=[named])).startswith(line)
        assert (await text(client, "discover", category="sqlite")).startswith(line)
        assert line not in await text(client, "discover", category="notes")
        both = await text(client, "get_schema", operation=["notes.list", "sqlite.x"])
        assert "notes.list" in both and line in both
        unattributed = await text(client, "execute", operation="write_query")
        assert "There is no operation 'write_query'." in unattributed and line in unattributed
        whole = await text(client, "discover", detail="full")
        assert '"unusable":{"sqlite":"not running' in whole


async def test_a_server_that_is_known_and_crashed_since_is_named_with_its_operations(tmp_path: Path) -> None:
    upstream, other = ListingUpstream(tmp_path, "sqlite", tools=[tool("write_query")]), working(tmp_path, 0)
    async with client_of(gateway(tmp_path, upstream.config(), other, disclosure="meta")) as client:
        assert "sqlite: write_query" in await text(client, "discover")
    (tmp_path / "sqlite.json").unlink()
    made = gateway(tmp_path, upstream.config(), other, disclosure="meta")
    async with client_of(made) as client:
        assert "not running" not in await text(client, "discover"), "nobody has tried"
        failed = await client.call_tool("execute", {"operation": "sqlite.write_query"})
        assert failed.is_error and "cannot be used: ended with exit code 1" in failed.text
        assert "FileNotFoundError" in failed.text
        overview = (await text(client, "discover")).splitlines()
        assert overview[0] == "sqlite: write_query" and overview[-1].startswith("sqlite: not running: exit code 1")
        for told in (
            await text(client, "discover", query=["write query"]),
            await text(client, "get_schema", operation=["sqlite.write_query"]),
        ):
            assert "sqlite: not running: exit code 1" in told


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("disclosure", ["meta", "full"])
async def test_a_call_to_a_server_that_is_starting_waits_for_it(tmp_path: Path, disclosure: str, era: str) -> None:
    made = gateway(tmp_path, working(tmp_path, 0), sleeping(tmp_path), disclosure=disclosure, wait_seconds=0)
    async with client_of(made, era=era) as client:
        if disclosure == "meta":
            assert "still starting" in await text(client, "get_schema", operation=["slow.nap"])
            calling = asyncio.ensure_future(client.call_tool("execute", {"operation": "slow.nap", "params": {"x": 1}}))
        else:
            calling = asyncio.ensure_future(client.call_tool("slow_nap", {"x": 1}))
        await wait_until(lambda: bool(made.upstreams["slow"]._fetched._waiters), "a call that waits")
        assert not calling.done()
        (tmp_path / "go on").touch()
        reply = await calling
        assert not reply.is_error and "nap" in reply.text


async def test_a_call_does_not_wait_longer_than_it_may_take(tmp_path: Path) -> None:
    config = sleeping(tmp_path, timeout=0.01)
    made = gateway(tmp_path, working(tmp_path, 0), config, disclosure="meta", wait_seconds=0)
    async with client_of(made) as client:
        reply = await client.call_tool("execute", {"operation": "slow.nap"})
        assert reply.is_error and reply.text == "slow: still starting; a call waits for it"
        (tmp_path / "go on").touch()


async def test_the_client_says_why_a_tool_is_not_there(tmp_path: Path) -> None:
    for progressive in (True, False):
        made = gateway(tmp_path, working(tmp_path, 0), crashing(), disclosure="full")
        async with connect(made.server, progressive=progressive) as client:
            with pytest.raises((PeerError, ClientError), match="sqlite: not running: exit code 1, AttributeError"):
                await client.call("sqlite_write_query")
            with pytest.raises((PeerError, ClientError), match="sqlite" if progressive else "notes_list|among"):
                await client.describe("sqlite_write_query")


@pytest.mark.parametrize(
    ("query", "named"), [("postgres insert", "postgres"), ("frobnicator insert row", "frobnicator"), ("insert row", "")]
)
async def test_look_alikes_are_not_taken_for_what_a_query_names(tmp_path: Path, query: str, named: str) -> None:
    made = gateway(tmp_path, working(tmp_path, 0), working(tmp_path, 1), disclosure="meta")
    async with client_of(made) as client:
        found = (await text(client, "discover", query=[query])).splitlines()
        assert found[0].startswith(f'Nothing is named "{named}"; ') == bool(named)
        assert any(line.startswith("notes.insert_row") for line in found)


async def test_repeated_warnings_are_one_line_with_a_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = gateway(tmp_path, crashing(), disclosure="meta", wait_seconds=0)
    async with client_of(made) as client:
        for _ in range(5):
            made.upstreams["sqlite"].connection.start()
            failures = made.upstreams["sqlite"].connection.state.failures
            await wait_until(lambda failures=failures: made.upstreams["sqlite"].connection.state.failures > failures)  # type: ignore[misc]
        assert await text(client, "discover")
    told = [one.getMessage() for one in caplog.records if "AttributeError" in one.getMessage() and one.levelno > 20]
    assert len(told) == 3 and "(2 times)" in told[1] and "(4 times)" in told[2]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_gateway_none_of_whose_servers_runs_still_has_tools(tmp_path: Path, era: str) -> None:
    """A client that is told of no tools at its first request never asks again."""
    async with client_of(gateway(tmp_path, crashing(), disclosure="meta"), era=era) as client:
        assert "tools" in client.server.capabilities
        none, line = (await text(client, "discover")).splitlines()
        assert none == "There are no operations yet." and line.startswith("sqlite: not running: exit code 1")


def test_the_command_line_says_why_a_tool_is_not_there(tmp_path: Path) -> None:
    entry = crashing().entry
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"sqlite": entry}}))
    called = run("call", str(FORKED_PROGRAM), "gateway", "servers.json", "sqlite_write_query", cwd=tmp_path)
    assert called.code == 2
    assert "sqlite_write_query cannot be called now. sqlite: not running: exit code 1, AttributeError" in called.err


@pytest.mark.parametrize("era", ERAS)
async def test_servers_over_http_that_are_away_or_want_a_token_are_named(tmp_path: Path, era: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        guarded = await stack.enter_async_context(serve_http(DeltaServer("guarded"), auth=PresenceOnly()))
        away = f"http://127.0.0.1:{free_port()}/mcp"
        made = gateway(
            tmp_path,
            working(tmp_path, 0),
            UpstreamConfig(name="away", entry={"url": away}, speak=era, promise="never"),
            UpstreamConfig(name="guarded", entry={"url": guarded}, speak=era, promise="never"),
            disclosure="meta",
        )
        client = await stack.enter_async_context(client_of(made))
        told = (await text(client, "discover")).splitlines()
        assert told[-2:] == [
            "away: not running: cannot be reached: connection refused.",
            "guarded: needs a login: wants a token (HTTP 401)",
        ]
