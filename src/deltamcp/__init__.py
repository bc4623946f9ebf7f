"""Delta-MCP: a tool server whose cost in the model's context is what the model uses and what has changed."""

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.context import Context, Elicited, elicitation, roots, sampling
from deltamcp.errors import (
    ConfigurationError,
    DeltaError,
    InputDeclinedError,
    PeerError,
    ResourceNotFoundError,
    ToolError,
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

__all__ = [
    "Annotations",
    "Audio",
    "BlobResource",
    "Completion",
    "ConfigurationError",
    "Contents",
    "Context",
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
    "elicitation",
    "roots",
    "sampling",
]
