"""A gateway answers its first client before it asks servers again that it has asked before."""

import sys
from pathlib import Path
from typing import Any

from deltamcp import connect
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.gateway_upstream import ListingCache
from deltamcp.upstreams.client import Phase
from deltamcp.upstreams.listing import UpstreamListing


async def test_a_server_that_never_answered_is_not_started_before_the_first_list(tmp_path: Path):
    entry: dict[str, Any] = {"command": sys.executable, "args": ["-c", "input()"]}
    cache, tool = ListingCache(tmp_path), {"name": "add", "inputSchema": {"type": "object"}}
    cache.store("silent", entry, None)
    cache.store("sums", entry, UpstreamListing({"capabilities": {"tools": {}}}, "2025-11-25", [tool]))
    upstreams = [UpstreamConfig(name=name, entry=entry) for name in ("silent", "sums")]
    gateway = Gateway(GatewayConfig(upstreams=upstreams), cache_folder=tmp_path)
    async with connect(gateway.server, progressive=False) as client:
        assert (await client.request("tools/list"))["tools"]
        assert gateway.upstreams["silent"].connection.state.phase is Phase.STOPPED
