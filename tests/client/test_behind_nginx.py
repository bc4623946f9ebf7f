"""Calls through nginx, which goes to the next server if one refuses, and answers 502 if one breaks off."""

import asyncio

import pytest

from deltamcp.client.client import connect
from deltamcp.errors import ConnectionLostError
from tests.support.conditions import HANG_SECONDS
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, head, serve_fake
from tests.support.nginx import nginx
from tests.support.processes import free_port

REPEATABLE = ("look", "put")


@pytest.fixture(params=["modern", "handshake"])
def fake(request: pytest.FixtureRequest) -> Fake:
    modern = request.param == "modern"
    return Fake(modern=modern, handshake=not modern, sessions=not modern)


@pytest.fixture
async def nginx_url(fake, tmp_path):
    """The address of nginx before the fake alone."""
    async with serve_fake(fake):
        with nginx(tmp_path, [port_of(fake)], free_port()) as url:
            yield f"{url}/mcp"


def port_of(fake: Fake) -> int:
    return int(fake.url.split(":")[2].partition("/")[0])


async def run_and_close(fake: Fake, asked: FakeRequest, wire: FakeConnection, begin: bool) -> None:
    """Does the call, and breaks off before or in the answer."""
    fake.run(asked)
    if begin:
        await wire.raw(head(200, content_type="application/json", content_length="1000") + b'{"jsonrpc"')
    wire.close()


@pytest.mark.parametrize("name", ["buy", *REPEATABLE])
async def test_a_server_that_refuses_connections_is_passed_over(fake, tmp_path, name):
    async with serve_fake(fake):
        with nginx(tmp_path, [free_port(), port_of(fake), free_port()], free_port()) as url:
            async with connect(f"{url}/mcp", listen=False) as client:
                for number in range(6):
                    assert (await asyncio.wait_for(client.call(name, a=number), HANG_SECONDS))["given"] == {"a": number}
    assert fake.runs(name) == 6


@pytest.mark.parametrize("begin", [False, True], ids=["before the answer, a 502", "in the answer"])
@pytest.mark.parametrize("name", REPEATABLE)
async def test_a_call_that_may_be_repeated_is_when_the_server_breaks_off(fake, nginx_url, name, begin):
    fake.once("tools/call", lambda asked, wire: run_and_close(fake, asked, wire, begin))
    async with connect(nginx_url, listen=False) as client:
        assert (await asyncio.wait_for(client.call(name, a=1), HANG_SECONDS))["given"] == {"a": 1}
    assert fake.runs(name) == 2


@pytest.mark.parametrize("begin", [False, True], ids=["before the answer, a 502", "in the answer"])
async def test_another_call_is_told_as_maybe_done_and_was_done_once(fake, nginx_url, begin):
    fake.once("tools/call", lambda asked, wire: run_and_close(fake, asked, wire, begin))
    async with connect(nginx_url, listen=False) as client:
        with pytest.raises(ConnectionLostError) as caught:
            await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert caught.value.maybe_done is True
        assert fake.runs("buy") == 1
        await client.call("buy")
    assert fake.runs("buy") == 2


async def test_where_no_server_is_left_a_call_is_told_as_maybe_done_and_was_not(fake, nginx_url):
    """nginx answers 502 to a call that it could pass to nobody, too, and the client cannot tell the two apart."""

    async def refuse(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(502, b"<html>", content_type="text/html")

    fake.once("tools/call", refuse)
    async with connect(nginx_url, listen=False) as client:
        with pytest.raises(ConnectionLostError) as caught:
            await asyncio.wait_for(client.call("buy"), HANG_SECONDS)
        assert caught.value.maybe_done is True
    assert fake.runs("buy") == 0
