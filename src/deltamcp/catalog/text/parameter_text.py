"""The parameters of a JSON Schema as text: `name?:type=default`, all on one line, or one on each line with a note.

Every schema has a text: an unknown type is written `any`, and a type that contains itself `…`. References are followed
inside the document only. Where a text has less detail, `…` stands for what it leaves out; required fields that it
leaves out are counted, `…2 required`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from deltamcp.catalog.text import clean_text, prose
from deltamcp.catalog.text.clean_text import HIDDEN_CLASS, visible, visible_line
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

_PLAIN_NAME = re.compile(r"[^\s,:?(){}" + HIDDEN_CLASS + "]+")
MAX_NAME_CHARS = 128
"""The characters of a parameter's name, beyond which `…` stands for the rest."""
_MAX_VALUE_CHARS = 500
"""The characters of a choice, a default, a pattern."""
_MAX_EXAMPLES_CHARS = 2000
_MAX_WHOLE_CHARS = 20_000
"""The characters of a description that is shown whole."""

UNBOUNDED = 1 << 30
_MAX_NESTING = 40
"""The deepest level that is visited; real schemas stay under 12."""
MAX_STEPS = 10_000
"""Nodes visited in one schema; nested references can make a small schema expand without end. Published tools take up to
1,200."""
_NAMES_PER_STEP = 8
"""Fields, alternatives or parts of a reference that take as long as the visit of a node."""


_MIN_BRANCHES = 3


class TextDetail(NamedTuple):
    """How much detail a text has. The parameters themselves are level 0, the fields of an object among them level 1."""

    depth: int
    """The deepest level whose required fields are named, where everything around them is required, too."""
    optional_depth: int
    """The deepest level whose optional fields are named, and whose fields are named inside of an optional one."""
    max_choices: int
    """Values of an enumeration that are listed; of a union as many branches, but at least `_MIN_BRANCHES`."""
    note_chars: int = 0
    """Characters of a parameter's description."""
    description_chars: int = 0
    """Characters of the tool's description."""
    max_required: int = UNBOUNDED
    """Required fields that are named in each object."""
    max_optional: int = UNBOUNDED
    """Optional parameters that are named."""
    max_nested_optional: int = UNBOUNDED
    """Optional fields that are named in each object; below `optional_depth`, if the object requires no field."""
    required_types: bool = True
    """Whether required fields have their types and choices."""
    optional_types: bool = True
    """Whether optional fields have their types, choices and defaults; objects among them are opened in any case."""
    limits: bool = False
    """Whether ranges, patterns and examples are included."""


NAMES_ONLY = TextDetail(depth=0, optional_depth=0, max_choices=0, required_types=False, optional_types=False)
"""The names of the parameters."""


class ParameterRow(NamedTuple):
    """One parameter; `text` begins with one dot for each level of nesting."""

    text: str
    note: str


class _Property(NamedTuple):
    name: str
    node: Any
    required: bool


class Parameters:
    """Writes the parameters of one schema, once: a text and the facts about it."""

    def __init__(
        self, schema: Mapping[str, JSON], detail: TextDetail, max_steps: int = MAX_STEPS, path: str = ""
    ) -> None:
        """
        Args:
            path: The path of the only parameter to write, such as `body.message`; it exists, as `has_parameter` says.
        """
        self._root = schema
        self._start = {"properties": {path: _parameter_at(schema, path)}, "required": [path]} if path else schema
        self._parameter = ""
        """The parameter that is being written."""
        self._detail = detail
        self._path_by_structure: dict[bytes, str] = {}
        self._has_notes_by_node: dict[int, bool] = {}
        self._steps_left = max_steps
        self.has_omissions: bool = False
        """Whether the text leaves out a field, a choice or the content of an object."""
        self.omitted_in: str = ""
        """The first parameter of whose fields or choices the text leaves out some."""

    @property
    def is_too_large(self) -> bool:
        """Whether the text ends where the bound of visited nodes was reached."""
        return self._steps_left <= 0

    def _may_enter(self, node: dict[str, Any], seen: tuple[int, ...]) -> bool:
        """Returns whether to visit a node: not where it contains itself, is too deep, or too many were visited."""
        self._steps_left -= 1
        return self._steps_left > 0 and len(seen) <= _MAX_NESTING and id(node) not in seen

    def _spend(self, names: int) -> None:
        """Counts the fields, the alternatives or the parts of a reference that were read at once."""
        self._steps_left -= names // _NAMES_PER_STEP

    def _omission(self, text: str = "…") -> str:
        self.has_omissions = True
        self.omitted_in = self.omitted_in or self._parameter
        return text

    # On one line

    def inline_texts(self) -> list[str]:
        """Returns `name?:type=default` for each parameter, required parameters first."""
        return self._field_texts(self._start, 0, self._detail.depth, ())

    def names(self) -> tuple[list[str], list[str]]:
        """Returns the names of the required parameters, and of the others."""
        parameters = self._properties(self._root, ())
        required = [parameter.name for parameter in parameters if parameter.required]
        return required, [parameter.name for parameter in parameters if not parameter.required]

    def type_text(self, node: JSON) -> str:
        """Returns the type of a part of the schema, with null; the fields of an object there are of level 1."""
        text = self._type_text(node, 1, self._detail.depth, ()) + self._constraints_text(node)
        resolved = self._resolve(node)
        kinds = resolved.get("type")
        has_null = any(map(_is_null, self._branches(resolved))) or (isinstance(kinds, list) and "null" in kinds)
        return f"{text}|null" if has_null and text != "null" else text

    def field(self, node: JSON, name: str) -> JSON:
        """Finds a field of an object, of the items of a list or of an alternative of a union; None if it has none."""
        found = (one.node for part in self._objects(node, ()) for one in self._properties(part, ()) if one.name == name)
        return next(found, None)

    def field_names(self, node: JSON) -> list[str]:
        """Returns the names of the fields that `field` finds."""
        return list(dict.fromkeys(one.name for part in self._objects(node, ()) for one in self._properties(part, ())))

    # A line each

    def rows(self) -> list[ParameterRow]:
        """Returns one row for each parameter; nested parameters that have notes follow in rows of their own.

        Parameters with the same note share a row. A structure that was written before is replaced by its path.
        """
        return self._rows(self._start, "", "", 0, self._detail.depth, ())

    def _rows(
        self, node: Any, dots: str, path: str, level: int, deepest: int, seen: tuple[int, ...]
    ) -> list[ParameterRow]:
        merged: list[ParameterRow] = []
        by_note: dict[str, int] = {}
        shown, omission = self._shown_fields(node, level, deepest, seen)
        for parameter in shown:
            if self.is_too_large:
                omission = omission or self._omission()
                break
            self._parameter = self._parameter if level else parameter.name
            rows = self._property_rows(parameter, dots, f"{path}{name_text(parameter.name)}", level, deepest, seen)
            text, note = rows[0]
            if len(rows) == 1 and note in by_note:
                index = by_note[note]
                merged[index] = ParameterRow(f"{merged[index].text}, {text.removeprefix(dots)}", note)
                continue
            if len(rows) == 1 and note:
                by_note[note] = len(merged)
            merged += rows
        return [*merged, ParameterRow(f"{dots}{omission}", "")] if omission else merged

    def _property_rows(
        self, parameter: _Property, dots: str, path: str, level: int, deepest: int, seen: tuple[int, ...]
    ) -> list[ParameterRow]:
        """Returns the row of a parameter, and the rows of the parameters inside it."""
        note = self._note(parameter.node)
        inside = deepest if parameter.required else min(deepest, self._detail.optional_depth)
        objects = list(self._objects(parameter.node, seen)) if level < inside else []
        if not any(self._has_notes(node, level + 1, inside, seen) for node in objects):
            return [ParameterRow(dots + self._property_text(parameter, level, deepest, seen), note)]
        # The rows below show what is in the object.
        text = dots + self._unopened_text(parameter, level, seen)
        key = msgspec.json.encode(objects)
        if key in self._path_by_structure:
            return [ParameterRow(f"{text} as {self._path_by_structure[key]}", note)]
        self._path_by_structure[key] = path
        rows = [ParameterRow(text, note)]
        for index, node in enumerate(objects):
            if index:
                rows.append(ParameterRow(f"{dots}.or", ""))
            inner = (*seen, id(node))
            rows += self._rows(node, f"{dots}.", f"{path}.", level + 1, inside, inner)
            extra = node.get("additionalProperties")
            if isinstance(extra, dict) and extra:
                value = _Property("*", extra, True)
                rows += self._property_rows(value, f"{dots}.", f"{path}.*", level + 1, inside, inner)
        return rows

    def _unopened_text(self, parameter: _Property, level: int, seen: tuple[int, ...]) -> str:
        """Returns the text of a parameter without the fields of its objects."""
        omissions = self.has_omissions, self.omitted_in
        text = self._property_text(parameter, level, level, seen)
        self.has_omissions, self.omitted_in = omissions
        return text

    def _has_notes(self, node: dict[str, Any], level: int, deepest: int, seen: tuple[int, ...]) -> bool:
        if level > deepest or not self._detail.note_chars or not self._may_enter(node, seen):
            return False
        if id(node) not in self._has_notes_by_node:
            inner = (*seen, id(node))
            self._has_notes_by_node[id(node)] = any(
                self._note(parameter.node)
                or any(self._has_notes(one, level + 1, deepest, inner) for one in self._objects(parameter.node, inner))
                for parameter in self._shown_fields(node, level, deepest, inner)[0]
            )
        return self._has_notes_by_node[id(node)]

    def _objects(self, node: Any, seen: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yields the object schemas of a parameter, of its items and of its alternatives."""
        node = self._resolve(node)
        if not self._may_enter(node, seen):
            return
        inner = (*seen, id(node))
        extra = node.get("additionalProperties")
        fields = self._properties(node, seen)
        if fields or (isinstance(extra, dict) and extra):
            yield node
        for child in (node.get("items"), *([] if fields else self._branches(node))):
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
        examples = [f"e.g. {_json_text(node['examples'], _MAX_EXAMPLES_CHARS)}"] if node.get("examples") else []
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
        """Returns the fields of an object, those of its alternatives among them; first what every one requires."""
        merged, required = self._named_fields(self._resolve(node), seen)
        parameters = [_Property(name, child, name in required) for name, child in merged.items()]
        return sorted(parameters, key=lambda parameter: not parameter.required)

    def _named_fields(self, node: dict[str, Any], seen: tuple[int, ...]) -> tuple[dict[str, Any], set[str]]:
        merged: dict[str, Any] = {}
        required: set[str] = set()
        for part in self._all_of_parts(node, seen):
            properties, needed = part.get("properties"), part.get("required")
            self._spend(sum(len(names) for names in (properties, needed) if isinstance(names, dict | list)))
            merged.update(properties if isinstance(properties, dict) else {})
            required.update(name for name in (needed if isinstance(needed, list) else ()) if isinstance(name, str))
        if (merged or node is self._start) and self._branches(node):
            inner = (*seen, id(node))
            branches = [
                self._named_fields(branch, inner) for branch in self._branches(node) if self._may_enter(branch, inner)
            ]
            for fields, _ in branches:
                merged = fields | merged
            required |= set.intersection(*(needed for _, needed in branches)) if branches else set()
        return merged, required

    def _shown_fields(self, node: Any, level: int, deepest: int, seen: tuple[int, ...]) -> tuple[list[_Property], str]:
        """Returns the fields of an object that the text names, and what it says about the others."""
        detail = self._detail
        fields = self._properties(node, seen)
        required = [field for field in fields if field.required]
        optional = fields[len(required) :]
        max_optional = detail.max_nested_optional if level else detail.max_optional
        # Of an object that must be there but requires no field, the names of optional fields are all there is to say.
        names_optional = level <= detail.optional_depth or (not required and level <= deepest)
        shown = [*required[: detail.max_required], *optional[: max_optional if names_optional else 0]]
        omitted_required = len(required) - sum(field.required for field in shown)
        omitted_optional = len(fields) - len(shown) - omitted_required
        omissions = [f"…{omitted_required} required"] if omitted_required else []
        if omitted_optional:
            omissions.append("…" if level else f"…{omitted_optional} optional")
        return shown, self._omission(", ".join(omissions)) if omissions else ""

    def _all_of_parts(self, node: dict[str, Any], seen: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yields a schema and the schemas in its `allOf`, at any depth."""
        yield node
        parts = node.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            resolved = self._resolve(part)
            if self._may_enter(resolved, seen):
                yield from self._all_of_parts(resolved, (*seen, id(resolved)))

    def _field_texts(self, node: Any, level: int, deepest: int, seen: tuple[int, ...]) -> list[str]:
        shown, omission = self._shown_fields(node, level, deepest, seen)
        texts: list[str] = []
        for parameter in shown:
            if self.is_too_large:
                omission = omission or self._omission()
                break
            self._parameter = self._parameter if level else parameter.name
            texts.append(self._property_text(parameter, level, deepest, seen))
        return [*texts, omission] if omission else texts

    def _property_text(self, parameter: _Property, level: int, deepest: int, seen: tuple[int, ...]) -> str:
        self._spend(len(parameter.name) // 32)
        name = name_text(parameter.name)
        text = name if parameter.required else f"{name}?"
        inside = deepest if parameter.required else min(deepest, self._detail.optional_depth)
        has_type = self._detail.required_types if parameter.required else self._detail.optional_types
        has_fields = not has_type and level < inside and any(self._objects(parameter.node, seen))
        if not (has_type or has_fields) or (level > self._detail.optional_depth and not parameter.required):
            self._steps_left -= 1
            return self._omission(text)
        kind = self._type_text(parameter.node, level + 1, inside, seen)
        if kind != "str":
            text += f":{kind}"
        if not isinstance(parameter.node, dict):
            return text
        return text + self._constraints_text(parameter.node) + self._default_text(parameter.node.get("default"))

    def _default_text(self, value: JSON) -> str:
        if value is None or (value in ("", [], {}) and not self._detail.limits):
            return ""
        if isinstance(value, str) and (self._detail.limits or len(value) <= 40):
            return f"={value if value.isidentifier() else _json_text(value)}"
        return f"={_json_text(value)}" if isinstance(value, int | float) or self._detail.limits else ""

    def _constraints_text(self, node: Any) -> str:
        if not self._detail.limits or not isinstance(node, dict):
            return ""
        node = self._without_null(node)
        found = ((text, node.get(key)) for key, text in _CONSTRAINT_FORMATS.items())
        limits = ", ".join(
            text.format(_constraint_text(value)) for text, value in found if value is not None and value is not False
        )
        return f"({limits})" if limits else ""

    def _without_null(self, node: dict[str, Any]) -> dict[str, Any]:
        """Returns the other branch of a union with null, merged with the union's own keywords."""
        branches = [branch for branch in self._branches(self._resolve(node)) if not _is_null(branch)]
        return {**branches[0], **node} if len(branches) == 1 else self._resolve(node)

    def _branches(self, node: dict[str, Any]) -> list[dict[str, Any]]:
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list):
                self._spend(len(node[key]))
                return [self._resolve(branch) for branch in node[key][: max(0, self._steps_left) + _MIN_BRANCHES]]
        return []

    def _type_text(self, node: Any, level: int, deepest: int, seen: tuple[int, ...]) -> str:
        """Returns the type of a value; the fields of an object in it are of `level`, and named down to `deepest`."""
        node = self._resolve(node)
        if not self._may_enter(node, seen):
            return "…"
        seen = (*seen, id(node))
        if "const" in node:
            return _json_text(node["const"])
        if isinstance(node.get("enum"), list):
            return self._choices_text(node["enum"])
        if self._branches(node):
            return self._union_text(self._type_text(one, level, deepest, seen) for one in self._alternatives(node))
        kind = node.get("type")
        if isinstance(kind, list):
            kinds = ({**node, "type": one} for one in kind if one != "null")
            return self._union_text(self._type_text(one, level, deepest, seen) for one in kinds)
        if kind == "array" or (kind is None and "items" in node):
            prefix_items = node.get("prefixItems")
            kinds_of_items = (
                [self._type_text(item, level, deepest, seen) for item in prefix_items]
                if isinstance(prefix_items, list)
                else []
            )
            items = node.get("items")
            if kinds_of_items and not items:
                return f"[{', '.join(kinds_of_items)}]"
            return f"[{self._type_text(items, level, deepest, seen)}]"
        if kind == "string" and isinstance(node.get("items"), dict) and "enum" in node["items"]:
            # JSON Schema ignores `items` of a string, but its author meant these choices.
            return self._type_text(node["items"], level, deepest, seen)
        if kind == "object" or "properties" in node or "allOf" in node:
            return self._object_text(node, level, deepest, seen)
        return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"

    def _alternatives(self, node: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the branches of a union but null, each with the fields that the union has beside them."""
        branches = [branch for branch in self._branches(node) if not _is_null(branch)]
        if not isinstance(node.get("properties"), dict):
            return branches
        base = {key: value for key, value in node.items() if key not in ("anyOf", "oneOf")}
        return [{**base, "allOf": [branch]} for branch in branches]

    def _union_text(self, kinds: Iterable[str]) -> str:
        distinct = list(dict.fromkeys(kinds))
        shown = distinct[: max(_MIN_BRANCHES, self._detail.max_choices)]
        return "|".join([*shown, *([self._omission()] if len(distinct) > len(shown) else [])]) or "null"

    def _choices_text(self, values: list[JSON]) -> str:
        choices = values if self._detail.limits else [value for value in values if value is not None]
        shown = [_json_text(value) for value in choices[: self._detail.max_choices]]
        return "|".join([*shown, *([self._omission()] if len(choices) > len(shown) else [])])

    def _object_text(self, node: dict[str, Any], level: int, deepest: int, seen: tuple[int, ...]) -> str:
        extra, patterns = node.get("additionalProperties"), node.get("patternProperties")
        if level > deepest:
            has_content = self._properties(node, seen) or (isinstance(extra, dict) and extra) or patterns
            return self._omission("{…}") if has_content else "{}"
        parts = self._field_texts(node, level, deepest, seen)
        for pattern, child in patterns.items() if isinstance(patterns, dict) else ():
            parts.append(f"/{_constraint_text(pattern)}/:{self._type_text(child, level + 1, deepest, seen)}")
        if isinstance(extra, dict) and extra:
            parts.append(f"*:{self._type_text(extra, level + 1, deepest, seen)}")
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
            self._spend(reference.count("/"))
            for part in reference[1:].split("/", _MAX_NESTING)[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
            node = found
        return {}


def has_parameter(schema: Mapping[str, JSON], path: str) -> bool:
    """Returns whether a schema has a parameter at a path, such as `body.message`."""
    return _parameter_at(schema, path) is not None


def deepest_names(schema: Mapping[str, JSON], path: str) -> tuple[str, list[str]]:
    """Returns how much of a path there is in a schema, and the names of the parameters there."""
    parameters = Parameters(schema, NAMES_ONLY)
    node: JSON = schema
    around: list[str] = []
    for name in path.split("."):
        inner = parameters.field(node, name)
        if inner is None:
            break
        node = inner
        around.append(name)
    return ".".join(around), parameters.field_names(node)


def _parameter_at(schema: Mapping[str, JSON], path: str) -> JSON:
    parameters = Parameters(schema, NAMES_ONLY)
    node: JSON = schema
    for name in path.split("."):
        node = parameters.field(node, name)
    return node


def parameter_names(schema: Mapping[str, JSON]) -> tuple[list[str], list[str]]:
    """Returns the names of the required parameters of a schema, and of the others."""
    return Parameters(schema, NAMES_ONLY).names()


def description_text(text: JSON, limit: int) -> str:
    """Returns a description, cut to `limit` characters; `UNBOUNDED` keeps every word, 0 none."""
    if not isinstance(text, str) or not limit:
        return ""
    if limit != UNBOUNDED:
        return prose.cut(text, limit)
    # Lines of ours begin without a space, so that no description can imitate one.
    return prose.drop_blank_lines(clean_text.cut(text, _MAX_WHOLE_CHARS)).replace("\n", "\n ")


def name_text(name: str) -> str:
    """Returns the name of a field, as JSON where it has spaces or other characters that a line cannot hold."""
    return clean_text.cut(name, MAX_NAME_CHARS) if _PLAIN_NAME.fullmatch(name) else _json_text(name, MAX_NAME_CHARS)


def _constraint_text(value: JSON) -> str:
    return clean_text.cut(visible_line(str(value)[: _MAX_VALUE_CHARS + 1]), _MAX_VALUE_CHARS)


def _is_null(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "null" or node.get("enum") == [None]


def _json_text(value: JSON, limit: int = _MAX_VALUE_CHARS) -> str:
    # Escapes make a text longer, so that it can be cut before they are written.
    return clean_text.cut(visible(msgspec.json.encode(value).decode()[: limit + 1]), limit)
