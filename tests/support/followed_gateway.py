"""A gateway that follows the files of its configuration, with servers that say who they are."""

import asyncio
import contextlib
import json
import sys

from deltamcp import connect
from deltamcp.cli.verbs.gateway import GatewayOptions, GatewaySource
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.gateway_upstream import CONFIGURATION_URI
from deltamcp.gateway.live_configuration import LiveConfiguration
from deltamcp.gateway.upstream_items import STATUS_URI
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT

PROGRAM = str(ROOT / "tests" / "support" / "named_server.py")


def table(name, mark="1", extra=""):
    args = json.dumps([PROGRAM, name, mark])
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\npromise = "never"\n{extra}\n'


def entries(**marks):
    servers = {name: {"command": sys.executable, "args": [PROGRAM, name, mark]} for name, mark in marks.items()}
    return json.dumps({"mcpServers": servers}, indent=2)


@contextlib.asynccontextmanager
async def following(path, **options):
    live = LiveConfiguration(GatewaySource((str(path),), GatewayOptions(**{"disclosure": "full", **options})))
    gateway = Gateway(live.found.config, live=live, cache_folder=path.parent / "catalogs")
    async with connect(gateway.server, progressive=False) as client:
        yield live, gateway, client


async def names(client):
    """The tools of the servers, without the one that reads results on."""
    listed = (await client.request("tools/list"))["tools"]
    return [tool["name"] for tool in listed if tool["name"] != "continue"]


async def until_named(client, *expected):
    found = []
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while (found := await names(client)) != [*expected]:  # noqa: ASYNC110 - what happens elsewhere sets no event
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"listed are {found}") from None


async def configuration(client):
    contents = {one["uri"]: json.loads(one["text"]) for one in await client.read_resource(STATUS_URI)}
    return contents[CONFIGURATION_URI]
