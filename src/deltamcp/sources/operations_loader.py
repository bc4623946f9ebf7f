"""Operations from an `operations.json`: loads the file, and reloads it when it changes, without a restart."""

import asyncio
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import parse_qsl

import msgspec

from deltamcp.catalog.arguments import DeclaredArguments
from deltamcp.catalog.items.function import registration
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation, ToolOptions
from deltamcp.catalog.operations_file import (
    Document,
    HandlerByName,
    HttpHandler,
    McpHandler,
    OperationEntry,
    PythonHandler,
)
from deltamcp.catalog.operations_file_reader import read_with_faults
from deltamcp.catalog.text.clean_text import clean
from deltamcp.client.links.process import ProcessGuard
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.limits import Limits
from deltamcp.results.pages import PAGES_KEY
from deltamcp.results.policy import ResultPolicy, merge_policies
from deltamcp.runtime.files import file_state, missing_file_error
from deltamcp.runtime.threads import Computations
from deltamcp.sources.http import HttpService
from deltamcp.sources.mcp import McpUpstream
from deltamcp.sources.pages import PageArguments
from deltamcp.values import JSON

POLL_SECONDS = 0.5
"""The interval between two looks at the file; a changed file is loaded when two looks find the same state."""

RETIRE_SECONDS = 30.0
"""How long a connection that the file no longer names may still serve the calls that use it."""

Function: TypeAlias = Callable[..., Any]
SourceConnection: TypeAlias = HttpService | McpUpstream
ReplaceOperations: TypeAlias = Callable[[list[str], list[Operation]], None]

logger: logging.Logger = logging.getLogger("deltamcp")


class LoadedOperations(NamedTuple):
    """The result of loading the file once."""

    operations: list[Operation]
    connections: dict[bytes, SourceConnection]
    """Connections by their definition in the file, so that a reload keeps those whose definition is unchanged."""


class OperationsFile:
    """An operations file, the operations that are active, and the connections they use."""

    def __init__(
        self,
        path: Path,
        functions: Mapping[str, Function] | None,
        environment: Mapping[str, str],
        limits: Limits,
        results: ResultPolicy | None = None,
    ) -> None:
        """
        Args:
            functions: functions by name, for operations without a handler; None accepts any name, to check a file.
            environment: the values of `${NAME}` in the file; `${PYTHON}` is this interpreter unless it is set.
            results: a policy that goes before the `results` of the file.
        """
        self._results = results
        self._limits = limits
        self._guard = ProcessGuard()
        self._computations = Computations(limits.work_steps)
        self._path = path
        self._functions = functions
        self._environment = {"PYTHON": sys.executable, **environment}
        self._active = LoadedOperations([], {})
        self._loaded_stat = file_state(self._path)
        self._retiring: set[asyncio.Task[None]] = set()

    def load(self) -> LoadedOperations:
        """Loads the file. The active operations do not change until `activate`.

        Raises:
            ConfigurationError: the file has faults; the error's text lists all of them.
        """
        document, faults = _read_with_faults(self._path)
        if document is None:
            raise _faults_error(self._path, faults)
        folder = self._path.parent.resolve()
        builder = _OperationBuilder(
            document,
            folder,
            self._functions,
            self._environment,
            self._active.connections,
            self._computations,
            self._limits,
            self._guard,
            merge_policies(self._results, document.results) if self._results or document.results else None,
        )
        operations: list[Operation] = []
        ids_by_fault: dict[str, list[str]] = {}
        for entry in document.operations:
            if entry.policy == "deny" or not builder.can_reach(entry):
                continue  # a denied operation is not there; a handler that leads nowhere has been reported
            try:
                operations.append(builder.build(entry))
            except ConfigurationError as error:
                ids_by_fault.setdefault(str(error), []).append(entry.id)
        faults += [f"{_ids_text(ids)}: {fault}" for fault, ids in ids_by_fault.items()]
        if faults:
            raise _faults_error(self._path, faults)
        return LoadedOperations(operations, builder.connections)

    def activate(self, loaded: LoadedOperations, replace_operations: ReplaceOperations) -> None:
        """Makes loaded operations the active ones; `replace_operations` gets the old names and the new operations.

        Raises:
            ConfigurationError: a name is taken; nothing has changed.
        """
        try:
            replace_operations([operation.name for operation in self._active.operations], loaded.operations)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._path.name}: {error}") from None
        removed = [connection for key, connection in self._active.connections.items() if key not in loaded.connections]
        self._active = loaded
        if removed:
            task = asyncio.get_running_loop().create_task(_retire(removed))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def watch(self, replace_operations: ReplaceOperations) -> None:
        """Reloads the file whenever it changes, until cancelled. Faults are logged, and the active operations stay."""
        previous = self._loaded_stat
        while True:
            await asyncio.sleep(POLL_SECONDS)
            current = file_state(self._path)
            if current == previous and current != self._loaded_stat:
                self._loaded_stat = current
                await self._reload(replace_operations)
            previous = current

    async def _reload(self, replace_operations: ReplaceOperations) -> None:
        try:
            self.activate(await asyncio.to_thread(self.load), replace_operations)
        except ConfigurationError as error:
            logger.error("the operations file has faults, so the previous version stays in use. %s", error)
        except Exception:
            logger.exception("%s could not be reloaded, so the previous version stays in use", self._path.name)
        else:
            logger.info("%s was reloaded: %d operations", self._path.name, len(self._active.operations))

    async def close(self) -> None:
        retiring = list(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._active.connections.values()))
        self._guard.close()


def read_document(path: Path) -> Document:
    """Reads an operations file.

    Raises:
        ConfigurationError: the file does not exist or has faults; the error's text lists all of them.
    """
    document, faults = _read_with_faults(path)
    if document is None or faults:
        raise _faults_error(path, faults)
    return document


def _read_with_faults(path: Path) -> tuple[Document | None, list[str]]:
    """Returns the part of the document that could be read, and its faults."""
    try:
        body = path.read_bytes()
    except FileNotFoundError:
        raise missing_file_error(path) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    document, problems = read_with_faults(body)
    return document, [f"{problem.pointer or '/'}: {problem.sentence}" for problem in problems]


def _ids_text(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _faults_error(path: Path, faults: list[str]) -> ConfigurationError:
    sentence = f"{path.name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}:"
    return ConfigurationError(sentence, [f"  {fault}" for fault in faults])


async def _retire(connections: list[SourceConnection]) -> None:
    try:
        await asyncio.sleep(RETIRE_SECONDS)
    finally:
        for connection in connections:
            await connection.close()


class _OperationBuilder:
    """Builds the operations of one document; reuses open connections whose definition is unchanged."""

    def __init__(
        self,
        document: Document,
        folder: Path,
        functions: Mapping[str, Function] | None,
        environment: Mapping[str, str],
        connections: Mapping[bytes, SourceConnection],
        computations: Computations,
        limits: Limits,
        guard: ProcessGuard,
        results: ResultPolicy | None,
    ) -> None:
        self._guard = guard
        self._results = results
        self._computations = computations
        self._limits = limits
        self.connections: dict[bytes, SourceConnection] = {}
        self._document = document
        self._folder = folder
        self._functions = functions
        self._environment = environment
        self._open_connections = connections

    def can_reach(self, entry: OperationEntry) -> bool:
        """Returns whether the document defines the service or server that an entry's handler names."""
        match entry.handler:
            case HttpHandler(service=name):
                return name in self._document.services
            case McpHandler(name):
                return name in self._document.upstreams
            case _:
                return True

    def build(self, entry: OperationEntry) -> Operation:
        options = self._options(entry)
        declared = _declared_arguments(entry)
        match entry.handler:
            case HttpHandler():
                service = self._service(entry.handler.service)
                pages = _page_arguments(entry.handler, entry.input_schema, service)
                call = functools.partial(service.call, entry.handler, pages=pages)
                if pages.has_pages:
                    options["meta"] = {**(options.get("meta") or {}), PAGES_KEY: True}
                return FunctionOperation(_wrap_remote(call), Context, declared=declared, **options)
            case McpHandler(server, tool):
                upstream = self._upstream(server)
                call = functools.partial(upstream.call, tool, repeatable=_is_repeatable(entry), timeout=entry.timeout)
                return FunctionOperation(_wrap_upstream(call), Context, declared=declared, **options)
            case PythonHandler(ref):
                function = resolve_function(ref)
            case HandlerByName(name):
                function = self._function(name)
        with registration(function, f"functions={{{entry.name!r}: {{}}}}", may_yield=True):
            return FunctionOperation(function, Context, by_name=True, declared=declared, **options)

    def _options(self, entry: OperationEntry) -> ToolOptions:
        category, description = ".".join(entry.category), clean(entry.description)
        if entry.deprecated:
            replacement = f": {entry.deprecated}" if isinstance(entry.deprecated, str) else ""
            description = f"(Deprecated{replacement}) {description}"
        own = ResultPolicy(fields=entry.fields) if entry.fields else None
        options = {
            "name": entry.name,
            "description": description,
            "category": category or None,
            "action": entry.action,
            "input_schema": entry.input_schema,
            "output_schema": entry.output_schema,
            "pinned": entry.pinned,
            "policy": entry.policy,
            "scopes": entry.scopes,
            "examples": entry.examples,
            "title": None if entry.title is None else clean(entry.title),
            "summary": None if entry.summary is None else clean(entry.summary),
            "annotations": entry.annotations or None,
            "meta": {"tags": entry.tags} if entry.tags else None,
            "keywords": [*entry.tags, self._document.categories.get(category, "")],
            "timeout": entry.timeout,
            "promise": entry.promise,
            "sync_seconds": entry.sync_seconds,
            "on_redelivery": entry.on_redelivery,
            "results": merge_policies(own, self._results) if own or self._results else None,
        }
        return cast("ToolOptions", {key: value for key, value in options.items() if value is not None})

    def _function(self, name: str) -> Function:
        if self._functions is None:
            return _placeholder
        if name not in self._functions:
            raise ConfigurationError(f"no handler, and no function {name!r} was passed in functions=...")
        return self._functions[name]

    def _service(self, name: str) -> HttpService:
        definition = self._document.services[name]
        key = msgspec.json.encode(definition)
        existing = self.connections.get(key) or self._open_connections.get(key)
        if isinstance(existing, HttpService):
            service = existing
        else:
            service = HttpService(definition, self._environment, self._computations, self._limits)
        self.connections[key] = service
        return service

    def _upstream(self, name: str) -> McpUpstream:
        definition = self._document.upstreams[name]
        # A relative path is relative to the file's directory.
        definition = msgspec.structs.replace(definition, cwd=str(self._folder / (definition.cwd or ".")))
        key = msgspec.json.encode((name, definition))
        existing = self.connections.get(key) or self._open_connections.get(key)
        if isinstance(existing, McpUpstream):
            upstream = existing
        else:
            upstream = McpUpstream(name, definition, self._environment, self._computations, self._guard)
        self.connections[key] = upstream
        return upstream


def _page_arguments(handler: HttpHandler, schema: Mapping[str, Any], service: HttpService) -> PageArguments:
    given = schema.get("properties")
    properties: dict[str, Any] = given if isinstance(given, dict) else {}
    places = {argument: handler.place_of(argument) for argument in properties}
    names = {place.name: argument for argument, place in places.items() if place.location in ("query", "body", "form")}
    fixed = (name for name, _ in parse_qsl(handler.path.partition("?")[2], keep_blank_values=True))
    return PageArguments(names, properties, service.own_parameters.union(fixed))


def _declared_arguments(entry: OperationEntry) -> DeclaredArguments | None:
    """Returns the arguments that an operation passes on; None if the handler itself knows them.

    A schema without `properties` leaves the arguments to a function or to another MCP server, which check them. An HTTP
    service would get whatever the caller sends.
    """
    match entry.handler:
        case HttpHandler():
            return DeclaredArguments(entry.input_schema, [*entry.handler.placeholders, *entry.handler.param_map])
        case _:
            return DeclaredArguments(entry.input_schema) if entry.input_schema.get("properties") else None


def _placeholder() -> None:
    """Stands in for a function that the program passes later."""


def _wrap_remote(call: Function) -> Function:
    async def remote(arguments: dict[str, JSON]) -> Any:
        return await call(arguments)

    return remote


def _wrap_upstream(call: Function) -> Function:
    async def remote(arguments: dict[str, JSON], context: Context) -> Any:
        return await call(arguments, context)

    return remote


def _is_repeatable(entry: OperationEntry) -> bool:
    """Returns whether a call may be sent again after its server was lost: it only reads, or is idempotent."""
    return any(entry.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))


def resolve_function(ref: str) -> Callable[..., Any]:
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
