"""What an operator or an author sets about HTTP, gRPC and MCP-lite."""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct

from deltamcp.auth.authenticator import Authenticator
from deltamcp.dialects.mcp_lite import LiteOptions
from deltamcp.dialects.mcp_lite_bodies import ContentStyle
from deltamcp.errors import ConfigurationError
from deltamcp.transports.http.pages import Routes
from deltamcp.transports.metrics import Metrics


class McpLiteOptions(TypedDict, total=False):
    """The options in `HttpOptions(mcp_lite={...})`."""

    prefix: str
    """Where the paths of MCP-lite begin; `/mcp-lite/v1` by default."""
    root_aliases: bool
    """Whether the paths are served at the root too, such as `/tools` and `/rpc`."""
    batches: bool
    """Whether a body may have several requests, up to 16, as it may by default."""
    promise_http_status: Literal[200, 202]
    """The HTTP status of a promise: 200, as of every result, or 202, as NLWeb has it."""
    content_style: ContentStyle
    """What `content` has: MCP's blocks ("mcp", the default), the objects of the result themselves ("raw"), or objects
    that are both ("both")."""
    default_type: str | None
    """The `@type` of tools whose author set none; by default they have none."""
    await_tool: bool
    """Whether promises can also be redeemed by NLWeb's `await`, as a tool and as a path."""
    prompts: bool
    """Whether the server's prompts can be listed, at `/prompts` and by `prompts/list`, and used by `prompts/get`."""


class McpLiteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The options, with those filled in that were not set."""

    prefix: str = "/mcp-lite/v1"
    root_aliases: bool = False
    batches: bool = True
    promise_http_status: Literal[200, 202] = 200
    content_style: ContentStyle = "mcp"
    default_type: str | None = None
    await_tool: bool = False
    prompts: bool = False

    @property
    def dialect(self) -> LiteOptions:
        """The options of the dialect."""
        return LiteOptions(self.content_style, self.default_type, self.await_tool, self.prompts)


def read_settings(options: bool | McpLiteOptions) -> McpLiteSettings | None:
    """Returns the settings; None if MCP-lite is not served.

    Raises:
        ConfigurationError: there is no such option, or it has another value.
    """
    if options is False:
        return None
    given: Any = {} if options is True else options
    try:
        return msgspec.convert(given, McpLiteSettings)
    except msgspec.ValidationError as error:
        known = ", ".join(McpLiteSettings.__struct_fields__)
        raise ConfigurationError(f"mcp_lite: {error}. The options are {known}.") from None


class GrpcOptions(TypedDict, total=False):
    """The options of `DeltaServer.grpc` and `run("grpc")`."""

    auth: Authenticator | None
    """Who the callers are, by the metadata `authorization`: `ResourceServer`, `StaticTokens`, `HostAuth`,
    `PresenceOnly` or `OpenAccess`. Without it every caller is anonymous, which is allowed at
    loopback addresses only."""
    trusted_proxies: Sequence[str]
    """The proxies whose metadata `forwarded` and `x-forwarded-for` say who the client is; see `HttpOptions`."""
    request_ids: bool
    """Whether every response and every log record of a request has an `x-request-id`, which clients find in the
    trailing metadata. By default there are none."""
    mcp_lite: McpLiteOptions
    """What of MCP-lite is served, such as prompts; those of its options that are about HTTP do nothing here."""
    metrics: Metrics | None
    """Where to count the requests that are refused; it is that of the HTTP application of the same server."""
    tls_cert: str | os.PathLike[str] | None
    """The PEM file of a certificate, to serve TLS; `tls_key` is that of its private key, if that is another file."""
    tls_key: str | os.PathLike[str] | None
    """The PEM file of the private key; by default it is in the file of the certificate."""
    reuse_port: bool
    """Whether other processes serve at the same port (SO_REUSEPORT); the system deals out the connections."""


class HttpOptions(TypedDict, total=False):
    """The options of `DeltaServer.asgi`, `routes` and `run("http")`."""

    allowed_hosts: Sequence[str] | None
    """The `Host` values that the server accepts, such as "tools.example" or "tools.example:8443"; "*" accepts all. By
    default only loopback names, for clients on the same machine."""
    allowed_origins: Sequence[str] | None
    """The `Origin` values that the server accepts besides those of the allowed hosts, such as "https://app.example";
    "*" accepts all. Web pages of these origins may call the server (CORS)."""
    auth: Authenticator | None
    """Who the callers are: `ResourceServer`, `StaticTokens`, `HostAuth`, `PresenceOnly` or `OpenAccess`. Without it
    every caller is anonymous, which `run` allows at loopback addresses only."""
    trusted_proxies: Sequence[str]
    """The proxies whose `Forwarded` and `X-Forwarded-For` headers say who the client is: addresses, networks such as
    "10.0.0.0/8", or "unix" for connections over a Unix socket. By default there are none."""
    metrics: Metrics | bool
    """Whether to count calls and responses and to show Prometheus the figures at `/metrics`, to whoever asks by an
    allowed `Host`. It needs `prometheus-client`."""
    routes: Routes
    """Pages of the author's own beside the MCP endpoint: Starlette routes, or ASGI applications by their paths. The
    server checks the `Host` and the `Origin` of their requests, but not who sends them."""
    request_ids: bool
    """Whether every response and every log record of a request has an `X-Request-Id`: the one that the request has, if
    it is well-formed, or else a new one. By default there are none."""
    sessions: bool
    """Whether clients up to 2025-11-25 get a session, as they do by default. Without sessions each of their requests
    stands alone: the server cannot ask them anything, and they cannot subscribe, set a log level or resume a stream."""
    mcp_lite: bool | McpLiteOptions
    """Whether MCP-lite is served beside the MCP endpoint, as it is by default; or what of it, see `McpLiteOptions`."""
    compat: bool
    """Whether the server speaks HTTP as the original server of Delta-MCP 0.2 does, see `DeltaMcpApp`."""


class HttpServerOptions(HttpOptions, total=False):
    """The options of `run("http")`, which listens itself: those of `HttpOptions`, and two."""

    tls_cert: str | os.PathLike[str] | None
    """The PEM file of a certificate, to serve https; `tls_key` is that of its private key, if that is another file."""
    tls_key: str | os.PathLike[str] | None
    """The PEM file of the private key; by default it is in the file of the certificate."""
