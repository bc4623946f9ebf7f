"""The operations of a document: their methods, paths and texts, before any schema is looked at; and their names.

Names are short, unique, the same in every process and, once locked, in every version of a document.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import OpenApiDocument, ReferenceFaultError, place
from deltamcp.wire.canonical import sha256_digest

MAX_NAME_CHARS = 64
"""The longest name that the APIs of models take."""
_SUFFIX_CHARS = 6
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_VERSION = re.compile(r"v?\d+(\.\d+)*([a-z]+\d+)?", re.IGNORECASE)
_PREFIX_SEGMENTS = frozenset({"api", "rest"})
_READS_ALL = {"get": "list"}
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


class Unnamed(Struct, frozen=True):
    """What the name of an operation is made from."""

    method: str
    """In upper case."""
    path: str
    operation_id: str | None
    category: str
    """A text such as a tag; empty if the operation has none."""

    @property
    def key(self) -> str:
        """What identifies the operation in its document."""
        return f"{self.method} {self.path}"


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


class LockedName(Struct, frozen=True):
    """The name and the id that an operation keeps."""

    name: str
    id: str
    """Begins with the category."""
    operation_id: str | None = None


def choose_names(operations: Sequence[Unnamed], locked: Mapping[str, LockedName]) -> list[LockedName]:
    """Returns names for operations; `locked` has those of earlier documents by `Unnamed.key`.

    An operation keeps its name if its method and path, or else its `operationId`, are as they were. The name of an
    operation that is gone goes to no other one.
    """
    kept = _kept_names(operations, locked)
    used_names = {one.name for one in locked.values()}
    used_ids = {one.id for one in locked.values()}
    new = [index for index in range(len(operations)) if index not in kept]
    added = [operations[index] for index in new]
    short = _short_names(added)
    names = _distinct([one.key for one in added], _wanted_names(added, short), used_names)
    chosen = dict(kept)
    ids = _distinct([one.key for one in added], _wanted_ids(added, short, names), used_ids)
    for index, name, id_ in zip(new, names, ids, strict=True):
        chosen[index] = LockedName(name, id_, operations[index].operation_id)
    return [chosen[index] for index in range(len(operations))]


def _kept_names(operations: Sequence[Unnamed], locked: Mapping[str, LockedName]) -> dict[int, LockedName]:
    kept = {index: locked[one.key] for index, one in enumerate(operations) if one.key in locked}
    here = {one.key for one in operations}
    moved = {one.operation_id: one for key, one in locked.items() if one.operation_id and key not in here}
    for index, one in enumerate(operations):
        if index not in kept and one.operation_id in moved:
            kept[index] = moved.pop(one.operation_id)
    return kept


def _short_names(operations: Sequence[Unnamed]) -> list[str]:
    """Returns the name that each operation would have by itself."""
    ids = Counter(one.operation_id for one in operations)
    return [
        _short_id(one) if one.operation_id and ids[one.operation_id] == 1 else _path_name(one) for one in operations
    ]


def _wanted_names(operations: Sequence[Unnamed], short: Sequence[str]) -> list[str]:
    """Returns the short names, or longer ones where several operations have the same."""
    ids = Counter(one.operation_id for one in operations)
    counts = Counter(short)
    # A short form that two have says less than what it was made from.
    return [
        name if counts[name] == 1 or not one.operation_id or ids[one.operation_id] > 1 else segment(one.operation_id)
        for one, name in zip(operations, short, strict=True)
    ]


def _wanted_ids(operations: Sequence[Unnamed], short: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the category with the short name, which is often short enough there, or else with the name."""
    ids = [_id(one, name) for one, name in zip(operations, short, strict=True)]
    counts = Counter(ids)
    return [id_ if counts[id_] == 1 else _id(one, name) for one, id_, name in zip(operations, ids, names, strict=True)]


def _short_id(operation: Unnamed) -> str:
    """Returns an `operationId` without the path and the method that FastAPI and others write behind it."""
    made = segment(operation.operation_id or "")
    end = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    shortened = made.removesuffix(end)
    return shortened if len(shortened) > 1 and shortened != made else made or _path_name(operation)


def _path_name(operation: Unnamed) -> str:
    """Returns a name from method and path: `GET /users/{id}/posts` is `list_users_posts`."""
    method, steps = operation.method.lower(), [step for step in operation.path.split("?")[0].split("/") if step]
    while len(steps) > 1 and (steps[0].lower() in _PREFIX_SEGMENTS or _VERSION.fullmatch(steps[0])):
        steps = steps[1:]
    words = [segment(step) for step in steps if not _PLACEHOLDER.fullmatch(step)]
    last = _PLACEHOLDER.fullmatch(steps[-1]) if steps else None
    if last is not None:
        words.append(f"by_{segment(last[1])}")
    elif steps and any(_PLACEHOLDER.search(step) for step in steps):
        method = _READS_ALL.get(method, method)
    return _fit("_".join([method, *filter(None, words)]), operation.key)


def segment(text: str) -> str:
    """Returns what of a text can be a part of a name or an id, with `_` in place of the rest; empty if nothing can."""
    return _OTHER.sub("_", text).strip("_-")


def _id(operation: Unnamed, name: str) -> str:
    """Returns the dotted path of an operation: its category, and its name without the category before it."""
    category = segment(operation.category)[:MAX_NAME_CHARS].strip("_-")
    if not category:
        return name
    action = name
    for prefix in (category, category.removesuffix("s")):
        rest = name[len(prefix) :]
        if name.lower().startswith(prefix.lower()) and rest[:1] in ("_", "-") and rest.strip("_-"):
            action = rest.strip("_-")
            break
    return f"{category}.{action}"


def _distinct(keys: Sequence[str], wanted: Sequence[str], taken: set[str]) -> list[str]:
    """Returns different texts. Of equal ones each has a suffix of its own, so that none depends on the order."""
    fitted = [_fit(text, key) for text, key in zip(wanted, keys, strict=True)]
    counts = Counter(fitted)
    used = {*taken, *(text for text in fitted if counts[text] == 1)}
    made: list[str] = []
    for text, key in zip(fitted, keys, strict=True):
        if counts[text] > 1 or text in taken:
            text = _with_suffix(text, key, used)
            used.add(text)
        made.append(text)
    return made


def _fit(text: str, key: str) -> str:
    head, separator, last = text.rpartition(".")
    if len(last) > MAX_NAME_CHARS:
        last = _with_suffix(last, key, set())
    return f"{head}{separator}{last or 'x'}"


def _with_suffix(text: str, key: str, used: set[str]) -> str:
    head, separator, last = text.rpartition(".")
    digest = sha256_digest(key.encode(errors="surrogatepass")).rpartition(":")[2]
    for length in range(_SUFFIX_CHARS, MAX_NAME_CHARS // 2):
        made = f"{head}{separator}{last[: MAX_NAME_CHARS - length - 1]}_{digest[:length]}"
        if made not in used:
            return made
    raise AssertionError("a digest tells all operations apart")
