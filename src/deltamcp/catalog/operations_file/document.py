"""The parsed form of an `operations.json`: operations, their handlers, and their categories."""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from deltamcp.values import JSON

Policy: TypeAlias = Literal["allow", "confirm", "deny"]
Location: TypeAlias = Literal["path", "query", "header", "cookie", "body", "form"]
PromisePolicy: TypeAlias = Literal["never", "auto", "always"]
OnRedelivery: TypeAlias = Literal["rerun", "fail"]
Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class ParameterPlace(Struct, frozen=True):
    """The location and the name of a parameter in an HTTP request; the name `*` in the body means the whole body."""

    location: Location
    name: str


class PythonHandler(Struct, frozen=True):
    """A Python function, `package.module:function`, performs the operation."""

    ref: str


class HttpHandler(Struct, frozen=True):
    """A request to an HTTP service performs the operation; `service` is a key of `Document.services`."""

    method: Method
    path: str
    param_map: dict[str, ParameterPlace] = {}
    service: str = ""

    @property
    def placeholders(self) -> list[str]:
        """The names of the placeholders in the path."""
        return PLACEHOLDER.findall(self.path)

    def place_of(self, parameter: str) -> ParameterPlace:
        """Returns the place of a parameter: from `param_map`, or else in the path, the query or the body."""
        mapped = self.param_map.get(parameter)
        if mapped is not None:
            return mapped
        if parameter in self.placeholders:
            return ParameterPlace("path", parameter)
        if self.method in ("GET", "HEAD", "DELETE", "OPTIONS"):
            return ParameterPlace("query", parameter)
        form = any(place.location == "form" for place in self.param_map.values())
        return ParameterPlace("form" if form else "body", parameter)


class McpHandler(Struct, frozen=True):
    """A tool of another MCP server performs the operation; `server` is a key of `Document.upstreams`."""

    server: str
    tool: str


class HandlerByName(Struct, frozen=True):
    """The file gives no handler: the program passes a function under the operation's name."""

    name: str


Handler: TypeAlias = PythonHandler | HttpHandler | McpHandler | HandlerByName


class OperationEntry(Struct, frozen=True, kw_only=True):
    """One operation of the file."""

    category: tuple[str, ...]
    action: str
    name: str
    """A second name for the operation; by default its id."""
    description: str
    input_schema: dict[str, JSON]
    """A schema of type object whose `$schema` is known or absent."""
    handler: Handler
    title: str | None = None
    output_schema: dict[str, JSON] | None = None
    annotations: dict[str, JSON] = {}
    tags: list[str] = []
    policy: Policy = "allow"
    pinned: bool = False
    deprecated: bool | str = False
    """True, or the name of the replacement."""
    examples: list[JSON] = []
    scopes: list[str] = []
    fields: list[str] = []
    """Dotted paths of the fields of a result to return; empty returns all."""
    summary: str | None = None
    timeout: float | None = None
    """Seconds."""
    promise: PromisePolicy | None = None
    sync_seconds: float | None = None
    on_redelivery: OnRedelivery | None = None

    @property
    def id(self) -> str:
        """The categories and the action, joined by dots."""
        return ".".join((*self.category, self.action))


class ServiceEntry(Struct, frozen=True, kw_only=True):
    """An HTTP service; its texts may contain `${NAME}`, which is not filled in yet."""

    base_url: str
    headers: dict[str, str] = {}
    timeout: float | None = None


class UpstreamEntry(Struct, frozen=True, kw_only=True):
    """Another MCP server, with `command` or `url`; its texts may contain `${NAME}`, which is not filled in yet."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}


class Document(Struct, frozen=True, kw_only=True):
    """The contents of an operations file."""

    operations: list[OperationEntry]
    services: dict[str, ServiceEntry] = {}
    upstreams: dict[str, UpstreamEntry] = {}
    categories: dict[str, str] = {}
    """The description of each category by its dotted path; empty where there is none."""
    title: str | None = None
    description: str | None = None
    version: str | None = None
