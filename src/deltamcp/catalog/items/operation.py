"""Operations: what a tool is to its server and its callers, whoever wrote the function.

`function_operation.py` makes them of an author's functions, `remote_items.py` of other servers' tools. In a list of
MCP-lite a tool has a category and always a description, and `redeem` stands beside those that give promises.
"""

import abc
import functools
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypedDict

from deltamcp.catalog import param_headers
from deltamcp.catalog.items.function import (
    FunctionShape,
    omit_empty,
    read_tags,
)
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.text import parameter_text, prose, tool_text
from deltamcp.catalog.text.clean_text import clean
from deltamcp.errors import ConfigurationError
from deltamcp.results.pages import PAGES_KEY
from deltamcp.results.policy import (
    QUERY_KEY,
    QUERY_SCHEMAS,
    ROOT_KEY,
    SINCE_KEY,
    SINCE_SCHEMA,
    ResolvedPolicy,
    ResultPolicy,
    described_policy,
    merge_policies,
    resolve_policy,
    size_hint,
)
from deltamcp.values import JSON, Icon, Principal, ResultShape
from deltamcp.wire.canonical import encode_canonical, sha256_digest

_NAME = re.compile(r"(?! )[^\x00-\x1f\x7f]{1,256}(?<! )")
"""MCP says tool names SHOULD have only letters, digits, `_`, `-` and `.`; other servers' tools need not."""
_SYNC_SECONDS = 5.0
"""How long a client waits for a result before it gets a promise; the digest of MCP-lite, A-10."""
TASK_SUPPORT: Mapping[str, JSON] = {"auto": {"taskSupport": "optional"}, "always": {"taskSupport": "required"}}
"""The `execution` of a tool's definition in MCP 2025-11-25, by its promise policy."""
_MAX_NORMALIZED_CHARS = 2_000
"""No id is longer; to normalize a caller's text takes up to a microsecond a character."""
_ASCII_ID_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
REDEEM = "redeem"
"""The tool that is listed, and first, where another may answer with a promise."""
MAX_WAIT_MS = 30_000
REDEEM_ACTIONS = ("redeem", "status", "cancel")
REDEEM_DEFINITION: dict[str, JSON] = {
    "name": REDEEM,
    "@type": "system",
    "description": "Get the result of a long-running call by the promise token that it returned.",
    "inputSchema": {
        "type": "object",
        "required": ["promise"],
        "properties": {
            "promise": {"type": "string", "description": "The token of the promise."},
            "action": {
                "enum": list(REDEEM_ACTIONS),
                "description": "redeem: the result, or the promise again if there is none yet; status: how far the "
                "call is; cancel: stop it.",
            },
            "wait_ms": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_WAIT_MS,
                "description": "How long to wait for the result.",
            },
            "input": {"type": "object", "description": "Answers to the call's questions, by their ids."},
        },
    },
}

_LITE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""MCP's rule for new names, SEP-986, which MCP-lite has for all."""
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")


class ToolOptions(TypedDict, total=False):
    """The options that an author can give a tool."""

    name: str
    title: str
    description: str
    summary: str
    """The line of the operation in an index, at most 60 characters; taken from the description by default."""
    category: str
    """The category of the operation, such as `"posts"` or `"batch.posts"`; its id is then `posts.<action>`."""
    action: str
    """The last part of the id; by default the tool's name."""
    annotations: dict[str, JSON]
    """MCP's hints, such as `{"readOnlyHint": True}`."""
    icons: list[Icon]
    meta: dict[str, JSON]
    timeout: float
    """Seconds."""
    input_schema: dict[str, JSON]
    """Replaces the schema from the signature: the function gets the arguments as one dict, validated against this."""
    output_schema: dict[str, JSON] | Literal[True]
    """The schema of the result, which is then sent as `structuredContent`, too; True takes it from the return type.
    What is no object, such as a list, is sent as `{"result": ...}`. By default only types with named fields have one.
    """
    examples: list[dict[str, JSON]]
    """Arguments of valid calls, shown with the exact schema."""
    keywords: list[str]
    """Further words that the search finds the operation by."""
    tags: Collection[str]
    """What `DeltaServer.enable` and `disable` choose items by; clients find them in the definition's `_meta`."""
    pinned: bool
    """Whether the tool is listed even where meta-tools replace the others."""
    policy: Literal["allow", "confirm"]
    """`"confirm"` asks the user, by elicitation, before every call."""
    scopes: list[str]
    """The scopes a caller needs. Others do not find the operation; if they authenticated and name it, they are told the
    scopes."""
    promise: Literal["never", "auto", "always"]
    """Whether the server may answer with a promise and go on with the call: never, which is the default; always; or if
    the call takes longer than `sync_seconds`. Needs the extra `promises`."""
    sync_seconds: float
    """How long a client waits for the result of a call before it gets a promise; 5 by default."""
    on_redelivery: Literal["rerun", "fail"]
    """What happens to a call behind a promise whose worker has died. By default only tools that are read-only or
    idempotent, by their annotations, run again; other calls end with OUTCOME_UNKNOWN."""
    type: str
    """MCP-lite's `@type`, a category such as `"query"`."""
    results: ResultPolicy | Literal[False]
    """How results are fitted to a budget; the server's policy fills in what this leaves open. With False they are sent
    as they are, whatever the server's policy."""


class Operation(abc.ABC):
    """A function with a name, a schema and a deadline. `tool` is its definition in `tools/list`.

    `id` identifies the operation in the meta-tools: its dotted path in the tree, or its name if it has no category.
    """

    __slots__ = (
        "__dict__",
        "_options",
        "_summary_source",
        "abandon",
        "consent_policy",
        "examples",
        "function",
        "function_shape",
        "has_own_summary",
        "id",
        "is_direct",
        "is_own",
        "keywords",
        "name",
        "origin",
        "pinned",
        "plain_tool",
        "promise_policy",
        "query_arguments",
        "resolved_policy",
        "results",
        "scopes",
        "sync_seconds",
        "tags",
        "takes_since",
        "timeout",
        "tool",
        "type",
        "wraps_output",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        function_shape: FunctionShape,
        tool: dict[str, JSON],
        options: ToolOptions,
    ) -> None:
        """
        Args:
            function_shape: How to call the function.
            tool: The definition, under the operation's name.

        Raises:
            ConfigurationError: the name or an option cannot be used.
        """
        self._options = options
        self.origin: object | None = None
        """Where the operation was registered, if its server is mounted."""
        self.is_own: bool = False
        """Whether it is offered only to principals that an upstream lists it to, so that figures do not name it."""
        self.abandon: Callable[[JSON, Principal], Awaitable[None]] | None = None
        """Ends what the function left elsewhere for a principal, by its memo, when it asked what nobody will answer."""
        self.function: Callable[..., Any] = function
        self.function_shape: FunctionShape = function_shape
        self.tool: dict[str, JSON] = tool
        self.name: str = tool["name"]
        self.timeout: float | None = options.get("timeout")
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise ConfigurationError(f"timeout must be a number of seconds above 0, not {self.timeout!r}.")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"the tool name {self.name[:50]!r} must be 1 to 256 printable characters.")
        self.id: str = _operation_id(self.name, options)
        self.examples: tuple[dict[str, JSON], ...] = tuple(options.get("examples", ()))
        self.keywords: tuple[str, ...] = tuple(options.get("keywords", ()))
        self.tags: frozenset[str] = read_tags(options.get("tags", ()))
        self.pinned: bool = options.get("pinned", False)
        self.consent_policy = options.get("policy", "allow")
        if self.consent_policy not in ("allow", "confirm"):
            raise ConfigurationError(f'the policy {self.consent_policy!r} must be "allow" or "confirm".')
        scopes = options.get("scopes", [])
        if isinstance(scopes, str):
            raise ConfigurationError("scopes must be a list of texts, not one text.")
        self.scopes: frozenset[str] = frozenset(scopes)
        self.promise_policy = options.get("promise", "never")
        if self.promise_policy not in ("never", "auto", "always"):
            raise ConfigurationError(f'promise must be "never", "auto" or "always", not {self.promise_policy!r}.')
        self.sync_seconds: float = options.get("sync_seconds", _SYNC_SECONDS)
        if not isinstance(self.sync_seconds, int | float) or not self.sync_seconds >= 0:
            raise ConfigurationError(f"sync_seconds must be a number of seconds, not {self.sync_seconds!r}.")
        if options.get("on_redelivery", "fail") not in ("rerun", "fail"):
            raise ConfigurationError(f'on_redelivery must be "rerun" or "fail", not {options.get("on_redelivery")!r}.')
        self.type: str | None = options.get("type")
        self.results = options.get("results")
        if self.results not in (None, False) and not isinstance(self.results, ResultPolicy):
            raise ConfigurationError("results must be a ResultPolicy(...), or False.")
        self.resolved_policy: ResolvedPolicy | None = None
        self.takes_since: bool = False
        """Whether the server, not the function, takes the root of the result that a caller has."""
        self.query_arguments: tuple[str, ...] = ()
        """The arguments that the server, not the function, takes as a query of the result."""
        self.wraps_output: bool = False
        """Whether structured content has the value as the member `result`, because it must be an object."""
        self.is_direct: bool = (
            self.function_shape.is_async
            and not self.function_shape.is_generator
            and self.function_shape.context_name is None
            and not self.function_shape.dependencies
            and self.consent_policy == "allow"
        )
        """Whether a call needs nothing but the arguments."""
        self.has_own_summary: bool = bool(options.get("summary"))
        """Whether the author gave the summary."""
        self._summary_source = options.get("summary") or self.tool.get("description") or ""
        self.plain_tool: dict[str, JSON] = _without_execution(self.tool)
        """The definition for clients that get neither tables nor changes nor tasks."""
        self.parameter_headers  # noqa: B018 - an invalid x-mcp-header is reported at registration

    @abc.abstractmethod
    def with_name(self, name: str, id_: str, policy: ResultPolicy | None) -> "Operation":
        """Returns the same operation with another name and id; `policy` fills in what its own leaves open."""

    def _named_options(self, name: str, id_: str, policy: ResultPolicy | None) -> ToolOptions:
        options: ToolOptions = {**self._options, "name": name}
        options.pop("category", None)
        if id_ != name:
            options["category"], _, options["action"] = id_.rpartition(".")
        if self.results is not False and (self.results is not None or policy is not None):
            options["results"] = merge_policies(self.results, policy)
        return options

    def resolve_result_policy(self, policy: ResultPolicy | None, flat: bool) -> None:
        """Resolves the operation's own result policy with the server's, once and before the tool is listed.

        A tool that is listed `flat`, under its own name, takes which result its caller has if it may answer
        with changes.
        """
        if self.results is False or (self.results is None and policy is None):
            return
        self.resolved_policy = resolve_policy(self.results, policy)
        meta = self.tool.get("_meta")
        self.tool = {
            **self.tool,
            "_meta": {
                **size_hint(self.resolved_policy),
                **described_policy(merge_policies(self.results, policy)),
                **(meta if isinstance(meta, dict) else {}),
            },
        }
        self.takes_since = (
            bool(self.resolved_policy.deltas)
            and self.output_schema is None
            and self.parameter_names.isdisjoint((SINCE_KEY, ROOT_KEY))
        )
        self.query_arguments = self._free_query_arguments(merge_policies(self.results, policy))
        if flat and self.takes_since:
            self.tool["inputSchema"] = _with_parameters(self.tool["inputSchema"], {SINCE_KEY: SINCE_SCHEMA})

    def _free_query_arguments(self, policy: ResultPolicy) -> tuple[str, ...]:
        """Returns the arguments that the server may take as a query, because the function can get none of that name."""
        return ()

    @functools.cached_property
    def _listed_tool(self) -> dict[str, JSON]:
        """The definition in a list of plain tools, with the arguments that the server takes as a query."""
        if not self.query_arguments:
            return self.tool
        added = {name: QUERY_SCHEMAS[name] for name in self.query_arguments}
        meta: Any = self.tool.get("_meta", {})
        return {
            **self.tool,
            "inputSchema": _with_parameters(self.tool["inputSchema"], added),
            "_meta": {**meta, QUERY_KEY: list(self.query_arguments)},
        }

    @property
    def may_send_tables(self) -> bool:
        """Whether its own policy admits tables, and its results may be some; structured content is sent as JSON."""
        return self.resolved_policy is not None and self.resolved_policy.tables and self.output_schema is None

    def is_valid_output(self, value: JSON) -> bool:
        """Returns whether a value fits the output schema."""
        assert self.output_schema is not None, "only operations with an output schema validate output"
        return self._output_validator.output_problem(value) is None

    @abc.abstractmethod
    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Converts arguments to keyword arguments of the function.

        Raises:
            InvalidArgumentsError: the arguments do not fit the schema.
        """

    def undeclared_arguments(self, arguments: Mapping[str, JSON]) -> list[str]:
        """Returns the names of arguments that `bind` accepts although the schema does not declare them."""
        return []

    @property
    def is_summary_too_long(self) -> bool:
        """Whether the given summary or description is longer than a summary may be."""
        return prose.utf16_length(self._summary_source) > prose.SUMMARY_CHARS

    @property
    def is_summary_cut(self) -> bool:
        """Whether the summary is cut inside a sentence, as its first sentence is too long."""
        return self.is_summary_too_long and self.summary.endswith("…")

    @functools.cached_property
    def summary(self) -> str:
        """The line of the operation in an index: the given text, or its most useful sentence."""
        return prose.summary(self._summary_source) if self.is_summary_too_long else clean(self._summary_source)

    @functools.cached_property
    def summary_line(self) -> str:
        """The summary on one line; a description of several lines is never one as a whole."""
        if self.has_own_summary or "\n" not in self._summary_source.strip():
            return prose.cut(self.summary, prose.SUMMARY_CHARS)
        return prose.summary(self._summary_source)

    @property
    def description(self) -> str:
        """The description that summaries are derived from."""
        return "" if self.has_own_summary else self._summary_source

    @property
    def is_read_only(self) -> bool:
        """Whether the author annotated the operation as read-only, and not as destructive too."""
        return self._has_hint("readOnlyHint") and not self.is_destructive

    @property
    def has_pages(self) -> bool:
        """Whether its results may have pages, which the arguments of further calls ask for."""
        meta = self.tool.get("_meta")
        return isinstance(meta, dict) and meta.get(PAGES_KEY) is True

    @property
    def is_destructive(self) -> bool:
        """Whether the author annotated the operation as destructive, in so many words.

        MCP gives the hint no meaning beside `readOnlyHint: true`; permissions take the careful side.
        """
        return self._has_hint("destructiveHint")

    def _has_hint(self, name: str) -> bool:
        annotations = self.tool.get("annotations")
        return isinstance(annotations, dict) and annotations.get(name) is True

    @functools.cached_property
    def may_rerun(self) -> bool:
        """Whether a call whose worker has died may run once more."""
        chosen = self._options.get("on_redelivery")
        if chosen is not None:
            return chosen == "rerun"
        return self.is_read_only or self._has_hint("idempotentHint")

    @functools.cached_property
    def output_schema(self) -> dict[str, JSON] | None:
        """The schema of the value that the function returns; None if the operation promises no structured content."""
        output = self.tool.get("outputSchema")
        return output if isinstance(output, dict) else None

    @property
    def shown_result(self) -> JSON:
        """The part of the output schema that is about what a reply behind a meta-tool shows."""
        return self.output_schema

    @functools.cached_property
    def declares_names(self) -> bool:
        """Whether the output schema names a member of what a reply behind a meta-tool shows."""
        return self.output_schema is not None and tool_text.names_result(self.output_schema, self.shown_result)

    def structured_content(self, value: Any) -> JSON:
        """Converts the return value of the function to JSON that fits the output schema.

        Raises:
            ValueError: the value does not fit; the error's text says where.
        """
        problem = self._output_validator.output_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @functools.cached_property
    def _output_validator(self) -> ForeignSchema:
        assert self.output_schema is not None
        return ForeignSchema(self.output_schema, is_own=True)

    @functools.cached_property
    def parameter_names(self) -> frozenset[str]:
        required, optional = parameter_text.parameter_names(self.tool["inputSchema"])
        return frozenset((*required, *optional))

    def definition(self, result_shape: ResultShape) -> dict[str, JSON]:
        """Returns the definition for clients that expect results in this shape: it explains only what they get."""
        match result_shape:
            case ResultShape.MCP:
                return self._listed_tool
            case ResultShape.DELTA_MCP:
                return self.plain_tool
            case ResultShape.MCP_LITE:
                return self._lite_tool

    @functools.cached_property
    def _lite_tool(self) -> dict[str, JSON]:
        return _lite_definition(self._listed_tool, self.type)

    @functools.cached_property
    def lite_index_entry(self) -> dict[str, JSON]:
        """The definition in an index of MCP-lite, without the schema."""
        return _lite_index_entry(self.tool, self.type, self.summary_line)

    @functools.cached_property
    def default_arguments(self) -> dict[str, JSON]:
        """The defaults of the arguments that a caller may leave out, as far as the function does not know them."""
        return {}

    def manifest_entry(self, result_shape: ResultShape) -> dict[str, JSON]:
        """Returns the tool's entry in a manifest (SEP-2636), with the digest and size of the definition for a shape."""
        return (
            self._mcp_manifest_entry
            if result_shape is ResultShape.MCP
            else _manifest_entry(self.definition(result_shape), self.id)
        )

    @functools.cached_property
    def _mcp_manifest_entry(self) -> dict[str, JSON]:
        return _manifest_entry(self._listed_tool, self.id)

    @functools.cached_property
    def parameter_headers(self) -> tuple[param_headers.ParameterHeader, ...]:
        """The arguments that clients mirror into `Mcp-Param-*` headers."""
        return param_headers.declared_headers(self.name, self.tool["inputSchema"])


def is_id_segment(text: str) -> bool:
    """Returns whether a text can be a part of an id: letters and digits of any script in NFKC, `_` and `-`."""
    if text.isascii():
        return _ASCII_ID_SEGMENT.fullmatch(text) is not None
    is_spelt = text[0].isalnum() and all(map(is_id_character, text))
    return is_spelt and len(text) <= 64 and unicodedata.is_normalized("NFKC", text)


def is_id_character(char: str) -> bool:
    """Returns whether a part of an id may have a character: a letter, a mark on one, a digit, `_` or `-`."""
    return char in "_-" or (unicodedata.category(char)[0] in "LMN" and clean(char) == char)


def normalize_id(text: str) -> str:
    """Returns an id as it is written here, however a caller composes its letters."""
    return text if text.isascii() or len(text) > _MAX_NORMALIZED_CHARS else unicodedata.normalize("NFKC", text)


def is_dotted_path(text: str) -> bool:
    """Returns whether a text can be an id in the tree, or a category."""
    return all(map(is_id_segment, text.split(".")))


def _operation_id(name: str, options: ToolOptions) -> str:
    category = options.get("category")
    if category is None:
        return name
    path = normalize_id(category).replace("/", ".")
    if not is_dotted_path(path):
        raise ConfigurationError(
            f"the category {category!r} must be words of letters, digits, '_' or '-', joined by dots."
        )
    return f"{path}.{normalize_id(options.get('action') or name)}"


def _with_parameters(schema: Any, added: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns an input schema with further parameters."""
    properties = schema.get("properties")
    return {**schema, "properties": {**(properties if isinstance(properties, dict) else {}), **added}}


def _without_execution(tool: dict[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in tool.items() if key != "execution"} if "execution" in tool else tool


def _manifest_entry(tool: dict[str, JSON], id_: str) -> dict[str, JSON]:
    form = encode_canonical(_without_execution(tool))  # as the newest version has it
    parts = {
        "name": tool["name"],
        "title": tool.get("title"),
        "digest": sha256_digest(form),
        "size": len(form),
        "annotations": tool.get("annotations"),
        "id": None if id_ == tool["name"] else id_,
    }
    return omit_empty(parts)


def is_lite_name(name: str) -> bool:
    """Whether MCP-lite allows a tool to have this name."""
    return _LITE_NAME.fullmatch(name) is not None


def _lite_definition(tool: dict[str, JSON], type_: str | None) -> dict[str, JSON]:
    """Returns a tool's definition."""
    return {**_lite_start(tool, type_), **tool, "description": _lite_description(tool)}


def _lite_index_entry(tool: dict[str, JSON], type_: str | None, summary: str) -> dict[str, JSON]:
    """Returns a definition with an empty schema in place of its own, which `tools/describe` has."""
    return {
        **_lite_start(tool, type_),
        "description": summary or prose.cut(_lite_description(tool), prose.SUMMARY_CHARS),
        "inputSchema": {"type": "object"},
        "_meta": {"schema": "deferred"},
    }


def _lite_start(tool: dict[str, JSON], type_: str | None) -> dict[str, JSON]:
    return {"name": tool["name"], "@type": type_} if type_ else {"name": tool["name"]}


def _lite_description(tool: dict[str, JSON]) -> str:
    """Returns the description or, if the author gave none, the words of the name as a sentence."""
    given: str = tool.get("description", "")
    if given.strip():
        return given
    words = _WORD_START.sub(" ", tool["name"]).strip() or tool["name"]
    return f"{words[0].upper()}{words[1:]}."
