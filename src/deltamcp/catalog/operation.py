"""An operation: something that can be called, and the tool that MCP lists for it."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack

import pydantic
from msgspec import to_builtins

from deltamcp.catalog import param_headers, parameter_text, prose
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.options import check_options, omit_empty
from deltamcp.catalog.signature import (
    InvalidArgumentsError,
    Signature,
    function_name,
    inspect_function,
    output_schema,
    return_adapter,
)
from deltamcp.errors import ConfigurationError
from deltamcp.results.content import symbol_graph_type
from deltamcp.results.encode import TABLE_LEGEND
from deltamcp.results.policy import ROOT_KEY, ROOT_SCHEMA, ResolvedPolicy, ResultPolicy, resolve_policy, size_hint
from deltamcp.values import CONTENT_TYPES, JSON, Icon
from deltamcp.wire.canonical_json import encode_canonical
from deltamcp.wire.digest import sha256_digest

_NAME = re.compile(r"(?! )[^\x00-\x1f\x7f]{1,256}(?<! )")
"""What MCP asks for, letters, digits, `_`, `-` and `.`, is a SHOULD that servers of others need not keep."""
_ROWLESS_TYPES = (str, int, float, bool, bytes, None, type(None), *CONTENT_TYPES)
ID_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
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
        "_bind",
        "_output_type",
        "_return_annotation",
        "_summary_source",
        "call_policy",
        "context_name",
        "examples",
        "function",
        "id",
        "is_async",
        "keywords",
        "name",
        "pinned",
        "resolved_policy",
        "results",
        "scopes",
        "takes_root",
        "timeout",
        "tool",
    )

    def __init__(self, function: Callable[..., Any], context_type: type, **options: Unpack[ToolOptions]) -> None:
        """
        Raises:
            ConfigurationError: the name or a parameter is not usable.
        """
        check_options(options, ToolOptions)
        self.function = function
        self.name = options.get("name") or function_name(function)
        self.timeout = options.get("timeout")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"The tool name {self.name[:50]!r} must be 1 to 256 printable characters.")
        self.id = _operation_id(self.name, options)
        self.examples = tuple(options.get("examples", ()))
        self.keywords = tuple(options.get("keywords", ()))
        self.pinned = options.get("pinned", False)
        self.call_policy = options.get("policy", "allow")
        if self.call_policy not in ("allow", "confirm"):
            raise ConfigurationError(f'{self.name}: the policy {self.call_policy!r} must be "allow" or "confirm".')
        scopes = options.get("scopes", [])
        if isinstance(scopes, str):
            raise ConfigurationError(f"{self.name}: scopes must be a list of texts, not one text.")
        self.scopes = frozenset(scopes)
        self.results = options.get("results")
        if self.results is not None and not isinstance(self.results, ResultPolicy):
            raise ConfigurationError(f"{self.name}: results must be a ResultPolicy(...).")
        self.resolved_policy: ResolvedPolicy | None = None
        self.takes_root = False
        """Whether it is not the function that a caller's root is for, but who sends what it returned."""
        input_schema = options.get("input_schema")
        if input_schema is None:
            signature = Signature(function, context_type)
            self._bind: Callable[[Mapping[str, JSON]], dict[str, Any]] = signature.bind
            self.is_async, self.context_name, returned = (
                signature.is_async,
                signature.context_name,
                signature.return_annotation,
            )
            input_schema = signature.schema
        else:
            self.is_async, self.context_name, fields, returned = inspect_function(function, context_type)
            if len(fields) != 1:
                raise ConfigurationError(
                    f"{self.name}: with input_schema the function takes one parameter, the dict of arguments, "
                    "and besides it at most a Context."
                )
            self._bind = functools.partial(_bind_foreign, ForeignSchema(input_schema), next(iter(fields)))
        self._return_annotation = returned if "return" in getattr(function, "__annotations__", ()) else Any
        output_schema = options.get("output_schema")
        self._output_type = return_adapter(function, returned) if output_schema is None else output_schema
        self.tool = _tool_definition(self.name, options, inspect.getdoc(function), input_schema)
        self._summary_source = options.get("summary") or self.tool.get("description") or ""
        if self._output_type is not None:
            self.tool["outputSchema"] = self.output_schema
        self.parameter_headers  # noqa: B018 - a bad x-mcp-header is told at registration

    def resolve_result_policy(self, policy: ResultPolicy | None, flat: bool) -> None:
        """Says, once and before the tool is listed, how its results are made to fit: as it says itself, else so.

        Listed `flat`, by its own name, its description tells how to read a table, where one may come, and it takes the
        root of what its caller holds, where it may tell what changed.
        """
        if self.results is None and policy is None:
            return
        self.resolved_policy = resolve_policy(self.results, policy)
        self.tool["_meta"] = {**size_hint(self.resolved_policy), **self.tool.get("_meta", {})}
        if flat and self.resolved_policy.tables and self._may_hold_rows:
            self.tool["description"] = f"{self.tool.get('description', '')}\n{TABLE_LEGEND}".lstrip()
        self.takes_root = (
            bool(self.resolved_policy.deltas) and self._output_type is None and ROOT_KEY not in self.parameter_names
        )
        if flat and self.takes_root:
            schema = self.tool["inputSchema"]
            self.tool["inputSchema"] = {**schema, "properties": {**schema.get("properties", {}), ROOT_KEY: ROOT_SCHEMA}}

    @property
    def _may_hold_rows(self) -> bool:
        """Beside structured content there is JSON, and a function that says it returns text returns no rows."""
        is_pack = isinstance(self._return_annotation, type) and issubclass(self._return_annotation, symbol_graph_type())
        return self._output_type is None and self._return_annotation not in _ROWLESS_TYPES and not is_pack

    def is_valid_output(self, value: JSON) -> bool:
        """Whether a value is one its output schema promises."""
        assert self.output_schema is not None, "asked only of operations that have one"
        return self._output_validator.is_valid(value)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Raises `ArgumentError` where the arguments do not fit."""
        return self._bind(arguments)

    @property
    def is_summary_too_long(self) -> bool:
        """Whether what was said for a summary is longer than one may be."""
        return prose.utf16_length(self._summary_source) > prose.SUMMARY_CHARS

    @property
    def is_summary_cut(self) -> bool:
        """Whether the summary breaks off, for want of a sentence short enough."""
        return self.is_summary_too_long and not prose.has_sentence_within(self._summary_source, prose.SUMMARY_CHARS)

    @functools.cached_property
    def summary(self) -> str:
        """The line of the index: what was said for it, or its first sentence."""
        return prose.summary(self._summary_source) if self.is_summary_too_long else self._summary_source

    @property
    def summary_line(self) -> str:
        """The summary on one line."""
        return prose.cut(self.summary, prose.SUMMARY_CHARS)

    @property
    def is_read_only(self) -> bool:
        """Whether it only reads, by its own word."""
        return (self.tool.get("annotations") or {}).get("readOnlyHint") is True

    @functools.cached_property
    def output_schema(self) -> dict[str, JSON] | None:
        if self._output_type is None or isinstance(self._output_type, dict):
            return self._output_type
        return output_schema(self._output_type)

    def structured_content(self, value: Any) -> JSON:
        """What the function returned, as the JSON its output schema promises.

        Raises:
            ValueError: it is not that; the text says where.
        """
        if isinstance(self._output_type, dict):
            for problem in self._output_validator.problems(value):
                raise ValueError(problem)
            return value
        assert self._output_type is not None, "only operations with an output schema have structured results"
        try:
            return self._output_type.dump_python(self._output_type.validate_python(value), mode="json", by_alias=True)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the value"
            raise ValueError(f"{where}: {first['msg']}") from error

    @functools.cached_property
    def _output_validator(self) -> ForeignSchema:
        assert self.output_schema is not None
        return ForeignSchema(self.output_schema)

    @functools.cached_property
    def parameter_names(self) -> frozenset[str]:
        required, optional = parameter_text.parameter_names(self.tool["inputSchema"])
        return frozenset((*required, *optional))

    @functools.cached_property
    def manifest_entry(self) -> dict[str, JSON]:
        """SEP-2636: what a manifest says of the tool; digest and size are of its canonical form."""
        form = encode_canonical(self.tool)
        parts = {
            "name": self.name,
            "title": self.tool.get("title"),
            "digest": sha256_digest(form),
            "size": len(form),
            "annotations": self.tool.get("annotations"),
        }
        return omit_empty(parts)

    @functools.cached_property
    def parameter_headers(self) -> tuple[param_headers.ParameterHeader, ...]:
        """The arguments a client mirrors into `Mcp-Param-*` headers."""
        return param_headers.declared_headers(self.name, self.tool["inputSchema"])


def _operation_id(name: str, options: ToolOptions) -> str:
    category = options.get("category")
    if category is None:
        return name
    path = category.replace("/", ".")
    if not all(ID_SEGMENT.fullmatch(segment) for segment in path.split(".")):
        raise ConfigurationError(
            f"{name}: the category {category!r} must be words of letters, digits, '_' or '-', joined by dots."
        )
    return f"{path}.{options.get('action') or name}"


def _bind_foreign(schema: ForeignSchema, parameter: str, arguments: Mapping[str, JSON]) -> dict[str, Any]:
    if not schema.is_valid(arguments):
        raise InvalidArgumentsError(schema.problems(arguments))
    return {parameter: arguments}


def _tool_definition(
    name: str, options: ToolOptions, documented: str | None, input_schema: dict[str, JSON]
) -> dict[str, JSON]:
    parts = {
        "name": name,
        "title": options.get("title"),
        "description": options.get("description") or documented,
        "inputSchema": input_schema,
        "annotations": options.get("annotations"),
        "icons": to_builtins(options.get("icons")),
        "_meta": options.get("meta"),
    }
    return omit_empty(parts)
