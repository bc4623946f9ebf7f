"""Servers of this library behind the gateway: their operations are offered one by one, and shaped once."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaClient, DeltaServer, ResultPolicy, apply_delta, decode_result
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS, era_client, first_text, result_meta
from tests.support.gateway_entries import module_entry
from tests.support.gateway_process import Behind, config_file
from tests.support.http_server import serve_http
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.shop_server import order_rows, shop_server

Entry = AbstractAsyncContextManager[dict[str, Any]]


def make_gateway(folder: Path, entry: dict[str, Any], era: Any, name: str = "shop", **options: Any) -> Gateway:
    folder.mkdir(exist_ok=True)
    upstream = UpstreamConfig(name=name, entry=entry, speak=era, promise="never")
    options = {"results": ResultPolicy(), "wait_seconds": 120.0, **options}
    return Gateway(GatewayConfig(upstreams=[upstream], **options), cache_folder=folder)


@contextlib.asynccontextmanager
async def over_http(server: DeltaServer) -> AsyncIterator[dict[str, Any]]:
    async with serve_http(server) as url:
        yield {"url": url}


@contextlib.asynccontextmanager
async def over_stdio(disclosure: str) -> AsyncIterator[dict[str, Any]]:
    yield module_entry("tests.support.shop_server", disclosure)


SHOPS: dict[str, Callable[[], Entry]] = {
    "meta-stdio": lambda: over_stdio("meta"),
    "meta-http": lambda: over_http(shop_server("meta")),
    "auto-stdio": lambda: over_stdio("auto"),
    "auto-http": lambda: over_http(shop_server("auto")),
    "full-http": lambda: over_http(shop_server("full")),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("shop", SHOPS)
async def test_the_operations_behind_meta_tools_are_offered_one_by_one(tmp_path: Path, shop: str, era: str) -> None:
    async with SHOPS[shop]() as entry:
        gateway = make_gateway(tmp_path, entry, era)
        async with era_client(gateway.server) as client:
            overview = first_text(await client.result_of("discover"))
            read = await client.result_of("query", operation="shop.orders.list", params={"count": 2})
            written = await client.result_of("execute", operation="shop.orders.cancel", params={"id": 7})
            refused = await client.refusal_of("query", operation="shop.orders.cancel", params={"id": 7})
    ids = {operation.id for operation in gateway.server.engine.catalog.view().operations.values()}
    assert "orders" in overview
    assert ids == {
        "shop.orders.list",
        "shop.orders.cancel",
        *(f"shop.stock.count_{number}" for number in range(30)),
    }
    assert decode_result(first_text(read)) == order_rows(2)
    assert "order 7 is cancelled" in first_text(written)
    assert "not declared read-only; use execute" in refused


@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_prompts_stay_and_operations_are_not_repeated_as_resources(
    tmp_path: Path, era: str
) -> None:
    async with over_http(shop_server()) as entry:
        gateway = make_gateway(tmp_path, entry, era, disclosure="full")
        async with era_client(gateway.server) as client:
            listed = (await client.ask("resources/list"))["result"]["resources"]
            templates = (await client.ask("resources/templates/list"))["result"]["resourceTemplates"]
            hours = await client.read("shop://hours")
            prompts = (await client.ask("prompts/list"))["result"]["prompts"]
    assert [one["uri"] for one in listed] == ["shop://hours"]
    assert [one["uriTemplate"] for one in templates] == ["delta-mcp://results/{handle}{+path}"]
    assert hours == "9 to 5"
    assert [one["name"] for one in prompts] == ["greet"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_operations_of_a_file_are_offered(tmp_path: Path, era: str) -> None:
    file = tmp_path / "operations.json"
    definition = {
        "name": "orders_list",
        "description": "List the orders.",
        "handler": {"kind": "python", "ref": "shop_operations:list_orders"},
        "inputSchema": {"type": "object", "properties": {"count": {"type": "integer"}}},
        "annotations": {"readOnlyHint": True},
    }
    file.write_text(json.dumps({"operations": {"orders": {"list": definition}}}))
    (tmp_path / "shop_operations.py").write_text("def list_orders(count: int):\n    return list(range(count))\n")
    words = ["serve", str(file), "--disclosure", "meta"]
    entry = {"command": str(FORKED_PROGRAM), "args": words, "env": {"PYTHONPATH": str(tmp_path)}}
    gateway = make_gateway(tmp_path, entry, era)
    async with era_client(gateway.server) as client:
        result = await client.result_of("query", operation="shop.orders.list", params={"count": 3})
    assert json.loads(first_text(result)) == [0, 1, 2]


@pytest.mark.parametrize("era", ERAS)
async def test_gateways_behind_gateways_offer_the_same_operations_under_one_more_name_each(
    tmp_path: Path, era: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        entry = await stack.enter_async_context(over_http(shop_server()))
        for name in ("inner", "middle"):
            gateway = make_gateway(tmp_path / name, entry, era)
            entry = await stack.enter_async_context(over_http(gateway.server))
        outer = make_gateway(tmp_path / "outer", entry, era, name="all")
        async with era_client(outer.server, era) as client:
            result = await client.result_of("query", operation="all.shop.shop.orders.list", params={"count": 400})
            handle = result_meta(result)["handle"]
            rest = await client.result_of("continue", handle=handle, offset=result_meta(result)["end"])
        ids = [operation.id for operation in outer.server.engine.catalog.view().operations.values()]
    assert len(ids) == 32
    assert result_meta(result)["total"] == 400
    assert result_meta(rest)["start"] == result_meta(result)["end"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_gateway_that_runs_as_a_program_is_behind_a_gateway(tmp_path: Path, era: str) -> None:
    command = [sys.executable, "-m", "tests.support.shop_server", "meta"]
    config = config_file(tmp_path, Behind(era, command=command, name="shop"))
    config.write_text(f"wait_seconds = 120\n{config.read_text()}cwd = {json.dumps(str(ROOT))}\n")
    environment = {name: str(tmp_path / name) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    entry = {"command": str(FORKED_PROGRAM), "args": ["gateway", str(config), "--no-ledger"], "env": environment}
    gateway = make_gateway(tmp_path / "outer", entry, era, name="all")
    async with era_client(gateway.server, era) as client:
        read = await client.result_of("query", operation="all.shop.orders.list", params={"count": 2})
    assert decode_result(first_text(read)) == order_rows(2)


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_is_cut_once_and_all_of_it_can_be_read(tmp_path: Path, era: str) -> None:
    async with over_http(shop_server()) as entry:
        gateway = make_gateway(tmp_path, entry, era)
        async with DeltaClient(gateway.server, progressive=False) as client:
            arguments = {"operation": "shop.orders.list", "params": {"count": 400}}
            reply = await client.call_tool("query", arguments)
            whole = await client.whole(reply)
    assert reply.is_part
    assert whole == order_rows(400)


@pytest.mark.parametrize("era", ERAS)
async def test_changes_are_sent_by_the_gateway_alone(tmp_path: Path, era: str) -> None:
    rows = order_rows(12)
    server = DeltaServer("shop", disclosure="meta", results=ResultPolicy(max_tokens=300, deltas=True, keys=["id"]))

    @server.tool("orders_list", category="orders", action="list", annotations={"readOnlyHint": True})
    async def list_orders() -> list[dict[str, Any]]:
        return rows

    async with over_http(server) as entry:
        gateway = make_gateway(tmp_path, entry, era, conversation="process")
        async with era_client(gateway.server, "handshake") as client:
            first = await client.result_of("query", operation="shop.orders.list")
            same = await client.result_of("query", operation="shop.orders.list")
            rows[3] = {"id": 3, "title": "Another title"}
            changed = await client.result_of("query", operation="shop.orders.list")
        [operation] = gateway.server.engine.catalog.view().operations.values()
    assert decode_result(first_text(first)) == order_rows(12)
    assert "same 12 rows" in first_text(same)
    assert apply_delta(order_rows(12), first_text(changed)) == rows
    assert operation.resolved_policy is not None
    assert operation.resolved_policy.keys == ["id"]


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_policy_results_pass_whole_through_two_gateways(tmp_path: Path, era: str) -> None:
    async with over_http(shop_server()) as entry:
        inner = make_gateway(tmp_path / "inner", entry, era, results=None)
        async with over_http(inner.server) as between:
            outer = make_gateway(tmp_path / "outer", between, era, results=None)
            async with era_client(outer.server) as client:
                result = await client.result_of("query", operation="shop.shop.orders.list", params={"count": 400})
    assert json.loads(result["content"][0]["text"]) == order_rows(400)


@pytest.mark.parametrize("era", ERAS)
async def test_an_operation_that_is_added_behind_meta_tools_is_found_and_waits_for_approval(
    tmp_path: Path, era: str
) -> None:
    server = shop_server()
    async with over_http(server) as entry:
        gateway = make_gateway(tmp_path, entry, era)
        async with era_client(gateway.server) as client:
            await client.result_of("query", operation="shop.orders.list")

            @server.tool("orders_count", category="orders", action="count")
            async def count_orders() -> int:
                """Count the orders."""
                return 3

            catalog = gateway.server.engine.catalog
            await wait_until(lambda: catalog.view().absence("shop.orders.count") != "")
            waiting = await client.refusal_of("execute", operation="shop.orders.count")
    assert "approve" in waiting


@pytest.mark.parametrize("era", ERAS)
async def test_a_promise_of_a_server_behind_meta_tools_is_awaited_and_its_result_cut_once(
    tmp_path: Path, era: str
) -> None:
    server = DeltaServer("shop", disclosure="meta", results=ResultPolicy(max_tokens=300))

    @server.tool("orders_list", category="orders", action="list", annotations={"readOnlyHint": True}, promise="always")
    async def list_orders() -> list[dict[str, Any]]:
        return [*order_rows(400)]

    async with over_http(server) as entry:
        gateway = make_gateway(tmp_path, entry, era)
        async with DeltaClient(gateway.server, progressive=False) as client:
            reply = await client.call_tool("query", {"operation": "shop.orders.list"})
            whole = await client.whole(reply)
    assert reply.is_part
    assert whole == order_rows(400)
