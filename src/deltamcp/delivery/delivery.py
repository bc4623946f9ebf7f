"""The interface of deliveries, which make the reply to a call from the value that the function returned.

`mcp_delivery.py` and `delta_mcp_delivery.py` implement it, one for each `values.ResultShape`.
"""

import logging
from typing import Any, Protocol

from msgspec import Struct

from deltamcp.catalog.operation import Operation
from deltamcp.delivery.stored_results import ResultOrigin
from deltamcp.errors import ToolErrorCode
from deltamcp.results import content
from deltamcp.results.content import ResultData
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON, RawResult, Terms, ToolResult

logger = logging.getLogger("deltamcp")


class PageRequest(Struct, frozen=True):
    """The page of a result that a caller requests."""

    snapshot: str | None
    """The name under which the server stores the whole result; None if the tool takes pages itself, and so runs for
    each page."""
    page: JSON
    page_size: JSON
    default_size: JSON
    """The page size of a request that gives none; None if only the tool knows it."""


class DeliveryRequest(Struct):
    """A call, as far as the delivery of its result needs it."""

    operation: Operation
    terms: Terms
    arguments: dict[str, JSON]
    """The caller's arguments, without those that are for the server."""
    policy: ResolvedPolicy | None
    """None if the result is sent as it is."""
    page: PageRequest | None
    is_flat: bool
    """Whether the caller used the tool's own name, so that its output schema applies; meta-tools have none."""
    started: float
    """When the call started, by the monotonic clock."""

    @property
    def origin(self) -> ResultOrigin:
        return ResultOrigin(self.operation.id, self.operation.scopes)


class Delivery(Protocol):
    """Delivers results in one shape."""

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        """Splits the caller's arguments into those of the function and the page that the others request."""
        ...

    async def find_page(self, call: DeliveryRequest) -> ToolResult | None:
        """Returns a page of a result that the server has stored; None if the function has to run."""
        ...

    async def deliver(self, value: Any, call: DeliveryRequest) -> ToolResult | RawResult:
        """Returns the reply, made from the value that the function returned; MCP's without a policy may be raw."""
        ...


def convert(value: Any, operation: Operation) -> ResultData | ToolResult:
    """Converts the value that a function returned to one text or JSON value, or to a complete result."""
    try:
        return content.convert_return_value(
            value, operation.structured_content if operation.output_schema is not None else None
        )
    except ValueError as error:
        return refuse_value(operation, error)


def refuse_value(operation: Operation, error: ValueError) -> ToolResult:
    """Returns the error result of a call whose function returned a value that cannot be sent."""
    logger.error("tool %s returned a value that cannot be sent: %s", operation.name, error)
    message = f"{operation.name} returned a value that cannot be sent: {error}."
    return content.server_error(message, ToolErrorCode.INTERNAL)
