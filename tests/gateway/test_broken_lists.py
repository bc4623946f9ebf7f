"""A list that fails or hangs hides no other list of its server, and what was known of it before stays."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaServer, connect
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.upstreams.upstream import Upstream
from tests.support.command_line import run
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.era_client import ERAS
from tests.support.http_server import serve_http
from tests.support.listing_upstream import ListingUpstream, gateway, tool

LISTS: dict[str, Any] = {
    "tools": [tool("a")],
    "prompts": [{"name": "ask"}],
    "resources": [{"uri": "notes://all", "name": "all"}],
}


@pytest.mark.parametrize("broken", ["tools", "prompts", "resources"])
async def test_a_list_that_fails_hides_no_other_and_comes_back(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = ListingUpstream(tmp_path, "one", **LISTS, fails=[f"{broken}/list"])
    made = gateway(tmp_path, upstream.config())
    async with connect(made.server, progressive=False) as client:

        async def listed() -> dict[str, int]:
            return {kind: len((await client.request(f"{kind}/list"))[kind]) for kind in LISTS}

        assert await listed() == {kind: int(kind != broken) for kind in LISTS}
        await wait_until(lambda: f"one does not list its {broken}: {broken}/list is broken." in caplog.text)
        upstream.write(**LISTS)
        made.upstreams["one"].refresh()
        async with asyncio.timeout(HANG_SECONDS):
            while await listed() != dict.fromkeys(LISTS, 1):  # noqa: ASYNC110 - another process lists it
                await asyncio.sleep(0.01)
        assert "has something new" not in caplog.text, "what could not be had before is not new"
        upstream.write(fails=[f"{broken}/list"], **LISTS)
        made.upstreams["one"].refresh()
        await wait_until(lambda: bool(made.upstreams["one"].listing.faults))  # type: ignore[union-attr]
        assert await listed() == dict.fromkeys(LISTS, 1), "what was known stays"


@pytest.mark.parametrize("hanging", ["prompts/list", "resources/list", "resources/templates/list"])
async def test_a_list_that_hangs_has_a_time_of_its_own(tmp_path: Path, hanging: str) -> None:
    source = ListingUpstream(tmp_path, "one", **LISTS, hangs=[hanging])
    upstream = Upstream("one", source.config().entry)
    fetching = asyncio.ensure_future(upstream.fetch_listing())
    try:
        asked = {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
        await wait_until(lambda: asked <= {*source.requests()})
        await asyncio.wait_for(upstream_answers(upstream), None)
        advance_clock(25)
        listing = await fetching
    finally:
        await upstream.close()
    assert [one["name"] for one in listing.tools] == ["a"] and len(listing.faults) == 1
    assert "within 20 s" in next(iter(listing.faults.values()))


async def upstream_answers(upstream: Upstream) -> None:
    """Returns when all that was sent before has been answered that will be."""
    client = await upstream._clients.local.ready()
    await client.request("ping")


async def test_a_server_that_lists_nothing_at_all_is_not_listed(tmp_path: Path) -> None:
    methods = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
    upstream = ListingUpstream(tmp_path, "one", **LISTS, fails=methods)
    made = gateway(tmp_path, upstream.config(), ListingUpstream(tmp_path, "two", **LISTS).config(), disclosure="meta")
    async with connect(made.server, progressive=False) as client:
        told = (await client.call_tool("discover", {})).text.splitlines()
        assert told == ["two: a", "one: does not list its tools: tools/list is broken."]


async def test_a_tool_is_not_called_while_the_tools_cannot_be_compared(tmp_path: Path) -> None:
    upstream = ListingUpstream(tmp_path, "one", **LISTS)
    async with connect(gateway(tmp_path, upstream.config()).server):
        pass
    upstream.write(**LISTS, fails=["tools/list"])
    async with connect(gateway(tmp_path, upstream.config()).server, progressive=False) as client:
        reply = await client.call_tool("a", {})
        assert reply.is_error and "nobody can say whether it is what was approved" in reply.text
        assert (await client.get_prompt("ask"))["messages"]
        assert (await client.call_tool("a", {})).is_error, "another request may pass, and this one may not"


@pytest.mark.parametrize("era", ERAS)
async def test_over_http_too(tmp_path: Path, era: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = DeltaServer("terraform")
    server.tool(name="plan")(lambda: "planned")
    server.resource("notes://all", name="all")(lambda: "all")
    monkeypatch.setattr(server.engine._lists, "list_items", _failing(server.engine._lists.list_items))
    async with contextlib.AsyncExitStack() as stack:
        entry = {"url": await stack.enter_async_context(serve_http(server))}
        made = gateway(tmp_path, UpstreamConfig(name="terraform", entry=entry, speak=era, promise="never"))
        client = await stack.enter_async_context(connect(made.server, progressive=False))
        assert await client.call("plan") == "planned"
        known = made.upstreams["terraform"].listing
        assert known is not None and known.faults.keys() == {"resources"}


def _failing(list_items: Any) -> Any:
    async def listed(ask: Any, request: Any) -> Any:
        if ask.kind.value == "resources":
            raise RuntimeError("a fault of the server's")
        return await list_items(ask, request)

    return listed


def test_the_check_tells_which_list_is_missing_and_goes_on(tmp_path: Path) -> None:
    upstream = ListingUpstream(tmp_path, "one", **LISTS, fails=["resources/list"]).config()
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"one": upstream.entry}}))
    done = run("gateway", str(file), "--check", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "ready" in done.out and "Its resources are not listed" in " ".join(done.out.split())
