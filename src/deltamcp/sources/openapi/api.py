"""`Api`: a document with what its user has set, as operations with names, definitions and requests."""

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.catalog.text.clean_text import clean_excerpt, cut
from deltamcp.errors import ConfigurationError
from deltamcp.sources.http import JSON_TYPE, RequestDraft, media_type
from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import Found, OpenApiDocument, ReferenceFaultError
from deltamcp.sources.openapi.operations import (
    ApiFault,
    DocumentOperation,
    LockedName,
    OperationFaultError,
    choose_names,
    find_inputs,
    find_operations,
    segment,
)
from deltamcp.sources.openapi.request import ArgumentPlan, ReadFile, draft_api_request, plan_arguments
from deltamcp.sources.openapi.schema import Schemas
from deltamcp.sources.openapi.security import Requirement, SecurityScheme, read_requirements, read_schemes
from deltamcp.sources.openapi.settings import ApiSettings, OperationPattern, any_matches
from deltamcp.sources.pages import PageArguments
from deltamcp.values import JSON
from deltamcp.work import WorkLimitError

_MAX_SUMMARY_CHARS, _MAX_TEXT_CHARS = 1_000, 20_000
"""Of a title, a summary or what is said of a tag; and of a description. Published ones stay far below."""
_MAX_DEFINITION_VALUES = 1_600
"""The values in the definitions of one operation's arguments; a pod of Kubernetes has some 1,500."""
_MAX_DEFINITIONS_VALUES = 2_000_000
"""The same of all operations, so that 5,000 have 400 each."""
_MAX_PROBLEM_CHARS = 200
_HINTS: Mapping[str, dict[str, JSON]] = {
    "GET": {"readOnlyHint": True},
    "HEAD": {"readOnlyHint": True},
    "QUERY": {"readOnlyHint": True},
    "OPTIONS": {"readOnlyHint": True},
    "TRACE": {"readOnlyHint": True},
    "PUT": {"idempotentHint": True},
    "DELETE": {"destructiveHint": True, "idempotentHint": True},
}
"""What methods mean for MCP: RFC 9110, 9.2, and for QUERY its own specification, 2."""
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_MAX_SERVERS = 50


class ApiOperation:
    """An operation of an API. What its arguments are is found out when it is first asked for."""

    def __init__(self, api: "Api", found: DocumentOperation, named: LockedName) -> None:
        self._api = api
        self.found = found
        self.name: str = named.name
        self.id: str = named.id
        """The category and the action, joined by a dot; the name if it has no category."""

    @property
    def method(self) -> str:
        return self.found.method

    @property
    def path(self) -> str:
        return self.found.path

    @property
    def place(self) -> str:
        """Where the operation is in the document."""
        return self.found.place

    @property
    def tags(self) -> list[str]:
        return self.found.tags

    @property
    def category(self) -> str:
        """A part of an id; empty if the operation has none."""
        return self.id.rpartition(".")[0]

    @property
    def action(self) -> str:
        return self.id.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """One line; empty if the document has none."""
        return " ".join(clean_excerpt(self.found.text("summary"), _MAX_SUMMARY_CHARS).split())

    @property
    def description(self) -> str:
        """The summary and the description, or else the method and the path."""
        summary, text = self.summary, clean_excerpt(self.found.text("description"), _MAX_TEXT_CHARS)
        if summary and not text.startswith(summary.rstrip(".")):
            text = f"{summary}\n\n{text}" if text else summary
        prefix = "(Deprecated) " if self.found.is_deprecated else ""
        return f"{prefix}{text or f'{self.method} {self.path}'}"

    @functools.cached_property
    def annotations(self) -> dict[str, JSON]:
        """MCP's hints: those of the method, unless the user has set others."""
        hints = dict(_HINTS.get(self.method, {}))
        for pattern, chosen in self._api.hints:
            if pattern.matches(self.found, self.name, self.id):
                hints.update(chosen)
        return hints

    @functools.cached_property
    def plan(self) -> ArgumentPlan:
        """Where the arguments go.

        Raises:
            OperationFaultError: an argument cannot be sent.
            ReferenceFaultError: a reference leads nowhere.
        """
        document = self._api.document
        parameters, body = find_inputs(document, self.found)
        carried = self._api.carried_parameters
        parameters = [one for one in parameters if (one.location, one.name.lower()) not in carried]
        reads_files = bool(self._api.settings.file_folders)
        return plan_arguments(document, self._api.request_schemas, parameters, body, reads_files)

    @property
    def input_schema(self) -> dict[str, JSON]:
        """The schema of the arguments, of JSON Schema 2020-12."""
        plan = self.plan
        if not plan.definitions:
            return plan.schema
        definitions = self._api.request_schemas.definitions(plan.definitions, self._api.definition_values)
        return {**plan.schema, "$defs": definitions}

    def draft(self, arguments: Mapping[str, JSON], read_file: ReadFile) -> RequestDraft:
        """Drafts the request, without what its security needs.

        Raises:
            ToolError: an argument is missing, or its place in the request does not allow its value.
        """
        return draft_api_request(self.method, self.path, self.plan, arguments, read_file)

    @functools.cached_property
    def requirements(self) -> list[Requirement]:
        """The alternatives of security schemes that a request needs; none if it needs nothing."""
        return read_requirements(self.found.value, self._api.document)

    @functools.cached_property
    def base_url(self) -> str:
        """Where the request goes, without its path."""
        return self._api.base_url_of(self.found)

    @functools.cached_property
    def pages(self) -> PageArguments:
        """The arguments by which pages of results are asked for."""
        plan = self.plan
        names = {style.name: name for name, style in plan.parameters.items() if style.place == "query"}
        if plan.body is not None:
            names = {**{field: name for name, field in plan.body.fields.items()}, **names}
        hidden = {name for place, name in self._api.carried_parameters if place == "query"}
        properties = plan.schema["properties"]
        return PageArguments(names, properties if isinstance(properties, dict) else {}, hidden)

    def response_problem(self, status: int, kind: str, value: JSON) -> str | None:
        """Describes how JSON does not match the schema of the response; None if it does, or there is none."""
        if not JSON_TYPE.fullmatch(kind):
            return None
        found = self.response(status)
        if found is None:
            return None
        key = (found.reference or str(status), kind)
        schema = self._response_schemas.get(key)
        if schema is None:
            schema = self._response_schemas[key] = ForeignSchema(self._response_schema(found, kind))
        try:
            problems = [] if schema.is_valid(value) else schema.problems(value)
        except (WorkLimitError, ValueError, RecursionError):
            return None
        return cut(problems[0].text, _MAX_PROBLEM_CHARS) if problems else None

    @functools.cached_property
    def _response_schemas(self) -> dict[tuple[str, str], ForeignSchema]:
        return {}

    def _response_schema(self, found: Found, kind: str) -> dict[str, JSON]:
        """Returns the schema of a response of a media type, of JSON Schema 2020-12; an empty one if there is none."""
        schemas = self._api.response_schemas
        try:
            given, base = self._response_value(found, kind)
            converted = schemas.convert(given, base)
        except ReferenceFaultError:
            return {}
        if not isinstance(converted.schema, dict):
            return {}
        definitions = schemas.definitions(converted.names, _MAX_DEFINITION_VALUES)
        return {**converted.schema, "$defs": definitions} if definitions else converted.schema

    def _response_value(self, found: Found, kind: str) -> tuple[Any, str]:
        if self._api.document.version.is_swagger:
            return found.value.get("schema"), found.base
        content = found.value.get("content")
        for name, media in content.items() if isinstance(content, dict) else ():
            if media_type(name) in (kind, "*/*", "application/*"):
                target = self._api.document.follow(media, found.base)
                return (target.value.get("schema") if isinstance(target.value, dict) else None), target.base
        return None, found.base

    def response(self, status: int) -> Found | None:
        """Returns the Response Object for a status, `default` among them; None if the document has none."""
        responses = self.found.value.get("responses")
        if not isinstance(responses, dict):
            return None
        keys = (str(status), f"{status // 100}XX", f"{status // 100}xx", "default")
        value = next((responses[key] for key in keys if key in responses), None)
        try:
            found = self._api.document.follow(value, self.found.base)
        except ReferenceFaultError:
            return None
        return found if isinstance(found.value, dict) else None


class Api:
    """An API: the operations of a document that its user wants, and what is wrong with the others."""

    def __init__(
        self,
        document: OpenApiDocument,
        settings: ApiSettings | None = None,
        locked: Mapping[str, LockedName] | None = None,
    ) -> None:
        """
        Args:
            locked: `locked_names` of earlier documents of this API, whose operations keep their names.

        Raises:
            ConfigurationError: a setting cannot be used.
        """
        self.document = document
        self.settings: ApiSettings = settings or ApiSettings()
        self.faults: list[ApiFault] = []
        """The parts of the document that are left out, with their places."""
        self.left_out: int = 0
        """The operations that the user does not want: deprecated, denied, or not allowed."""
        self.hints: list[tuple[OperationPattern, dict[str, bool]]] = [
            (OperationPattern(text), chosen) for text, chosen in self.settings.annotations.items()
        ]
        self.request_schemas: Schemas = Schemas(document)
        self.response_schemas: Schemas = Schemas(document, is_request=False)
        self.schemes: dict[str, SecurityScheme] = read_schemes(document)
        self._locked = dict(locked or {})
        self.operations: list[ApiOperation] = [*self._make_operations()]
        share = _MAX_DEFINITIONS_VALUES // max(1, len(self.operations))
        # A power of two, so that one more operation does not change the definitions of all.
        self.definition_values: int = min(_MAX_DEFINITION_VALUES, 1 << max(6, share.bit_length() - 1))

    def _make_operations(self) -> Iterator[ApiOperation]:
        found: list[DocumentOperation] = []
        for one in find_operations(self.document):
            if isinstance(one, ApiFault):
                self.faults.append(one)
            else:
                found.append(one)
        names = choose_names([one.unnamed for one in found], self._locked)
        self._locked |= {one.unnamed.key: named for one, named in zip(found, names, strict=True)}
        allow = [OperationPattern(text) for text in self.settings.allow]
        deny = [OperationPattern(text) for text in self.settings.deny]
        for one, named in zip(found, names, strict=True):
            is_denied = any_matches(deny, one, named.name, named.id)
            is_allowed = not allow or any_matches(allow, one, named.name, named.id)
            if is_denied or not is_allowed or (one.is_deprecated and not self.settings.include_deprecated):
                self.left_out += 1
                continue
            operation = ApiOperation(self, one, named)
            try:
                operation.plan  # noqa: B018 - what is wrong with it is found now
            except (OperationFaultError, ReferenceFaultError, RecursionError) as error:
                problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
                self.faults.append(ApiFault(one.place, problem))
                continue
            yield operation

    @property
    def title(self) -> str:
        return clean_excerpt(self.document.title, _MAX_SUMMARY_CHARS)

    @property
    def version(self) -> str:
        """The version of the API."""
        return self.document.api_version

    @property
    def description(self) -> str:
        return clean_excerpt(self.document.description, _MAX_TEXT_CHARS)

    @functools.cached_property
    def category_descriptions(self) -> dict[str, str]:
        """What the document says of its tags, by category."""
        tags = self.document.content.get("tags")
        return {
            segment(tag["name"]): clean_excerpt(tag["description"], _MAX_SUMMARY_CHARS)
            for tag in (tags if isinstance(tags, list) else ())
            if isinstance(tag, dict) and isinstance(tag.get("name"), str) and isinstance(tag.get("description"), str)
        }

    @property
    def locked_names(self) -> dict[str, LockedName]:
        """The names of all operations that there are or were, to be kept for the next version of the document."""
        return self._locked

    @functools.cached_property
    def base_url(self) -> str:
        """Where the API is.

        Raises:
            ConfigurationError: the document does not say so, and neither does the user.
        """
        return self._chosen_url(document_servers(self.document), self.settings.server)

    def base_url_of(self, found: DocumentOperation) -> str:
        """Returns where an operation is, which may have servers of its own; a user's `base_url` replaces those, too.

        Raises:
            ConfigurationError: as `base_url`.
        """
        own = operation_servers(self.document, found)
        return self._chosen_url(own, None) if own and self.settings.base_url is None else self.base_url

    def _chosen_url(self, servers: Sequence[Mapping[str, Any]], choice: str | int | None) -> str:
        if self.settings.base_url is not None:
            return self.settings.base_url
        url = server_url(choose_server(servers, choice), self.settings.variables, self.document.address)
        if not _host(url):
            raise ConfigurationError("The document does not say where the API is; set base_url.")
        return url

    @functools.cached_property
    def named_hosts(self) -> frozenset[str]:
        """The hosts that the user named, which may be private: of `base_url`, `hosts`, and the document's address."""
        urls = (self.settings.base_url or "", self.document.address)
        found = {host for url in urls if (host := _host(url))}
        return frozenset(found | {host.lower() for host in self.settings.hosts})

    @functools.cached_property
    def hosts(self) -> list[str]:
        """All hosts that requests may go to, in order."""
        found = dict.fromkeys(_host(url) for url in self._all_urls())
        return [host for host in found if host]

    def _all_urls(self) -> Iterator[str]:
        holders = [document_servers(self.document)]
        holders += [operation_servers(self.document, operation.found) for operation in self.operations]
        if self.settings.base_url is not None:
            yield self.settings.base_url
            return
        for servers in holders:
            for server in servers:
                try:
                    yield server_url(server, self.settings.variables, self.document.address)
                except ConfigurationError:
                    continue

    @functools.cached_property
    def carried_parameters(self) -> frozenset[tuple[str, str]]:
        """The places and names of what security schemes add to requests; no model is asked for those."""
        schemes = (one for one in self.schemes.values() if one.kind == "apiKey")
        return frozenset((one.place, one.parameter.lower()) for one in schemes)

    @functools.cached_property
    def requests(self) -> dict[str, JSON]:
        """Where requests go because the document says so, and what they carry there: what a user approves with it."""
        urls = [] if self.settings.base_url is not None else [self.base_url, *self._own_urls()]
        return {
            "origins": [*sorted({_origin(url) for url in urls})],
            "security": {one.name: _scheme_row(one) for one in self.schemes.values()},
        }

    def _own_urls(self) -> Iterator[str]:
        """Yields the addresses of the operations that have servers of their own; one that has none is not called."""
        for operation in self.operations:
            with contextlib.suppress(ConfigurationError):
                yield operation.base_url


def _scheme_row(scheme: SecurityScheme) -> dict[str, JSON]:
    row = {"kind": scheme.kind, "in": scheme.place, "name": scheme.parameter, "prefix": scheme.prefix}
    return {**row, "tokenUrl": scheme.token_url} if scheme.token_url else {**row}


def _origin(url: str) -> str:
    return "://".join(urlsplit(url)[:2]).lower()


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").lower() if parts.scheme in ("http", "https") else ""
    except ValueError:
        return ""


def document_servers(document: OpenApiDocument) -> list[dict[str, Any]]:
    """Returns the servers of a whole document."""
    if document.version.is_swagger:
        return swagger.modern_servers(document.content, None)
    return _servers(document.content.get("servers")) or [{"url": "/"}]


def operation_servers(document: OpenApiDocument, operation: DocumentOperation) -> list[dict[str, Any]]:
    """Returns the servers that an operation or its path has instead; none if it has those of the document."""
    if document.version.is_swagger:
        own = operation.value.get("schemes")
        return swagger.modern_servers(document.content, own) if isinstance(own, list) and own else []
    return _servers(operation.value.get("servers")) or _servers(operation.shared.get("servers"))


def _servers(value: Any) -> list[dict[str, Any]]:
    servers = value[:_MAX_SERVERS] if isinstance(value, list) else []
    return [one for one in servers if isinstance(one, dict) and isinstance(one.get("url"), str)]


def choose_server(servers: Sequence[Mapping[str, Any]], choice: str | int | None) -> Mapping[str, Any]:
    """Returns the server that a user chose, else the first.

    Raises:
        ConfigurationError: there is none like that.
    """
    if choice is None:
        return servers[0]
    for index, server in enumerate(servers):
        if choice in (index, str(index), server.get("url"), server.get("name")):
            return server
    urls = ", ".join(str(server["url"])[:100] for server in servers[:5])
    raise ConfigurationError(f"The document has no server {choice!r}; it has {urls}, which count from 0.")


def server_url(server: Mapping[str, Any], values: Mapping[str, str], address: str) -> str:
    """Returns the URL of a server with its variables filled in; a relative one is relative to the document's address.

    Raises:
        ConfigurationError: a variable has no value, or one that it may not have.
    """
    variables = server.get("variables")
    known = variables if isinstance(variables, dict) else {}

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        variable = known.get(name)
        row = variable if isinstance(variable, dict) else {}
        value = values.get(name, row.get("default"))
        if not isinstance(value, str | int):
            raise ConfigurationError(f"The server's URL has the variable {name}, which needs a value.")
        choices = row.get("enum")
        if isinstance(choices, list) and choices and str(value) not in map(str, choices):
            known_values = ", ".join(map(str, choices[:20]))
            raise ConfigurationError(
                f"The server's variable {name} must be one of {known_values}, not {str(value)[:50]!r}."
            )
        return str(value)

    url = _VARIABLE.sub(fill, server["url"])
    try:
        joined = urljoin(address, url) if address else url
        urlsplit(joined).port  # noqa: B018 - the property raises if the port is invalid
    except ValueError:
        return url
    return joined.rstrip("/")
