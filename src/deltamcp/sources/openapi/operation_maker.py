"""Makes the tools of a server from an API: each is an operation whose function sends a request."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation, ToolOptions
from deltamcp.context import Context
from deltamcp.limits import Limits
from deltamcp.results.pages import PAGES_KEY
from deltamcp.runtime.threads import Computations
from deltamcp.sources.openapi.api import Api, ApiOperation
from deltamcp.sources.openapi.document import OpenApiDocument, parse_document
from deltamcp.sources.openapi.location import load_document
from deltamcp.sources.openapi.service import ApiService
from deltamcp.sources.openapi.settings import ApiSettings
from deltamcp.values import JSON

_MAX_LOGGED = 5
T = TypeVar("T")
logger: logging.Logger = logging.getLogger("deltamcp")


def open_api(
    document: str | os.PathLike[str] | bytes | Mapping[str, JSON] | Api,
    settings: ApiSettings | None,
    environment: Mapping[str, str],
) -> Api:
    """Returns the API of a document, wherever that is.

    Raises:
        ConfigurationError: it cannot be read, or is no OpenAPI document.
    """
    if isinstance(document, Api):
        return document
    chosen = settings or ApiSettings()
    if isinstance(document, Mapping):
        return Api(OpenApiDocument({**document}), chosen)
    if isinstance(document, bytes):
        return Api(OpenApiDocument(parse_document(document)), chosen)
    source = document if isinstance(document, str) else Path(document)
    return Api(_run_apart(load_document(source, chosen, environment)), chosen)


def make_operations(api: Api, environment: Mapping[str, str], limits: Limits) -> tuple[ApiService, list[Operation]]:
    """Returns the tools of an API, and the service that performs them.

    Raises:
        ConfigurationError: the API's address is not known, or a variable of the settings is not set.
    """
    service = ApiService(api, environment, Computations(limits.work_steps), limits)
    for fault in api.faults[:_MAX_LOGGED]:
        logger.warning("%s is left out at %s", api.title or "an operation", fault)
    if len(api.faults) > _MAX_LOGGED:
        logger.warning("%d more parts of the document are left out", len(api.faults) - _MAX_LOGGED)
    return service, [_make_operation(service, operation, api) for operation in api.operations]


def _make_operation(service: ApiService, operation: ApiOperation, api: Api) -> Operation:
    options: ToolOptions = {
        "name": operation.name,
        "description": operation.description,
        "input_schema": operation.input_schema,
        "keywords": [*operation.tags, api.category_descriptions.get(operation.category, "")],
    }
    if operation.summary:
        options["summary"] = operation.summary
    if operation.category:
        options["category"] = operation.category
        options["action"] = operation.action
    if operation.pages.has_pages:
        options["meta"] = {PAGES_KEY: True}
    if operation.annotations:
        options["annotations"] = operation.annotations
    return FunctionOperation(_function(service, operation), Context, **options)


def _function(service: ApiService, operation: ApiOperation) -> Callable[..., Any]:
    async def send(arguments: dict[str, JSON]) -> Any:
        return await service.call(operation, arguments)

    return send


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end in a thread with a loop of its own, because the caller may be in a loop."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="deltamcp-openapi")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
