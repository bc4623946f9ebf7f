"""The parsed form of an `operations.json`, its keys and the types of their values.

The schema for editors, `docs/operations.schema.json`, is made from the keys (`python -m website.operations_schema`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from deltamcp.results.policy import MIN_MAX_TOKENS, ResultPolicy
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
    results: ResultPolicy | None = None
    """How the results of all operations are fitted to a budget."""
    query: bool = False
    """Whether read-only operations run through the meta-tool `query`."""


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_FUNCTION_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_LINE_BREAK = re.compile("[\r\n\0]")


class KeyType(NamedTuple):
    """The type of a key's value."""

    phrase: str
    """The type in words, for error messages."""
    is_valid: Callable[[JSON], bool]
    schema: dict[str, JSON]

    def with_description(self, sentence: str) -> "KeyType":
        return self._replace(schema={**self.schema, "description": sentence})


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_object(value: JSON) -> bool:
    return isinstance(value, dict)


def _is_text_list(value: JSON) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_duration(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_whole(value: JSON, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_header_map(value: JSON) -> bool:
    return isinstance(value, dict) and all(
        HEADER_NAME.fullmatch(name) and isinstance(text, str) and not _LINE_BREAK.search(text)
        for name, text in value.items()
    )


def _pattern_type(pattern: re.Pattern[str], phrase: str) -> KeyType:
    return KeyType(
        phrase,
        lambda value: isinstance(value, str) and bool(pattern.fullmatch(value)),
        {"type": "string", "pattern": f"^(?:{pattern.pattern})$"},
    )


def _choice_type(literal: Any) -> KeyType:
    names = list(get_args(literal))
    return KeyType(f"one of {', '.join(names)}", lambda value: value in names, {"enum": names})


_TEXT = KeyType("text", _is_text, {"type": "string"})
_FLAG = KeyType("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
_OBJECT = KeyType("an object", _is_object, {"type": "object"})
_LIST = KeyType("a list", lambda value: isinstance(value, list), {"type": "array"})
_TEXTS = KeyType("a list of texts", _is_text_list, {"type": "array", "items": {"type": "string"}})
_TEXT_BY_NAME = KeyType(
    "an object whose values are texts",
    lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    {"type": "object", "additionalProperties": {"type": "string"}},
)
_HEADERS = KeyType(
    "an object of HTTP header names and one-line texts",
    _is_header_map,
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{HEADER_NAME.pattern}$"},
        "additionalProperties": {"type": "string", "pattern": r"^[^\r\n\u0000]*$"},
    },
)
_DURATION = KeyType("a number of seconds above 0", _is_duration, {"type": "number", "exclusiveMinimum": 0})
_MORE_THAN_NONE = KeyType("a whole number from 1", lambda value: _is_whole(value, 1), {"type": "integer", "minimum": 1})
_TOKENS = KeyType(
    f"a whole number from {MIN_MAX_TOKENS}",
    lambda value: _is_whole(value, MIN_MAX_TOKENS),
    {"type": "integer", "minimum": MIN_MAX_TOKENS},
)
_ADDRESS = _pattern_type(re.compile(r"(https?://|\$\{)[^\s#]*"), "an address that begins with http:// or https://")

OPERATION_KEYS: Mapping[str, KeyType] = {
    "name": _pattern_type(_NAME, "1 to 128 letters, digits, '_', '-' or '.'").with_description(
        "A second name for the operation, and the name of the function behind it where there is no handler."
    ),
    "title": _TEXT.with_description("A name for people."),
    "summary": _TEXT.with_description("The few words an index has room for."),
    "description": _TEXT.with_description("What the operation does, for the model."),
    "inputSchema": _OBJECT.with_description("A JSON Schema of the arguments."),
    "parameters": _OBJECT.with_description("Instead of inputSchema: a JSON Schema for each argument, by its name."),
    "required": _TEXTS.with_description("With parameters: the arguments that must be given."),
    "outputSchema": _OBJECT.with_description("A JSON Schema of the result."),
    "annotations": _OBJECT.with_description("MCP's hints, such as readOnlyHint."),
    "handler": _OBJECT.with_description("What performs the operation."),
    "tags": _TEXTS.with_description("Words to find it by."),
    "policy": _choice_type(Policy).with_description(
        "Whether it may be called: at once, after the user agreed, or not at all."
    ),
    "pinned": _FLAG.with_description("Listed as a tool of its own besides."),
    "deprecated": KeyType(
        "true, false or what to use instead",
        lambda value: isinstance(value, bool | str),
        {"type": ["boolean", "string"]},
    ).with_description("True, or what to use instead."),
    "examples": _LIST.with_description("Arguments it can be called with."),
    "scopes": _TEXTS.with_description("What a caller must be allowed to do."),
    "fields": _TEXTS.with_description("Dotted paths of what to keep of a result."),
    "timeout": _DURATION.with_description("Seconds it may take."),
    "promise": _choice_type(PromisePolicy).with_description("Whether the server may answer with a promise."),
    "sync_seconds": _DURATION.with_description("With promise: how long a client waits before it gets one."),
    "on_redelivery": _choice_type(OnRedelivery).with_description(
        "With promise: whether the call runs again after its worker has died."
    ),
}
OPERATION_MARKERS = frozenset({"inputSchema", "parameters", "handler"})

_KIND = _TEXT.with_description("What performs the operation: python, http or mcp.")
HANDLER_KEYS: Mapping[str, Mapping[str, KeyType]] = {
    "python": {
        "kind": _KIND,
        "ref": _pattern_type(_FUNCTION_REF, "of the form package.module:function").with_description(
            "The function: package.module:function."
        ),
    },
    "http": {
        "kind": _KIND,
        "method": _choice_type(Method).with_description("The HTTP method."),
        "path": _pattern_type(
            re.compile(r"/[^\s#]*"), "a path that begins with '/' and has no spaces or '#'"
        ).with_description("The path below base_url, with {name} where an argument goes."),
        "param_map": _OBJECT.with_description(
            "Where each argument goes: a place, or a place and the name it has there."
        ),
        "service": _TEXT.with_description("The name of one of http.services; by default the service of http itself."),
    },
    "mcp": {
        "kind": _KIND,
        "server": _TEXT.with_description("The name of one of mcpServers."),
        "tool": _TEXT.with_description("The name that the tool has there."),
    },
}
REQUIRED_HANDLER_KEYS: Mapping[str, tuple[str, ...]] = {
    "python": ("ref",),
    "http": ("method", "path"),
    "mcp": ("server", "tool"),
}
PLACE_KEYS: Mapping[str, KeyType] = {
    "in": _choice_type(Location).with_description("The part of the request that has the argument."),
    "name": _TEXT.with_description("The name that the service has for it."),
}

SERVICE_KEYS: Mapping[str, KeyType] = {
    "base_url": _ADDRESS.with_description("Where the service is; paths are appended to it."),
    "headers": _HEADERS.with_description("Headers of every request, such as credentials: ${NAME} is a variable."),
    "timeout": _DURATION.with_description("Seconds that it may take to answer."),
}
HTTP_KEYS: Mapping[str, KeyType] = {
    **SERVICE_KEYS,
    "services": _OBJECT.with_description("Further services, by the names that handlers call them by."),
}
UPSTREAM_KEYS: Mapping[str, KeyType] = {
    "type": _choice_type(Literal["stdio", "http", "streamable-http"]).with_description(
        "How the server is reached; command and url say so, too."
    ),
    "command": _TEXT.with_description("The program of a server over stdio."),
    "args": _TEXTS.with_description("The arguments of the program."),
    "env": _TEXT_BY_NAME.with_description("Variables of its environment."),
    "cwd": _TEXT.with_description("The folder that it runs in."),
    "url": _ADDRESS.with_description("The address of a server over HTTP."),
    "headers": _HEADERS.with_description("Headers of every request, such as credentials: ${NAME} is a variable."),
}
_DESCRIPTION = _TEXT.with_description("What it is about, for the model.")
_OPERATIONS = _OBJECT.with_description("Operations by their names; in a category of the file also categories.")
_CATEGORIES = _OBJECT.with_description("Categories by their names, each with operations and categories of its own.")
CATEGORY_KEYS: Mapping[str, KeyType] = {
    "description": _DESCRIPTION,
    "operations": _OPERATIONS,
    "categories": _CATEGORIES,
}
RESULTS_KEYS: Mapping[str, KeyType] = {
    "max_tokens": _TOKENS.with_description("The most tokens of a reply; the model can read on."),
    "page_size": _MORE_THAN_NONE.with_description("The most rows of a reply."),
    "preview_above": KeyType(
        "a whole number from 0", lambda value: _is_whole(value, 0), {"type": "integer", "minimum": 0}
    ).with_description("Of a result of more tokens than this the first reply is a preview; 0: of none."),
    "tables": _FLAG.with_description("Whether lists of objects are sent as tables where that is shorter."),
    "queries": _FLAG.with_description("Whether callers may say which part of a result they want."),
    "deltas": _FLAG.with_description("Whether the same call again is answered by what changed."),
    "keys": _TEXTS.with_description("With deltas: the fields by which a row is known again."),
    "volatile": _TEXTS.with_description("With deltas: fields whose changes are not told."),
}
FILE_KEYS: Mapping[str, KeyType] = {
    "$schema": _TEXT.with_description("The address of this schema, for editors."),
    "title": _TEXT.with_description("The name of the server."),
    "description": _DESCRIPTION,
    "version": _TEXT.with_description("The version of the server."),
    "operations": _OPERATIONS,
    "categories": _CATEGORIES,
    "http": _OBJECT.with_description("The HTTP service that handlers call."),
    "mcpServers": _OBJECT.with_description("The MCP servers that handlers call, by their names."),
    "results": _OBJECT.with_description("How results are fitted to a budget."),
    "query": _FLAG.with_description("Whether read-only operations run through the meta-tool query."),
}
