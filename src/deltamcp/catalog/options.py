"""Options of the items that authors register: checks their names, and omits empty ones from list items."""

from collections.abc import Mapping
from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON


def check_options(options: Mapping[str, Any], known: type) -> None:
    """Checks that every option is a key of the typed dict `known`.

    Raises:
        ConfigurationError: an option is unknown.
    """
    for name in options:
        if name not in known.__annotations__:
            raise ConfigurationError(f"There is no option {name!r}; there are {', '.join(known.__annotations__)}.")


def omit_empty(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the parts that are neither None nor empty text, in their order."""
    return {key: value for key, value in parts.items() if value is not None and value != ""}
