"""A server of one value that changes between calls."""

import copy
from dataclasses import dataclass
from typing import Any

from deltamcp import DeltaServer, ResultPolicy

DELTAS = ResultPolicy(deltas=True)


# A server of one changing value, and a client that keeps what it was sent


@dataclass
class ChangingValue:
    """What the tools of a server return at the moment."""

    value: Any = None
    calls: int = 0

    def __call__(self) -> Any:
        self.calls += 1
        return copy.deepcopy(self.value)


def changing_server(
    value: Any, policy: ResultPolicy | None = DELTAS, **options: Any
) -> tuple[DeltaServer, ChangingValue]:
    """A server with the tool `get` under a policy, and `plain`, which never tells changes."""
    server, current = DeltaServer("shop", **{"conversation": "process", **options}), ChangingValue(value)

    @server.tool(results=policy or ResultPolicy(), annotations={"readOnlyHint": True})
    async def get(query: str = "", page: int = 0) -> Any:
        return current()

    @server.tool(results=ResultPolicy(deltas=False, max_tokens=1_000_000))
    async def plain() -> Any:
        return current()

    return server, current


# Values


def shop_items(number: int = 60, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "sku": f"S-{n:04}",
            "title": f"A thing of the sort {n * 37 % 101}",
            "price": n * 113 % 997 / 4,
            "stock": n * 7 % 23,
        }
        | changes
        for n in range(number)
    ]


def with_value_at(value: Any, *path: Any, to: Any) -> Any:
    value = copy.deepcopy(value)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return value


LOG_LINES = "".join(
    f"{n:03} the log says that part {n * 31 % 89} was mended by worker {n * 17 % 41}\n" for n in range(80)
)
SETTINGS = {f"setting_{n}": {"value": n * 31 % 89, "note": f"why it is so: reason {n * 17 % 41}"} for n in range(30)}
STATES: dict[str, tuple[Any, Any, str]] = {
    "rows": (shop_items(), with_value_at(shop_items(), 7, "stock", to=99), "60 row"),
    "a row less": (shop_items(), shop_items()[:20] + shop_items()[21:], "60 row"),
    "a row more": (shop_items(50), shop_items(51), "50 row"),
    "rows in an envelope": (
        {"total": 60, "items": shop_items(), "next": None},
        {"total": 60, "items": with_value_at(shop_items(), 0, "price", to=1), "next": "x"},
        "60 row",
    ),
    "a text": (LOG_LINES, LOG_LINES.replace("050 the log", "050 a log"), "80 line"),
    "an object": (SETTINGS, with_value_at(SETTINGS, "setting_3", "value", to=None), "30 field"),
    "numbers of another kind": (shop_items(), with_value_at(shop_items(), 4, "stock", to=5.0), "60 row"),
    "one instead of true": (
        [row | {"on": True} for row in shop_items()],
        with_value_at([row | {"on": True} for row in shop_items()], 4, "on", to=1),
        "60 row",
    ),
    "another order of rows": (shop_items(), [*shop_items()[1:], shop_items()[0]], "60 row"),
}


def timed_items(took: int, age: int, **changes: Any) -> dict[str, Any]:
    return {"took_ms": took, "items": [row | {"age": age + n} for n, row in enumerate(shop_items(40, **changes))]}
