"""Delivery to clients of MCP-lite: that of MCP, to functions that get the defaults of their schema."""

from deltamcp.catalog.operation import Operation
from deltamcp.delivery.delivery import PageRequest
from deltamcp.delivery.mcp_delivery import McpDelivery
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON


class McpLiteDelivery(McpDelivery):
    """Delivers as `McpDelivery` does."""

    def read_page(
        self, operation: Operation, arguments: dict[str, JSON], policy: ResolvedPolicy | None
    ) -> tuple[dict[str, JSON], PageRequest | None]:
        """Fills in the defaults of arguments that the caller left out."""
        defaults = operation.default_arguments
        return ({**defaults, **arguments} if defaults else arguments), None
