"""A Delta-MCP server behind the gateway that cuts its results: the gateway cuts instead, and has the rest to read."""

from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaClient, ResultPolicy
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.tokens import count
from tests.support import budget_server
from tests.support.era_client import ERAS
from tests.support.paths import FORKED_PYTHON


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize(("own", "budget"), [(ResultPolicy(), 300), (ResultPolicy(max_tokens=600), 600)])
async def test_the_rest_of_a_cut_result_is_read_at_the_gateway(
    tmp_path: Path, behind: Any, own: ResultPolicy, budget: int
) -> None:
    entry = {"command": str(FORKED_PYTHON), "args": [budget_server.__file__]}
    upstream = UpstreamConfig(name="up", entry=entry, speak=behind)
    config = GatewayConfig(upstreams=[upstream], disclosure="full", query=False, results=own)
    gateway = Gateway(config, cache_folder=tmp_path)
    async with DeltaClient(gateway.server, progressive=False, validate=False) as client:
        result = await client.request("tools/call", {"name": "orders", "arguments": {"count": 400}})
        shown = result["content"][0]["text"]
        told = result["_meta"]["io.github.delta-mcp/result"]
        arguments = {"handle": told["handle"], "offset": told["end"]}
        rest = await client.request("tools/call", {"name": "continue", "arguments": arguments})
    assert budget // 2 < count(shown) <= budget
    assert told["total"] == 400
    assert rest["_meta"]["io.github.delta-mcp/result"]["start"] == told["end"]
    assert not rest.get("isError")
