"""The server of the scenarios, over each transport of the original: stdio, and HTTP with `compat=True`."""

from collections.abc import AsyncIterator

import pytest

from deltamcp import DeltaClient, connect
from tests.support import six_tool_server as six_tools
from tests.support.bytes_client import BytesClient, http_clients, stdio_client
from tests.support.compat_client import CompatClient, compat_client
from tests.support.http_server import serve_http
from tests.support.paths import FORKED_PYTHON
from tests.support.six_tool_server import six_tool_server

TRANSPORTS = ("stdio", "http")
_PROGRAM = "from tests.support.six_tool_server import six_tool_server; six_tool_server().run()"


@pytest.fixture(params=TRANSPORTS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[DeltaClient]:
    """A client that offers what the original's does."""
    if request.param == "stdio":
        command = [str(FORKED_PYTHON), six_tools.__file__]
        async with connect(command, speak="delta-mcp", encoding="compact-json") as client:
            yield client
    else:
        async with (
            serve_http(six_tool_server(), compat=True) as url,
            connect(url, speak="delta-mcp", encoding="compact-json") as client,
        ):
            yield client


@pytest.fixture(params=TRANSPORTS)
async def new_wire(request: pytest.FixtureRequest) -> AsyncIterator[BytesClient]:
    """The bytes of a connection on which nothing was said yet."""
    if request.param == "stdio":
        async with stdio_client(_PROGRAM) as wire:
            yield wire
    else:
        async with http_clients(six_tool_server(), compat=True) as join:
            yield join()


@pytest.fixture
async def wire(new_wire: BytesClient) -> BytesClient:
    """The bytes of a connection in a session of Delta-MCP."""
    await new_wire.delta()
    return new_wire


@pytest.fixture
async def http() -> AsyncIterator[CompatClient]:
    """A client of the server over HTTP that sends any headers and bodies."""
    async with compat_client(six_tool_server()) as http:
        yield http
