"""Performs operations of an API: sends their requests with the credentials that these need."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from msgspec import structs

from deltamcp.catalog.operations_file.document import ServiceEntry
from deltamcp.errors import ConfigurationError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.threads import Computations
from deltamcp.sources.address_rule import AddressRule
from deltamcp.sources.http import HttpService, RequestDraft, ServiceRefusedError, ServiceResponse, fill_variables
from deltamcp.sources.openapi.api import Api, ApiOperation
from deltamcp.sources.openapi.client_credentials import ClientTokens
from deltamcp.sources.openapi.location import read_upload
from deltamcp.sources.openapi.security import Carried, Requirement, SecurityScheme, carry
from deltamcp.sources.openapi.settings import ClientCredentials
from deltamcp.sources.pages import next_arguments
from deltamcp.values import JSON, ServiceResult


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
