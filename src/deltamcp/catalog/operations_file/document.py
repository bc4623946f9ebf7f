"""What an `operations.json` says: operations, where they are performed, and the categories they lie in."""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from deltamcp.values import JSON

Policy: TypeAlias = Literal["allow", "confirm", "deny"]
Location: TypeAlias = Literal["path", "query", "header", "cookie", "body", "form"]
Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class ParameterPlace(Struct, frozen=True):
    """Where in an HTTP request a parameter goes, and under which name; `*` in the body is the whole body."""

    location: Location
    name: str


class PythonHandler(Struct, frozen=True):
    """A function of the program: `package.module:function`."""

    ref: str


class HttpHandler(Struct, frozen=True):
    """A request to a service; `service` is a key of `Document.services`."""

    method: Method
    path: str
    param_map: dict[str, ParameterPlace] = {}
    service: str = ""

    @property
    def placeholders(self) -> list[str]:
        """The names the path leaves open."""
        return PLACEHOLDER.findall(self.path)

    def place_of(self, parameter: str) -> ParameterPlace:
        """Where a parameter goes: as the map says, else into the path, the query or the body."""
        said = self.param_map.get(parameter)
        if said is not None:
            return said
        if parameter in self.placeholders:
            return ParameterPlace("path", parameter)
        if self.method in ("GET", "HEAD", "DELETE", "OPTIONS"):
            return ParameterPlace("query", parameter)
        form = any(place.location == "form" for place in self.param_map.values())
        return ParameterPlace("form" if form else "body", parameter)


class McpHandler(Struct, frozen=True):
    """A tool of another MCP server; `server` is a key of `Document.upstreams`."""

    server: str
    tool: str


class HandlerByName(Struct, frozen=True):
    """No handler was given: the program registers a function under the leaf's name."""

    name: str


Handler: TypeAlias = PythonHandler | HttpHandler | McpHandler | HandlerByName


class OperationEntry(Struct, frozen=True, kw_only=True):
    """One operation."""

    category: tuple[str, ...]
    action: str
    name: str
    """A second name for it; the id where the file gives none."""
    description: str
    input_schema: dict[str, JSON]
    """Of type object, and under a `$schema` that is known or absent."""
    handler: Handler
    title: str | None = None
    output_schema: dict[str, JSON] | None = None
    annotations: dict[str, JSON] = {}
    tags: list[str] = []
    policy: Policy = "allow"
    pinned: bool = False
    deprecated: bool | str = False
    """True, or what to use instead."""
    examples: list[JSON] = []
    scopes: list[str] = []
    fields: list[str] = []
    """Dotted paths of what to keep of a result; everything where empty."""
    summary: str | None = None
    timeout: float | None = None
    """Seconds."""

    @property
    def id(self) -> str:
        """Categories and action, joined by dots."""
        return ".".join((*self.category, self.action))


class ServiceEntry(Struct, frozen=True, kw_only=True):
    """An HTTP service; `${NAME}` in it is still to be filled in."""

    base_url: str
    headers: dict[str, str] = {}
    timeout: float | None = None


class UpstreamEntry(Struct, frozen=True, kw_only=True):
    """Another MCP server, by `command` or by `url`; `${NAME}` in it is still to be filled in."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}


class Document(Struct, frozen=True, kw_only=True):
    """A file without faults."""

    operations: list[OperationEntry]
    services: dict[str, ServiceEntry] = {}
    upstreams: dict[str, UpstreamEntry] = {}
    categories: dict[str, str] = {}
    """Every category's dotted name and its description, empty where there is none."""
    title: str | None = None
    description: str | None = None
    version: str | None = None
