"""What authors say of the things they register: checked, and laid out as the lists show it."""

from collections.abc import Mapping
from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON


def check_options(options: Mapping[str, Any], known: type) -> None:
    """
    Raises:
        ConfigurationError: an option is not one of a typed dict's.
    """
    for name in options:
        if name not in known.__annotations__:
            raise ConfigurationError(f"There is no option {name!r}; there are {', '.join(known.__annotations__)}.")


def omit_empty(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """The parts that were given, in their order."""
    return {key: value for key, value in parts.items() if value is not None and value != ""}
