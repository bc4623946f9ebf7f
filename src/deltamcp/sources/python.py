"""Python functions that an operations file names."""

import importlib
from collections.abc import Callable
from typing import Any

from deltamcp.errors import ConfigurationError


def resolve(ref: str) -> Callable[..., Any]:
    """Imports the module of `package.module:function` and returns the function, which may be `Class.method`.

    Raises:
        ConfigurationError: the function does not exist, or its module cannot be imported.
    """
    module_name, separator, qualified_name = ref.partition(":")
    if not (module_name and separator and qualified_name):
        raise ConfigurationError(f"The handler {ref!r} must be of the form package.module:function.")
    try:
        target: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _import_error(module_name, error) from error
        raise ConfigurationError(f"There is no module {error.name} for the handler {ref}; is it installed?") from error
    except Exception as error:
        raise _import_error(module_name, error) from error
    for name in qualified_name.split("."):
        try:
            target = getattr(target, name)
        except AttributeError as error:
            raise ConfigurationError(
                f"The module {module_name} has no {qualified_name} for the handler {ref}."
            ) from error
    if not callable(target):
        raise ConfigurationError(f"The handler {ref} must be a function; it is of type {type(target).__name__}.")
    function: Callable[..., Any] = target
    return function


def _import_error(module_name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"The module {module_name} could not be imported: {type(error).__name__}: {error}")
