"""Prompts: messages a user picks by name and fills in."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from deltamcp.catalog.signature import Signature, function_name
from deltamcp.values import JSON


class Prompt:
    """A function that makes messages of its arguments. `listed` is what the list shows of it."""

    __slots__ = ("context_name", "function", "is_async", "listed", "name", "signature")

    def __init__(
        self,
        function: Callable[..., Any],
        context_type: type,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[JSON] | None = None,
        meta: Mapping[str, JSON] | None = None,
    ) -> None:
        self.function = function
        self.name = name or function_name(function)
        self.signature = Signature(function, context_type)
        self.is_async = self.signature.is_async
        self.context_name = self.signature.context_name
        self.listed: dict[str, JSON] = {"name": self.name}
        for key, value in (
            ("title", title),
            ("description", description or inspect.getdoc(function)),
            ("arguments", self._arguments()),
            ("icons", icons),
            ("_meta", meta),
        ):
            if value:
                self.listed[key] = value

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
