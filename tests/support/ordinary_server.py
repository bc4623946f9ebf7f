"""A server as people write it with the official SDK or with FastMCP: tools that return rows in every usual type."""

import dataclasses
import json
import sys
from typing import Any

from pydantic import BaseModel
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


def main() -> None:
    if sys.argv[1] == "sdk":
        from mcp.server import MCPServer

        sdk = MCPServer("ordinary")
        for tool in TOOLS:
            sdk.tool()(tool)
        sdk.run("stdio")
    else:
        from fastmcp import FastMCP

        fast = FastMCP("ordinary")
        for tool in TOOLS:
            fast.tool(tool)
        fast.run("stdio", show_banner=False)


if __name__ == "__main__":
    main()
