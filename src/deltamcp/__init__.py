"""Delta-MCP: a tool server whose cost in the model's context is what the model uses and what has changed."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deltamcp import server
from deltamcp.auth.authenticator import HostAuth
from deltamcp.calls.middleware import CallNext, FunctionCall
from deltamcp.calls.observers import CallObserver, ObservedCall
from deltamcp.calls.rate_limits import Rate, RateLimits
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.function import Depends
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
    NeedsResource,
    NoConversationError,
    PeerError,
    ResourceNeededError,
    ResourceNotFoundError,
    ResponseTypeError,
    ResultLostError,
    ToolError,
    ToolFailure,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.limits import Limits
from deltamcp.results.policy import ResultPolicy
from deltamcp.server import DeltaServer
from deltamcp.stores.store import Store, StoreError
from deltamcp.tokens import count as count_tokens
from deltamcp.values import (
    Annotations,
    Audio,
    BlobResource,
    Caller,
    Completion,
    Contents,
    EmbeddedResource,
    ErrorInfo,
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
    from deltamcp.auth.authenticator import OpenAccess, PresenceOnly
    from deltamcp.auth.introspection import Introspection
    from deltamcp.auth.resource_server import ResourceServer
    from deltamcp.auth.static_tokens import StaticTokens
    from deltamcp.calls.observers import CallSpans
    from deltamcp.client.client import DeltaClient, connect
    from deltamcp.client.oauth.oauth import OAuth
    from deltamcp.client.pending_call import PendingCall
    from deltamcp.client.reply import Reply
    from deltamcp.deltas.delta import apply_delta
    from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
    from deltamcp.gateway.gateway import Gateway
    from deltamcp.results.encode import decode as decode_result
    from deltamcp.sources.openapi.settings import ApiSettings, ClientCredentials

__all__ = [
    "Annotations",
    "ApiSettings",
    "ArgumentsError",
    "Audio",
    "BlobResource",
    "CallFailedError",
    "CallNext",
    "CallObserver",
    "CallSpans",
    "Caller",
    "ClientCredentials",
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
    "Depends",
    "Disclosure",
    "Elicited",
    "EmbeddedResource",
    "ErrorInfo",
    "FunctionCall",
    "Gateway",
    "GatewayConfig",
    "HostAuth",
    "Icon",
    "Image",
    "InputDeclinedError",
    "Introspection",
    "Kind",
    "Limits",
    "NeedsResource",
    "NoConversationError",
    "OAuth",
    "ObservedCall",
    "OpenAccess",
    "PeerError",
    "PendingCall",
    "PresenceOnly",
    "Principal",
    "PromptMessage",
    "PromptResult",
    "Rate",
    "RateLimits",
    "Reply",
    "ResourceLink",
    "ResourceNeededError",
    "ResourceNotFoundError",
    "ResourceServer",
    "ResponseTypeError",
    "ResultLostError",
    "ResultPolicy",
    "StaticTokens",
    "Store",
    "StoreError",
    "Text",
    "TextResource",
    "ToolError",
    "ToolFailure",
    "ToolResult",
    "UnauthorizedError",
    "UnreachableError",
    "UpstreamConfig",
    "apply_delta",
    "connect",
    "count_tokens",
    "decode_result",
    "elicitation",
    "roots",
    "sampling",
]

_LAZY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ApiSettings": ("deltamcp.sources.openapi.settings", "ApiSettings"),
        "CallSpans": ("deltamcp.calls.observers", "CallSpans"),
        "ClientCredentials": ("deltamcp.sources.openapi.settings", "ClientCredentials"),
        "DeltaClient": ("deltamcp.client.client", "DeltaClient"),
        "Gateway": ("deltamcp.gateway.gateway", "Gateway"),
        "GatewayConfig": ("deltamcp.gateway.config", "GatewayConfig"),
        "Introspection": ("deltamcp.auth.introspection", "Introspection"),
        "OpenAccess": ("deltamcp.auth.authenticator", "OpenAccess"),
        "PresenceOnly": ("deltamcp.auth.authenticator", "PresenceOnly"),
        "OAuth": ("deltamcp.client.oauth.oauth", "OAuth"),
        "PendingCall": ("deltamcp.client.pending_call", "PendingCall"),
        "Reply": ("deltamcp.client.reply", "Reply"),
        "ResourceServer": ("deltamcp.auth.resource_server", "ResourceServer"),
        "StaticTokens": ("deltamcp.auth.static_tokens", "StaticTokens"),
        "UpstreamConfig": ("deltamcp.gateway.config", "UpstreamConfig"),
        "apply_delta": ("deltamcp.deltas.delta", "apply_delta"),
        "connect": ("deltamcp.client.client", "connect"),
        "decode_result": ("deltamcp.results.encode", "decode"),
    }
)
"""What most servers do without, so that their start need not wait 30 ms for the import."""


def _server_of_client(client: "DeltaClient", prefix: str) -> DeltaServer:
    from deltamcp.gateway.gateway import server_of_client

    return server_of_client(client, prefix)


server.server_of_client = _server_of_client  # a gateway is above a server, and yet one can be mounted in it


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'deltamcp' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return list(__all__)
