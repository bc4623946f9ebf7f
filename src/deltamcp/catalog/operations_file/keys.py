"""Which keys an `operations.json` has and what each may hold: its reader and its own schema are made of these."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

from deltamcp.catalog.operation import SEGMENT
from deltamcp.catalog.operations_file.document import Location, Method, Policy
from deltamcp.values import JSON

HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_BREAK = re.compile("[\r\n\0]")


class Kind(NamedTuple):
    words: str
    holds: Callable[[JSON], bool]
    schema: dict[str, JSON]

    def about(self, sentence: str) -> "Kind":
        return self._replace(schema={**self.schema, "description": sentence})


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_object(value: JSON) -> bool:
    return isinstance(value, dict)


def _are_texts(value: JSON) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_duration(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _are_headers(value: JSON) -> bool:
    return isinstance(value, dict) and all(
        HEADER.fullmatch(name) and isinstance(text, str) and not _BREAK.search(text) for name, text in value.items()
    )


def _matching(pattern: re.Pattern[str], words: str) -> Kind:
    return Kind(
        words,
        lambda value: isinstance(value, str) and bool(pattern.fullmatch(value)),
        {"type": "string", "pattern": f"^(?:{pattern.pattern})$"},
    )


def _choice(among: Any) -> Kind:
    names = list(get_args(among))
    return Kind(f"one of {', '.join(names)}", lambda value: value in names, {"enum": names})


_TEXT = Kind("text", _is_text, {"type": "string"})
_FLAG = Kind("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
_OBJECT = Kind("an object", _is_object, {"type": "object"})
_LIST = Kind("a list", lambda value: isinstance(value, list), {"type": "array"})
_TEXTS = Kind("a list of texts", _are_texts, {"type": "array", "items": {"type": "string"}})
_TEXT_BY_NAME = Kind(
    "an object whose values are texts",
    lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    {"type": "object", "additionalProperties": {"type": "string"}},
)
_HEADERS = Kind(
    "an object of HTTP header names and one-line texts",
    _are_headers,
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{HEADER.pattern}$"},
        "additionalProperties": {"type": "string", "pattern": r"^[^\r\n\u0000]*$"},
    },
)
_DURATION = Kind("a number of seconds above 0", _is_duration, {"type": "number", "exclusiveMinimum": 0})
_ADDRESS = _matching(re.compile(r"(https?://|\$\{)[^\s#]*"), "an address that begins with http:// or https://")

LEAF: Mapping[str, Kind] = {
    "name": _matching(_NAME, "1 to 128 letters, digits, '_', '-' or '.'").about(
        "A second name for the operation, and the name of the function behind it where there is no handler."
    ),
    "title": _TEXT.about("A name for people."),
    "summary": _TEXT.about("The few words an index has room for."),
    "description": _TEXT.about("What the operation does, for the model."),
    "inputSchema": _OBJECT.about("A JSON Schema of the arguments."),
    "parameters": _OBJECT.about("Instead of inputSchema: a JSON Schema for each argument, by its name."),
    "required": _TEXTS.about("With parameters: the arguments that must be given."),
    "outputSchema": _OBJECT.about("A JSON Schema of the result."),
    "annotations": _OBJECT.about("MCP's hints, such as readOnlyHint."),
    "handler": _OBJECT.about("What performs the operation."),
    "tags": _TEXTS.about("Words to find it by."),
    "policy": _choice(Policy).about("Whether it may be called: at once, after the user agreed, or not at all."),
    "pinned": _FLAG.about("Listed as a tool of its own besides."),
    "deprecated": Kind(
        "true, false or what to use instead",
        lambda value: isinstance(value, bool | str),
        {"type": ["boolean", "string"]},
    ).about("True, or what to use instead."),
    "examples": _LIST.about("Arguments it can be called with."),
    "scopes": _TEXTS.about("What a caller must be allowed to do."),
    "fields": _TEXTS.about("Dotted paths of what to keep of a result."),
    "timeout": _DURATION.about("Seconds it may take."),
}
LEAF_SIGNS = frozenset({"inputSchema", "parameters", "handler"})

HANDLERS: Mapping[str, Mapping[str, Kind]] = {
    "python": {"kind": _TEXT, "ref": _matching(_REF, "of the form package.module:function")},
    "http": {
        "kind": _TEXT,
        "method": _choice(Method),
        "path": _matching(re.compile(r"/[^\s#]*"), "a path that begins with '/' and has no spaces or '#'"),
        "param_map": _OBJECT,
        "service": _TEXT,
    },
    "mcp": {"kind": _TEXT, "server": _TEXT, "tool": _TEXT},
}
NEEDED: Mapping[str, tuple[str, ...]] = {
    "python": ("ref",),
    "http": ("method", "path"),
    "mcp": ("server", "tool"),
}
PLACE: Mapping[str, Kind] = {"in": _choice(Location), "name": _TEXT}

SERVICE: Mapping[str, Kind] = {"base_url": _ADDRESS, "headers": _HEADERS, "timeout": _DURATION}
HTTP: Mapping[str, Kind] = {**SERVICE, "services": _OBJECT}
UPSTREAM: Mapping[str, Kind] = {
    "type": _choice(Literal["stdio", "http", "streamable-http"]),
    "command": _TEXT,
    "args": _TEXTS,
    "env": _TEXT_BY_NAME,
    "cwd": _TEXT,
    "url": _ADDRESS,
    "headers": _HEADERS,
}
COMPANION: Mapping[str, Kind] = {"description": _TEXT, "operations": _OBJECT, "categories": _OBJECT}
FILE: Mapping[str, Kind] = {
    "$schema": _TEXT,
    "title": _TEXT,
    "description": _TEXT,
    "version": _TEXT,
    "operations": _OBJECT,
    "categories": _OBJECT,
    "http": _OBJECT,
    "mcpServers": _OBJECT,
}


def _schema() -> dict[str, JSON]:
    def obj(keys: Mapping[str, Kind], needed: Iterable[str] = (), **special: JSON) -> dict[str, JSON]:
        return {
            "type": "object",
            "properties": {**{key: kind.schema for key, kind in keys.items()}, **special},
            "patternProperties": {"^_": True},
            "additionalProperties": False,
            "required": list(needed),
        }

    def children(of: str, **special: JSON) -> dict[str, JSON]:
        return {
            "type": "object",
            "properties": special,
            "patternProperties": {"^_": True, f"^{SEGMENT.pattern}$": {"$ref": f"#/$defs/{of}"}},
            "additionalProperties": False,
        }

    def named(of: str) -> dict[str, JSON]:
        return {"type": "object", "patternProperties": {"^[^_]|^$": {"$ref": f"#/$defs/{of}"}}}

    place = {"anyOf": [PLACE["in"].schema, obj(PLACE, ["in"])]}
    params = {"param_map": {"type": "object", "additionalProperties": place}}
    handlers = [
        obj(keys, ("kind", *NEEDED[kind]), **(params if kind == "http" else {}), kind={"const": kind})
        for kind, keys in HANDLERS.items()
    ]
    kinds = {"properties": {"_kind": {"enum": ["operation", "category"]}}}
    not_index = {"propertyNames": {"not": {"const": "index"}}}
    is_leaf = {
        "if": {"required": ["_kind"]},
        "then": {"properties": {"_kind": {"const": "operation"}}},
        "else": {"anyOf": [{"required": [sign]} for sign in sorted(LEAF_SIGNS)]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "operations.json",
        **obj(
            FILE,
            operations={"allOf": [{"$ref": "#/$defs/category"}, not_index]},
            categories={"allOf": [{"$ref": "#/$defs/companions"}, not_index]},
            http={
                **obj(HTTP, services=named("service")),
                "anyOf": [{"required": ["base_url"]}, {"required": ["services"]}],
            },
            mcpServers=named("upstream"),
        ),
        "anyOf": [{"required": ["operations"]}, {"required": ["categories"]}],
        "$defs": {
            "category": children("node", _description={"type": "string"}),
            "node": {
                **kinds,
                "if": is_leaf,
                "then": {"$ref": "#/$defs/operation"},
                "else": {"$ref": "#/$defs/category"},
            },
            "companions": children("companion"),
            "companion": obj(
                COMPANION,
                operations={"$ref": "#/$defs/companionOperations"},
                categories={"$ref": "#/$defs/companions"},
            ),
            "companionOperations": children("companionOperation"),
            "companionOperation": {
                **kinds,
                "if": {"required": ["_kind"], "properties": {"_kind": {"const": "category"}}},
                "then": {"$ref": "#/$defs/category"},
                "else": {"$ref": "#/$defs/operation"},
            },
            "operation": obj(LEAF, handler={"$ref": "#/$defs/handler"}),
            "handler": {"oneOf": handlers},
            "service": obj(SERVICE, ["base_url"]),
            "upstream": {**obj(UPSTREAM), "oneOf": [{"required": ["command"]}, {"required": ["url"]}]},
        },
    }


SCHEMA: dict[str, JSON] = _schema()
"""A JSON Schema of the file, for editors; `read` finds what no schema can say."""
