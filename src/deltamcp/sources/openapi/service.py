"""Performs operations of an API: sends their requests with the credentials that these need."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import structs

from deltamcp.catalog.operations_file.document import ServiceEntry
from deltamcp.errors import ConfigurationError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.threads import Computations
from deltamcp.sources.http import HttpService, RequestDraft, fill_variables
from deltamcp.sources.openapi.api import Api, ApiOperation
from deltamcp.sources.openapi.location import read_upload
from deltamcp.sources.openapi.security import Carried, Requirement, carry
from deltamcp.values import JSON


class ApiService:
    """Calls the operations of one API."""

    def __init__(self, api: Api, environment: Mapping[str, str], computations: Computations, limits: Limits) -> None:
        """
        Raises:
            ConfigurationError: the API's address is not known, or a variable of the settings is not set.
        """
        self._api = api
        self._environment = environment
        self._computations = computations
        self._limits = limits
        self._services: dict[str, HttpService] = {}
        self._credentials = {
            name: fill_variables(one, environment)
            for name, one in api.settings.credentials.items()
            if isinstance(one, str)
        }
        self._folders = [Path(folder).expanduser().resolve() for folder in api.settings.file_folders]
        self._service(api.base_url)

    async def call(self, operation: ApiOperation, arguments: dict[str, JSON]) -> Any:
        """Performs an operation and returns its response, as `HttpService.perform` does.

        Raises:
            ToolError: the service refused or could not be reached, or the arguments do not fit into a request.
        """
        draft = operation.draft(arguments, functools.partial(read_upload, folders=self._folders))
        try:
            service = self._service(operation.base_url)
        except ConfigurationError as error:
            raise ToolError(str(error)) from None
        return await service.perform(_add_credentials(draft, [*self._credentials_of(operation)]))

    def _service(self, base_url: str) -> HttpService:
        service = self._services.get(base_url)
        if service is None:
            entry = ServiceEntry(
                base_url=base_url, headers=self._api.settings.headers, timeout=self._api.settings.timeout
            )
            secrets = self._credentials.values()
            service = HttpService(entry, self._environment, self._computations, self._limits, secrets)
            self._services[base_url] = service
        return service

    def _credentials_of(self, operation: ApiOperation) -> Iterator[Carried]:
        """Yields what the first alternative adds whose credentials the user has set."""
        for requirement in operation.requirements:
            if all(self._has(name) for name, _ in requirement):
                yield from self._of(requirement)
                return

    def _has(self, name: str) -> bool:
        return name in self._credentials and name in self._api.schemes

    def _of(self, requirement: Requirement) -> Iterator[Carried]:
        for name, _ in requirement:
            yield carry(self._api.schemes[name], self._credentials[name])

    async def close(self) -> None:
        """Closes the connections; a later call opens others."""
        for service in self._services.values():
            await service.close()


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
