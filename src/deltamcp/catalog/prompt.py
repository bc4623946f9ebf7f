"""Prompts: messages that a user selects by name and fills in with arguments."""

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from msgspec import to_builtins

from deltamcp.catalog.options import check_options, omit_empty
from deltamcp.catalog.registration import docstring, function_name
from deltamcp.catalog.signature import Signature
from deltamcp.values import JSON, Icon


class PromptOptions(TypedDict, total=False):
    """The options that an author can give a prompt."""

    name: str
    title: str
    description: str
    icons: list[Icon]
    meta: dict[str, JSON]


class Prompt:
    """A function that creates messages from its arguments. `list_item` is its entry in `prompts/list`."""

    __slots__ = ("context_name", "function", "is_async", "list_item", "name", "signature")

    def __init__(self, function: Callable[..., Any], context_type: type, **options: Unpack[PromptOptions]) -> None:
        check_options(options, PromptOptions)
        self.function = function
        self.name = options.get("name") or function_name(function)
        self.signature = Signature(function, context_type)
        self.is_async = self.signature.is_async
        self.context_name = self.signature.context_name
        parts = {
            "name": self.name,
            "title": options.get("title"),
            "description": options.get("description") or docstring(function),
            "arguments": self._arguments() or None,
            "icons": to_builtins(options.get("icons")),
            "_meta": options.get("meta"),
        }
        self.list_item = omit_empty(parts)

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
