"""Redirects: followed within an origin, with the message and the credentials; told, where they lead elsewhere."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp.client.client import connect
from deltamcp.errors import UnreachableError
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.processes import free_port, wait_until_it_listens

METHODS = (
    *("server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"),
    *("subscriptions/listen", "GET", "DELETE"),
)

MOUNTED = """
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from deltamcp import DeltaServer

server = DeltaServer("mounted")

@server.tool
async def echo(text: str) -> str:
    return text

app = Starlette(routes=[Mount("/mcp", server.asgi("/"))], lifespan=lambda app: server.engine.lifespan.running())
uvicorn.run(app, port={port}, log_level="warning")
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[str]:
    """The address of a server that Starlette redirects to the one with a slash at its end (HTTP 307)."""
    port = free_port()
    file = tmp_path / "mounted.py"
    file.write_text(MOUNTED.replace("{port}", str(port)))
    process = subprocess.Popen([sys.executable, str(file)])
    try:
        wait_until_it_listens(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_server_that_is_mounted_is_reached_without_its_slash(mounted, speak):
    async with connect(mounted, speak=speak) as client:
        assert await client.call("echo", text="there") == "there"


def redirect(status: int, fake: Fake, location: str) -> None:
    """Answers every request that is not at the location yet with a redirect."""

    async def moved(asked: FakeRequest, wire: FakeConnection) -> None:
        if asked.path == "/mcp":
            await wire.answer(status, location=location)
        else:
            await fake.answer(asked, wire)

    for method in METHODS:
        fake.always(method, moved)


@pytest.mark.parametrize("location", ["/v2/mcp?tenant=7", "{origin}/v2/mcp?tenant=7"])
@pytest.mark.parametrize(("status", "is_permanent"), [(301, True), (302, False), (307, False), (308, True)])
@pytest.mark.parametrize("speak", ["modern", "handshake"])
async def test_a_redirect_within_the_origin_is_followed(speak: Any, status, is_permanent, location):
    async with serve_fake(Fake(modern=speak == "modern", handshake=speak == "handshake", sessions=True)) as fake:
        redirect(status, fake, location.replace("{origin}", fake.url.removesuffix("/mcp")))
        async with connect(fake.url, token="hunter2", speak=speak) as client:
            for n in range(2):
                assert (await client.call("echo", n=n))["given"] == {"n": n}
        first, *others = fake.asked
        assert (first.path, fake.runs("echo")) == ("/mcp", 2)
        assert {asked.path for asked in others} == {"/v2/mcp?tenant=7"} | (set() if is_permanent else {"/mcp"})
        arrived = [(asked.verb, asked.body, asked.headers) for asked in others if asked.path != "/mcp"]
        for asked in fake.asked:
            if asked.path == "/mcp":
                assert (asked.verb, asked.body, asked.headers) in arrived
            assert asked.headers["authorization"] == "Bearer hunter2"


async def test_messages_stay_where_they_are_taken_if_only_listening_is_redirected():
    """A server may send whoever reads its address with a browser to its documentation."""

    async def send_to_docs(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(301, location="/docs") if asked.path == "/mcp" else await wire.answer(405)

    async with serve_fake(Fake(modern=False, handshake=True, sessions=True)) as fake:
        fake.always("GET", send_to_docs)
        async with connect(fake.url, speak="handshake") as client:
            for n in range(3):
                assert (await client.call("echo", n=n))["given"] == {"n": n}
                await wait_until(lambda: any(asked.path == "/docs" for asked in fake.asked))
        assert {asked.path for asked in fake.asked if asked.verb == "POST"} == {"/mcp"}


@pytest.mark.parametrize(
    ("status", "location", "message"), [(303, "/v2/mcp", "/v2/mcp"), (307, "/mcp", "redirects more than 5 times")]
)
async def test_a_post_answered_elsewhere_is_not_sent_again_and_a_circle_has_an_end(status, location, message):
    async with serve_fake(Fake()) as fake:
        redirect(status, fake, location)
        with pytest.raises(UnreachableError, match=message):
            async with connect(fake.url):
                pass
        assert {asked.path for asked in fake.asked if asked.verb == "POST"} == {"/mcp"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_an_address_elsewhere_is_told(status):
    async with serve_fake(Fake()) as fake:
        redirect(status, fake, "https://elsewhere.example/mcp?x=1")
        with pytest.raises(UnreachableError, match=r"https://elsewhere\.example/mcp"):
            async with connect(fake.url, token="hunter2"):
                pass
        assert fake.connections <= 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["http://localhost:{port}/mcp", "https://127.0.0.1:{port}/mcp", "//[", "{other}"])
async def test_no_other_origin_gets_a_request(status, location):
    async with serve_fake(Fake()) as fake, serve_fake(Fake()) as other:
        place = location.replace("{port}", fake.url.split(":")[2].partition("/")[0]).replace("{other}", other.url)
        redirect(status, fake, place)
        with pytest.raises(UnreachableError) as caught:
            async with connect(fake.url, token="hunter2"):
                pass
        assert "hunter2" not in str(caught.value)
        assert {asked.headers["host"] for asked in fake.asked} == {fake.url.split("/")[2]} and not other.asked
