"""Delta-MCP: a tool server whose cost in the model's context is what the model uses and what has changed."""

from typing import TYPE_CHECKING, Any

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.context import Context, Elicited, elicitation, roots, sampling
from deltamcp.errors import (
    ArgumentsError,
    CallFailedError,
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    DeadlineError,
    DeltaError,
    InputDeclinedError,
    PeerError,
    ResourceNotFoundError,
    ToolError,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.limits import Limits
from deltamcp.results.policy import ResultPolicy
from deltamcp.server import DeltaServer
from deltamcp.values import (
    Annotations,
    Audio,
    BlobResource,
    Completion,
    Contents,
    EmbeddedResource,
    Icon,
    Image,
    Kind,
    Principal,
    PromptMessage,
    PromptResult,
    ResourceLink,
    Text,
    TextResource,
    ToolResult,
)

if TYPE_CHECKING:
    from deltamcp.client.client import DeltaClient
    from deltamcp.client.connect import connect

__all__ = [
    "Annotations",
    "ArgumentsError",
    "Audio",
    "BlobResource",
    "CallFailedError",
    "ClientError",
    "Completion",
    "ConfigurationError",
    "ConnectionLostError",
    "Contents",
    "Context",
    "DeadlineError",
    "DeltaClient",
    "DeltaError",
    "DeltaServer",
    "Disclosure",
    "Elicited",
    "EmbeddedResource",
    "Icon",
    "Image",
    "InputDeclinedError",
    "Kind",
    "Limits",
    "PeerError",
    "Principal",
    "PromptMessage",
    "PromptResult",
    "ResourceLink",
    "ResourceNotFoundError",
    "ResultPolicy",
    "Text",
    "TextResource",
    "ToolError",
    "ToolResult",
    "UnauthorizedError",
    "UnreachableError",
    "connect",
    "elicitation",
    "roots",
    "sampling",
]


def __getattr__(name: str) -> Any:
    """The client, for who asks for it: a server need not wait 30 ms for it to be imported."""
    if name == "connect":
        from deltamcp.client.connect import connect

        return connect
    if name == "DeltaClient":
        from deltamcp.client.client import DeltaClient

        return DeltaClient
    raise AttributeError(f"module 'deltamcp' has no attribute {name!r}")
