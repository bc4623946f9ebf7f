"""What an operator or an author sets about HTTP."""

import os
from collections.abc import Sequence
from typing import TypedDict

from deltamcp.auth.authenticator import Authenticator
from deltamcp.transports.http.pages import Routes
from deltamcp.transports.lite_options import McpLiteOptions
from deltamcp.transports.metrics import Metrics


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
    """The options of `run("http")`, which listens itself."""

    tls_cert: str | os.PathLike[str] | None
    """The PEM file of a certificate, to serve https; `tls_key` is that of its private key, if that is another file."""
    tls_key: str | os.PathLike[str] | None
