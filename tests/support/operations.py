"""Operations for tests that need a catalog without a server."""

from deltamcp import Context
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation


async def do_nothing(arguments: dict[str, object]) -> None: ...


def make_operation(name: str, **options: object) -> Operation:
    said = {"description": f"Create an issue in repository {name}", "input_schema": {"type": "object"}}
    return FunctionOperation(do_nothing, Context, name=name, **{**said, **options})  # type: ignore[arg-type]
