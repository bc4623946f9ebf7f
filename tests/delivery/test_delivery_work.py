"""Replies whose computation reaches its limit: a result that a function has made is sent all the same, only plainer."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer, Limits, ResultPolicy
from deltamcp.results.policy import META_KEY
from tests.support.office_server import call, result_text
from tests.support.raw_client import raw_client

ROWS = [{"id": number, "name": f"name {number}", "on": number % 2 > 0} for number in range(3_000)]


def server(work_steps: int, **policy: Any) -> Any:
    made: Any = DeltaServer("t", results=ResultPolicy(max_tokens=300, **policy), limits=Limits(work_steps=work_steps))
    made.ran = 0

    @made.tool()
    async def rows() -> Any:
        made.ran += 1
        return ROWS

    @made.tool()
    async def text() -> str:
        return "lorem ipsum\n" * 900_000

    @made.tool()
    async def take(value: Any) -> str:
        return str(value)[:50]

    return made


@pytest.mark.parametrize("policy", [{"fields": "[?on].{id: id}"}, {}, {"deltas": True}])
async def test_a_result_is_sent_plainer_if_its_form_takes_too_long(policy: dict[str, Any]) -> None:
    made = server(4_500, **policy)
    async with raw_client(made) as raw:
        for _ in range(2):
            result = await call(raw, "rows")
            assert not result.get("isError") and result_text(result).startswith('[{"id":0,"name":"name 0","on":false}')
    assert made.ran == 2


async def test_a_read_that_takes_too_long_is_refused_and_others_are_not() -> None:
    async with raw_client(server(30_000)) as raw:
        handle = (await call(raw, "rows"))["_meta"][META_KEY]["handle"]
        refused = await call(raw, "continue", handle=handle, fields="[?" + "||".join(["name=='x'"] * 99) + "]")
        assert refused["isError"] and "ask for less" in result_text(refused)
        assert not (await call(raw, "continue", handle=handle, offset=2_990)).get("isError")


async def test_references_that_take_too_long_are_refused() -> None:
    async with raw_client(server(30_000)) as raw:
        handle = (await call(raw, "rows"))["_meta"][META_KEY]["handle"]
        patch = [{"op": "add", "path": "/0", "value": 1}] * 900
        refused = await call(raw, "take", value={"$result": handle, "patch": patch})
        assert refused["isError"] and "ask for less" in result_text(refused)
        assert "name 7" in result_text(await call(raw, "take", value={"$result": handle, "path": "/7"}))


async def test_a_stored_result_is_read_as_a_resource_up_to_a_size() -> None:
    async with raw_client(server(4_000_000)) as raw:
        for tool, fits in (("rows", True), ("text", False)):
            handle = (await call(raw, tool))["_meta"][META_KEY]["handle"]
            answer = await raw.modern("resources/read", uri=f"t://results/{handle}")
            if fits:
                assert json.loads(answer["result"]["contents"][0]["text"]) == ROWS
            else:
                assert "read a part of it" in answer["error"]["message"]
