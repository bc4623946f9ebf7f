"""Tools, resources, prompts and completions of other servers: their definitions stay as those servers wrote them."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from deltamcp.catalog.arguments import DeclaredArguments, InvalidArgumentsError, problem_at
from deltamcp.catalog.items.function import FunctionShape, check_options, function_name
from deltamcp.catalog.items.operation import TASK_SUPPORT, Operation, ToolOptions
from deltamcp.catalog.items.prompt import Completer, Prompt
from deltamcp.catalog.items.resource import LooseUriTemplate, Resource, UriTemplate, split_scheme
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.text.clean_text import MAX_PROBLEMS
from deltamcp.errors import ConfigurationError
from deltamcp.results.content import WRAPPER
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import JSON, Principal
from deltamcp.work import WorkLimitError

CallRemote = Callable[..., Awaitable[Any]]
"""Performs a request at the other server: it takes `context` and what the item binds, and returns a `RawResult`."""

_SHAPE = FunctionShape(
    is_async=True,
    is_generator=False,
    context_name="context",
    dependencies={},
    fields={},
    unnamed_parameter=None,
    return_annotation=None,
)
_ANY_OBJECT: dict[str, JSON] = {"type": "object"}


class RemoteOperation(Operation):
    """A tool of another server. Its function takes `arguments` and `context`.

    The other server decides whether the arguments are right; this one only refuses those that the schema forbids by
    name, and leaves out nulls that the schema does not admit, which some clients send for every argument that they do
    not set.
    """

    def __init__(
        self,
        function: CallRemote,
        definition: dict[str, JSON],
        *,
        abandon: Callable[[JSON, Principal], Awaitable[None]] | None = None,
        is_own: bool = False,
        **options: Unpack[ToolOptions],
    ) -> None:
        """
        Args:
            definition: The tool as the other server lists it.
            abandon: As of `Operation`, and so is `is_own`.
            options: As of any tool; those that have a place in the definition change it: `name`, `promise`.

        Raises:
            ConfigurationError: the definition or an option cannot be used.
        """
        check_options(options, ToolOptions)
        schema = definition.get("inputSchema")
        listed = {**definition, "inputSchema": schema if isinstance(schema, dict) else _ANY_OBJECT}
        if not isinstance(listed.get("description"), str | None):
            del listed["description"]  # summaries and the search index are made from it
        listed.pop("execution", None)  # this server decides which of its tools are tasks
        self._definition = definition
        listed["name"] = options.get("name") or function_name(function)
        policy = options.get("promise", "never")
        if policy != "never":
            listed["execution"] = TASK_SUPPORT.get(policy)
        super().__init__(function, _SHAPE, listed, options)
        self.abandon: Callable[[JSON, Principal], Awaitable[None]] | None = abandon
        self.is_own: bool = is_own

    def with_name(self, name: str, id_: str, policy: ResultPolicy | None) -> "RemoteOperation":
        options = self._named_options(name, id_, policy)
        return RemoteOperation(self.function, self._definition, abandon=self.abandon, is_own=self.is_own, **options)

    @property
    def shown_result(self) -> JSON:
        """The official SDK wraps what is no object, and some servers a text; replies are without the wrapper."""
        schema = self.output_schema or {}
        members = schema.get("properties")
        if not isinstance(members, dict) or len(members) != 1:
            return schema
        [(name, inner)] = members.items()
        is_text = isinstance(inner, dict) and inner.get("type") == "string"
        return inner if name == WRAPPER or is_text else schema

    def undeclared_arguments(self, arguments: Mapping[str, JSON]) -> list[str]:
        return [one.name for one in self._declared_arguments.find_undeclared(arguments)] if arguments else []

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        undeclared = self._declared_arguments.find_undeclared(arguments) if arguments else ()
        forbidden = [one for one in undeclared if one.is_forbidden][:MAX_PROBLEMS]
        if forbidden:
            raise InvalidArgumentsError(
                [problem_at(one.path, "additionalProperties", f"{one.name}: no such parameter.") for one in forbidden]
            )
        if None not in arguments.values():
            return {"arguments": arguments}
        try:
            fits = self._schema.is_valid(arguments)
        except WorkLimitError:
            fits = True
        return {"arguments": arguments if fits else self._schema.drop_nulls(arguments)}

    @functools.cached_property
    def _schema(self) -> ForeignSchema:
        return ForeignSchema(self.tool["inputSchema"])

    @functools.cached_property
    def _declared_arguments(self) -> DeclaredArguments:
        return DeclaredArguments(self.tool["inputSchema"], is_own=False)


class RemoteResource(Resource):
    """A resource or a template of another server. Its function takes `uri` and `context`."""

    def __init__(
        self,
        function: CallRemote,
        list_item: dict[str, JSON],
        uri: str | None = None,
        complete: CallRemote | None = None,
    ) -> None:
        """
        Args:
            list_item: The resource as the other server lists it.
            uri: Where this server offers it; the other server's own URI by default.
            complete: Completes an argument of the template there, as the function of a `RemoteCompleter`.

        Raises:
            ConfigurationError: the item has no URI.
        """
        key = "uriTemplate" if "uriTemplate" in list_item else "uri"
        if not isinstance(list_item.get(key), str):
            raise ConfigurationError("it has no URI.")
        self.list_item: dict[str, JSON] = list_item if uri is None else {**list_item, key: uri}
        self.function = function
        self.function_shape: FunctionShape = _SHAPE
        mime_type = list_item.get("mimeType")
        self.mime_type: str | None = mime_type if isinstance(mime_type, str) else None
        self.cache_seconds: float = 0.0
        self.template: UriTemplate | LooseUriTemplate | None = (
            _read_template(self.list_item[key]) if key == "uriTemplate" else None
        )
        self.complete = complete
        self.tags: frozenset[str] = frozenset()
        self.origin: object | None = None
        self._inserted = ""
        """What the URI of a mounted server's resource has here after its scheme, and has not there."""

    def with_uri(self, uri: str) -> "RemoteResource":
        moved = RemoteResource(self.function, self.list_item, uri, self.complete)
        (_, there), (_, here) = split_scheme(self.uri), split_scheme(uri)
        moved._inserted = here.removesuffix(there) + self._inserted
        return moved

    def completer(self, argument: str) -> Completer | None:
        return None if self.complete is None else RemoteCompleter(self.complete, argument)

    def variables(self, values: dict[str, str], uri: str) -> dict[str, str]:
        scheme, rest = split_scheme(uri)
        return {"uri": scheme + rest.removeprefix(self._inserted)}

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        return dict(arguments)


class RemotePrompt(Prompt):
    """A prompt of another server. Its function takes `arguments` and `context`; the other server checks them."""

    def __init__(
        self, function: CallRemote, list_item: dict[str, JSON], name: str, complete: CallRemote | None = None
    ) -> None:
        """
        Args:
            name: The prompt's name at this server.
            complete: Completes an argument there, as the function of a `RemoteCompleter`.
        """
        self.list_item: dict[str, JSON] = list_item if list_item.get("name") == name else {**list_item, "name": name}
        self.name = name
        self.function = function
        self.function_shape: FunctionShape = _SHAPE
        self.complete = complete
        self.tags: frozenset[str] = frozenset()
        self.origin: object | None = None

    def with_name(self, name: str) -> "RemotePrompt":
        return RemotePrompt(self.function, self.list_item, name, self.complete)

    def completer(self, argument: str) -> Completer | None:
        return None if self.complete is None else RemoteCompleter(self.complete, argument)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        return {"arguments": arguments}


class RemoteCompleter(Completer):
    """Completes an argument at another server. Its function takes `argument`, `value`, `arguments` and `context`."""

    def __init__(self, function: CallRemote, argument: str) -> None:
        self.function = function
        self._argument = argument
        self.function_shape: FunctionShape = _SHAPE
        self.origin: object | None = None

    def bind(self, value: str, arguments: dict[str, str]) -> dict[str, Any]:
        return {"argument": self._argument, "value": value, "arguments": arguments}


def _read_template(template: str) -> UriTemplate | LooseUriTemplate:
    try:
        return UriTemplate(template)
    except ConfigurationError:
        return LooseUriTemplate(template)
