"""The files of a gateway's configuration change while it runs: what is right holds at once, what is wrong is told."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from deltamcp import connect
from deltamcp.cli.verbs.gateway import GatewayOptions, GatewaySource
from deltamcp.dashboard.gateway_socket import find_gateways
from deltamcp.gateway import live_configuration
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.followed_gateway import PROGRAM, configuration, entries, following, names, table, until_named
from tests.support.marked_processes import needs_proc
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import running_program


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr(live_configuration, "POLL_SECONDS", 0.02)


async def test_servers_of_the_file_and_of_what_it_includes_come_go_and_change(tmp_path):
    path, included = tmp_path / "gateway.toml", tmp_path / "mcp.json"
    included.write_text(entries(a="1"))
    path.write_text('include = "mcp.json"\n' + table("b"))
    async with following(path) as (_, _, client):
        await until_named(client, "b_who", "b_wait", "a_who", "a_wait")
        included.write_text(entries(a="2", c="1"))
        await until_named(client, "b_who", "b_wait", "a_who", "a_wait", "c_who", "c_wait")
        assert (await client.call("a_who"))["mark"] == "2"
        path.write_text('include = "mcp.json"\n[servers.a]\ndeny = ["wait"]\n')
        await until_named(client, "a_who", "c_who", "c_wait")
        path.write_text('prefix = false\ninclude = "mcp.json"\n[servers.c]\nenabled = false\n')
        await until_named(client, "who", "wait")


async def test_the_file_of_a_host_is_followed_too_down_to_no_server(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(entries(a="1"))
    async with following(path, prefix=True) as (_, gateway, client):
        await until_named(client, "a_who", "a_wait")
        path.write_text(entries(a="1", b="1"))
        await until_named(client, "a_who", "a_wait", "b_who", "b_wait")
        path.write_text('{"mcpServers": {}}')
        await until_named(client)
        assert not gateway.upstreams


FAULTS = {
    "toml": ("[servers.a]\ncommand = 'x'\nargs = [", "line 3"),
    "an unfinished text": ('[servers.a]\n\ncommand = "x', "line 3"),
    "a key": (
        "\n[servers.a]\ncommand = 'x'\ncomand = 'y'\n",
        "line 4: servers.a.comand is no key; did you mean command",
    ),
    "a value": ("\nwait_seconds = 'long'\n[servers.a]\ncommand = 'x'\n", "line 2: wait_seconds must be a number"),
    "an entry": ("[servers.a]\nread_only = true\n", "line 1: servers.a needs a command, a url or"),
    "an address": ("\n\n[servers.a]\nurl = 'ftp://x'\n", "line 3: servers.a is wrong: ftp://"),
    "a login": ("[servers.a]\ncommand = 'x'\nauth = 'oauth'\n", 'line 1: servers.a is wrong: auth = "oauth"'),
    "an include": ("\n\ninclude = 'nothing.json'\n", "line 3: include is wrong: There is no file"),
    "bytes": (b"[servers.a]\n\ncommand = '\xff'\n", "line 3"),
}


@pytest.mark.parametrize("text, told", FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_told_with_its_line_in_the_log_and_the_status_and_what_was_before_stays(
    tmp_path, caplog, text, told
):
    caplog.set_level(logging.INFO, "deltamcp")
    path = tmp_path / "gateway.toml"
    path.write_text(table("a"))
    async with following(path) as (_, _, client):
        await until_named(client, "who", "wait")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        await wait_until(lambda: told in caplog.text, told)
        assert "so the one before stays in use" in caplog.text
        assert told in (await configuration(client))["fault"]
        assert (await client.call("who"))["mark"] == "1"
        path.write_text(table("a", "2"))
        await wait_until(lambda: "configuration was read again: a changed" in caplog.text)
        assert (await client.call("who"))["mark"] == "2"
        assert "fault" not in await configuration(client)


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("mcp.json", '{\n  "mcpServers": {\n    "a": {"command"\n', "line 4"),
        ("mcp.json", '{"mcpServers": []}', "line 1: it lists no servers"),
        ("mcp.json", "", "line 1: it lists no servers"),
    ],
)
async def test_a_fault_of_a_hosts_file_is_told_with_its_line(tmp_path, caplog, name, text, told):
    path = tmp_path / name
    path.write_text(entries(a="1"))
    async with following(path) as (_, _, client):
        path.write_text(text)
        await wait_until(lambda: told in caplog.text, told)
        assert await names(client) == ["who", "wait"]


async def test_an_entry_that_is_wrong_is_told_with_its_line_and_the_server_as_it_was_stays(tmp_path, caplog):
    path = tmp_path / "mcp.json"
    path.write_text(entries(a="1", b="1"))
    async with following(path, prefix=True) as (_, _, client):
        changed = json.loads(entries(a="1", b="1", c="1"))
        changed["mcpServers"]["a"] = {"args": ["x"]}
        path.write_text(json.dumps(changed, indent=2))
        await until_named(client, "a_who", "a_wait", "b_who", "b_wait", "c_who", "c_wait")
        sentence = f"{path}, line 3: a stays as it was: it has neither a command nor a url."
        await wait_until(lambda: sentence in caplog.text)
        assert (await configuration(client))["leftOut"] == [sentence]


async def test_a_file_that_is_removed_is_a_fault_until_it_is_there_again(tmp_path, caplog):
    path = tmp_path / "gateway.toml"
    path.write_text(table("a"))
    async with following(path) as (_, _, client):
        path.unlink()
        await wait_until(lambda: f"There is no file {path}" in caplog.text)
        assert await names(client) == ["who", "wait"]
        path.write_text(table("a", extra='deny = ["wait"]'))
        await until_named(client, "who")


async def test_an_included_file_may_come_later(tmp_path, caplog):
    path, included = tmp_path / "gateway.toml", tmp_path / "mcp.json"
    path.write_text(table("a"))
    async with following(path) as (_, _, client):
        path.write_text('include = "mcp.json"\n' + table("a"))
        await wait_until(lambda: "line 1: include is wrong" in caplog.text)
        included.write_text(entries(b="1"))
        await until_named(client, "a_who", "a_wait", "b_who", "b_wait")


async def test_what_holds_after_a_restart_is_told(tmp_path, caplog):
    path = tmp_path / "gateway.toml"
    path.write_text(table("a"))
    async with following(path) as (_, _, client):
        path.write_text('name = "other"\nkeep_results = true\n' + table("a"))
        await wait_until(lambda: "the new keep_results holds after a restart" in caplog.text)
        assert (await configuration(client))["afterRestart"] == ["name", "keep_results"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
async def test_a_hangup_has_the_files_read_at_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(live_configuration, "POLL_SECONDS", 3600.0)
    caplog.set_level(logging.INFO, "deltamcp")
    path = tmp_path / "gateway.toml"
    path.write_text(table("a"))
    async with following(path) as (_, _, client):
        path.write_text(table("b"))
        os.kill(os.getpid(), signal.SIGHUP)
        await wait_until(lambda: "read again: b added; a removed" in caplog.text)
        assert (await client.call("who"))["server"] == "b"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


async def test_a_server_that_a_command_line_names_has_no_file_to_follow(tmp_path):
    source = GatewaySource((sys.executable, PROGRAM, "a", "1"), GatewayOptions())
    assert source.files() == []
    assert GatewaySource(("https://tools.example/mcp",), GatewayOptions()).files() == []
    path = Path(tmp_path / "mcp.json")
    path.write_text(entries(a="1"))
    assert GatewaySource((f"{path}#a",), GatewayOptions()).files() == [path]


async def test_over_stdio_a_gateway_follows_its_file_by_itself(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text('disclosure = "full"\nprefix = true\n' + table("a"))
    heard = list[object]()
    command = [str(FORKED_PROGRAM), "gateway", "--no-ledger", str(path)]
    async with connect(command, progressive=False, on_change=heard.append) as client:
        await until_named(client, "a_who", "a_wait")
        path.write_text('disclosure = "full"\nprefix = true\n' + table("b"))
        await until_named(client, "b_who", "b_wait")
        assert (await client.call("b_who"))["server"] == "b"
        await wait_until(lambda: bool(heard), "the client hears of the change")


@needs_proc
@pytest.mark.deep
async def test_with_workers_each_follows_the_files_and_sighup_replaces_none_by_one_that_cannot_start(tmp_path):
    path = tmp_path / "gateway.toml"
    head = 'disclosure = "full"\nprefix = true\n'
    path.write_text(head + table("a"))
    command = [str(FORKED_PROGRAM), "gateway", "--http", "127.0.0.1:0", "--workers", "2", "--no-ledger", str(path)]
    with running_program(command, tmp_path) as program:
        url = (await asyncio.to_thread(program.wait_for, r"(http://127\.0\.0\.1:\d+/mcp) with 2 workers"))[1]
        async with asyncio.timeout(HANG_SECONDS):
            while len(await find_gateways()) < 2:  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(0.02)
        path.write_text(head + table("a") + table("b"))
        await wait_until(lambda: program.text().count("read again: b added") == 2, "both workers")
        async with connect(url, progressive=False, cache_seconds=0) as client:
            for _ in range(8):
                assert (await client.call("b_who"))["server"] == "b"
        path.write_text(head + table("a") + "nothing = 1\n")
        await wait_until(lambda: program.text().count("servers.a.nothing is no key") == 2, "both workers")
        program.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(program.wait_for, "the workers are not replaced")
        async with connect(url, progressive=False, cache_seconds=0) as client:
            assert (await client.call("b_who"))["server"] == "b"
