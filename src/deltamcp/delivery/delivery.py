"""What every delivery does: it makes the reply that a caller is sent of what a function returned.

`mcp_delivery.py` and `delta_mcp_delivery.py` are the deliveries, one for each `values.ResultShape`.
"""

import logging
from typing import Any, Protocol

from msgspec import Struct

from deltamcp.catalog.operation import Operation
from deltamcp.results import content
from deltamcp.results.content import ResultData
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON, Terms, ToolResult

logger = logging.getLogger("deltamcp")


class PageRequest(Struct, frozen=True):
    """Which page of a result a call asks for."""

    snapshot: str
    """The name under which the whole result is remembered."""
    page: JSON
    page_size: JSON


class DeliveryRequest(Struct):
    """The call whose result is delivered."""

    operation: Operation
    terms: Terms
    arguments: dict[str, JSON]
    """As the caller gave them, without what is not the function's."""
    policy: ResolvedPolicy | None
    """None sends the result as it is."""
    page: PageRequest | None
    is_flat: bool
    """Called by its own name, so that its output schema holds; a meta-tool promises none."""
    started: float
    """By the monotonic clock."""


class Delivery(Protocol):
    """Results in one shape."""

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        """The arguments that are the function's own, and the page of its result that the others ask for."""
        ...

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        """A page of a result that was delivered before; None where the function has to run."""
        ...

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult:
        """The reply, made of what the function returned."""
        ...


def convert(value: Any, operation: Operation) -> ResultData | ToolResult:
    """What a function returned, as one text or JSON value, or as the reply it already is."""
    try:
        return content.convert_return_value(
            value, operation.structured_content if operation.output_schema is not None else None
        )
    except ValueError as error:
        return refuse_value(operation, error)


def refuse_value(operation: Operation, error: ValueError) -> ToolResult:
    """The reply to a call whose function returned what cannot be sent."""
    logger.error("tool %s returned a value that cannot be sent: %s", operation.name, error)
    return content.error_result(f"{operation.name} returned a value that cannot be sent: {error}.")
