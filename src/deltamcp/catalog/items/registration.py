"""Registration of authors' functions: which can be registered, with which options, and errors that name their place."""

import contextlib
import functools
import inspect
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, TAGS_KEY


@contextlib.contextmanager
def registration(function: Any, call: str, may_yield: bool = False) -> Iterator[None]:
    """Checks that a function can be registered; in the `with` block, errors begin with its file, line and name.

    `call` is the code that registers a function, such as `server.tool({})`; only tools may yield.

    Raises:
        ConfigurationError: the function cannot be registered, or the block raised this error.
    """
    try:
        _check_function(function, call)
        if not may_yield and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            raise ConfigurationError("only a tool may yield its parts; return a list.")
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{source_line(function)}: {error}") from error.__cause__


def _check_function(function: Any, call: str) -> None:
    if _is_method_without_object(function):
        owner, name = function.__qualname__.split(".")[-2:]
        bound = call.replace("{}", f"{owner}.{name}" if _takes_class(function) else f"{owner}(...).{name}")
        raise ConfigurationError(
            f"a method needs its object; take the decorator off and register the bound method: {bound}."
        )
    if not callable(function) or inspect.isclass(function):
        raise ConfigurationError("only functions, methods and objects with __call__ can be registered.")


def _is_method_without_object(function: Any) -> bool:
    """Whether a function was registered in the body of its class."""
    if isinstance(function, classmethod):
        return True
    if not isinstance(function, types.FunctionType):
        return False
    owner = function.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>") and _first_parameter(function) in ("self", "cls")


def _takes_class(function: Any) -> bool:
    return isinstance(function, classmethod) or _first_parameter(function) == "cls"


def _first_parameter(function: types.FunctionType) -> str | None:
    code = function.__code__
    return code.co_varnames[0] if code.co_argcount else None


def source_line(function: Any) -> str:
    """Returns the file, the line and the name of a function or class: `tools.py:12 search`."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
    if inspect.isclass(function):
        try:
            return f"{_file_name(inspect.getfile(function))}:{inspect.getsourcelines(function)[1]} {name}"
        except (OSError, TypeError):  # built in, or without its source
            return str(name)
    if callable(function) and not (hasattr(function, "__code__") or hasattr(function, "__func__")):
        function = type(function).__call__
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None:
        return str(name)
    return f"{_file_name(code.co_filename)}:{code.co_firstlineno} {name}"


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name under which a function is registered if its author gives none.

    Raises:
        ConfigurationError: the function is a lambda.
    """
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise ConfigurationError("a lambda has no name; pass name=...")
    return name


def docstring(function: Callable[..., Any]) -> str | None:
    """Returns the docstring of a function, of the function inside a partial, or of an object or its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.getdoc(function)
    return inspect.getdoc(function) or inspect.getdoc(type(function).__call__)


def check_options(options: Mapping[str, Any], known: type) -> None:
    """Checks that every option is a key of the typed dict `known`.

    Raises:
        ConfigurationError: an option is unknown.
    """
    for name in options:
        if name not in known.__annotations__:
            raise ConfigurationError(f"There is no option {name!r}; there are {', '.join(known.__annotations__)}.")


def read_tags(tags: Collection[str]) -> frozenset[str]:
    """Returns the tags of an item.

    Raises:
        ConfigurationError: they are one text, or one of them is none.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise ConfigurationError(f'tags must be a list of texts, such as tags=["admin"], not {tags!r}.')
    return frozenset(tags)


def tagged_meta(meta: dict[str, JSON] | None, tags: frozenset[str]) -> dict[str, JSON] | None:
    """Returns the `_meta` of an item with its tags, if it has some."""
    return {**(meta or {}), TAGS_KEY: sorted(tags)} if tags else meta


def omit_empty(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the parts that are neither None nor empty text, in their order."""
    return {key: value for key, value in parts.items() if value is not None and value != ""}
