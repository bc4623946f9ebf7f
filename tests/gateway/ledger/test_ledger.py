"""The ledger of a gateway, beside what was counted from the messages themselves."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import ResultPolicy, tokens
from deltamcp.gateway import ledger as ledger_module
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.ledger_figures import GATEWAY, LISTED, LedgerFile, Usage
from tests.support.conditions import wait_until
from tests.support.gateway_entries import module_entry
from tests.support.raw_client import RawClient, raw_client

ROWS = UpstreamConfig(name="rows", entry=module_entry("tests.support.rows_server"))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose))


@pytest.fixture
def file() -> LedgerFile:
    return LedgerFile()


@contextlib.asynccontextmanager
async def front(file: LedgerFile, **options: Any) -> AsyncIterator[RawClient]:
    """A client of a gateway with a ledger; what the ledger noted is in the file after it."""
    gateway = Gateway(GatewayConfig(upstreams=[ROWS], **options), ledger=Ledger(file))
    async with raw_client(gateway.server) as client:
        await client.handshake()
        yield client


def usage_by_tool(file: LedgerFile) -> dict[tuple[str, str], Usage]:
    return {(key.upstream, key.tool): usage for key, usage in file.read().items()}


def reply_tokens(answer: dict[str, Any]) -> int:
    return sum(tokens.count(block["text"]) for block in answer["result"]["content"])


def shown(tool: dict[str, Any]) -> int:
    sent = {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
    return tokens.count(json.dumps(sent, separators=(",", ":"), ensure_ascii=False))


async def execute(client: RawClient, operation: str, **params: Any) -> dict[str, Any]:
    return await client.call("tools/call", name="execute", arguments={"operation": operation, "params": params})


async def test_what_a_cut_result_would_have_cost_and_did_cost(file):
    async with front(file, disclosure="full") as client:
        whole = await client.call("tools/call", name="rows", arguments={"count": 400})
    async with front(file, results=ResultPolicy(max_tokens=300)) as client:
        cut = await execute(client, "rows.rows", count=400)
    before, after = reply_tokens(whole), reply_tokens(cut)
    assert after <= 300 < before
    assert usage_by_tool(file)["rows", "rows"] == Usage(2, 0, 0, 2 * before, before + after)


async def test_structured_content_that_repeats_the_text_is_counted_once(file):
    async with front(file, disclosure="full") as client:
        answer = await client.call("tools/call", name="table", arguments={"count": 20})
    assert answer["result"]["structuredContent"]
    usage = usage_by_tool(file)["rows", "table"]
    assert usage.before == usage.after == reply_tokens(answer)


async def test_meta_tools_cost_what_they_reply(file):
    async with front(file, results=ResultPolicy(max_tokens=300)) as client:
        overview = await client.call("tools/call", name="discover", arguments={})
        schema = await client.call("tools/call", name="get_schema", arguments={"operation": "rows.rows"})
        cut = await execute(client, "rows.rows", count=400)
        handle = cut["result"]["_meta"]["io.github.delta-mcp/result"]["handle"]
        rest = await client.call("tools/call", name="continue", arguments={"handle": handle})
        refused = await client.call("tools/call", name="execute", arguments={"operation": "rows.none"})
    found = usage_by_tool(file)
    for name, answer in (("discover", overview), ("get_schema", schema), ("continue", rest), ("execute", refused)):
        assert found[GATEWAY, name] == Usage(1, int(name == "execute"), 0, 0, reply_tokens(answer)), name


async def test_a_list_costs_the_meta_tools_instead_of_all_definitions_once_a_conversation(file):
    async with front(file, disclosure="full") as client:
        definitions = (await client.call("tools/list"))["result"]["tools"]
    async with front(file) as client:
        for _ in range(3):
            listed = (await client.call("tools/list"))["result"]["tools"]
    flat, meta = sum(map(shown, definitions)), sum(map(shown, listed))
    found = usage_by_tool(file)
    assert found["rows", LISTED] == Usage(2, 0, 0, 2 * flat, flat)
    assert found[GATEWAY, LISTED] == Usage(2, 0, 0, 0, meta)


async def test_errors_are_failed_calls_that_cost_the_same(file):
    async with front(file) as client:
        answer = await execute(client, "rows.refuse")
    assert answer["result"]["isError"]
    assert usage_by_tool(file)["rows", "refuse"] == Usage(1, 1, 0, reply_tokens(answer), reply_tokens(answer))


async def test_a_name_that_a_model_wrote_is_not_stored(file):
    async with front(file) as client:
        await client.call("tools/call", name="my secret", arguments={})
        await client.call("tools/call", name="execute", arguments={"operation": "my.secret"})
    assert b"secret" not in file.path.read_bytes()
    assert (GATEWAY, "(unknown)") in usage_by_tool(file)


async def test_figures_reach_the_file_while_the_gateway_runs(file):
    async with front(file) as client:
        await execute(client, "rows.rows")
        await wait_until(lambda: ("rows", "rows") in usage_by_tool(file), "the figures of the call")
    assert usage_by_tool(file)["rows", "rows"].calls == 1


async def test_a_ledger_that_cannot_be_written_fails_no_call(file, caplog):
    file.path.parent.parent.mkdir()
    file.path.parent.write_text("a file where the folder should be")
    async with front(file) as client:
        assert reply_tokens(await execute(client, "rows.rows"))
    assert "the ledger cannot be written" in caplog.text


async def test_calls_that_come_faster_than_tokens_are_counted_are_told(file, monkeypatch):
    monkeypatch.setattr(ledger_module, "_MAX_WAITING_BYTES", 1_500)
    async with front(file, disclosure="full") as client:
        await client.call("tools/call", name="rows", arguments={"count": 40})
        small = await client.call("tools/call", name="rows", arguments={"count": 2})
    assert usage_by_tool(file)["rows", "rows"] == Usage(2, 0, 1, reply_tokens(small), reply_tokens(small))


async def test_totals_are_of_all_gateways_and_of_now(file):
    ledger = Ledger(file)
    gateway = Gateway(GatewayConfig(upstreams=[ROWS]), ledger=ledger)
    async with raw_client(gateway.server) as client:
        await client.handshake()
        await client.call("tools/list")
        answer = await execute(client, "rows.rows")
        totals = await asyncio.to_thread(ledger.totals)
    assert (totals.days, totals.definitions.calls, totals.results.calls) == (1, 1, 1)
    assert totals.results.after == reply_tokens(answer)


async def test_the_thread_ends_with_the_gateway(file):
    async with front(file) as client:
        await execute(client, "rows.rows")
        assert any(thread.name == "delta-mcp ledger" for thread in threading.enumerate())
    assert not any(thread.name == "delta-mcp ledger" for thread in threading.enumerate())
