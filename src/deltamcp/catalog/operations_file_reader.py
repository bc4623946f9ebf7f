"""The reader of `operations.json`: turns a file into a `Document`, or into a list of all its faults.

Rules:
1. The reader never raises and never stops at the first fault; a file with a fault gives no document.
2. Both published forms, `operations` and `categories`, give the same entries and may be used in one file.
3. Keys that begin with `_` are comments, except `_kind` and `_description`.
4. The reader resolves nothing: no variable, no function, no address.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from deltamcp.catalog.items.operation import is_id_segment, normalize_id
from deltamcp.catalog.json_schema import normalize_draft
from deltamcp.catalog.operations_file import (
    CATEGORY_KEYS,
    FILE_KEYS,
    HANDLER_KEYS,
    HEADER_NAME,
    HTTP_KEYS,
    OPERATION_KEYS,
    OPERATION_MARKERS,
    PLACE_KEYS,
    PLACEHOLDER,
    REQUIRED_HANDLER_KEYS,
    RESULTS_KEYS,
    SERVICE_KEYS,
    UPSTREAM_KEYS,
    Document,
    Handler,
    HandlerByName,
    HttpHandler,
    KeyType,
    McpHandler,
    OperationEntry,
    ParameterPlace,
    PythonHandler,
    ServiceEntry,
    UpstreamEntry,
)
from deltamcp.errors import ConfigurationError
from deltamcp.results.document import pointer as json_pointer
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import JSON

_MAX_NESTING = 128
_MAX_INTEGER_DIGITS = 1000
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CATEGORY_DEPTH = 8
"""Levels of nested categories."""

_INTERPRETED_KEYS = frozenset(
    {"name", "description", "inputSchema", "parameters", "required", "outputSchema", "handler"}
)
"""The keys of an operation whose values are read further; the others are fields of `OperationEntry` as they are."""
_FRAMING_HEADERS = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})
"""Headers that decide where a request goes or where it ends."""

_INDIRECT_KEYWORDS = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
)
"""Keywords that can declare parameters in ways the reader does not follow."""


class Problem(Struct, frozen=True):
    """One fault of a file: a JSON pointer to it ("" is the document), and a sentence that tells how to correct it."""

    pointer: str
    sentence: str


def extend_pointer(place: str, *parts: str | int) -> str:
    """Appends parts to a JSON pointer."""
    return place + json_pointer(*parts)


def parse_json(body: bytes) -> tuple[JSON, list[Problem]]:
    """Parses a file and returns its value and its faults; an unusable value is `UNSET`. Never raises."""
    repeats: list[tuple[dict[str, JSON], list[str]]] = []

    def make_object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
        result = dict(pairs)
        if len(result) < len(pairs):
            times = Counter(key for key, _ in pairs)
            repeats.append((result, [key for key in result if times[key] > 1]))
        return result

    try:
        text = body.decode("utf-8-sig")
        root = json.loads(
            text, object_pairs_hook=make_object, parse_constant=_refuse_constant, parse_int=_parse_integer
        )
    except UnicodeDecodeError as error:
        return UNSET, [Problem("", f"The file is not UTF-8 at byte {error.start + 1}; save it as UTF-8.")]
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return UNSET, [Problem("", f"The file is not JSON at {where}: {error.msg[0].lower()}{error.msg[1:]}.")]
    except RecursionError:
        return UNSET, [_too_deep_problem()]
    except ValueError as error:
        return UNSET, [Problem("", f"The file is not JSON: {error}.")]
    return _examine(root, {id(node): keys for node, keys in repeats})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"there is no number {name}")


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer has more than {_MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _too_deep_problem() -> Problem:
    return Problem("", f"The file is nested deeper than {_MAX_NESTING} levels.")


def _examine(root: JSON, repeats: Mapping[int, list[str]]) -> tuple[JSON, list[Problem]]:
    """Finds faults that the grammar of JSON allows: duplicate keys, lone surrogates, huge numbers and deep nesting."""
    problems: list[Problem] = []
    broken = False
    stack: list[tuple[JSON, tuple[Any, ...], int]] = [(root, (), 1)]
    while stack:
        node, path, level = stack.pop()
        children: Iterable[tuple[Any, JSON]]
        if isinstance(node, dict):
            if any(not key.isascii() and _SURROGATE.search(key) for key in node):
                problems.append(
                    Problem(_make_pointer(path), "A key here has half of a surrogate pair; write both halves.")
                )
                broken = True
                continue
            problems += (
                Problem(extend_pointer(_make_pointer(path), key), f"The key {key!r} stands here twice; keep one.")
                for key in repeats.get(id(node), ())
            )
            children = node.items()
        elif isinstance(node, list):
            children = enumerate(node)
        else:
            if isinstance(node, str) and not node.isascii() and _SURROGATE.search(node):
                problems.append(
                    Problem(_make_pointer(path), "The text has half of a surrogate pair; write both halves.")
                )
                broken = True
            elif isinstance(node, float) and not math.isfinite(node):
                problems.append(
                    Problem(_make_pointer(path), "The number is larger than a double can be; write a smaller one.")
                )
            continue
        if level > _MAX_NESTING:
            return UNSET, [*problems, _too_deep_problem()]
        stack.extend((child, (path, key), level + 1) for key, child in children)
    return (UNSET if broken else root), problems


def _make_pointer(path: tuple[Any, ...]) -> str:
    parts = []
    while path:
        path, part = path
        parts.append(part)
    return json_pointer(*reversed(parts))


def read_document(body: bytes) -> tuple[Document | None, list[Problem]]:
    """Returns the document, or all its faults. A document without faults defines every service and server it names."""
    document, problems = read_with_faults(body)
    return (None if problems else document), problems


def read_with_faults(body: bytes) -> tuple[Document | None, list[Problem]]:
    """Returns the document without its faulty parts, for callers that check it further, and all its faults."""
    root, problems = parse_json(body)
    reader = _DocumentReader(problems)
    return (None if root is UNSET else reader.build_document(root)), problems


class _DocumentReader:
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._operations: list[OperationEntry] = []
        self._categories: dict[str, str] = {}
        self._services: dict[str, ServiceEntry] = {}
        self._upstreams: dict[str, UpstreamEntry] = {}
        self._pointers_by_name: dict[str, str] = {}
        """Pointers to operations, by id and by name."""
        self._pointers_by_id: dict[str, str] = {}

    def _report(self, pointer: str, sentence: str) -> None:
        self._problems.append(Problem(pointer, sentence))

    def build_document(self, root: JSON) -> Document | None:
        if not isinstance(root, dict):
            self._report("", "The file must hold one JSON object, with the key 'operations' or 'categories'.")
            return None
        found = self._known_fields(root, FILE_KEYS, "", "The file")
        if "operations" not in root and "categories" not in root:
            self._report("", "The file has neither 'operations' nor 'categories'; add one.")
        if "http" in found:
            self._read_services(found["http"], "/http")
        for name, node in _without_comments(found.get("mcpServers", {})):
            self._upstreams[name] = self._read_upstream(node, extend_pointer("/mcpServers", name))
        self._read_operations_form(found.get("operations", {}), "/operations", ())
        self._read_categories_form(found.get("categories", {}), "/categories", ())
        for id_, pointer in self._pointers_by_id.items():
            if id_ in self._categories:
                self._report(pointer, f"{id_!r} is an operation here and a category elsewhere; rename one.")
        return Document(
            operations=self._operations,
            services=self._services,
            upstreams=self._upstreams,
            categories=self._categories,
            title=found.get("title"),
            description=found.get("description"),
            version=found.get("version"),
            results=self._read_results(found["results"]) if "results" in found else None,
            query=found.get("query", False),
        )

    def _read_results(self, node: dict[str, JSON]) -> ResultPolicy | None:
        found: dict[str, Any] = self._known_fields(node, RESULTS_KEYS, "/results", "The results")
        try:
            return ResultPolicy(**found)
        except ConfigurationError as error:
            self._report("/results", str(error))
            return None

    def _known_fields(
        self, node: dict[str, JSON], keys: Mapping[str, KeyType], pointer: str, noun: str, needed: Iterable[str] = ()
    ) -> dict[str, JSON]:
        """Returns the known keys with valid values, and reports the others."""
        found = {}
        for key, value in _without_comments(node):
            if key not in keys:
                self._report(extend_pointer(pointer, key), f"{noun} has no key {key!r}; {_suggestion(key, keys)}")
            elif not keys[key].is_valid(value):
                self._report(extend_pointer(pointer, key), f"{key!r} must be {keys[key].phrase}.")
            else:
                found[key] = value
        for key in needed:
            if key not in node:
                self._report(pointer, f"{noun} needs the key {key!r}: {keys[key].phrase}.")
        return found

    # Categories and operations

    def _read_operations_form(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...]) -> None:
        if not self._enter_category(path, node.get("_description", ""), pointer):
            return
        for key, child in _without_comments(node):
            where = extend_pointer(pointer, key)
            segment = self._read_segment(key, where, path)
            if not isinstance(child, dict):
                hint = "; a category's own text is called '_description'" if isinstance(child, str) else ""
                self._report(where, f"{key!r} must be an object: an operation or a category{hint}.")
            elif self._is_operation(child, where, not OPERATION_MARKERS.isdisjoint(child)):
                self._read_operation(child, where, path, segment)
            elif isinstance(child.get("description", child.get("name")), str):
                self._report(
                    where,
                    "An operation needs 'inputSchema', 'parameters' or 'handler' (or \"_kind\": \"operation\"); "
                    "a category's text is called '_description'.",
                )
            else:
                self._read_operations_form(child, where, (*path, segment))

    def _read_categories_form(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...]) -> None:
        for key, child in _without_comments(node):
            where = extend_pointer(pointer, key)
            inner = (*path, self._read_segment(key, where, path))
            if not isinstance(child, dict):
                self._report(where, f"The category {key!r} must be an object with 'operations' or 'categories'.")
                continue
            found = self._known_fields(child, CATEGORY_KEYS, where, "A category")
            if not self._enter_category(inner, found.get("description", ""), where):
                continue
            for action, operation in _without_comments(found.get("operations", {})):
                operation_pointer = extend_pointer(where, "operations", action)
                segment = self._read_segment(action, operation_pointer, inner)
                if not isinstance(operation, dict):
                    self._report(operation_pointer, f"The operation {action!r} must be an object.")
                elif self._is_operation(operation, operation_pointer, True):
                    self._read_operation(operation, operation_pointer, inner, segment)
                else:
                    self._read_operations_form(operation, operation_pointer, (*inner, segment))
            self._read_categories_form(found.get("categories", {}), extend_pointer(where, "categories"), inner)

    def _enter_category(self, path: tuple[str, ...], description: JSON, pointer: str) -> bool:
        """Records a category; returns False where it is nested too deeply to be read."""
        if len(path) > _MAX_CATEGORY_DEPTH:
            self._report(pointer, f"Categories nest {_MAX_CATEGORY_DEPTH} deep at most; move this one up.")
            return False
        if not isinstance(description, str):
            self._report(extend_pointer(pointer, "_description"), "'_description' must be text.")
        elif path:
            dotted = ".".join(path)
            self._categories[dotted] = description or self._categories.get(dotted, "")
        return True

    def _read_segment(self, key: str, pointer: str, path: tuple[str, ...]) -> str:
        """Returns a key as the part of an id that it is."""
        segment = normalize_id(key)
        if not is_id_segment(segment):
            self._report(
                pointer, f"{key!r} must be 1 to 64 letters, digits, '_' or '-', and begin with a letter or digit."
            )
        elif segment == "index" and not path:
            self._report(pointer, "'index' is the name of the whole tree; rename this.")
        return segment

    def _is_operation(self, node: dict[str, JSON], pointer: str, otherwise: bool) -> bool:
        if "_kind" not in node:
            return otherwise
        if node["_kind"] not in ("operation", "category"):
            self._report(extend_pointer(pointer, "_kind"), "'_kind' must be operation or category.")
            return otherwise
        return bool(node["_kind"] == "operation")

    def _read_operation(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...], action: str) -> None:
        found = self._known_fields(node, OPERATION_KEYS, pointer, "An operation")
        id_ = ".".join((*path, action))
        name = found.get("name", id_)
        self._claim(id_, pointer, pointer)
        self._pointers_by_id[id_] = pointer
        if name != id_:
            self._claim(name, extend_pointer(pointer, "name"), pointer)
        elif len(id_) > 128:
            self._report(pointer, "The operation's id is longer than 128 characters; give it a 'name'.")
        elif not id_.isascii():
            self._report(pointer, "Names of tools have no letters but a to z; give the operation a 'name'.")
        schema = self._read_input_schema(found, pointer)
        output = found.get("outputSchema")
        for hint, value in found.get("annotations", {}).items():
            if hint.endswith("Hint") and not isinstance(value, bool):
                self._report(extend_pointer(pointer, "annotations", hint), f"{hint!r} must be true or false.")
        self._operations.append(
            OperationEntry(
                category=path,
                action=action,
                name=name,
                description=found.get("description", ""),
                input_schema=schema,
                handler=self._read_handler(found.get("handler"), extend_pointer(pointer, "handler"), name, schema),
                output_schema=None
                if output is None
                else self._normalize_schema(output, extend_pointer(pointer, "outputSchema")),
                **{key: value for key, value in found.items() if key not in _INTERPRETED_KEYS},
            )
        )

    def _claim(self, name: str, pointer: str, operation: str) -> None:
        other = self._pointers_by_name.setdefault(name, operation)
        if other != operation:
            self._report(pointer, f"{name!r} is already an id or a name of the operation at {other}; rename one.")

    # Schemas

    def _read_input_schema(self, found: dict[str, JSON], pointer: str) -> dict[str, JSON]:
        given, parameters, required = found.get("inputSchema"), found.get("parameters"), found.get("required")
        if given is not None and parameters is not None:
            self._report(
                extend_pointer(pointer, "parameters"), "An operation has 'inputSchema' or 'parameters', not both."
            )
        elif required is not None and parameters is None:
            self._report(
                extend_pointer(pointer, "required"), "'required' belongs to 'parameters', or inside 'inputSchema'."
            )
        if given is not None:
            return self._normalize_schema(
                given if "type" in given else {"type": "object", **given}, extend_pointer(pointer, "inputSchema")
            )
        if parameters is None:
            return {"type": "object"}
        inside = extend_pointer(pointer, "parameters")
        whole = parameters.get("type") == "object"  # a parameter that is called "type" would be a schema, not text
        schema = dict(parameters) if whole else {"type": "object", "properties": parameters}
        if required:
            for index, name in enumerate(required):
                if not whole and name not in parameters:
                    self._report(
                        extend_pointer(pointer, "required", index),
                        f"There is no parameter {name!r}; {_suggestion(name, parameters)}",
                    )
            schema["required"] = required
        return self._normalize_schema(schema, inside, 0 if whole else 1)

    def _normalize_schema(self, schema: dict[str, JSON], pointer: str, skipped: int = 0) -> dict[str, JSON]:
        schema, fault = normalize_draft(schema)
        if fault is not None:
            path, sentence = fault
            self._report(extend_pointer(pointer, *path[skipped:]), sentence)
        return schema

    # Handlers

    def _read_handler(self, node: JSON, pointer: str, name: str, schema: dict[str, JSON]) -> Handler:
        if node is None:
            return HandlerByName(name)
        kind = node.get("kind")
        if not isinstance(kind, str) or kind not in HANDLER_KEYS:
            where = extend_pointer(pointer, "kind") if "kind" in node else pointer
            self._report(where, f"A handler's 'kind' must be one of {', '.join(HANDLER_KEYS)}.")
            return HandlerByName(name)
        found = self._known_fields(
            node, HANDLER_KEYS[kind], pointer, f"A handler of kind {kind}", REQUIRED_HANDLER_KEYS[kind]
        )
        if kind == "python":
            return PythonHandler(found.get("ref", ""))
        if kind == "http":
            return self._read_http_handler(found, pointer, schema)
        server = found.get("server")
        if server is not None and server not in self._upstreams:
            self._report(
                extend_pointer(pointer, "server"),
                f"'mcpServers' has no server {server!r}; {_suggestion(server, self._upstreams)}",
            )
        return McpHandler(server or "", found.get("tool", ""))

    def _read_http_handler(self, found: dict[str, JSON], pointer: str, schema: dict[str, JSON]) -> HttpHandler:
        service = found.get("service", "")
        if service not in self._services:
            known = _suggestion(service, self._services) if service else "add 'base_url' to 'http' or name a 'service'."
            missing = f"'http' has no service {service!r}" if service else "'http' has no service without a name"
            self._report(extend_pointer(pointer, "service") if service else pointer, f"{missing}; {known}")
        handler = HttpHandler(
            found.get("method", "GET"), found.get("path", ""), self._read_param_map(found, pointer), service
        )
        if "method" in found and "path" in found:
            self._check_places(handler, pointer, _declared_parameters(schema))
        return handler

    def _read_param_map(self, found: dict[str, JSON], pointer: str) -> dict[str, ParameterPlace]:
        places = {}
        for parameter, entry in found.get("param_map", {}).items():
            where = extend_pointer(pointer, "param_map", parameter)
            if isinstance(entry, dict):
                entry = self._known_fields(entry, PLACE_KEYS, where, "A place", ["in"])
            elif PLACE_KEYS["in"].is_valid(entry):
                entry = {"in": entry}
            else:
                self._report(where, f'A place is {PLACE_KEYS["in"].phrase}, or an object with "in" and "name".')
                continue
            location, name = entry.get("in", "query"), entry.get("name", parameter)
            if location == "body":
                name = name or "*"
            elif location in ("header", "cookie") and not HEADER_NAME.fullmatch(name):
                self._report(where, f"{name!r} cannot be the name of a {location}; give another as 'name'.")
            elif location == "header" and name.lower() in _FRAMING_HEADERS:
                self._report(where, f"The HTTP client sets the header {name!r} itself; leave it out.")
            elif not name:
                self._report(where, "Only a parameter that is the whole body can go without a name.")
            places[parameter] = ParameterPlace(location, name)
        return places

    def _check_places(self, handler: HttpHandler, pointer: str, parameters: Mapping[str, JSON] | None) -> None:
        path, mapped = extend_pointer(pointer, "path"), extend_pointer(pointer, "param_map")
        if "{" in PLACEHOLDER.sub("", handler.path) or "}" in PLACEHOLDER.sub("", handler.path):
            self._report(path, "The path has a brace without its partner.")
        if parameters is None:
            return
        for parameter in handler.param_map:
            if parameter not in parameters:
                self._report(
                    extend_pointer(mapped, parameter),
                    f"There is no parameter {parameter!r}; {_suggestion(parameter, parameters)}",
                )
        places = {parameter: handler.place_of(parameter) for parameter in {**parameters, **handler.param_map}}
        filled = {place.name for place in places.values() if place.location == "path"}
        for name in handler.placeholders:
            if name not in filled:
                self._report(path, f"No parameter goes into {{{name}}}; {_suggestion(name, parameters)}")
        for parameter, place in handler.param_map.items():
            if place.location == "path" and place.name not in handler.placeholders:
                self._report(
                    extend_pointer(mapped, parameter),
                    f"The path has no {{{place.name}}}; put it there or name another place.",
                )
        bodies = {parameter: place for parameter, place in places.items() if place.location in ("body", "form")}
        if len({place.location for place in bodies.values()}) > 1:
            self._report(mapped, "A request has a form or a JSON body, not both; give these parameters one place.")
        elif len(bodies) > 1 and ParameterPlace("body", "*") in bodies.values():
            others = ", ".join(parameter for parameter, place in bodies.items() if place.name != "*")
            self._report(
                mapped, f"One parameter is the whole body, so {others or 'a second'} must go elsewhere; say where."
            )

    # Services and servers

    def _read_services(self, node: dict[str, JSON], pointer: str) -> None:
        named = node.get("services")
        found = self._known_fields(node, HTTP_KEYS, pointer, "'http'", () if named is not None else ["base_url"])
        if named is None or "base_url" in node:
            self._services[""] = _make_service(found)
        elif found.keys() & SERVICE_KEYS.keys():
            self._report(
                pointer, "'headers' and 'timeout' here belong to a 'base_url' here; move them into the services."
            )
        for name, service in _without_comments(found.get("services", {})):
            where = extend_pointer(pointer, "services", name)
            if not isinstance(service, dict):
                self._report(where, f"The service {name!r} must be an object with 'base_url'.")
                service = {}
            else:
                service = self._known_fields(service, SERVICE_KEYS, where, "A service", ["base_url"])
            self._services[name] = _make_service(service)

    def _read_upstream(self, node: JSON, pointer: str) -> UpstreamEntry:
        if not isinstance(node, dict):
            self._report(pointer, "A server must be an object with 'command' or 'url'.")
            return UpstreamEntry()
        found = self._known_fields(node, UPSTREAM_KEYS, pointer, "A server")
        if ("command" in node) == ("url" in node):
            self._report(pointer, "A server has either 'command', to be started, or 'url', to be reached.")
        found.pop("type", None)
        return UpstreamEntry(**found)


def _make_service(found: dict[str, JSON]) -> ServiceEntry:
    return ServiceEntry(
        base_url=found.get("base_url", ""), headers=found.get("headers", {}), timeout=found.get("timeout")
    )


def _without_comments(node: dict[str, JSON]) -> list[tuple[str, JSON]]:
    return [(key, value) for key, value in node.items() if not key.startswith("_")]


def _suggestion(name: str, known: Iterable[str]) -> str:
    from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

    names = list(known)
    found = process.extractOne(name, names, processor=str.casefold, score_cutoff=60)
    if found is not None:
        return f"did you mean {found[0]!r}?"
    return f"there are {', '.join(names)}." if names else "there are none."


def _declared_parameters(schema: dict[str, JSON]) -> Mapping[str, JSON] | None:
    """Returns the parameters that a schema declares; None where it may declare some by `_INDIRECT_KEYWORDS`."""
    if schema.keys() & _INDIRECT_KEYWORDS:
        return None
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else None
