"""Prompts: messages that a user selects by name and fills in with arguments, which completions suggest."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypedDict, Unpack

from msgspec import to_builtins

from deltamcp.catalog.items.function import (
    FunctionShape,
    check_options,
    function_name,
    inspect_function,
    omit_empty,
    read_tags,
    tagged_meta,
)
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Icon


class Completer:
    """A function that gets the text typed so far, and optionally the other arguments, and returns suggestions."""

    __slots__ = ("_names", "function", "function_shape", "origin")

    def __init__(self, function: Callable[..., Any], context_type: type) -> None:
        """
        Raises:
            ConfigurationError: the function takes neither one nor two parameters.
        """
        self.function: Callable[..., Any] = function
        self.origin: object | None = None
        """Where the completion was registered, if its server is mounted."""
        self.function_shape: FunctionShape = inspect_function(function, context_type)
        fields = self.function_shape.named_fields()
        if len(fields) not in (1, 2):
            raise ConfigurationError("a completion takes the text so far and, optionally, the arguments already given.")
        self._names = tuple(fields)

    def bind(self, value: str, arguments: dict[str, str]) -> dict[str, Any]:
        """Returns the keyword arguments for a call of the function."""
        return dict(zip(self._names, (value, arguments), strict=False))


class PromptOptions(TypedDict, total=False):
    """The options that an author can give a prompt."""

    name: str
    title: str
    description: str
    icons: list[Icon]
    meta: dict[str, JSON]
    tags: Collection[str]
    """As of tools."""


class Prompt:
    """A function that creates messages from its arguments. `list_item` is its entry in `prompts/list`."""

    __slots__ = (
        "_context_type",
        "_options",
        "function",
        "function_shape",
        "list_item",
        "name",
        "origin",
        "signature",
        "tags",
    )

    def __init__(self, function: Callable[..., Any], context_type: type, **options: Unpack[PromptOptions]) -> None:
        check_options(options, PromptOptions)
        self._context_type = context_type
        self._options = options
        self.function: Callable[..., Any] = function
        self.name: str = options.get("name") or function_name(function)
        self.tags: frozenset[str] = read_tags(options.get("tags", ()))
        from deltamcp.catalog.items.signature import (
            Signature,  # with pydantic, which items of other servers do not need
        )

        self.signature: Signature = Signature(function, context_type)
        self.function_shape: FunctionShape = self.signature.function_shape
        self.origin: object | None = None
        """Where the prompt was registered, if its server is mounted."""
        parts = {
            "name": self.name,
            "title": options.get("title"),
            "description": options.get("description") or self.signature.description,
            "arguments": self._arguments() or None,
            "icons": to_builtins(options.get("icons")),
            "_meta": tagged_meta(options.get("meta"), self.tags),
        }
        self.list_item: dict[str, JSON] = omit_empty(parts)

    def with_name(self, name: str) -> "Prompt":
        """Returns the same prompt with another name."""
        options: PromptOptions = {**self._options, "name": name}
        return Prompt(self.function, self._context_type, **options)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Converts arguments to keyword arguments of the function.

        Raises:
            InvalidArgumentsError: the arguments do not fit the schema.
        """
        return self.signature.bind(arguments)

    def completer(self, argument: str) -> Completer | None:
        """Returns what completes an argument, if the prompt itself knows that."""
        return None

    def _arguments(self) -> list[dict[str, JSON]]:
        arguments = []
        for name, schema in self.signature.schema.get("properties", {}).items():
            argument: dict[str, JSON] = {"name": name}
            if schema.get("description"):
                argument["description"] = schema["description"]
            if name in self.signature.required:
                argument["required"] = True
            arguments.append(argument)
        return arguments
