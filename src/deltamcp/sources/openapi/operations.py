"""The operations of a document: their methods, paths and texts, before any schema is looked at."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import OpenApiDocument, ReferenceFaultError, place
from deltamcp.sources.openapi.names import Unnamed

_MAX_OPERATIONS = 20_000
"""Microsoft Graph's document, one of the largest there are, has 5,500."""
_IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
"""OpenAPI 3.0.4, 4.7.12.1: parameters of these names are ignored."""
_METHOD_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-")


class ApiFault(Struct, frozen=True):
    """What is wrong with a part of a document, which is left out."""

    place: str
    """A JSON Pointer."""
    problem: str
    """A sentence without full stop."""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}."


class OperationFaultError(Exception):
    """An operation cannot be offered; the text is a sentence without full stop."""


class DocumentOperation(Struct, frozen=True):
    """An operation as the document has it."""

    method: str
    """In upper case."""
    path: str
    place: str
    """Where it is in the document."""
    value: dict[str, Any]
    base: str
    """The address of the document that it is in."""
    shared: dict[str, Any]
    """The path item, with what all operations of the path have."""

    @property
    def unnamed(self) -> Unnamed:
        given = self.value.get("operationId")
        operation_id = given if isinstance(given, str) and given.strip() else None
        return Unnamed(self.method, self.path, operation_id, self.category)

    @property
    def tags(self) -> list[str]:
        tags = self.value.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def category(self) -> str:
        """The first tag, else the first part of the path that is neither a version nor a parameter."""
        if self.tags:
            return self.tags[0]
        parts = [part for part in self.path.split("/") if part and "{" not in part]
        telling = [
            part for part in parts if not (part.lower() in ("api", "rest") or part.lower().strip("v.0123456789") == "")
        ]
        return next(iter(telling), "")

    @property
    def is_deprecated(self) -> bool:
        return self.value.get("deprecated") is True

    def text(self, key: str) -> str:
        """Returns a text of the operation, else of its path; empty if there is none."""
        own, shared = self.value.get(key), self.shared.get(key)
        return own if isinstance(own, str) else shared if isinstance(shared, str) else ""


def find_operations(document: OpenApiDocument) -> Iterator[DocumentOperation | ApiFault]:
    """Yields the operations of a document in its order, and what is wrong with some."""
    paths = document.content.get("paths")
    if not isinstance(paths, dict):
        if "paths" in document.content:
            yield ApiFault(place("paths"), "the paths must be an object")
        return
    count = 0
    for path, item in paths.items():
        if path.startswith("x-"):
            continue
        for found in _find_in_item(document, path, item):
            count += 1
            if count > _MAX_OPERATIONS:
                yield ApiFault(place("paths", path), f"only the first {_MAX_OPERATIONS:,} operations are read")
                return
            yield found


def _find_in_item(document: OpenApiDocument, path: str, item: Any) -> Iterator[DocumentOperation | ApiFault]:
    where = place("paths", path)
    try:
        found = document.follow(item)
    except ReferenceFaultError as error:
        yield ApiFault(where, str(error))
        return
    if not isinstance(found.value, dict):
        yield ApiFault(where, "a path must be an object")
        return
    if not path.startswith("/"):
        yield ApiFault(where, "a path must begin with a slash")
        return
    siblings = {key: value for key, value in item.items() if key != "$ref"} if isinstance(item, dict) else {}
    shared = {**found.value, **siblings}
    for method, operation, steps in _methods(document, shared):
        here = place("paths", path, *steps)
        if not isinstance(operation, dict):
            yield ApiFault(here, "an operation must be an object")
        elif not method or not set(method) <= _METHOD_CHARS:
            yield ApiFault(here, "this is no method of HTTP")
        else:
            yield DocumentOperation(method, path, here, operation, found.base, shared)


def _methods(document: OpenApiDocument, item: Mapping[str, Any]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for key in document.version.methods:
        if key in item:
            yield key.upper(), item[key], (key,)
    further = item.get("additionalOperations")  # OpenAPI 3.2, 4.9.1; the names are methods as they are sent
    if "query" in document.version.methods and isinstance(further, dict):
        for method, operation in further.items():
            yield method, operation, ("additionalOperations", method)


class DocumentParameter(Struct, frozen=True):
    """A parameter as the document has it, in the form of OpenAPI 3."""

    name: str
    location: str
    value: dict[str, Any]
    base: str


class DocumentBody(Struct, frozen=True):
    """A request body as the document has it, in the form of OpenAPI 3."""

    value: dict[str, Any]
    base: str


def find_inputs(
    document: OpenApiDocument, operation: DocumentOperation
) -> tuple[list[DocumentParameter], DocumentBody | None]:
    """Returns the parameters of an operation, those of its path among them, and its body.

    Raises:
        OperationFaultError: one of them cannot be used.
        ReferenceFaultError: one leads nowhere.
    """
    found: dict[tuple[str, str], DocumentParameter] = {}
    # An operation's own parameters replace those of its path (OpenAPI 3.0.4, 4.7.10.1).
    for holder in (operation.shared, operation.value):
        parameters = holder.get("parameters")
        for one in parameters if isinstance(parameters, list) else ():
            target = document.follow(one, operation.base)
            value, name, location = target.value, None, None
            if isinstance(value, dict):
                name, location = value.get("name"), value.get("in")
            if not isinstance(name, str) or not isinstance(location, str):
                raise OperationFaultError("a parameter has no name or no place")
            key = (name.lower() if location == "header" else name, location)
            found[key] = DocumentParameter(name, location, value, target.base)
    parameters_ = [
        one for one in found.values() if not (one.location == "header" and one.name.lower() in _IGNORED_HEADERS)
    ]
    if document.version.is_swagger:
        return _find_swagger_inputs(document, operation, parameters_)
    body = operation.value.get("requestBody")
    if body is None:
        return parameters_, None
    target = document.follow(body, operation.base)
    if not isinstance(target.value, dict):
        raise OperationFaultError("the request body must be an object")
    return parameters_, DocumentBody(target.value, target.base)


def _find_swagger_inputs(
    document: OpenApiDocument, operation: DocumentOperation, parameters: list[DocumentParameter]
) -> tuple[list[DocumentParameter], DocumentBody | None]:
    consumes = operation.value.get("consumes", document.content.get("consumes"))
    bodies = [one for one in parameters if one.location == "body"]
    fields = [one for one in parameters if one.location == "formData"]
    body = swagger.modern_body(
        bodies[0].value if bodies else None,
        [one.value for one in fields],
        consumes if isinstance(consumes, list) else (),
    )
    others = [
        DocumentParameter(one.name, one.location, swagger.modern_parameter(one.value), one.base)
        for one in parameters
        if one.location not in ("body", "formData")
    ]
    base = (bodies or fields or [DocumentParameter("", "", {}, operation.base)])[0].base
    return others, None if body is None else DocumentBody(body, base)
