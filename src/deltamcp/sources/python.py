"""Functions of the program, by the name a file has for them."""

import importlib
from collections.abc import Callable
from typing import Any

from deltamcp.errors import ConfigurationError


def resolve(ref: str) -> Callable[..., Any]:
    """What `package.module:function` names; the module is imported, and the function may be `Class.method`.

    Raises:
        ConfigurationError: there is no such thing, or its module cannot be imported.
    """
    place, separator, path = ref.partition(":")
    if not (place and separator and path):
        raise ConfigurationError(f"The handler {ref!r} must be of the form package.module:function.")
    try:
        found: Any = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _import_error(place, error) from error
        raise ConfigurationError(f"There is no module {error.name} for the handler {ref}; is it installed?") from error
    except Exception as error:
        raise _import_error(place, error) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigurationError(f"The module {place} has no {path} for the handler {ref}.") from error
    if not callable(found):
        raise ConfigurationError(f"The handler {ref} is no function but of type {type(found).__name__}.")
    function: Callable[..., Any] = found
    return function


def _import_error(place: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"The module {place} could not be imported: {type(error).__name__}: {error}")
