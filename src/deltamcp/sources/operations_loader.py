"""Operations from a file: read, and read again when it changes, without a restart."""

import asyncio
import functools
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from deltamcp.catalog import prose
from deltamcp.catalog.operation import Operation, ToolOptions
from deltamcp.catalog.operations_file import reader
from deltamcp.catalog.operations_file.document import (
    Document,
    HandlerByName,
    HttpHandler,
    McpHandler,
    OperationEntry,
    PythonHandler,
)
from deltamcp.catalog.signature import is_async, type_hints
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.results.policy import ResultPolicy
from deltamcp.sources import python
from deltamcp.sources.http import HttpService
from deltamcp.sources.mcp import McpUpstream
from deltamcp.values import JSON

POLL_SECONDS = 0.5
"""Between two looks at the file; one that changed is read when two looks saw the same."""

RETIRE_SECONDS = 30.0
"""How long a connection that the file no longer names may still serve the calls that use it."""

Function: TypeAlias = Callable[..., Any]
SourceConnection: TypeAlias = HttpService | McpUpstream
ReplaceOperations: TypeAlias = Callable[[list[str], list[Operation]], None]

logger = logging.getLogger("deltamcp")


class LoadedOperations(NamedTuple):
    """A reading of the file."""

    operations: list[Operation]
    connections: dict[bytes, SourceConnection]
    """By what the file says of them, so that a reading that says the same uses the same."""


class OperationsFile:
    """One file, what is in use of it, and where that connects to."""

    def __init__(self, path: Path, functions: Mapping[str, Function] | None, environment: Mapping[str, str]) -> None:
        """
        Args:
            functions: for operations without a handler of their own, by name; None where that is yet to be seen.
            environment: what `${NAME}` in the file stands for; `${PYTHON}` is this interpreter unless it says other.
        """
        self._path = path
        self._functions = functions
        self._environment = {"PYTHON": sys.executable, **environment}
        self._active = LoadedOperations([], {})
        self._loaded_stat = self._file_stat()
        self._retiring: set[asyncio.Task[None]] = set()

    def load(self) -> LoadedOperations:
        """What the file says now. Nothing changes until it is taken into use.

        Raises:
            ConfigurationError: the file is wrong; the text has every fault.
        """
        document, faults = _read_with_faults(self._path)
        if document is None:
            raise ConfigurationError(_faults_text(self._path, faults))
        folder = self._path.parent.resolve()
        made = _OperationBuilder(document, folder, self._functions, self._environment, self._active.connections)
        operations: list[Operation] = []
        wrong: dict[str, list[str]] = {}
        for leaf in document.operations:
            if leaf.policy == "deny" or not made.can_reach(leaf):
                continue  # what is denied does not exist for clients; a handler that leads nowhere has been reported
            try:
                operations.append(made.build(leaf))
            except ConfigurationError as error:
                wrong.setdefault(str(error), []).append(leaf.id)
        faults += [f"{_ids_text(ids)}: {fault}" for fault, ids in wrong.items()]
        if faults:
            raise ConfigurationError(_faults_text(self._path, faults))
        return LoadedOperations(operations, made.connections)

    def activate(self, loaded: LoadedOperations, replace_operations: ReplaceOperations) -> None:
        """Puts a reading in the place of the one before; `changed` takes the old names and the new operations.

        Raises:
            ConfigurationError: a name is taken; nothing has changed then.
        """
        try:
            replace_operations([operation.name for operation in self._active.operations], loaded.operations)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._path.name}: {error}") from None
        gone = [used for key, used in self._active.connections.items() if key not in loaded.connections]
        self._active = loaded
        if gone:
            task = asyncio.get_running_loop().create_task(_retire(gone))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def watch(self, replace_operations: ReplaceOperations) -> None:
        """Follows the file until cancelled. A reading that is wrong is told in the log, and the one before stays."""
        last = self._loaded_stat
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = self._file_stat()
            if now == last and now != self._loaded_stat:
                self._loaded_stat = now
                await self._reload(replace_operations)
            last = now

    async def _reload(self, replace_operations: ReplaceOperations) -> None:
        try:
            self.activate(await asyncio.to_thread(self.load), replace_operations)
        except ConfigurationError as error:
            logger.error("the operations file is wrong, so what was read before stays in use. %s", error)
        except Exception:
            logger.exception("%s could not be read again, so what was read before stays in use", self._path.name)
        else:
            logger.info("%s was read again: %d operations", self._path.name, len(self._active.operations))

    async def close(self) -> None:
        retiring = list(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._active.connections.values()))

    def _file_stat(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_document(path: Path) -> Document:
    """
    Raises:
        ConfigurationError: there is no such file, or it has faults; the text has all of them.
    """
    document, faults = _read_with_faults(path)
    if document is None or faults:
        raise ConfigurationError(_faults_text(path, faults))
    return document


def _read_with_faults(path: Path) -> tuple[Document | None, list[str]]:
    """As much of the document as can be told, and its faults."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    document, problems = reader.read_with_faults(body)
    return document, [f"{problem.pointer or '/'}: {problem.sentence}" for problem in problems]


def _ids_text(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _faults_text(path: Path, faults: list[str]) -> str:
    return "\n  ".join([f"{path.name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}:", *faults])


async def _retire(connections: list[SourceConnection]) -> None:
    try:
        await asyncio.sleep(RETIRE_SECONDS)
    finally:
        for connection in connections:
            await connection.close()


class _OperationBuilder:
    """Operations of one document; connections the file still names are used on."""

    def __init__(
        self,
        document: Document,
        folder: Path,
        functions: Mapping[str, Function] | None,
        environment: Mapping[str, str],
        connections: Mapping[bytes, SourceConnection],
    ) -> None:
        self.connections: dict[bytes, SourceConnection] = {}
        self._document = document
        self._folder = folder
        self._functions = functions
        self._environment = environment
        self._open_connections = connections

    def can_reach(self, leaf: OperationEntry) -> bool:
        """Whether the document has the connection that a leaf's handler names."""
        match leaf.handler:
            case HttpHandler(service=name):
                return name in self._document.services
            case McpHandler(name):
                return name in self._document.upstreams
            case _:
                return True

    def build(self, leaf: OperationEntry) -> Operation:
        options: ToolOptions = {
            "name": leaf.name,
            "description": prose.clean(leaf.description),
            "category": ".".join(leaf.category),
            "action": leaf.action,
            "input_schema": leaf.input_schema,
            "pinned": leaf.pinned,
            "policy": "confirm" if leaf.policy == "confirm" else "allow",
            "scopes": leaf.scopes,
            "examples": leaf.examples,
        }
        if leaf.deprecated:
            instead = f": {leaf.deprecated}" if isinstance(leaf.deprecated, str) else ""
            options["description"] = f"(Deprecated{instead}) {options['description']}"
        if leaf.title is not None:
            options["title"] = prose.clean(leaf.title)
        if leaf.summary is not None:
            options["summary"] = prose.clean(leaf.summary)
        if leaf.output_schema is not None:
            options["output_schema"] = leaf.output_schema
        if leaf.annotations:
            options["annotations"] = leaf.annotations
        if leaf.tags:
            options["meta"] = {"tags": leaf.tags}
        about = self._document.categories.get(".".join(leaf.category), "")
        options["keywords"] = [*leaf.tags, about]
        if leaf.timeout is not None:
            options["timeout"] = leaf.timeout
        if leaf.fields:
            options["results"] = ResultPolicy(fields=leaf.fields)
        if not leaf.category:
            del options["category"]
        return Operation(self._function(leaf), Context, **options)

    def _function(self, leaf: OperationEntry) -> Function:
        match leaf.handler:
            case PythonHandler(ref):
                return _wrap_local(python.resolve(ref))
            case HandlerByName(name):
                if self._functions is None:
                    return _wrap_local(_placeholder)
                if name not in self._functions:
                    raise ConfigurationError(f"no handler, and no function {name!r} was passed in functions=...")
                return _wrap_local(self._functions[name])
            case HttpHandler():
                service = self._service(leaf.handler.service)
                return _wrap_remote(functools.partial(service.call, leaf.handler))
            case McpHandler(server, tool):
                upstream = self._upstream(server)
                return _wrap_remote(functools.partial(upstream.call, tool, timeout=leaf.timeout))

    def _service(self, name: str) -> HttpService:
        definition = self._document.services[name]
        key = msgspec.json.encode(definition)
        known = self.connections.get(key) or self._open_connections.get(key)
        service = known if isinstance(known, HttpService) else HttpService(definition, self._environment)
        self.connections[key] = service
        return service

    def _upstream(self, name: str) -> McpUpstream:
        definition = self._document.upstreams[name]
        # A path in a file means what it says from where the file is.
        definition = msgspec.structs.replace(definition, cwd=str(self._folder / (definition.cwd or ".")))
        key = msgspec.json.encode((name, definition))
        known = self.connections.get(key) or self._open_connections.get(key)
        upstream = known if isinstance(known, McpUpstream) else McpUpstream(name, definition, self._environment)
        self.connections[key] = upstream
        return upstream


def _placeholder() -> None:
    """Stands for a function that a program will pass."""


def _wrap_remote(call: Function) -> Function:
    async def remote(arguments: dict[str, JSON]) -> Any:
        return await call(arguments)

    return remote


def _wrap_local(function: Function) -> Function:
    """A function of the program, called with its parameters by name; the schema is the file's."""
    context_name = next((name for name, hint in type_hints(function).items() if hint is Context), None)

    def keyword_arguments(arguments: dict[str, JSON], context: Context) -> dict[str, Any]:
        return arguments if context_name is None else {**arguments, context_name: context}

    if is_async(function):

        async def call_async(arguments: dict[str, JSON], context: Context) -> Any:
            return await function(**keyword_arguments(arguments, context))

        return call_async

    def call_sync(arguments: dict[str, JSON], context: Context) -> Any:
        return function(**keyword_arguments(arguments, context))

    return call_sync
