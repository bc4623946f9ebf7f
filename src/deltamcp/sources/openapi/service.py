"""The tools of a server that perform operations of an API: they send requests with the credentials that these need."""

import asyncio
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode, urljoin, urlsplit

from msgspec import structs

from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation, ToolOptions
from deltamcp.catalog.operations_file import ServiceEntry
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError, ToolError
from deltamcp.limits import Limits
from deltamcp.results.pages import PAGES_KEY
from deltamcp.runtime.threads import Computations
from deltamcp.sources.http import HttpService, RequestDraft, ServiceRefusedError, ServiceResponse, fill_variables
from deltamcp.sources.openapi.api import Api, ApiOperation
from deltamcp.sources.openapi.document import OpenApiDocument, parse_document
from deltamcp.sources.openapi.location import AddressRule, load_document, read_upload
from deltamcp.sources.openapi.security import Carried, ClientTokens, Requirement, SecurityScheme, carry
from deltamcp.sources.openapi.settings import ApiSettings, ClientCredentials
from deltamcp.sources.pages import next_arguments
from deltamcp.values import JSON, ServiceResult

_MAX_LOGGED = 5
T = TypeVar("T")
logger: logging.Logger = logging.getLogger("deltamcp")


class ApiService:
    """Calls the operations of one API."""

    def __init__(self, api: Api, environment: Mapping[str, str], computations: Computations, limits: Limits) -> None:
        """
        Raises:
            ConfigurationError: the API's address is not known or not public, a credential is for a security scheme
                that the document does not have, or a variable of the settings is not set.
        """
        self._api = api
        self._environment = environment
        self._computations = computations
        self._limits = limits
        self._services: dict[str, HttpService] = {}
        self._rule = AddressRule(self._named_hosts())
        self._credentials: dict[str, str | ClientTokens] = {
            name: self._open_credential(name, given) for name, given in api.settings.credentials.items()
        }
        self._folders = [Path(folder).expanduser().resolve() for folder in api.settings.file_folders]
        self._service(api.base_url)

    def _named_hosts(self) -> set[str]:
        """Returns the hosts that the user named, in any setting."""
        settings = self._api.settings
        issuers = (one.token_url for one in settings.credentials.values() if isinstance(one, ClientCredentials))
        urls = (url for url in (settings.base_url, *issuers) if url)
        filled = (urlsplit(fill_variables(url, self._environment)).hostname for url in urls)
        return {*self._api.named_hosts, *(host.lower() for host in filled if host)}

    def _open_credential(self, name: str, given: str | ClientCredentials) -> str | ClientTokens:
        scheme = self._api.schemes.get(name)
        if scheme is None:
            known = ", ".join(list(self._api.schemes)[:10]) or "none"
            raise ConfigurationError(f"The document has no security scheme {name!r} for a credential; it has {known}.")
        if isinstance(given, str):
            return fill_variables(given, self._environment)
        url = given.token_url or urljoin(self._api.document.address or self._api.base_url, scheme.token_url)
        if not given.token_url and not scheme.token_url:
            raise ConfigurationError(f"The security scheme {name} does not say where tokens are issued; set token_url.")
        return ClientTokens(given, url, self._environment, self._rule)

    async def call(self, operation: ApiOperation, arguments: dict[str, JSON]) -> Any:
        """Performs an operation and returns the value of its response.

        If there is a next page, or something to say of the response, it returns a `ServiceResult`.

        Raises:
            ToolError: the service refused or could not be reached, or the arguments do not fit into a request.
        """
        draft = operation.draft(arguments, functools.partial(read_upload, folders=self._folders))
        try:
            service = self._service(operation.base_url)
        except ConfigurationError as error:
            raise ToolError(str(error)) from None
        requirement = self._requirement_of(operation)
        response = await self._perform(operation, service, draft, requirement)
        following = next_arguments(response.value, response.links, arguments, operation.pages)
        problem = await self._computations.run(
            operation.base_url, lambda work: operation.response_problem(response.status, response.kind, response.value)
        )
        notes = (f"(The response does not match its schema: {problem})",) if problem else ()
        return ServiceResult(response.value, following, notes) if following or notes else response.value

    async def _perform(
        self, operation: ApiOperation, service: HttpService, draft: RequestDraft, requirement: Requirement
    ) -> ServiceResponse:
        """Sends a request with credentials; once more with a new token if the service does not accept the old one."""
        for is_last in (False, True):
            carried, tokens = await self._carry(requirement, service)
            try:
                return await service.perform(_add_credentials(draft, carried))
            except ServiceRefusedError as error:
                if error.status != 401 or not tokens or is_last:
                    self._explain(error, operation, requirement)
                    raise
                for source, token in tokens:
                    source.forget(token)
        raise AssertionError("the last attempt returns or raises")

    async def _carry(
        self, requirement: Requirement, service: HttpService
    ) -> tuple[list[Carried], list[tuple[ClientTokens, str]]]:
        """Returns what credentials add to a request, and the tokens among them with their sources."""
        carried: list[Carried] = []
        tokens: list[tuple[ClientTokens, str]] = []
        for name, scopes in requirement:
            credential = self._credentials[name]
            if isinstance(credential, ClientTokens):
                token = await credential.token(scopes)
                service.learn_secret(token)
                tokens.append((credential, token))
                carried.append(carry(_as_bearer(self._api.schemes[name]), token))
            else:
                carried.append(carry(self._api.schemes[name], credential))
        return carried, tokens

    def _explain(self, error: ServiceRefusedError, operation: ApiOperation, requirement: Requirement) -> None:
        """Adds to a refusal for want of a credential which one is not set."""
        if error.status in (401, 403) and not requirement and operation.requirements:
            names = dict.fromkeys(name for one in operation.requirements for name, _ in one)
            if names:
                shown = " or ".join([*names][:5])
                error.args = (f"{error} No credential is set for {shown}; who runs this server can set it.",)

    def _service(self, base_url: str) -> HttpService:
        service = self._services.get(base_url)
        if service is None:
            entry = ServiceEntry(
                base_url=base_url, headers=self._api.settings.headers, timeout=self._api.settings.timeout
            )
            secrets = [part for one in self._credentials.values() for part in _secrets_of(one)]
            service = HttpService(entry, self._environment, self._computations, self._limits, secrets, self._rule)
            self._services[base_url] = service
        return service

    def _requirement_of(self, operation: ApiOperation) -> Requirement:
        """Returns the first alternative whose credentials the user has set; an empty one if there is none."""
        for requirement in operation.requirements:
            if requirement and all(name in self._credentials for name, _ in requirement):
                return requirement
        return ()

    async def close(self) -> None:
        """Closes the connections; a later call opens others."""
        for service in self._services.values():
            await service.close()


def _as_bearer(scheme: SecurityScheme) -> SecurityScheme:
    return structs.replace(scheme, prefix="Bearer ") if scheme.kind != "apiKey" else scheme


def _secrets_of(credential: str | ClientTokens) -> list[str]:
    if isinstance(credential, ClientTokens):
        return [credential.client_secret]
    return [credential, credential.partition(":")[2]]


def _add_credentials(draft: RequestDraft, carried: list[Carried]) -> RequestDraft:
    """Returns a draft with credentials in their places, which no argument replaces."""
    headers, query, cookies = dict(draft.headers), [draft.query], [draft.headers.get("cookie", "")]
    for one in carried:
        match one.place:
            case "header":
                headers[one.name] = one.value
            case "query":
                query.append(urlencode({one.name: one.value}, quote_via=quote))
            case "cookie":
                cookies.append(f"{one.name}={one.value}")
    if any(cookies):
        headers["cookie"] = "; ".join(filter(None, cookies))
    return structs.replace(draft, query="&".join(filter(None, query)), headers=headers)


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
    options = {
        "name": operation.name,
        "description": operation.description,
        "summary": operation.summary,
        "category": operation.category,
        "action": operation.action if operation.category else None,
        "input_schema": operation.input_schema,
        "annotations": operation.annotations,
        "keywords": [*operation.tags, api.category_descriptions.get(operation.category, "")],
        "meta": {PAGES_KEY: True} if operation.pages.has_pages else None,
    }
    given = cast("ToolOptions", {key: value for key, value in options.items() if value})
    return FunctionOperation(_function(service, operation), Context, **given)


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
