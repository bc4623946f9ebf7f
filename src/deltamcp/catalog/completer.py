"""Completions: an author's function suggests values for an argument of a prompt or a resource template."""

from collections.abc import Callable
from typing import Any

from deltamcp.catalog.function_shape import inspect_function
from deltamcp.errors import ConfigurationError


class Completer:
    """A function that gets the text typed so far, and optionally the other arguments, and returns suggestions."""

    __slots__ = ("_names", "function", "function_shape", "origin")

    def __init__(self, function: Callable[..., Any], context_type: type) -> None:
        """
        Raises:
            ConfigurationError: the function takes neither one nor two parameters.
        """
        self.function = function
        self.origin: object | None = None
        """Where the completion was registered, if its server is mounted."""
        self.function_shape = inspect_function(function, context_type)
        fields = self.function_shape.named_fields()
        if len(fields) not in (1, 2):
            raise ConfigurationError("a completion takes the text so far and, optionally, the arguments already given.")
        self._names = tuple(fields)

    def bind(self, value: str, arguments: dict[str, str]) -> dict[str, Any]:
        """Returns the keyword arguments for a call of the function."""
        return dict(zip(self._names, (value, arguments), strict=False))
