"""What operations were seen to return is told by `get_schema` and by hits, to those whose calls taught it."""

import json
from typing import Any

import pytest

from deltamcp import DeltaServer, Disclosure, connect
from deltamcp.delivery.learned_shapes import LearnedShapes
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData
from deltamcp.results.learned_shape import learned_text
from deltamcp.runtime.threads import Computations
from deltamcp.values import LOCAL, Caller, Principal

LISTED = {"type": "object", "properties": {"result": {"type": "array", "items": {"type": "object"}}}}


def shop() -> DeltaServer:
    server = DeltaServer("shop", disclosure=Disclosure("meta"))
    calls = iter(range(1, 1_000))

    @server.tool
    def orders() -> Any:
        """List the orders of the shop."""
        number = next(calls)
        return {"total": number, "orders": [{"id": number, "city": "Rome", f"note{number}": "mine"}]}

    @server.tool(output_schema={"type": "object", "properties": {"open": {"type": "boolean"}}})
    def hours() -> Any:
        """Say whether the shop is open."""
        return {"open": True, "until": next(calls)}

    return server


async def test_what_two_results_had_is_told_and_a_declared_schema_comes_first():
    async with connect(shop(), progressive=False) as client:

        async def described() -> list[str]:
            return (await client.call_tool("get_schema", {"operation": ["orders", "hours"]})).text.split("\n\n")

        await client.call_tool("execute", {"operation": "orders"})
        assert "observed" not in (await described())[0]
        for operation in ("orders", "hours", "hours"):
            await client.call_tool("execute", {"operation": operation})
        orders, hours = await described()
        assert orders.endswith("observed: {total:int, orders:[{id:int, city, *}]}")
        assert "returns: {open?:bool}" in hours and "until" not in hours and "observed" not in hours
        hits = (await client.call_tool("discover", {"query": ["orders of the shop"]})).text
        assert "orders(): List the orders of the shop.; observed: {total:int, orders:[{id:int, city, *}]}" in hits
        exact = await client.call_tool("get_schema", {"operation": ["orders"], "detail": "schema"})
        assert json.loads(exact.text)["observed"] == "{total:int, orders:[{id:int, city, *}]}"


async def test_a_result_that_is_cut_or_selected_from_teaches_as_a_whole_one_and_the_definition_stays_the_same():
    server = shop()
    async with connect(server, progressive=False) as client:
        before = await client.request("tools/list")
        for _ in range(2):
            await client.call_tool("execute", {"operation": "orders", "fields": "total"})
        assert "orders:[{id:int" in (await client.call_tool("get_schema", {"operation": ["orders"]})).text
        assert await client.request("tools/list") == before


def learned_shapes() -> LearnedShapes:
    return LearnedShapes(Computations(Limits().work_steps))


def operation(name: str = "orders", **options: Any) -> Any:
    server = DeltaServer("shop")
    server.tool(lambda: None, name=name, **options)
    return server.engine.catalog.view(LOCAL).operations[name]


async def teach(shapes: LearnedShapes, one: Any, caller: Caller, *texts: str) -> None:
    for text in texts:
        await shapes.learn(one, ResultData(text.encode()), caller)


async def test_principals_learn_apart():
    shapes, orders = learned_shapes(), operation()
    ann, bob = (Caller(Principal(name)) for name in ("ann", "bob"))
    await teach(shapes, orders, ann, '{"salary":1}', '{"salary":2}')
    await teach(shapes, orders, bob, '{"salary":3}')
    assert learned_text(shapes.of(ann.principal)["orders"], 40) == "{salary:int}"
    assert learned_text(shapes.of(bob.principal)["orders"], 40) == ""
    assert not shapes.of(LOCAL)


@pytest.mark.parametrize(
    ("schema", "learns"),
    [({"type": "object"}, True), ({"type": "object", "properties": {"open": {"type": "boolean"}}}, False)],
)
async def test_a_schema_that_names_nothing_is_no_reason_not_to_learn(schema, learns):
    shapes, one = learned_shapes(), operation(output_schema=schema)
    await teach(shapes, one, Caller(LOCAL), '{"a":1}', '{"a":2}')
    assert bool(shapes.of(LOCAL)) is learns


async def test_the_shapes_of_a_caller_with_many_operations_take_the_place_of_its_own():
    shapes, ann, bob = learned_shapes(), Caller(Principal("ann")), Caller(Principal("bob"))
    first = operation()
    await teach(shapes, first, bob, '{"a":1}', '{"a":2}')
    one = operation("many")
    for number in range(500):
        one.id = f"many{number}"
        await teach(shapes, one, ann, '{"a":1}')
    assert len(shapes.of(ann.principal)) == 400 and shapes.of(bob.principal)
