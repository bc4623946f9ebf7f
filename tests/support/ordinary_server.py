"""A server as people write it with the official SDK or with FastMCP: tools that return rows in every usual type.

It runs with the interpreter of either, by a word: `sdk`, `sdk-1x`, `fastmcp`; and `compact` for what FastMCP writes,
where that is not installed.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict


class OrderModel(BaseModel):
    id: int
    customer: str
    status: str
    total: float
    city: str


@dataclasses.dataclass
class OrderRecord:
    id: int
    customer: str
    status: str
    total: float
    city: str


class OrderDict(TypedDict):
    id: int
    customer: str
    status: str
    total: float
    city: str


class OrdersModel(BaseModel):
    orders: list[OrderModel]


class OrdersDict(TypedDict):
    orders: list[OrderDict]


@dataclasses.dataclass
class OrdersRecord:
    orders: list[OrderRecord]


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": 1000 + number,
            "customer": f"Customer {number % 40}",
            "status": ("open", "paid", "shipped")[number % 3],
            "total": 10 + number / 4,
            "city": ("Lisbon", "Oslo", "Kyoto", "Quito")[number % 4],
        }
        for number in range(count)
    ]


def list_of_dicts(count: int) -> list[dict[str, Any]]:
    return make_rows(count)


def list_of_models(count: int) -> list[OrderModel]:
    return [OrderModel(**row) for row in make_rows(count)]


def one_dict(count: int) -> dict[str, Any]:
    return {"orders": make_rows(count)}


def one_model(count: int) -> OrdersModel:
    return OrdersModel(orders=list_of_models(count))


def json_in_text(count: int) -> str:
    return json.dumps(make_rows(count))


def one_dataclass(count: int) -> OrdersRecord:
    return OrdersRecord([OrderRecord(**row) for row in make_rows(count)])


def one_typed_dict(count: int) -> OrdersDict:
    return {"orders": [OrderDict(**row) for row in make_rows(count)]}  # type: ignore[typeddict-item]


TOOLS = (list_of_dicts, list_of_models, one_dict, one_model, json_in_text, one_dataclass, one_typed_dict)


def compact(tool: Callable[[int], Any]) -> Callable[[int], Any]:
    """A tool of the official SDK that answers as FastMCP does: one compact text, and the same as structure."""
    from mcp.types import CallToolResult, TextContent

    def call(count: int) -> CallToolResult:
        value = TypeAdapter(Any).dump_python(tool(count), mode="json")
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        structured = value if isinstance(value, dict) else {"result": value}
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)

    functools.update_wrapper(call, tool, assigned=("__name__", "__doc__"))
    del call.__wrapped__  # type: ignore[attr-defined]
    return call


def main() -> None:
    if sys.argv[1] in ("sdk", "compact"):
        from mcp.server import MCPServer

        sdk = MCPServer("ordinary")
        for tool in TOOLS:
            sdk.tool()(tool if sys.argv[1] == "sdk" else compact(tool))
        sdk.run("stdio")
    elif sys.argv[1] == "sdk-1x":
        from mcp.server.fastmcp import FastMCP as OldServer  # type: ignore[attr-defined]

        old = OldServer("ordinary")
        for tool in TOOLS:
            old.tool()(tool)
        old.run("stdio")
    else:
        from fastmcp import FastMCP

        fast = FastMCP("ordinary")
        for tool in TOOLS:
            fast.tool(tool)
        fast.run("stdio", show_banner=False)


if __name__ == "__main__":
    main()
