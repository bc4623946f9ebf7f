"""Schemas of a document as JSON Schema 2020-12: those of OpenAPI 3.0 and Swagger 2.0 are a dialect of their own.

A component is converted once and shared by all operations that refer to it. Where it is small it takes the reference's
place; otherwise it is a definition of the operation's schema, so that one that contains itself needs no cut.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from deltamcp.catalog.text.clean_text import clean_excerpt
from deltamcp.sources.openapi.document import Found, OpenApiDocument, ReferenceFaultError
from deltamcp.values import JSON

_MAX_INLINE = 12
"""The values of a component that takes the place of its references: a definition and a reference to it cost as much."""
_MAX_DEPTH = 100
_MAX_DESCRIPTION_CHARS = 2_000
_MAX_EXAMPLE_CHARS = 80
_MAX_DEFAULT_CHARS = 200
_MAX_PATTERN_CHARS = 500
_MAX_NAME_CHARS = 40
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_PREFIX = "#/$defs/"

_TYPES: Mapping[str, str] = {
    **{one: one for one in ("string", "number", "integer", "boolean", "array", "object", "null")},
    # What people write although no version of the specification has it.
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "file": "string",
}
_DROPPED_FORMATS = frozenset({"int32", "int64", "float", "double", "string", "binary", "byte", "password"})
"""Formats that tell a model nothing that the type does not."""


class Converted(NamedTuple):
    """A schema of JSON Schema 2020-12 whose references are to definitions by name."""

    schema: Any
    names: tuple[str, ...]
    """The definitions that it refers to."""
    size: int
    """The values in it."""


class Schemas:
    """The schemas of one document, as requests have them or as responses do."""

    def __init__(self, document: OpenApiDocument, is_request: bool = True) -> None:
        self._document = document
        self.is_request = is_request
        """Whether what is only read is left out, else what is only written."""
        self._names: dict[str, str] = {}
        """The name of a definition by the absolute reference to it."""
        self._targets: dict[str, Found] = {}
        self._definitions: dict[str, Converted] = {}

    def convert(self, schema: Any, base: str) -> Converted:
        """Converts a schema of the document.

        Raises:
            ReferenceFaultError: a reference in it leads nowhere.
        """
        conversion = _Conversion(self, base)
        made = conversion.convert(schema, base, 0)
        return Converted(made, tuple(dict.fromkeys(conversion.names)), conversion.size)

    def definitions(self, names: Iterable[str], max_values: int) -> dict[str, JSON]:
        """Returns definitions and those that they refer to, the nearest first.

        Those for which there is no room admit every value.
        """
        found: dict[str, JSON] = {}
        pending, left = [*names], max_values
        while pending:
            following: list[str] = []
            for name in pending:
                if name in found:
                    continue
                converted = self._definition(name)
                if converted is None or converted.size > left:
                    found[name] = True
                    continue
                left -= converted.size
                found[name] = converted.schema
                following += converted.names
            pending = following
        return found

    def _definition(self, name: str) -> Converted | None:
        """Returns a definition; None if it refers to something that is not there."""
        known = self._definitions.get(name)
        if known is None:
            target = self._targets[name]
            try:
                known = self.convert(target.value, target.base)
            except ReferenceFaultError:
                known = Converted(True, (), 1)
            self._definitions[name] = known
        return known

    def refer(self, found: Found) -> str:
        """Returns the name of the definition of a component."""
        name = self._names.get(found.reference)
        if name is None:
            last = found.reference.rpartition("/")[2].replace("~1", "_").replace("~0", "_")
            stem = _NOT_NAME.sub("_", last).strip("_")[-_MAX_NAME_CHARS:] or "schema"
            name, number = stem, 1
            while name in self._targets:
                number += 1
                name = f"{stem}_{number}"
            self._names[found.reference] = name
            self._targets[name] = found
        return name

    def follow(self, schema: Any, base: str) -> Found:
        """Returns what a schema refers to, through all references."""
        return self._document.follow(schema, base)

    @property
    def has_old_schemas(self) -> bool:
        return self._document.version.old_schemas


Convert: TypeAlias = Callable[["_Conversion", Any, str, int], Any]


class _Conversion:
    """The conversion of one schema."""

    def __init__(self, schemas: Schemas, base: str) -> None:
        self._schemas = schemas
        self._base = base
        self.names: list[str] = []
        self.size = 0

    def convert(self, schema: Any, base: str, depth: int) -> JSON:
        self.size += 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return {}
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str):
            return self._convert_reference(schema, reference, base, depth)
        made: dict[str, JSON] = {}
        for key, value in schema.items():
            convert = _KEYWORDS.get(key)
            if convert is not None:
                converted = convert(self, value, base, depth)
                if converted is not UNSET:
                    self.size += 1
                    made[key] = converted
        if "required" in made and isinstance(schema.get("properties"), dict):
            hidden = schema["properties"].keys() - made.get("properties", {}).keys()
            made["required"] = [name for name in made["required"] if name not in hidden]
            if not made["required"]:
                del made["required"]
        if self._schemas.has_old_schemas:
            _modernize(schema, made)
        if "examples" not in made and _is_short(schema.get("example"), _MAX_EXAMPLE_CHARS):
            made["examples"] = [schema["example"]]
        _constrain_discriminator(schema, made)
        return made

    def _convert_reference(self, schema: dict[str, Any], reference: str, base: str, depth: int) -> JSON:
        found = self._schemas.follow({"$ref": reference}, base)
        if _is_small(found.value):
            made = self.convert(found.value, found.base, depth + 1)
        else:
            name = self._schemas.refer(found)
            self.names.append(name)
            made = {"$ref": f"{_PREFIX}{name}"}
        beside = {
            key: value for key, value in schema.items() if key not in ("$ref", "$dynamicRef", "readOnly", "writeOnly")
        }
        if not beside or not isinstance(made, dict):
            return made
        # OpenAPI 3.0 ignores what is beside a reference, but those who write it mean it.
        own = self.convert(beside, base, depth + 1)
        own = own if isinstance(own, dict) else {}
        if schema.get("nullable") is True and self._schemas.has_old_schemas:
            return {**_texts(own), "anyOf": [made, {"type": "null"}]}
        if "$ref" in made or not own.keys() & made.keys() - {"description", "default", "examples", "deprecated"}:
            return {**made, **own}
        return {**_texts(own), "allOf": [made, {key: value for key, value in own.items() if key not in _TEXTS}]}

    def is_hidden(self, schema: Any, base: str) -> bool:
        """Whether a property is left out: it is only read, in a request, or only written, in a response."""
        if not isinstance(schema, dict):
            return False
        key = "readOnly" if self._schemas.is_request else "writeOnly"
        if schema.get(key) is True:
            return True
        if "$ref" in schema:
            value = self._schemas.follow(schema, base).value
            return isinstance(value, dict) and value.get(key) is True
        return False


_TEXTS = ("description", "default", "examples", "deprecated")


def _texts(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    return {key: schema[key] for key in _TEXTS if key in schema}


def _is_small(value: Any) -> bool:
    """Whether a component has few values and no reference, so that it can stand where it is referred to."""
    if not isinstance(value, dict):
        return True
    pending: list[Any] = [value]
    size = 0
    while pending:
        node = pending.pop()
        members = node.values() if isinstance(node, dict) else node
        if isinstance(node, dict) and ("$ref" in node or "$dynamicRef" in node):
            return False
        size += len(node)
        if size > _MAX_INLINE:
            return False
        pending += [member for member in members if isinstance(member, dict | list)]
    return True


def _is_short(value: Any, max_chars: int) -> bool:
    if value is None or (isinstance(value, dict | list) and not value):
        return False
    if isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return len(value) <= max_chars
    return len(value) <= max_chars and len(msgspec.json.encode(value)) <= max_chars


# Keywords


def _schema(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return conversion.convert(value, base, depth + 1) if isinstance(value, dict | bool) else UNSET


def _schemas(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, list) or not value:
        return UNSET
    return [conversion.convert(one, base, depth + 1) for one in value]


def _schemas_by_name(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, dict):
        return UNSET
    return {name: conversion.convert(one, base, depth + 1) for name, one in value.items()}


def _properties(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, dict):
        return UNSET
    return {
        name: conversion.convert(one, base, depth + 1)
        for name, one in value.items()
        if not conversion.is_hidden(one, base)
    }


def _items(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if isinstance(value, list):  # JSON Schema before 2020-12 has the items of tuples here
        return UNSET
    return _schema(conversion, value, base, depth)


def _type(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    known = list(dict.fromkeys(_TYPES[one] for one in names if isinstance(one, str) and one in _TYPES))
    return UNSET if not known else known[0] if len(known) == 1 else known


def _enum(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, list) or not value:
        return UNSET
    conversion.size += len(value)
    distinct = {msgspec.json.encode(one): one for one in value}
    return list(distinct.values())


def _anything(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return value


def _default(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return value if value is None or _is_short(value, _MAX_DEFAULT_CHARS) else UNSET


def _examples(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    first = value[:1] if isinstance(value, list) else []
    return first if first and _is_short(first[0], _MAX_EXAMPLE_CHARS) else UNSET


def _names(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, list):
        return UNSET
    names = list(dict.fromkeys(one for one in value if isinstance(one, str)))
    return names or UNSET


def _names_by_name(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if not isinstance(value, dict):
        return UNSET
    return {
        name: [one for one in names if isinstance(one, str)] for name, names in value.items() if isinstance(names, list)
    }


def _number(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else UNSET


def _positive(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else UNSET


def _count(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else UNSET


def _flag(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return True if value is True else UNSET


def _pattern(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    is_short = isinstance(value, str) and 0 < len(value) <= _MAX_PATTERN_CHARS
    return value if is_short and _compiles(value) else UNSET


@functools.lru_cache(maxsize=1_000)
def _compiles(pattern: str) -> bool:
    """Whether a pattern is one of JSON Schema; with another one, nothing of the schema around it could be checked."""
    import jsonschema_rs  # 15 ms to import

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern})
    except ValueError:
        return False
    return True


def _format(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return (
        value
        if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARS and value not in _DROPPED_FORMATS
        else UNSET
    )


def _description(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return clean_excerpt(value, _MAX_DESCRIPTION_CHARS) or UNSET if isinstance(value, str) else UNSET


def _short_text(conversion: _Conversion, value: Any, base: str, depth: int) -> Any:
    return value if isinstance(value, str) and len(value) <= _MAX_NAME_CHARS else UNSET


_KEYWORDS: Mapping[str, Convert] = {
    "type": _type,
    "enum": _enum,
    "const": _anything,
    "description": _description,
    "properties": _properties,
    "required": _names,
    "items": _items,
    "additionalProperties": _schema,
    "allOf": _schemas,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "not": _schema,
    "if": _schema,
    "then": _schema,
    "else": _schema,
    "prefixItems": _schemas,
    "contains": _schema,
    "minContains": _count,
    "maxContains": _count,
    "propertyNames": _schema,
    "patternProperties": _schemas_by_name,
    "dependentSchemas": _schemas_by_name,
    "dependentRequired": _names_by_name,
    "unevaluatedProperties": _schema,
    "unevaluatedItems": _schema,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "multipleOf": _positive,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "minProperties": _count,
    "maxProperties": _count,
    "uniqueItems": _flag,
    "pattern": _pattern,
    "format": _format,
    "contentEncoding": _short_text,
    "contentMediaType": _short_text,
    "default": _default,
    "examples": _examples,
    "deprecated": _flag,
}
"""What a schema of 2020-12 keeps of each keyword. `contentSchema` is about a text's content; `title`, `xml`,
`externalDocs`, `$id` and extensions say nothing about a value."""


def _modernize(schema: Mapping[str, Any], made: dict[str, JSON]) -> None:
    """Writes what OpenAPI 3.0 and Swagger 2.0 say in their own way as JSON Schema does."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in made:
            made[exclusive] = made.pop(bound)
    if schema.get("nullable") is True or schema.get("x-nullable") is True:
        _add_null(made)


def _add_null(made: dict[str, JSON]) -> None:
    if isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    kind = made.get("type")
    if isinstance(kind, str):
        made["type"] = [kind, "null"] if kind != "null" else kind
    elif kind is None and any(key in made for key in ("allOf", "anyOf", "oneOf")):
        inner = {key: value for key, value in made.items() if key not in _TEXTS}
        for key in inner:
            del made[key]
        if isinstance(inner.get("anyOf"), list) and len(inner) == 1:
            made["anyOf"] = [*inner["anyOf"], {"type": "null"}]
        else:
            made["anyOf"] = [inner, {"type": "null"}]


def _constrain_discriminator(schema: Mapping[str, Any], made: dict[str, JSON]) -> None:
    """Writes a discriminator as the choices of its property, which `mapping` names, in each branch or in the schema."""
    discriminator = schema.get("discriminator")
    if not isinstance(discriminator, dict):
        return
    name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
    if not isinstance(name, str):
        return
    by_target: dict[str, list[str]] = {}
    for value, target in mapping.items() if isinstance(mapping, dict) else ():
        if isinstance(target, str):
            by_target.setdefault(target.rpartition("/")[2], []).append(value)
    key = next((key for key in ("oneOf", "anyOf") if isinstance(schema.get(key), list) and key in made), None)
    if key is None:
        values = [value for values in by_target.values() for value in values]
        properties = made.get("properties")
        own = properties.get(name) if isinstance(properties, dict) else None
        if (
            isinstance(properties, dict)
            and values
            and isinstance(own, dict)
            and "enum" not in own
            and "const" not in own
            and "$ref" not in own
        ):
            made["properties"] = {**properties, name: {**own, "enum": values}}
        return
    branches: list[JSON] = []
    for given, branch in zip(schema[key], made[key], strict=True):
        reference = given.get("$ref") if isinstance(given, dict) else None
        last = reference.rpartition("/")[2] if isinstance(reference, str) else ""
        values = by_target.get(last) or ([last] if last else [])
        if not values or not isinstance(branch, dict):
            branches.append(branch)
            continue
        choice: JSON = {"const": values[0]} if len(values) == 1 else {"enum": values}
        branches.append({"allOf": [branch], "properties": {name: choice}, "required": [name]})
    made[key] = branches
