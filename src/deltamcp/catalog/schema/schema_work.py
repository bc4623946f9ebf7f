"""The work of validating values against a JSON Schema, counted before a validator does it.

The validator is compiled code, which nothing can interrupt: 40 definitions that each refer twice to the next one keep
it busy for ever. So the visits of a value by a part of the schema are added up first. What many paths lead to is
counted once and multiplied, so that counting takes no longer than the schema and the value are large.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from deltamcp.values import JSON
from deltamcp.work import Work

_MAX_CHAIN = 100
"""Parts of a schema that apply to one value, each inside the one before; real schemas stay under 12."""
_CONTENT_PER_VISIT = 8
"""Constants, choices and required names that take as long as a visit."""
_VISITS_PER_STATE = 0.6
"""Each character may lead a regular expression through all its states, which takes 30 ns each; a visit takes 50."""
_VISITS_PER_PLAIN_CHAR = 0.05
"""The same for a pattern of one repeated class, which is in one state at any time."""
_MAX_STATES = 1_000_000

_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_BY_NAME = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_EACH_MEMBER = ("additionalProperties", "unevaluatedProperties")
_EACH_ITEM = ("additionalItems", "contains", "unevaluatedItems")
_CONTENT = ("enum", "const", "required", "dependentRequired", "type")
_ANCHORS = ("$anchor", "$dynamicAnchor")

_ONE_CLASS = re.compile(r"\^?(?:\[[^\]]*\]|\\?.)(?:\{\d*,?\d*\}|[*+])?\$?", re.DOTALL)
_ATOM = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d*),?(\d*)\}|.", re.DOTALL)


class UnboundedSchemaError(Exception):
    """The work of validating against a schema cannot be bounded, or the schema is too large to find out."""


class _Part:
    """A part of a schema, and the parts that apply where it does."""

    __slots__ = (
        "content",
        "each_item",
        "each_member",
        "first_items",
        "is_repeated",
        "member_names",
        "members",
        "on_leaf",
        "per_char",
        "same",
        "size",
    )

    def __init__(self) -> None:
        self.same: list[_Part] = []
        """Parts that apply to the same value."""
        self.members: dict[str, _Part] = {}
        self.each_member: list[_Part] = []
        self.member_names: list[_Part] = []
        self.first_items: list[list[_Part]] = []
        """Lists of parts that apply to the items in order."""
        self.each_item: list[_Part] = []
        self.content = 0
        """The size of constants and choices, in visits."""
        self.per_char = 0.0
        """The work of the patterns for each character, in visits."""
        self.is_repeated = False
        """Whether a validator visits the parts again, to find out what they have evaluated."""
        self.size: float | None = None
        self.on_leaf: tuple[float, float] | None = None

    def all_parts(self) -> Iterator["_Part"]:
        yield from self.same
        yield from self.members.values()
        yield from self.each_member
        yield from self.member_names
        for parts in self.first_items:
            yield from parts
        yield from self.each_item


class SchemaWork:
    """Counts the visits that a validator makes."""

    def __init__(self, schema: Mapping[str, JSON], work: Work) -> None:
        """
        Raises:
            UnboundedSchemaError: the schema applies to a value again and again, or refers to what it does not contain.
            WorkLimitError: the schema is larger than the work allows.
        """
        self._root = schema
        self._work = work
        self._anchors: dict[str, list[Any]] = {}
        self._parts: dict[int, _Part] = {}
        try:
            self._find_anchors()
            self._start = self._part(schema)
            self._size = self._expanded_size(self._start, set())
            for part in self._parts.values():
                self._leaf_work(part, 0)
        except RecursionError:
            raise UnboundedSchemaError from None

    def visits(self, value: JSON, count: int, work: Work) -> float:
        """Returns how many visits the validation of a value takes at most; `count` is how many values there are in it.

        Raises:
            WorkLimitError: it takes too much work to find out.
        """
        return self._visits(self._start, value, {}, work) if self._size == math.inf else self._size * count

    def exact_visits(self, value: JSON, work: Work) -> float:
        """Returns the same number, without those visits that parts of the schema would only make to other values."""
        return self._visits(self._start, value, {}, work)

    # The schema

    def _find_anchors(self) -> None:
        """Finds the names that references use. A part with an address of its own would change what references mean."""
        pending: list[Any] = [self._root]
        while pending:
            node = pending.pop()
            self._work.spend()
            if isinstance(node, dict):
                for key in _ANCHORS:
                    if isinstance(node.get(key), str):
                        self._anchors.setdefault(node[key], []).append(node)
                if node is not self._root and (isinstance(node.get("$id"), str) or isinstance(node.get("id"), str)):
                    raise UnboundedSchemaError
                pending.extend(node.values())
            elif isinstance(node, list):
                pending.extend(node)
            elif isinstance(node, str):
                self._work.scan(len(node))

    def _part(self, schema: Any) -> _Part:
        known = self._parts.get(id(schema))
        if known is not None:
            return known
        part = self._parts[id(schema)] = _Part()
        if not isinstance(schema, dict):
            return part
        self._work.spend()
        for keyword in _REFERENCES:
            if keyword in schema:
                part.same += map(self._part, self._targets(keyword, schema[keyword]))
        for keyword in _SAME_VALUE_LISTS:
            part.same += self._part_list(schema.get(keyword))
        for keyword in _SAME_VALUE:
            if keyword in schema:
                part.same.append(self._part(schema[keyword]))
        for keyword in _SAME_VALUE_BY_NAME:
            part.same += self._part_dict(schema.get(keyword)).values()
        part.members = self._part_dict(schema.get("properties"))
        patterns = self._part_dict(schema.get("patternProperties"))
        part.each_member = [*patterns.values(), *(self._part(schema[key]) for key in _EACH_MEMBER if key in schema)]
        if "propertyNames" in schema:
            part.member_names = [self._part(schema["propertyNames"])]
        for keyword in ("prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                part.first_items.append(self._part_list(schema[keyword]))
            elif keyword in schema:
                part.each_item.append(self._part(schema[keyword]))
        part.each_item += [self._part(schema[key]) for key in _EACH_ITEM if key in schema]
        part.content = sum(_content_size(schema[key]) for key in _CONTENT if key in schema) // _CONTENT_PER_VISIT
        part.per_char = _pattern_work(schema.get("pattern"))
        for pattern in patterns:
            names = _Part()
            names.per_char = _pattern_work(pattern)
            part.member_names.append(names)
            self._parts[id(names)] = names
        part.is_repeated = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        return part

    def _part_list(self, schemas: Any) -> list[_Part]:
        return [self._part(one) for one in schemas] if isinstance(schemas, list) else []

    def _part_dict(self, schemas: Any) -> dict[str, _Part]:
        return {name: self._part(one) for name, one in schemas.items()} if isinstance(schemas, dict) else {}

    def _targets(self, keyword: str, reference: Any) -> list[Any]:
        """Returns the parts that a reference may mean.

        Raises:
            UnboundedSchemaError: it means something outside of the schema.
        """
        address = self._root.get("$id") or self._root.get("id")
        if not isinstance(reference, str):
            return []
        if isinstance(address, str) and reference.startswith(address.partition("#")[0]):
            reference = reference.removeprefix(address.partition("#")[0]) or "#"
        if not reference.startswith("#"):
            raise UnboundedSchemaError
        fragment = unquote(reference[1:])
        self._work.scan(len(fragment))
        if not fragment or fragment.startswith("/"):
            targets = [self._at(fragment.split("/")[1:])]
        else:
            targets = self._anchors.get(fragment, [])
            if not targets:
                raise UnboundedSchemaError
        # What a dynamic reference means depends on the way to it.
        return [self._root, *targets] if keyword == "$recursiveRef" else targets

    def _at(self, path: list[str]) -> Any:
        found: Any = self._root
        for name in path:
            self._work.spend()
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise UnboundedSchemaError
        return found

    def _expanded_size(self, part: _Part, around: set[int]) -> float:
        """Returns the number of parts with every reference replaced by what it refers to."""
        if id(part) in around:
            return math.inf
        if part.size is None:
            around.add(id(part))
            inside = sum(self._expanded_size(one, around) for one in part.all_parts())
            around.discard(id(part))
            # The work of a pattern depends on the text, so it is added up with the values.
            part.size = math.inf if part.per_char else (1 + part.content + inside) * (2 if part.is_repeated else 1)
        return part.size

    def _leaf_work(self, part: _Part, chain: int) -> tuple[float, float]:
        """Returns the visits of a value that has no values in it: their number, and more for each character.

        Raises:
            UnboundedSchemaError: the part applies to the same value again, or after too many others.
        """
        if chain > _MAX_CHAIN:
            raise UnboundedSchemaError
        if part.on_leaf is None:
            visits, per_char = 1.0 + part.content, part.per_char
            for one in part.same:
                more = self._leaf_work(one, chain + 1)
                visits, per_char = visits + more[0], per_char + more[1]
            factor = 2 if part.is_repeated else 1
            part.on_leaf = visits * factor, per_char * factor
        return part.on_leaf

    # Values

    def _visits(self, part: _Part, value: Any, known: dict[tuple[int, int], float], work: Work) -> float:
        if not isinstance(value, dict | list) or not value:
            assert part.on_leaf is not None, "the work on a leaf is known of every part"
            visits, per_char = part.on_leaf
            return visits + per_char * len(value) if isinstance(value, str) else visits
        key = id(part), id(value)
        if key in known:
            return known[key]
        work.spend(1 + len(value) // 8)
        total = 1.0 + part.content
        for one in part.same:
            total += self._visits(one, value, known, work)
        if isinstance(value, dict):
            for name, child in value.items():
                if name in part.members:
                    total += self._visits(part.members[name], child, known, work)
                for one in part.each_member:
                    total += self._visits(one, child, known, work)
                for one in part.member_names:
                    total += self._visits(one, name, known, work)
        else:
            for parts in part.first_items:
                for one, child in zip(parts, value, strict=False):
                    total += self._visits(one, child, known, work)
            for one in part.each_item:
                for child in value:
                    total += self._visits(one, child, known, work)
        known[key] = total * (2 if part.is_repeated else 1)
        return known[key]


def _content_size(content: JSON) -> int:
    """Returns the number of values in a constant or a list of choices, with long texts counted by their length."""
    pending, size = [content], 0
    while pending:
        node = pending.pop()
        size += 1
        if isinstance(node, str):
            size += len(node) // 64
        elif isinstance(node, dict | list):
            pending.extend(node.values() if isinstance(node, dict) else node)
    return size


def _pattern_work(pattern: Any) -> float:
    """Returns the work of a pattern for each character of a text, in visits."""
    if not isinstance(pattern, str):
        return 0.0
    return _VISITS_PER_PLAIN_CHAR if _ONE_CLASS.fullmatch(pattern) else _VISITS_PER_STATE * _states(pattern)


def _states(pattern: str) -> int:
    """Returns about how many states a regular expression has, with counted repetitions unrolled."""
    groups, last = [0], 0
    for found in _ATOM.finditer(pattern):
        atom = found.group()
        if atom == "(":
            groups.append(0)
        elif atom == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif atom[0] == "{" and len(atom) > 2:
            times = int((found.group(2) or found.group(1) or "1")[:7])
            last, groups[-1] = min(last * times, _MAX_STATES), min(groups[-1] + last * times, _MAX_STATES)
        elif atom not in "*+?|^$":
            last = 1
            groups[-1] += 1
    return max(1, sum(groups))
