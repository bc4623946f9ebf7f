"""Authors' functions: which can be registered, their parameters, which of these the server fills in, how to call them.

Errors of registration name the place of the function.
"""

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, TAGS_KEY

MISSING = inspect.Parameter.empty
_NOT_BY_NAME = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


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


def omit_empty(parts: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the parts that are neither None nor empty text, in their order."""
    return {key: value for key, value in parts.items() if value is not None and value != ""}


def tagged_meta(meta: dict[str, JSON] | None, tags: frozenset[str]) -> dict[str, JSON] | None:
    """Returns the `_meta` of an item with its tags, if it has some."""
    return {**(meta or {}), TAGS_KEY: sorted(tags)} if tags else meta


def read_tags(tags: Collection[str]) -> frozenset[str]:
    """Returns the tags of an item.

    Raises:
        ConfigurationError: they are one text, or one of them is none.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise ConfigurationError(f'tags must be a list of texts, such as tags=["admin"], not {tags!r}.')
    return frozenset(tags)


class FunctionShape(NamedTuple):
    """How to call a function: its parameters, before any schema is made."""

    is_async: bool
    """Whether the function runs on the event loop; others run in a thread."""
    is_generator: bool
    """Whether the function yields the parts of its value."""
    context_name: str | None
    """The parameter that gets the context."""
    dependencies: Mapping[str, "Dependency"]
    """The parameters that get the values of other functions."""
    fields: dict[str, tuple[Any, Any]]
    """Annotation and default of the parameters that get arguments, by name."""
    unnamed_parameter: str | None
    """The first parameter that cannot be passed by name."""
    return_annotation: Any
    """The annotation of the value, which is that of a generator's parts put together."""

    def named_fields(self) -> dict[str, tuple[Any, Any]]:
        """Returns `fields`.

        Raises:
            ConfigurationError: a parameter cannot be passed by name.
        """
        if self.unnamed_parameter is not None:
            raise ConfigurationError(
                f"the parameter {self.unnamed_parameter!r} cannot be passed by name; give it a plain name and a type."
            )
        return self.fields


def inspect_function(function: Callable[..., Any], context_type: type) -> FunctionShape:
    """Inspects the parameters of a function; a parameter of type `context_type` gets the context.

    Raises:
        ConfigurationError: a type is not defined, or a dependency cannot be used.
    """
    hints = type_hints(function)
    context_name: str | None = None
    unnamed: str | None = None
    dependencies: dict[str, Dependency] = {}
    fields: dict[str, tuple[Any, Any]] = {}
    for name, default, by_name in _parameters(function):
        annotation = hints.get(name, Any)
        provider = _provider(name, annotation, default)
        if annotation is context_type:
            context_name = name
        elif provider is not None:
            dependencies[name] = _inspect_dependency(provider, context_type)
        elif by_name:
            fields[name] = (_with_description(annotation), default)
        else:
            unnamed = unnamed or name
    annotation = hints.get("return")
    yields, yields_async = _is(inspect.isgeneratorfunction, function), _is(inspect.isasyncgenfunction, function)
    if yields or yields_async:
        annotation = _collected_annotation(annotation)
    return FunctionShape(
        is_async(function) or yields_async,
        yields or yields_async,
        context_name,
        dependencies,
        fields,
        unnamed,
        annotation,
    )


def _collected_annotation(annotation: Any) -> Any:
    """Returns the annotation of a generator's parts put together, from that of the generator."""
    part = next(iter(typing.get_args(annotation)), Any)
    return str if part is str else types.GenericAlias(list, (part,))


# Dependencies


class Provider:
    """Marks a parameter that gets the value of a function; `Depends` makes one."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function: Callable[..., Any] = function


def Depends(function: Callable[..., Any]) -> Any:  # noqa: N802 - authors know it by this name
    """Gives a parameter the value of a function: `db: Annotated[Db, Depends(get_db)]` or `db: Db = Depends(get_db)`.

    The server calls the function before each call that needs it, once for each call, and the client does not see the
    parameter. The function may be plain, which runs in a thread, or async; it may take a `Context` and dependencies of
    its own. If it yields, the value is what it yields, and the server runs the rest when the call has ended; an
    exception of the call is raised at the `yield`.

    Raises:
        ConfigurationError: the argument is not a function.
    """
    if not callable(function):
        raise ConfigurationError("Depends takes a function, not its result, as in Depends(get_db).")
    return Provider(function)


class Dependency(NamedTuple):
    """A function whose value another function gets for a parameter."""

    provider: Callable[..., Any]
    """The author's function."""
    key: Hashable
    """Identifies the function: a bound method is another object, though an equal one, whenever it is looked up."""
    is_plain: bool
    """Whether the function itself does the work, in a thread, and not a coroutine or generator that it returns."""
    shape: FunctionShape


def _provider(name: str, annotation: Any, default: Any) -> Callable[..., Any] | None:
    for extra in (default, *getattr(annotation, "__metadata__", ())):
        if isinstance(extra, Provider):
            return extra.function
        if extra is Depends:
            raise ConfigurationError(
                f"the parameter {name!r} has Depends without its function; write Depends(function)."
            )
    return None


def _inspect_dependency(provider: Callable[..., Any], context_type: type) -> Dependency:
    try:
        shape = inspect_function(provider, context_type)
        for name, (_, default) in shape.named_fields().items():
            if default is MISSING:
                raise ConfigurationError(f"the parameter {name!r} is neither a Context nor Depends(...) nor optional.")
    except ConfigurationError as error:
        raise ConfigurationError(f"the dependency {source_line(provider)}: {error}") from error.__cause__
    inner = _innermost(provider)
    is_plain = not (
        inspect.iscoroutinefunction(inner) or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    )
    return Dependency(provider, provider if _is_hashable(provider) else id(provider), is_plain, shape)


def _innermost(function: Any) -> Any:
    """Returns the function that decorators, a partial or an object's `__call__` hide."""
    while True:
        function = inspect.unwrap(function)
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.isroutine(function) or inspect.isclass(function):
            return function
        else:
            function = type(function).__call__


def _is_hashable(provider: Callable[..., Any]) -> bool:
    try:
        hash(provider)
    except TypeError:
        return False
    return True


# Parameters


def _with_description(annotation: Any) -> Any:
    """Returns the annotation with a text in `Annotated[..., "text"]` as its description, unless a `Field` has one."""
    extras: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    texts = [extra for extra in extras if isinstance(extra, str)]
    if not texts:
        return annotation
    import pydantic  # takes 60 ms, and a server whose tools are those of others needs no schemas of functions
    from pydantic.fields import FieldInfo

    others = [extra for extra in extras if not isinstance(extra, str)]
    if not any(isinstance(extra, FieldInfo) and extra.description for extra in others):
        others.append(pydantic.Field(description=texts[0]))
    return typing.Annotated[typing.get_args(annotation)[0], *others]


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any, bool]]:
    """Returns the name of each parameter, its default, and whether it can be passed by name."""
    code = getattr(function, "__code__", None) if type(function) is types.FunctionType else None
    variadic = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    if code is None or code.co_flags & variadic or code.co_posonlyargcount or vars(function):
        try:
            parameters = inspect.signature(function).parameters
        except ValueError as error:
            raise ConfigurationError("its parameters are not known; register a function that calls it.") from error
        return [(name, parameter.default, parameter.kind not in _NOT_BY_NAME) for name, parameter in parameters.items()]
    # `inspect.signature` takes a third of the time to register a tool; a plain function's code has the same facts.
    assert isinstance(function, types.FunctionType), "only functions have code here"
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    default_by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | (
        function.__kwdefaults__ or {}
    )
    names += code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return [(name, default_by_name.get(name, MISSING), True) for name in names]


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether a call of the function, or of an instance's `__call__`, returns a coroutine."""
    return _is(inspect.iscoroutinefunction, function)


def _is(predicate: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Returns whether a function, or an instance's `__call__`, is of a kind."""
    if type(function) is types.FunctionType:
        return predicate(function)
    return predicate(function) or predicate(getattr(function, "__call__", None))  # noqa: B004


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the resolved annotations of a function, or of an object's `__call__`, by name."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        function = function.__init__
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ConfigurationError(f"the type {error.name!r} is not defined.") from error
    except (AttributeError, SyntaxError, TypeError) as error:
        raise ConfigurationError(f"the annotations cannot be evaluated: {error}.") from error
