"""A server behind a gateway is killed during calls: no answer is lost or wrong, and no other server is affected."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.client.client import DeltaClient
from deltamcp.client.reply import Reply
from deltamcp.dialects.result_bodies import ERROR_KEY
from deltamcp.gateway.config import UpstreamConfig
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.listing_upstream import gateway

CALLS = 100
TOOLS = [*fake_stdio.TOOLS, {"name": "late", "inputSchema": {"type": "object"}}]


def configure(folder: Path, name: str, **script: Any) -> UpstreamConfig:
    command, *args = fake_stdio.command(log=folder / name, tools=TOOLS, **script)
    return UpstreamConfig(name=name, entry={"command": command, "args": args}, promise="never")


@pytest.mark.parametrize("discover", ["answer", -32601], ids=["modern", "handshake"])
async def test_a_server_is_killed_during_a_hundred_calls(tmp_path, discover):
    made = gateway(tmp_path, configure(tmp_path, "one", discover=discover), configure(tmp_path, "two"))
    async with connect(made.server, progressive=False, validate=False) as client:
        await client.tools()
        calls = [
            asyncio.create_task(client.call_tool(f"{name}_{tool}", {"n": n}))
            for n in range(CALLS // 4)
            for name in ("one", "two")
            for tool in ("buy", "look")
        ]
        held = [asyncio.create_task(client.call_tool("one_late", {"n": n})) for n in range(5)]
        await wait_until(lambda: fake_stdio.tools_run(tmp_path / "one").count("late") == 5)
        pid = made.upstreams["one"].connection.state.pid
        assert pid is not None
        os.kill(pid, 9)
        replies = await asyncio.gather(*calls)
        lost = await asyncio.gather(*held)
        served = await client.call_tool("one_buy", {})

    assert not served.is_error
    assert made.upstreams["one"].connection.state.restarts == 1
    assert made.upstreams["two"].connection.state.restarts == 0
    assert all(map(is_retryable_failure, lost))
    failed = [reply for reply in replies if reply.is_error]
    assert all(map(is_retryable_failure, failed))
    assert all(reply in failed or reply.value["life"] in (0, 1) for reply in replies)
    assert not any(reply.is_error for reply in replies[2::4] + replies[3::4]), "the other server is not affected"
    assert not any(reply.is_error for reply in replies[1::4]), "who only reads is asked again"
    done = sum(not reply.is_error for reply in replies[0::4]) + 1
    assert done <= fake_stdio.tools_run(tmp_path / "one").count("buy") <= CALLS // 4 + 1, "none is sent twice"


def is_retryable_failure(reply: Reply) -> bool:
    told = {"code": "UPSTREAM_ERROR", "retryable": True}
    return reply.is_error and reply.raw["_meta"][ERROR_KEY] == told and "check whether the call took" in reply.text


async def test_a_server_that_hangs_at_its_start_delays_no_other(tmp_path):
    made = gateway(
        tmp_path,
        configure(tmp_path, "hung", discover="silent", initialize="silent"),
        configure(tmp_path, "well"),
        wait_seconds=0.1,
    )
    async with connect(made.server, progressive=False) as client:
        await wait_until_listed(client, "well_echo")
        assert await client.call("well_echo", n=1) == {"given": {"n": 1}, "life": 0}


async def wait_until_listed(client: DeltaClient, name: str) -> None:
    while name not in [one.name for one in await client.tools()]:  # noqa: ASYNC110 - who lists it sets no event here
        await asyncio.sleep(0.01)
