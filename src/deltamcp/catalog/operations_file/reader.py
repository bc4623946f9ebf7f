"""`operations.json`: operations written down as data, read into a `Document` or into everything that is wrong with it.

Rules:
1. Reading never raises and never stops at the first fault; a document with a fault is no document.
2. Both published forms, `operations` and `categories`, give the same leaves and may stand in one file.
3. Keys that begin with `_` are comments, but for `_kind` and `_description`.
4. Nothing is looked up here: no variable, no function, no address.
"""

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from deltamcp.catalog.json_schema import settled
from deltamcp.catalog.operation import SEGMENT
from deltamcp.catalog.operations_file.document import (
    PLACEHOLDER,
    ByName,
    Document,
    Handler,
    HttpHandler,
    Leaf,
    McpHandler,
    Place,
    PythonHandler,
    Service,
    Upstream,
)
from deltamcp.catalog.operations_file.json_text import Problem, at, parse
from deltamcp.catalog.operations_file.keys import (
    COMPANION,
    FILE,
    HANDLERS,
    HEADER,
    HTTP,
    LEAF,
    LEAF_SIGNS,
    NEEDED,
    PLACE,
    SERVICE,
    UPSTREAM,
    Kind,
)
from deltamcp.values import JSON

_DEPTH = 8
"""Categories inside one another."""

_FRAMING = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})
"""Headers that decide where a request goes or where it ends."""

_ELSEWHERE = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
)
"""Keywords by which a schema can declare parameters in ways that are not looked into."""


def read(body: bytes) -> tuple[Document | None, list[Problem]]:
    """The document, or every fault it has. In a document without any, whatever it names of itself is there."""
    document, problems = read_with_faults(body)
    return (None if problems else document), problems


def read_with_faults(body: bytes) -> tuple[Document | None, list[Problem]]:
    """Every fault, and the document without what is faulty, for who has further questions to what is not."""
    root, problems = parse(body)
    reader = _Reader(problems)
    return (None if root is UNSET else reader.document(root)), problems


class _Reader:
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._leaves: list[Leaf] = []
        self._categories: dict[str, str] = {}
        self._services: dict[str, Service] = {}
        self._upstreams: dict[str, Upstream] = {}
        self._claimed: dict[str, str] = {}
        """The pointer of the operation that has an id or a name."""
        self._ids: dict[str, str] = {}

    def _tell(self, pointer: str, sentence: str) -> None:
        self._problems.append(Problem(pointer, sentence))

    def document(self, root: JSON) -> Document | None:
        if not isinstance(root, dict):
            self._tell("", "The file must hold one JSON object, with the key 'operations' or 'categories'.")
            return None
        found = self._fields(root, FILE, "", "The file")
        if "operations" not in root and "categories" not in root:
            self._tell("", "The file has neither 'operations' nor 'categories'; add one.")
        if "http" in found:
            self._read_services(found["http"], "/http")
        for name, node in _uncommented(found.get("mcpServers", {})):
            self._upstreams[name] = self._upstream(node, at("/mcpServers", name))
        self._category(found.get("operations", {}), "/operations", ())
        self._companions(found.get("categories", {}), "/categories", ())
        for id_, pointer in self._ids.items():
            if id_ in self._categories:
                self._tell(pointer, f"{id_!r} is an operation here and a category elsewhere; rename one.")
        return Document(
            leaves=self._leaves,
            services=self._services,
            upstreams=self._upstreams,
            categories=self._categories,
            title=found.get("title"),
            description=found.get("description"),
            version=found.get("version"),
        )

    def _fields(
        self, node: dict[str, JSON], keys: Mapping[str, Kind], pointer: str, noun: str, needed: Iterable[str] = ()
    ) -> dict[str, JSON]:
        """The keys that are known and hold what they should; the others are told."""
        found = {}
        for key, value in _uncommented(node):
            if key not in keys:
                self._tell(at(pointer, key), f"{noun} has no key {key!r}; {_meant(key, keys)}")
            elif not keys[key].holds(value):
                self._tell(at(pointer, key), f"{key!r} must be {keys[key].words}.")
            else:
                found[key] = value
        for key in needed:
            if key not in node:
                self._tell(pointer, f"{noun} needs the key {key!r}: {keys[key].words}.")
        return found

    # Categories and operations

    def _category(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...]) -> None:
        if not self._enter(path, node.get("_description", ""), pointer):
            return
        for key, child in _uncommented(node):
            where = at(pointer, key)
            self._check_segment(key, where, path)
            if not isinstance(child, dict):
                hint = "; a category's own text is called '_description'" if isinstance(child, str) else ""
                self._tell(where, f"{key!r} must be an object: an operation or a category{hint}.")
            elif self._is_leaf(child, where, not LEAF_SIGNS.isdisjoint(child)):
                self._leaf(child, where, path, key)
            elif isinstance(child.get("description", child.get("name")), str):
                self._tell(
                    where,
                    "An operation needs 'inputSchema', 'parameters' or 'handler' (or \"_kind\": \"operation\"); "
                    "a category's text is called '_description'.",
                )
            else:
                self._category(child, where, (*path, key))

    def _companions(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...]) -> None:
        for key, child in _uncommented(node):
            where, inner = at(pointer, key), (*path, key)
            self._check_segment(key, where, path)
            if not isinstance(child, dict):
                self._tell(where, f"The category {key!r} must be an object with 'operations' or 'categories'.")
                continue
            found = self._fields(child, COMPANION, where, "A category")
            if not self._enter(inner, found.get("description", ""), where):
                continue
            for action, leaf in _uncommented(found.get("operations", {})):
                there = at(where, "operations", action)
                self._check_segment(action, there, inner)
                if not isinstance(leaf, dict):
                    self._tell(there, f"The operation {action!r} must be an object.")
                elif self._is_leaf(leaf, there, True):
                    self._leaf(leaf, there, inner, action)
                else:
                    self._category(leaf, there, (*inner, action))
            self._companions(found.get("categories", {}), at(where, "categories"), inner)

    def _enter(self, path: tuple[str, ...], description: JSON, pointer: str) -> bool:
        """Notes a category; false where it lies too deep to go on."""
        if len(path) > _DEPTH:
            self._tell(pointer, f"Categories nest {_DEPTH} deep at most; move this one up.")
            return False
        if not isinstance(description, str):
            self._tell(at(pointer, "_description"), "'_description' must be text.")
        elif path:
            dotted = ".".join(path)
            self._categories[dotted] = description or self._categories.get(dotted, "")
        return True

    def _check_segment(self, key: str, pointer: str, path: tuple[str, ...]) -> None:
        if not SEGMENT.fullmatch(key):
            self._tell(
                pointer, f"{key!r} must be 1 to 64 letters, digits, '_' or '-', and begin with a letter or digit."
            )
        elif key == "index" and not path:
            self._tell(pointer, "'index' is the name of the whole tree; rename this.")

    def _is_leaf(self, node: dict[str, JSON], pointer: str, otherwise: bool) -> bool:
        if "_kind" not in node:
            return otherwise
        if node["_kind"] not in ("operation", "category"):
            self._tell(at(pointer, "_kind"), "'_kind' must be operation or category.")
            return otherwise
        return bool(node["_kind"] == "operation")

    def _leaf(self, node: dict[str, JSON], pointer: str, path: tuple[str, ...], action: str) -> None:
        found = self._fields(node, LEAF, pointer, "An operation")
        id_ = ".".join((*path, action))
        name = found.get("name", id_)
        self._claim(id_, pointer, pointer)
        self._ids[id_] = pointer
        if name != id_:
            self._claim(name, at(pointer, "name"), pointer)
        elif len(id_) > 128:
            self._tell(pointer, "The operation's id is longer than 128 characters; give it a 'name'.")
        schema = self._input_schema(found, pointer)
        output = found.get("outputSchema")
        for hint, value in found.get("annotations", {}).items():
            if hint.endswith("Hint") and not isinstance(value, bool):
                self._tell(at(pointer, "annotations", hint), f"{hint!r} must be true or false.")
        self._leaves.append(
            Leaf(
                category=path,
                action=action,
                name=name,
                description=found.get("description", ""),
                input_schema=schema,
                handler=self._handler(found.get("handler"), at(pointer, "handler"), name, schema),
                title=found.get("title"),
                output_schema=None if output is None else self._settled(output, at(pointer, "outputSchema")),
                annotations=found.get("annotations", {}),
                tags=found.get("tags", []),
                policy=found.get("policy", "allow"),
                pinned=found.get("pinned", False),
                deprecated=found.get("deprecated", False),
                examples=found.get("examples", []),
                scopes=found.get("scopes", []),
                fields=found.get("fields", []),
                summary=found.get("summary"),
                timeout=found.get("timeout"),
            )
        )

    def _claim(self, word: str, pointer: str, operation: str) -> None:
        other = self._claimed.setdefault(word, operation)
        if other != operation:
            self._tell(pointer, f"{word!r} is already an id or a name of the operation at {other}; rename one.")

    # Schemas

    def _input_schema(self, found: dict[str, JSON], pointer: str) -> dict[str, JSON]:
        given, parameters, required = found.get("inputSchema"), found.get("parameters"), found.get("required")
        if given is not None and parameters is not None:
            self._tell(at(pointer, "parameters"), "An operation has 'inputSchema' or 'parameters', not both.")
        elif required is not None and parameters is None:
            self._tell(at(pointer, "required"), "'required' belongs to 'parameters', or inside 'inputSchema'.")
        if given is not None:
            return self._settled(given if "type" in given else {"type": "object", **given}, at(pointer, "inputSchema"))
        if parameters is None:
            return {"type": "object"}
        inside = at(pointer, "parameters")
        whole = parameters.get("type") == "object"  # a parameter that is called "type" would be a schema, not text
        schema = dict(parameters) if whole else {"type": "object", "properties": parameters}
        if required:
            for index, name in enumerate(required):
                if not whole and name not in parameters:
                    self._tell(
                        at(pointer, "required", index),
                        f"There is no parameter {name!r}; {_meant(name, parameters)}",
                    )
            schema["required"] = required
        return self._settled(schema, inside, 0 if whole else 1)

    def _settled(self, schema: dict[str, JSON], pointer: str, skipped: int = 0) -> dict[str, JSON]:
        schema, fault = settled(schema)
        if fault is not None:
            path, sentence = fault
            self._tell(at(pointer, *path[skipped:]), sentence)
        return schema

    # Handlers

    def _handler(self, node: JSON, pointer: str, name: str, schema: dict[str, JSON]) -> Handler:
        if node is None:
            return ByName(name)
        kind = node.get("kind")
        if not isinstance(kind, str) or kind not in HANDLERS:
            where = at(pointer, "kind") if "kind" in node else pointer
            self._tell(where, f"A handler's 'kind' must be one of {', '.join(HANDLERS)}.")
            return ByName(name)
        found = self._fields(node, HANDLERS[kind], pointer, f"A handler of kind {kind}", NEEDED[kind])
        if kind == "python":
            return PythonHandler(found.get("ref", ""))
        if kind == "http":
            return self._http(found, pointer, schema)
        server = found.get("server")
        if server is not None and server not in self._upstreams:
            self._tell(
                at(pointer, "server"), f"'mcpServers' has no server {server!r}; {_meant(server, self._upstreams)}"
            )
        return McpHandler(server or "", found.get("tool", ""))

    def _http(self, found: dict[str, JSON], pointer: str, schema: dict[str, JSON]) -> HttpHandler:
        service = found.get("service", "")
        if service not in self._services:
            known = _meant(service, self._services) if service else "add 'base_url' to 'http' or name a 'service'."
            missing = f"'http' has no service {service!r}" if service else "'http' has no service without a name"
            self._tell(at(pointer, "service") if service else pointer, f"{missing}; {known}")
        handler = HttpHandler(
            found.get("method", "GET"), found.get("path", ""), self._param_map(found, pointer), service
        )
        if "method" in found and "path" in found:
            self._check_places(handler, pointer, _parameters(schema))
        return handler

    def _param_map(self, found: dict[str, JSON], pointer: str) -> dict[str, Place]:
        places = {}
        for parameter, said in found.get("param_map", {}).items():
            where = at(pointer, "param_map", parameter)
            if isinstance(said, dict):
                said = self._fields(said, PLACE, where, "A place", ["in"])
            elif PLACE["in"].holds(said):
                said = {"in": said}
            else:
                self._tell(where, f'A place is {PLACE["in"].words}, or an object with "in" and "name".')
                continue
            location, name = said.get("in", "query"), said.get("name", parameter)
            if location == "body":
                name = name or "*"
            elif location in ("header", "cookie") and not HEADER.fullmatch(name):
                self._tell(where, f"{name!r} cannot be the name of a {location}; give another as 'name'.")
            elif location == "header" and name.lower() in _FRAMING:
                self._tell(where, f"The header {name!r} is the HTTP client's own; leave it out.")
            elif not name:
                self._tell(where, "Only a parameter that is the whole body can go without a name.")
            places[parameter] = Place(location, name)
        return places

    def _check_places(self, handler: HttpHandler, pointer: str, parameters: Mapping[str, JSON] | None) -> None:
        path, mapped = at(pointer, "path"), at(pointer, "param_map")
        if "{" in PLACEHOLDER.sub("", handler.path) or "}" in PLACEHOLDER.sub("", handler.path):
            self._tell(path, "The path has a brace without its partner.")
        if parameters is None:
            return
        for parameter in handler.param_map:
            if parameter not in parameters:
                self._tell(
                    at(mapped, parameter), f"There is no parameter {parameter!r}; {_meant(parameter, parameters)}"
                )
        places = {parameter: handler.place(parameter) for parameter in {**parameters, **handler.param_map}}
        filled = {place.name for place in places.values() if place.location == "path"}
        for name in handler.placeholders:
            if name not in filled:
                self._tell(path, f"No parameter goes into {{{name}}}; {_meant(name, parameters)}")
        for parameter, place in handler.param_map.items():
            if place.location == "path" and place.name not in handler.placeholders:
                self._tell(
                    at(mapped, parameter), f"The path has no {{{place.name}}}; put it there or name another place."
                )
        bodies = {parameter: place for parameter, place in places.items() if place.location in ("body", "form")}
        if len({place.location for place in bodies.values()}) > 1:
            self._tell(mapped, "A request has a form or a JSON body, not both; give these parameters one place.")
        elif len(bodies) > 1 and Place("body", "*") in bodies.values():
            others = ", ".join(parameter for parameter, place in bodies.items() if place.name != "*")
            self._tell(
                mapped, f"One parameter is the whole body, so {others or 'a second'} must go elsewhere; say where."
            )

    # Services and servers

    def _read_services(self, node: dict[str, JSON], pointer: str) -> None:
        named = node.get("services")
        found = self._fields(node, HTTP, pointer, "'http'", () if named is not None else ["base_url"])
        if named is None or "base_url" in node:
            self._services[""] = _service(found)
        elif found.keys() & SERVICE.keys():
            self._tell(
                pointer, "'headers' and 'timeout' here belong to a 'base_url' here; move them into the services."
            )
        for name, service in _uncommented(found.get("services", {})):
            where = at(pointer, "services", name)
            if not isinstance(service, dict):
                self._tell(where, f"The service {name!r} must be an object with 'base_url'.")
                service = {}
            else:
                service = self._fields(service, SERVICE, where, "A service", ["base_url"])
            self._services[name] = _service(service)

    def _upstream(self, node: JSON, pointer: str) -> Upstream:
        if not isinstance(node, dict):
            self._tell(pointer, "A server must be an object with 'command' or 'url'.")
            return Upstream()
        found = self._fields(node, UPSTREAM, pointer, "A server")
        if ("command" in node) == ("url" in node):
            self._tell(pointer, "A server has either 'command', to be started, or 'url', to be reached.")
        found.pop("type", None)
        return Upstream(**found)


def _service(found: dict[str, JSON]) -> Service:
    return Service(base_url=found.get("base_url", ""), headers=found.get("headers", {}), timeout=found.get("timeout"))


def _uncommented(node: dict[str, JSON]) -> list[tuple[str, JSON]]:
    return [(key, value) for key, value in node.items() if not key.startswith("_")]


def _meant(word: str, known: Iterable[str]) -> str:
    from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

    among = list(known)
    found = process.extractOne(word, among, processor=str.casefold, score_cutoff=60)
    if found is not None:
        return f"did you mean {found[0]!r}?"
    return f"there are {', '.join(among)}." if among else "there are none."


def _parameters(schema: dict[str, JSON]) -> Mapping[str, JSON] | None:
    """The parameters a schema declares; none where they may be declared in ways not looked into."""
    if schema.keys() & _ELSEWHERE:
        return None
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else None
