"""Other programs of the user find gateways that run, and ask them; nobody else can."""

import asyncio
import functools
import os
import stat

import pytest

from deltamcp import connect
from deltamcp.dashboard.api import GatewayApi
from deltamcp.dashboard.gateway_socket import find_gateways, gateway_socket, sockets_folder
from deltamcp.errors import ConfigurationError, UnreachableError, UsageError
from tests.support.dashboard_scene import book_upstream
from tests.support.listing_upstream import gateway


def with_socket(tmp_path):
    made = gateway(tmp_path, book_upstream(tmp_path).config(), disclosure="meta")
    made.open_beside(functools.partial(gateway_socket, lambda: GatewayApi(made, "books.toml", 0.0)))
    return made


async def test_a_gateway_is_found_while_it_runs_and_answers(tmp_path):
    assert await find_gateways() == []
    async with connect(with_socket(tmp_path).server, progressive=False):
        (found,) = await find_gateways()
        assert found.id == str(os.getpid()) and (await found.ask("about"))["label"] == "books.toml"
        assert [row["name"] for row in await found.ask("servers")] == ["books"]
        with pytest.raises(UsageError, match="There is no server 'x'"):
            await found.ask("server", {"server": "x"})
    assert await find_gateways() == []
    with pytest.raises(UnreachableError):
        await found.ask("about")


async def test_folder_and_socket_are_the_users_alone(tmp_path):
    async with connect(with_socket(tmp_path).server, progressive=False):
        (path,) = sockets_folder().glob("*.sock")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.parent.chmod(0o777)
        with pytest.raises(ConfigurationError, match="Others may write"):
            await find_gateways()


async def test_a_folder_too_deep_for_an_address_of_a_socket_does(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("deep" * 20) / ("deeper" * 20)))
    async with connect(with_socket(tmp_path).server, progressive=False):
        (found,) = await find_gateways()
        assert (await found.ask("about"))["servers"] == 1


async def test_the_socket_of_a_gateway_that_was_killed_is_forgotten(monkeypatch):
    folder = sockets_folder()
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.chdir(folder)  # the whole path may be too long for a socket
    left = await asyncio.start_unix_server(lambda reader, writer: None, "1.sock")
    left.close()
    (folder / "2.sock").write_text("no socket")
    assert await find_gateways() == [] and [path.name for path in folder.iterdir()] == ["2.sock"]


async def test_a_socket_of_another_user_is_not_answered(tmp_path, monkeypatch):
    async with connect(with_socket(tmp_path).server, progressive=False):
        (found,) = await find_gateways()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setattr("deltamcp.dashboard.gateway_socket._ROOT", 54321)
        with pytest.raises(UnreachableError):
            await found.ask("about")


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b"{}\n", b'{"ask": 1}\n', b'{"ask": "about", "arguments": 1}\n', b"\xff\n"]
)
async def test_what_is_no_request_gets_a_sentence(tmp_path, monkeypatch, line):
    async with connect(with_socket(tmp_path).server, progressive=False):
        (path,) = sockets_folder().glob("*.sock")
        monkeypatch.chdir(path.parent)  # the whole path may be too long for an address
        reader, writer = await asyncio.open_unix_connection(path.name)
        writer.write(line)
        assert (await reader.readline()).startswith(b'{"error":"')
        writer.close()
