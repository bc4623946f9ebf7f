"""An operation: something that can be called, and the tool that MCP lists for it."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack

import pydantic
from msgspec import to_builtins

from deltamcp.catalog import headers, parameters, prose
from deltamcp.catalog.json_schema import Foreign
from deltamcp.catalog.options import check, listed
from deltamcp.catalog.signature import ArgumentError, Signature, function_name, output_schema, returns, shape
from deltamcp.errors import ConfigurationError
from deltamcp.results.content import pack_type
from deltamcp.results.encode import LEGEND
from deltamcp.results.policy import ROOT, ROOT_SCHEMA, ResultPolicy, Shaping, hint, shaping
from deltamcp.values import CONTENT_TYPES, JSON, Icon
from deltamcp.wire.canonical import canonical
from deltamcp.wire.digest import digest

_NAME = re.compile(r"(?! )[^\x00-\x1f\x7f]{1,256}(?<! )")
"""What MCP asks for, letters, digits, `_`, `-` and `.`, is a SHOULD that servers of others need not keep."""
_NO_ROWS = (str, int, float, bool, bytes, None, type(None), *CONTENT_TYPES)
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""A part of an id, where its author is at hand to choose another."""


class ToolOptions(TypedDict, total=False):
    """What an author may say of a tool beyond its function."""

    name: str
    title: str
    description: str
    summary: str
    """The line of the index, at most 60 characters; taken from the description unless given."""
    category: str
    """Where the operation stands in the tree, `"posts"` or `"batch.posts"`; its id is then `posts.<action>`."""
    action: str
    """The last part of the id; the tool's name unless given."""
    annotations: dict[str, JSON]
    """MCP's hints, such as `{"readOnlyHint": True}`."""
    icons: list[Icon]
    meta: dict[str, JSON]
    timeout: float
    """Seconds."""
    input_schema: dict[str, JSON]
    """Replaces the signature: the function then takes the arguments as one dict, checked against this."""
    output_schema: dict[str, JSON]
    examples: list[dict[str, JSON]]
    """Arguments of calls that work, shown with the exact schema."""
    keywords: list[str]
    """Further words to find it by."""
    pinned: bool
    """Listed as a tool of its own where the others stand behind meta-tools."""
    policy: Literal["allow", "confirm"]
    """`"confirm"` asks the user, by elicitation, before every call."""
    scopes: list[str]
    """What a caller must have been granted; to others the operation does not exist."""
    results: ResultPolicy
    """How its results are made to fit; what this leaves open is the server's to say."""


class Operation:
    """A function with a name, a schema and a deadline. `tool` is what `tools/list` shows of it, key by key.

    `id` is what the meta-tools call it: the dotted path in the tree, the name where it has no category.
    """

    __slots__ = (
        "__dict__",
        "_about",
        "_bind",
        "_returned",
        "_returns",
        "context_name",
        "examples",
        "function",
        "id",
        "is_async",
        "keywords",
        "name",
        "pinned",
        "policy",
        "results",
        "scopes",
        "shaping",
        "takes_root",
        "timeout",
        "tool",
    )

    def __init__(self, function: Callable[..., Any], context_type: type, **options: Unpack[ToolOptions]) -> None:
        """
        Raises:
            ConfigurationError: the name or a parameter is not usable.
        """
        check(options, ToolOptions)
        self.function = function
        self.name = options.get("name") or function_name(function)
        self.timeout = options.get("timeout")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"The tool name {self.name[:50]!r} must be 1 to 256 printable characters.")
        self.id = _id(self.name, options)
        self.examples = tuple(options.get("examples", ()))
        self.keywords = tuple(options.get("keywords", ()))
        self.pinned = options.get("pinned", False)
        self.policy = options.get("policy", "allow")
        if self.policy not in ("allow", "confirm"):
            raise ConfigurationError(f'{self.name}: the policy {self.policy!r} must be "allow" or "confirm".')
        scopes = options.get("scopes", [])
        if isinstance(scopes, str):
            raise ConfigurationError(f"{self.name}: scopes must be a list of texts, not one text.")
        self.scopes = frozenset(scopes)
        self.results = options.get("results")
        if self.results is not None and not isinstance(self.results, ResultPolicy):
            raise ConfigurationError(f"{self.name}: results must be a ResultPolicy(...).")
        self.shaping: Shaping | None = None
        self.takes_root = False
        """Whether it is not the function that a caller's root is for, but who sends what it returned."""
        input_schema = options.get("input_schema")
        if input_schema is None:
            signature = Signature(function, context_type)
            self._bind: Callable[[Mapping[str, JSON]], dict[str, Any]] = signature.bind
            self.is_async, self.context_name, returned = signature.is_async, signature.context_name, signature.returned
            input_schema = signature.schema
        else:
            self.is_async, self.context_name, fields, returned = shape(function, context_type)
            if len(fields) != 1:
                raise ConfigurationError(
                    f"{self.name}: with input_schema the function takes one parameter, the dict of arguments, "
                    "and besides it at most a Context."
                )
            self._bind = functools.partial(_bind_foreign, Foreign(input_schema), next(iter(fields)))
        self._returned = returned if "return" in getattr(function, "__annotations__", ()) else Any
        output_schema = options.get("output_schema")
        self._returns = returns(function, returned) if output_schema is None else output_schema
        self.tool = _tool(self.name, options, inspect.getdoc(function), input_schema)
        self._about = options.get("summary") or self.tool.get("description") or ""
        if self._returns is not None:
            self.tool["outputSchema"] = self.output_schema
        self.parameter_headers  # noqa: B018 - a bad x-mcp-header is told at registration

    def fit_results(self, policy: ResultPolicy | None, flat: bool) -> None:
        """Says, once and before the tool is listed, how its results are made to fit: as it says itself, else so.

        Listed `flat`, by its own name, its description tells how to read a table, where one may come, and it takes the
        root of what its caller holds, where it may tell what changed.
        """
        if self.results is None and policy is None:
            return
        self.shaping = shaping(self.results, policy)
        self.tool["_meta"] = {**hint(self.shaping), **self.tool.get("_meta", {})}
        if flat and self.shaping.tables and self._may_hold_rows:
            self.tool["description"] = f"{self.tool.get('description', '')}\n{LEGEND}".lstrip()
        self.takes_root = bool(self.shaping.deltas) and self._returns is None and ROOT not in self.parameter_names
        if flat and self.takes_root:
            schema = self.tool["inputSchema"]
            self.tool["inputSchema"] = {**schema, "properties": {**schema.get("properties", {}), ROOT: ROOT_SCHEMA}}

    @property
    def _may_hold_rows(self) -> bool:
        """Beside structured content there is JSON, and a function that says it returns text returns no rows."""
        is_pack = isinstance(self._returned, type) and issubclass(self._returned, pack_type())
        return self._returns is None and self._returned not in _NO_ROWS and not is_pack

    def admits(self, value: JSON) -> bool:
        """Whether a value is one its output schema promises."""
        assert self.output_schema is not None, "asked only of operations that have one"
        return self._output.admits(value)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Raises `ArgumentError` where the arguments do not fit."""
        return self._bind(arguments)

    @property
    def over_cap(self) -> bool:
        """Whether what was said for a summary is longer than one may be."""
        return prose.length(self._about) > prose.SUMMARY_CHARS

    @property
    def is_cut(self) -> bool:
        """Whether the summary breaks off, for want of a sentence short enough."""
        return self.over_cap and not prose.ends_within(self._about, prose.SUMMARY_CHARS)

    @functools.cached_property
    def summary(self) -> str:
        """The line of the index: what was said for it, or its first sentence."""
        return prose.summary(self._about) if self.over_cap else self._about

    @property
    def line(self) -> str:
        """The summary on one line."""
        return prose.cut(self.summary, prose.SUMMARY_CHARS)

    @property
    def read_only(self) -> bool:
        """Whether it only reads, by its own word."""
        return (self.tool.get("annotations") or {}).get("readOnlyHint") is True

    @functools.cached_property
    def output_schema(self) -> dict[str, JSON] | None:
        if self._returns is None or isinstance(self._returns, dict):
            return self._returns
        return output_schema(self._returns)

    def structured(self, value: Any) -> JSON:
        """What the function returned, as the JSON its output schema promises.

        Raises:
            ValueError: it is not that; the text says where.
        """
        if isinstance(self._returns, dict):
            for problem in self._output.problems(value):
                raise ValueError(problem)
            return value
        assert self._returns is not None, "only operations with an output schema have structured results"
        try:
            return self._returns.dump_python(self._returns.validate_python(value), mode="json", by_alias=True)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the value"
            raise ValueError(f"{where}: {first['msg']}") from error

    @functools.cached_property
    def _output(self) -> Foreign:
        assert self.output_schema is not None
        return Foreign(self.output_schema)

    @functools.cached_property
    def parameter_names(self) -> frozenset[str]:
        required, optional = parameters.names(self.tool["inputSchema"])
        return frozenset((*required, *optional))

    @functools.cached_property
    def entry(self) -> dict[str, JSON]:
        """SEP-2636: what a manifest says of the tool; digest and size are of its canonical form."""
        form = canonical(self.tool)
        parts = {
            "name": self.name,
            "title": self.tool.get("title"),
            "digest": digest(form),
            "size": len(form),
            "annotations": self.tool.get("annotations"),
        }
        return listed(parts)

    @functools.cached_property
    def parameter_headers(self) -> tuple[headers.ParameterHeader, ...]:
        """The arguments a client mirrors into `Mcp-Param-*` headers."""
        return headers.annotated(self.name, self.tool["inputSchema"])


def _id(name: str, options: ToolOptions) -> str:
    category = options.get("category")
    if category is None:
        return name
    path = category.replace("/", ".")
    if not all(SEGMENT.fullmatch(segment) for segment in path.split(".")):
        raise ConfigurationError(
            f"{name}: the category {category!r} must be words of letters, digits, '_' or '-', joined by dots."
        )
    return f"{path}.{options.get('action') or name}"


def _bind_foreign(schema: Foreign, parameter: str, arguments: Mapping[str, JSON]) -> dict[str, Any]:
    if not schema.admits(arguments):
        raise ArgumentError(schema.problems(arguments))
    return {parameter: arguments}


def _tool(name: str, options: ToolOptions, documented: str | None, input_schema: dict[str, JSON]) -> dict[str, JSON]:
    parts = {
        "name": name,
        "title": options.get("title"),
        "description": options.get("description") or documented,
        "inputSchema": input_schema,
        "annotations": options.get("annotations"),
        "icons": to_builtins(options.get("icons")),
        "_meta": options.get("meta"),
    }
    return listed(parts)
