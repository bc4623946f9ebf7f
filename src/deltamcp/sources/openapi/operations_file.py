"""The operations file that does what an API's document says, as far as such a file can, and what it cannot. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec import Struct

from deltamcp.catalog.operations_file import Method
from deltamcp.catalog.text.prose import SUMMARY_CHARS
from deltamcp.errors import ConfigurationError
from deltamcp.sources.openapi.api import Api, ApiOperation
from deltamcp.sources.openapi.parameters import Style
from deltamcp.sources.openapi.request import BodyPlan
from deltamcp.sources.openapi.security import SecurityScheme
from deltamcp.values import JSON

_METHODS = frozenset(get_args(Method))
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_MAX_DEPTH = 20


class InexpressibleError(Exception):
    """An operation has a part that an operations file has no word for; the text begins a sentence."""


class Loss(Struct, frozen=True):
    """What the file leaves out."""

    operation: str
    """Method and path; empty if it is about all."""
    text: str
    """A sentence."""

    def __str__(self) -> str:
        return f"{self.operation}: {self.text}" if self.operation else self.text


class OperationsFileDraft(Struct, frozen=True):
    """An operations file to be edited by hand."""

    content: dict[str, JSON]
    losses: list[Loss]

    @property
    def count(self) -> int:
        """The operations that the file has."""
        return sum(map(_count, self.content["operations"].values()))


def _count(node: Any) -> int:
    return 1 if "handler" in node else sum(_count(child) for child in node.values() if isinstance(child, dict))


def draft_operations_file(api: Api) -> OperationsFileDraft:
    """Returns the operations file of an API. An argument that it cannot send is left out; so is an operation that needs
    such an argument."""
    writer = _Writer(api)
    operations = writer.operations()
    content: dict[str, JSON] = {"title": api.title or "API"}
    if api.version:
        content["version"] = api.version
    return OperationsFileDraft({**content, "http": writer.http(), "operations": operations}, writer.losses)


class _Writer:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.losses: list[Loss] = []
        self._services: dict[str, str] = {}
        """The names of services by their addresses; the first is the file's own."""

    def operations(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        for operation in self._api.operations:
            label = f"{operation.method} {operation.path}"
            try:
                entry = self._operation(operation, label)
            except InexpressibleError as error:
                self.losses.append(Loss(label, f"{error}, so the operation is left out."))
                continue
            self._place(found, operation, entry)
        for key, text in self._api.category_descriptions.items():
            node = found.get(key)
            if isinstance(node, dict) and "handler" not in node and text:
                found[key] = {"_description": text, **node}
        return found

    def _place(self, found: dict[str, JSON], operation: ApiOperation, entry: dict[str, JSON]) -> None:
        """Puts an operation into its category; a name that is a category's and an operation's goes to the category."""
        node = found
        for category in operation.category.split(".") if operation.category else ():
            below = node.setdefault(category, {})
            assert isinstance(below, dict), "a category or an operation is an object"
            if "handler" in below:
                below = node[category] = {category: below}
            node = below
        there = node.get(operation.action)
        if isinstance(there, dict) and "handler" not in there:
            there[operation.action] = entry
        else:
            node[operation.action] = entry

    def _operation(self, operation: ApiOperation, label: str) -> dict[str, JSON]:
        """
        Raises:
            InexpressibleError: it cannot be written.
        """
        if operation.method not in _METHODS:
            raise InexpressibleError(f"an operations file has no method {operation.method}")
        schema = dict(operation.input_schema)
        properties = dict(_table(schema.get("properties")))
        needed = [*_texts(schema.get("required"))]
        places: dict[str, JSON] = {}
        for name, style in operation.plan.parameters.items():
            self._keep(
                name, _parameter_fault(style, properties[name], schema), properties, needed, places, label, style.place
            )
            if name in properties:
                places[name] = {"in": style.place, "name": style.name}
        self._add_body(operation.plan.body, schema, properties, needed, places, label)
        entry: dict[str, JSON] = {"name": operation.name, "description": operation.description}
        if 0 < len(operation.summary) <= SUMMARY_CHARS:
            entry["summary"] = operation.summary
        if operation.tags:
            entry["tags"] = [*operation.tags]
        if operation.annotations:
            entry["annotations"] = {**operation.annotations}
        if operation.found.is_deprecated:
            entry["deprecated"] = True
        kept = {**schema, "properties": properties, "required": [*needed]}
        entry["inputSchema"] = _without_unused(kept if needed else {k: v for k, v in kept.items() if k != "required"})
        handler: dict[str, JSON] = {"kind": "http", "method": operation.method, "path": operation.path}
        if service := self._service(operation):
            handler["service"] = service
        if places:
            handler["param_map"] = places
        entry["handler"] = handler
        return entry

    def _keep(
        self,
        name: str,
        fault: str,
        properties: dict[str, JSON],
        needed: list[str],
        places: Mapping[str, JSON],
        label: str,
        place: str,
    ) -> None:
        """Leaves out an argument that cannot be sent.

        Raises:
            InexpressibleError: the operation needs it.
        """
        if not fault:
            return
        text = f"the argument {name} in the {place} {fault}, which an operations file cannot send"
        if name in needed:
            raise InexpressibleError(text)
        del properties[name]
        self.losses.append(Loss(label, f"{text}, so that argument is left out."))

    def _add_body(
        self,
        body: BodyPlan | None,
        schema: Mapping[str, JSON],
        properties: dict[str, JSON],
        needed: list[str],
        places: dict[str, JSON],
        label: str,
    ) -> None:
        """
        Raises:
            InexpressibleError: the operation needs a body that cannot be written.
        """
        if body is None:
            return
        if fault := _body_fault(body):
            raise InexpressibleError(f"{fault}, which an operations file cannot send")
        if body.choice:
            properties.pop(body.choice, None)
            self.losses.append(Loss(label, f"its body is always {body.type.media_types[0]}."))
        place = "form" if body.type.form == "form" else "body"
        for name, field in body.fields.items():
            if place == "form":
                fault = "" if _is_flat(properties[name], schema) else "is nested in a form"
                self._keep(name, fault, properties, needed, places, label, place)
            if name in properties:
                places[name] = {"in": place, "name": field}
        if body.fields and not any(name in properties for name in body.fields):
            raise InexpressibleError("no field of its form can be sent by an operations file")
        if body.whole:
            places[body.whole] = {"in": "body", "name": "*"}

    # Services

    def _service(self, operation: ApiOperation) -> str:
        """Returns the name of the service of an operation; empty for the file's own.

        Raises:
            InexpressibleError: nobody knows where it is.
        """
        try:
            url = operation.base_url
        except ConfigurationError as error:
            raise InexpressibleError(str(error).rstrip(".")) from None
        if url not in self._services:
            self._services[url] = f"service{len(self._services) + 1}" if self._services else ""
        return self._services[url]

    def http(self) -> dict[str, JSON]:
        """Returns the services. Credentials are variables, whose names a loss tells."""
        headers: dict[str, JSON] = {**self._api.settings.headers}
        query = ""
        for scheme in self._used_schemes():
            variable = re.sub(r"\W+", "_", f"{self._api.title}_{scheme.name}").strip("_").upper()
            if scheme.kind in ("other", "clientCredentials"):
                self.losses.append(
                    Loss("", f"The security scheme {scheme.name} has to be written as a header by hand.")
                )
            elif scheme.place == "query":
                query = f"?{scheme.parameter}=${{{variable}}}"
                self.losses.append(Loss("", f"Set {variable} to the key of the security scheme {scheme.name}."))
            elif scheme.place == "cookie":
                headers.setdefault("Cookie", f"{scheme.parameter}=${{{variable}}}")
                self.losses.append(Loss("", f"Set {variable} to the key of the security scheme {scheme.name}."))
            elif scheme.parameter not in {name.lower() for name in headers}:
                headers[scheme.parameter.title()] = f"{scheme.prefix}${{{variable}}}"
                what = "user:password in base64" if scheme.kind == "basic" else "the key or token"
                self.losses.append(Loss("", f"Set {variable} to {what} of the security scheme {scheme.name}."))
        if len({repr(operation.requirements) for operation in self._api.operations}) > 1:
            self.losses.append(Loss("", "Credentials go with every request, though not all operations need the same."))
        services: dict[str, dict[str, JSON]] = {}
        for url, name in self._services.items():
            services[name] = {"base_url": url + query, **({"headers": headers} if headers else {})}
            if self._api.settings.timeout is not None:
                services[name]["timeout"] = self._api.settings.timeout
        own = services.pop("", {"base_url": self._own_url()})
        return {**own, **({"services": {**services}} if services else {})}

    def _own_url(self) -> str:
        try:
            return self._api.base_url
        except ConfigurationError:
            return "https://example.com"

    def _used_schemes(self) -> Iterator[SecurityScheme]:
        """Yields the schemes of the first alternative that each operation has, without repetitions."""
        names = dict.fromkeys(
            name for operation in self._api.operations for first in operation.requirements[:1] for name, _ in first
        )
        return (self._api.schemes[name] for name in names if name in self._api.schemes)


def _parameter_fault(style: Style, schema: JSON, root: Mapping[str, JSON]) -> str:
    """Returns what of a parameter an operations file has no word for; empty if it is sent as the document says."""
    if style.media_type:
        return f"is written as {style.media_type}"
    if style.allow_reserved:
        return "keeps reserved characters"
    if style.place == "querystring":
        return "is the whole query"
    if style.style not in ("simple", "form", "cookie"):
        return f"has the style {style.style}"
    if _kinds(schema, root) <= _SCALARS:
        return ""
    if not _is_flat(schema, root):
        return "may be an object, or a list of such"
    if style.place == "cookie":
        return "is a list in a cookie"
    return "" if style.style == "simple" or style.explode else "is a list that is not repeated"


def _body_fault(body: BodyPlan) -> str:
    kind = body.type.media_types[0]
    if body.type.form == "json" and kind.partition(";")[0].strip().lower() == "application/json":
        return ""
    if body.type.form == "form" and not body.whole:
        styled = [name for name, one in body.encodings.items() if one.style or one.media_type or one.allow_reserved]
        return f"the fields {', '.join(styled)} of its form have encodings of their own" if styled else ""
    return f"its body is {kind}"


def _is_flat(schema: JSON, root: Mapping[str, JSON]) -> bool:
    """Whether a value is a scalar or a list of scalars, whatever it is."""
    kinds = _kinds(schema, root)
    if not kinds <= _SCALARS | {"array"}:
        return False
    return "array" not in kinds or all(_kinds(item, root) <= _SCALARS for item in _items(schema, root))


def _kinds(schema: JSON, root: Mapping[str, JSON], depth: int = 0) -> set[str]:
    """Returns the types that a value may have; all where the schema does not say."""
    every = {*_SCALARS, "array", "object"}
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return every
    found = every
    given = schema.get("type")
    if isinstance(given, str | list):
        found = found & {given} if isinstance(given, str) else found & {*map(str, given)}
    if isinstance(values := schema.get("enum"), list):
        found = found & {_kind(value) for value in values}
    if "const" in schema:
        found = found & {_kind(schema["const"])}
    if isinstance(target := _target(schema, root), dict):
        found = found & _kinds(target, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(key), list) and branches:
            found = found & set().union(*(_kinds(branch, root, depth + 1) for branch in branches))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found = found & _kinds(part, root, depth + 1)
    return found


def _kind(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def _items(schema: JSON, root: Mapping[str, JSON], depth: int = 0) -> Iterator[JSON]:
    """Yields the schemas of the items of a list; True where one does not say."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        yield True
        return
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in _list(schema.get(key))]
    if isinstance(target := _target(schema, root), dict):
        parts.append(target)
    listed = [part for part in parts if "array" in _kinds(part, root, depth + 1)]
    if "items" in schema or not listed:
        yield schema.get("items", True)
    else:
        for part in listed:
            yield from _items(part, root, depth + 1)


def _target(schema: Mapping[str, JSON], root: Mapping[str, JSON]) -> JSON:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return None
    return _table(root.get("$defs")).get(reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~"))


def _without_unused(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Returns a schema without the definitions that nothing refers to any more."""
    definitions = _table(schema.get("$defs"))
    used: set[str] = set()
    pending: list[JSON] = [schema.get("properties")]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
            reference = value.get("$ref")
            if isinstance(reference, str) and reference not in used:
                used.add(reference)
                pending.append(_target(value, schema))
        elif isinstance(value, list):
            pending += value
    kept = {
        name: one
        for name, one in definitions.items()
        if f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}" in used
    }
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    return {**rest, "$defs": kept} if kept else rest


def _table(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, dict) else {}


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _texts(value: JSON) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]
