"""The parameters of a JSON Schema as text: `name?:type=default`, all on one line, or one on each line with a note.

Every schema has a text: an unknown type is written `any`, and a type that contains itself `…`. References are followed
inside the document only.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from deltamcp.catalog import prose
from deltamcp.values import JSON

_TYPES = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "null": "null"}
_CONSTRAINT_FORMATS = {
    "minimum": ">={}",
    "maximum": "<={}",
    "exclusiveMinimum": ">{}",
    "exclusiveMaximum": "<{}",
    "multipleOf": "multiple of {}",
    "minLength": "{}+ chars",
    "maxLength": "up to {} chars",
    "minItems": "{}+ items",
    "maxItems": "up to {} items",
    "minProperties": "{}+ keys",
    "maxProperties": "up to {} keys",
    "uniqueItems": "unique",
    "pattern": "/{}/",
    "format": "{}",
    "contentEncoding": "{}",
    "contentMediaType": "{}",
}
"""The texts of JSON Schema's other constraints on a value."""

UNBOUNDED = 1 << 30
_MAX_NESTING = 40
"""The deepest level that is visited; real schemas stay under 12."""
_MAX_STEPS = 50_000
"""Nodes visited in one schema; nested references can make a small schema expand without end."""


class TextDetail(NamedTuple):
    """How much detail a text has."""

    depth: int
    """Levels of nested objects that are written out."""
    max_choices: int
    """Values of an enumeration that are listed."""
    note_chars: int
    """Characters of a parameter's description."""
    description_chars: int
    """Characters of the tool's description."""
    limits: bool = False
    """Whether ranges, patterns and examples are included."""


NAMES_ONLY = TextDetail(depth=0, max_choices=3, note_chars=0, description_chars=0)
"""Names and types without notes."""


class ParameterRow(NamedTuple):
    """One parameter; `text` begins with one dot for each level of nesting."""

    text: str
    note: str


class _Property(NamedTuple):
    name: str
    node: Any
    required: bool


class Parameters:
    """Writes the parameters of one schema."""

    def __init__(self, schema: Mapping[str, JSON], detail: TextDetail) -> None:
        self._root = schema
        self._detail = detail
        self._path_by_structure: dict[bytes, str] = {}
        self._has_notes_by_node: dict[int, bool] = {}
        self._steps_left = _MAX_STEPS

    def _may_enter(self, node: dict[str, Any], seen: tuple[int, ...]) -> bool:
        """Returns whether to visit a node: not where it contains itself, is too deep, or too many were visited."""
        self._steps_left -= 1
        return self._steps_left > 0 and len(seen) <= _MAX_NESTING and id(node) not in seen

    # On one line

    def inline_texts(self) -> list[str]:
        """Returns `name?:type=default` for each parameter, required parameters first."""
        return [
            self._property_text(parameter, self._detail.depth, ()) for parameter in self._properties(self._root, ())
        ]

    def names(self) -> tuple[list[str], list[str]]:
        """Returns the names of the required parameters, and of the others."""
        parameters = self._properties(self._root, ())
        required = [parameter.name for parameter in parameters if parameter.required]
        return required, [parameter.name for parameter in parameters if not parameter.required]

    # A line each

    def rows(self) -> list[ParameterRow]:
        """Returns one row for each parameter; nested parameters that have notes follow in rows of their own.

        Parameters with the same note share a row. A structure that was written before is replaced by its path.
        """
        return self._rows(self._root, "", "", self._detail.depth, ())

    def _rows(self, node: Any, dots: str, path: str, depth: int, seen: tuple[int, ...]) -> list[ParameterRow]:
        merged: list[ParameterRow] = []
        by_note: dict[str, int] = {}
        for parameter in self._properties(node, seen):
            rows = self._property_rows(parameter, dots, f"{path}{parameter.name}", depth, seen)
            text, note = rows[0]
            if len(rows) == 1 and note in by_note:
                index = by_note[note]
                merged[index] = ParameterRow(f"{merged[index].text}, {text.removeprefix(dots)}", note)
                continue
            if len(rows) == 1 and note:
                by_note[note] = len(merged)
            merged += rows
        return merged

    def _property_rows(
        self, parameter: _Property, dots: str, path: str, depth: int, seen: tuple[int, ...]
    ) -> list[ParameterRow]:
        """Returns the row of a parameter, and the rows of the parameters inside it."""
        note = self._note(parameter.node)
        objects = list(self._objects(parameter.node, seen)) if depth > 0 else []
        if not any(self._has_notes(node, depth, seen) for node in objects):
            return [ParameterRow(dots + self._property_text(parameter, depth, seen), note)]
        key = msgspec.json.encode(objects)
        if key in self._path_by_structure:
            return [
                ParameterRow(f"{dots}{self._property_text(parameter, 0, seen)} as {self._path_by_structure[key]}", note)
            ]
        self._path_by_structure[key] = path
        rows = [ParameterRow(dots + self._property_text(parameter, 0, seen), note)]
        for index, node in enumerate(objects):
            if index:
                rows.append(ParameterRow(f"{dots}.or", ""))
            inner = (*seen, id(node))
            rows += self._rows(node, f"{dots}.", f"{path}.", depth - 1, inner)
            extra = node.get("additionalProperties")
            if isinstance(extra, dict) and extra:
                rows += self._property_rows(_Property("*", extra, True), f"{dots}.", f"{path}.*", depth - 1, inner)
        return rows

    def _has_notes(self, node: dict[str, Any], depth: int, seen: tuple[int, ...]) -> bool:
        if depth <= 0 or not self._detail.note_chars or not self._may_enter(node, seen):
            return False
        if id(node) not in self._has_notes_by_node:
            inner = (*seen, id(node))
            self._has_notes_by_node[id(node)] = any(
                self._note(parameter.node)
                or any(self._has_notes(one, depth - 1, inner) for one in self._objects(parameter.node, inner))
                for parameter in self._properties(node, inner)
            )
        return self._has_notes_by_node[id(node)]

    def _objects(self, node: Any, seen: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yields the object schemas of a parameter, of its items and of its alternatives."""
        node = self._resolve(node)
        if not self._may_enter(node, seen):
            return
        inner = (*seen, id(node))
        extra = node.get("additionalProperties")
        if self._properties(node, seen) or (isinstance(extra, dict) and extra):
            yield node
        for child in (node.get("items"), *self._branches(node)):
            if isinstance(child, dict):
                yield from self._objects(child, inner)

    def _note(self, node: Any) -> str:
        if not isinstance(node, dict) or not self._detail.note_chars:
            return ""
        text = node.get("description") or self._resolve(node).get("description")
        note = description_text(text, self._detail.note_chars)
        if not self._detail.limits:
            return note
        parts = dict.fromkeys([note, *self._inner_notes(node, ())])
        examples = [f"e.g. {_json_text(node['examples'])}"] if node.get("examples") else []
        return " ".join(filter(None, [*parts, *examples]))

    def _inner_notes(self, node: Any, seen: tuple[int, ...]) -> Iterator[str]:
        """Yields the descriptions of a list's items, a map's values and a union's branches, not of their properties."""
        node = self._resolve(node)
        if not self._may_enter(node, seen):
            return
        seen = (*seen, id(node))
        inside = (node.get("items"), node.get("additionalProperties"), node.get("propertyNames"))
        for child in (*inside, *self._branches(node)):
            if isinstance(child, dict):
                yield description_text(self._resolve(child).get("description"), self._detail.note_chars)
                yield from self._inner_notes(child, seen)

    # Names, types, defaults

    def _properties(self, node: Any, seen: tuple[int, ...]) -> list[_Property]:
        merged: dict[str, Any] = {}
        required: set[str] = set()
        for part in self._all_of_parts(self._resolve(node), seen):
            properties, needed = part.get("properties"), part.get("required")
            merged.update(properties if isinstance(properties, dict) else {})
            required.update(name for name in (needed if isinstance(needed, list) else ()) if isinstance(name, str))
        parameters = [_Property(name, child, name in required) for name, child in merged.items()]
        return sorted(parameters, key=lambda parameter: not parameter.required)

    def _all_of_parts(self, node: dict[str, Any], seen: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yields a schema and the schemas in its `allOf`, at any depth."""
        yield node
        parts = node.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            resolved = self._resolve(part)
            if self._may_enter(resolved, seen):
                yield from self._all_of_parts(resolved, (*seen, id(resolved)))

    def _property_text(self, parameter: _Property, depth: int, seen: tuple[int, ...]) -> str:
        kind = self._type_text(parameter.node, depth, seen)
        text = parameter.name if parameter.required else f"{parameter.name}?"
        if kind != "str":
            text += f":{kind}"
        if not isinstance(parameter.node, dict):
            return text
        limits = self._constraints_text(parameter.node) if self._detail.limits else ""
        return f"{text}{f'({limits})' if limits else ''}{self._default_text(parameter.node.get('default'))}"

    def _default_text(self, value: JSON) -> str:
        if value is None or (value in ("", [], {}) and not self._detail.limits):
            return ""
        if isinstance(value, str) and (self._detail.limits or len(value) <= 40):
            return f"={value if value.isidentifier() else _json_text(value)}"
        return f"={_json_text(value)}" if isinstance(value, int | float) or self._detail.limits else ""

    def _constraints_text(self, node: dict[str, Any]) -> str:
        node = self._without_null(node)
        found = ((text, node.get(key)) for key, text in _CONSTRAINT_FORMATS.items())
        return ", ".join(text.format(value) for text, value in found if value is not None and value is not False)

    def _without_null(self, node: dict[str, Any]) -> dict[str, Any]:
        """Returns the other branch of a union with null, merged with the union's own keywords."""
        branches = [branch for branch in self._branches(self._resolve(node)) if not _is_null(branch)]
        return {**branches[0], **node} if len(branches) == 1 else self._resolve(node)

    def _branches(self, node: dict[str, Any]) -> list[dict[str, Any]]:
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list):
                return [self._resolve(branch) for branch in node[key]]
        return []

    def _type_text(self, node: Any, depth: int, seen: tuple[int, ...]) -> str:
        node = self._resolve(node)
        if not self._may_enter(node, seen):
            return "…"
        seen = (*seen, id(node))
        if "const" in node:
            return _json_text(node["const"])
        if isinstance(node.get("enum"), list):
            return self._choices_text(node["enum"])
        branches = self._branches(node)
        if branches:
            return _union_text(self._type_text(branch, depth, seen) for branch in branches if not _is_null(branch))
        kind = node.get("type")
        if isinstance(kind, list):
            return _union_text(self._type_text({**node, "type": one}, depth, seen) for one in kind if one != "null")
        if kind == "array" or (kind is None and "items" in node):
            prefix_items = node.get("prefixItems")
            kinds = (
                [self._type_text(item, depth, seen) for item in prefix_items] if isinstance(prefix_items, list) else []
            )
            items = node.get("items")
            return f"[{', '.join(kinds)}]" if kinds and not items else f"[{self._type_text(items, depth, seen)}]"
        if kind == "string" and isinstance(node.get("items"), dict) and "enum" in node["items"]:
            # JSON Schema ignores `items` of a string, but its author meant these choices.
            return self._type_text(node["items"], depth, seen)
        if kind == "object" or "properties" in node or "allOf" in node:
            return self._object_text(node, depth, seen)
        return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"

    def _choices_text(self, values: list[JSON]) -> str:
        choices = values if self._detail.limits else [value for value in values if value is not None]
        shown = [_json_text(value) for value in choices[: self._detail.max_choices]]
        return "|".join(shown) + ("|…" if len(values) > self._detail.max_choices else "")

    def _object_text(self, node: dict[str, Any], depth: int, seen: tuple[int, ...]) -> str:
        properties = self._properties(node, seen)
        extra = node.get("additionalProperties")
        if depth <= 0 and (properties or extra):
            return "{…}"
        parts = [self._property_text(parameter, depth - 1, seen) for parameter in properties]
        patterns = node.get("patternProperties")
        for pattern, child in patterns.items() if isinstance(patterns, dict) else ():
            parts.append(f"/{pattern}/:{self._type_text(child, depth - 1, seen)}")
        if isinstance(extra, dict) and extra:
            parts.append(f"*:{self._type_text(extra, depth - 1, seen)}")
        return "{" + ", ".join(parts) + "}"

    def _resolve(self, node: Any) -> dict[str, Any]:
        """Follows the references of a node inside the document; fetches nothing."""
        for _ in range(_MAX_NESTING):
            if not isinstance(node, dict):
                return {}
            reference = node.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#"):
                return node
            found: Any = self._root
            for part in reference[1:].split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
            node = found
        return {}


def parameter_names(schema: Mapping[str, JSON]) -> tuple[list[str], list[str]]:
    """Returns the names of the required parameters of a schema, and of the others."""
    return Parameters(schema, NAMES_ONLY).names()


def description_text(text: JSON, limit: int) -> str:
    """Returns a description, cut to `limit` characters; `UNBOUNDED` keeps every word, 0 none."""
    if not isinstance(text, str) or not limit:
        return ""
    return prose.drop_blank_lines(text) if limit == UNBOUNDED else prose.cut(text, limit)


def _union_text(kinds: Iterator[str]) -> str:
    return "|".join(dict.fromkeys(kinds)) or "null"


def _is_null(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "null" or node.get("enum") == [None]


def _json_text(value: JSON) -> str:
    return msgspec.json.encode(value).decode()
