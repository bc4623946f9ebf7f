"""Arguments: those that an operation's schema declares, and the problems of those that do not fit it."""

import itertools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.catalog.text.clean_text import EXCERPT_CHARS, MAX_PROBLEMS, cut, visible_line
from deltamcp.results.document import pointer
from deltamcp.values import JSON

_NAME_CHARS = 100
"""The characters of a name in a pointer, which a caller may have sent."""
_POINTER_CHARS = 300


class ArgumentProblem(NamedTuple):
    """One problem of the arguments of a call."""

    text: str
    """A sentence that says where and what, for the model to correct."""
    pointer: str | None = None
    """The JSON pointer of the value, or of the argument that is missing; None if the text is about no place."""
    keyword: str = ""
    """The keyword of JSON Schema that the value does not fit, or pydantic's word where there is no such keyword."""


class InvalidArgumentsError(Exception):
    """Arguments do not fit the schema. Its text has a sentence for each of the first problems, for the model."""

    def __init__(self, problems: list[ArgumentProblem]) -> None:
        super().__init__(" ".join(problem.text for problem in problems))
        self.problems = problems


def problem_at(path: Iterable[int | str], keyword: str, text: str) -> ArgumentProblem:
    """Returns the problem of the value at a path."""
    names = (cut(str(part), _NAME_CHARS) for part in path)
    return ArgumentProblem(text, cut(pointer(*names), _POINTER_CHARS), keyword)


def problem_details(problems: Sequence[ArgumentProblem]) -> list[dict[str, JSON]]:
    """Returns what programs read of the problems."""
    return [
        {"pointer": problem.pointer, "message": problem.text, "keyword": problem.keyword}
        for problem in problems
        if problem.pointer is not None
    ]


_SUBSCHEMAS = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
"""The keywords of all drafts whose subschemas apply to the same object."""
_SUBSCHEMAS_BY_NAME = ("dependentSchemas", "dependencies")
_OTHER_NAMES = ("additionalProperties", "unevaluatedProperties")
"""The keywords that say whether there may be arguments of other names."""
_NOTED_NAMES = 3
_NOTED_CHARS = 40
"""The characters of a name in a note, which counts towards the budget of a reply."""
_MAX_SUBSCHEMAS = 10_000
"""A schema with more declares every name; to look at so many takes some 10 ms."""
_MAX_INNER_SUBSCHEMAS = 100
"""The same for an object inside another, of which there may be many; to look at so many takes 0.1 ms, once."""
_MAX_VALUES = 1_000
"""The objects and lists of a call's arguments in which undeclared names are looked for."""
_MAX_FOUND = 100


class UndeclaredArgument(NamedTuple):
    """An argument, or a member of one, that a schema does not declare."""

    path: tuple[str | int, ...]
    is_forbidden: bool
    """Whether the schema says that there are no others than those that it declares."""

    @property
    def name(self) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return cut(text[1:], EXCERPT_CHARS)


class DeclaredArguments:
    """The names of the arguments that a schema declares, in itself or in subschemas for the same object.

    A schema whose `additionalProperties` are true or a schema declares every name.
    """

    def __init__(
        self,
        schema: dict[str, JSON],
        further: Collection[str] = (),
        is_own: bool = True,
        part_of: "DeclaredArguments | None" = None,
    ) -> None:
        """
        Args:
            further: Names that are declared elsewhere, such as in an address.
            is_own: Whether the server's author or operator wrote the schema. A peer's patterns could search without
                end, so that a schema with patterns declares every name; so does one that names no argument, or that
                refers to a schema elsewhere.
            part_of: What the schema is a part of declares.
        """
        most = _MAX_SUBSCHEMAS if part_of is None else _MAX_INNER_SUBSCHEMAS
        self.document: dict[str, JSON] = schema if part_of is None else part_of.document
        """The schema that references lead into."""
        self.parts: dict[int, DeclaredArguments] = {} if part_of is None else part_of.parts
        """What parts of the document declare, by their identity; the document keeps them."""
        nodes = list(itertools.islice(_object_schemas(schema, self.document), most + 1))
        self._nodes = nodes[:most]
        self._names = dict.fromkeys([name for node in nodes for name in _keys(node, "properties")])
        self._names |= dict.fromkeys(further)
        self._patterns = [pattern for node in nodes for pattern in _keys(node, "patternProperties")]
        self._has_all = len(nodes) > most or any(
            node.get(keyword, False) is not False for node in nodes for keyword in _OTHER_NAMES
        )
        certain = itertools.islice(_certain_schemas(schema, self.document), most)
        self.forbids_others: bool = any(node.get(keyword) is False for node in certain for keyword in _OTHER_NAMES)
        """Whether the schema says, whatever its conditions come to, that there are no others."""
        if not is_own:
            names_none = not self.forbids_others and not any("properties" in node for node in nodes)
            is_elsewhere = any("$ref" in node and _resolve(self.document, node["$ref"]) is None for node in nodes)
            self._has_all = self._has_all or bool(self._patterns) or names_none or is_elsewhere

    def undeclared_names(self, arguments: Mapping[str, JSON]) -> list[str]:
        """Returns the names of arguments that are not declared."""
        if self._has_all or arguments.keys() <= self._names.keys():
            return []
        return [name for name in arguments if name not in self._names and not self._matches_pattern(name)]

    def find_undeclared(self, arguments: Mapping[str, JSON]) -> list[UndeclaredArgument]:
        """Returns the first arguments that are not declared, and those in objects and lists among the arguments."""
        found: list[UndeclaredArgument] = []
        values: deque[tuple[tuple[str | int, ...], Any, DeclaredArguments]] = deque([((), arguments, self)])
        for _ in range(_MAX_VALUES):
            if not values or len(found) >= _MAX_FOUND:
                break
            path, value, declared = values.popleft()
            if isinstance(value, list):
                inner: Iterator[tuple[str | int, Any]] = enumerate(value[:_MAX_VALUES])
            else:
                undeclared = declared.undeclared_names(value)[:_MAX_FOUND]
                found += [UndeclaredArgument((*path, name), declared.forbids_others) for name in undeclared]
                inner = iter(value.items())
            for place, child in inner:
                if isinstance(child, dict | list):
                    child_declared = declared.inside(place)
                    if child_declared is not None:
                        values.append(((*path, place), child, child_declared))
        return found

    def inside(self, place: str | int) -> "DeclaredArguments | None":
        """Returns what is declared for an argument, or for the items of a list; None if there is not one schema."""
        if isinstance(place, int):
            schemas = [node["items"] for node in self._nodes if "items" in node]
        elif place in self._names:
            schemas = [node["properties"][place] for node in self._nodes if place in _keys(node, "properties")]
        else:
            return None
        if len(schemas) != 1 or not isinstance(schemas[0], dict):
            return None
        key = id(schemas[0])
        if key not in self.parts:
            self.parts[key] = DeclaredArguments(schemas[0], is_own=False, part_of=self)
        return self.parts[key]

    def problems(self, arguments: Mapping[str, JSON]) -> list[ArgumentProblem]:
        """Describes the first arguments that are not declared, each in a sentence."""
        known = ", ".join(self._names) or "none"
        return [
            problem_at(
                [name],
                "additionalProperties",
                f"{cut(name, EXCERPT_CHARS)}: no such argument; known arguments: {known}.",
            )
            for name in self.undeclared_names(arguments)[:MAX_PROBLEMS]
        ]

    def _matches_pattern(self, name: str) -> bool:
        try:
            return any(re.search(pattern, name) for pattern in self._patterns)
        except re.error:  # a pattern that only JSON Schema's dialect has; the schema itself was checked
            return True


def undeclared_note(operation: str, names: Sequence[str]) -> str:
    """Writes the note below a reply to a call with arguments that the operation's schema does not declare."""
    shown = ", ".join(visible_line(cut(name, _NOTED_CHARS)) for name in names[:_NOTED_NAMES])
    more = f" and {len(names) - _NOTED_NAMES} more" if len(names) > _NOTED_NAMES else ""
    return f"({operation} has no parameter{'s' * (len(names) != 1)} {shown}{more}.)"


def _certain_schemas(schema: dict[str, JSON], root: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yields a schema, and those of its subschemas that apply to every object that fits it."""
    return _walk(schema, root, _certain_parts)


def _object_schemas(schema: dict[str, JSON], root: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yields a schema, and those of its subschemas that apply to the same object."""
    return _walk(schema, root, _parts)


def _walk(
    schema: dict[str, JSON], root: dict[str, JSON], parts: Callable[[dict[str, JSON]], Iterator[Any]]
) -> Iterator[dict[str, JSON]]:
    """Yields a schema and the parts of it, of those again, and what they refer to; each once."""
    seen: set[int] = set()
    nodes: deque[Any] = deque([schema])
    while nodes:
        node = nodes.popleft()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(reference := node.get("$ref"), str):
            nodes.append(_resolve(root, reference))
        nodes += parts(node)


def _certain_parts(node: dict[str, JSON]) -> Iterator[Any]:
    if isinstance(all_of := node.get("allOf"), list):
        yield from all_of
    for keyword in ("anyOf", "oneOf"):
        branches = node.get(keyword)
        if isinstance(branches, list):  # such as an object or null
            objects = [one for one in branches if not isinstance(one, dict) or one.get("type", "object") == "object"]
            yield from objects if len(objects) == 1 else []


def _parts(node: dict[str, JSON]) -> Iterator[Any]:
    for keyword in _SUBSCHEMAS:
        found = node.get(keyword)
        if isinstance(found, dict) and keyword in _SUBSCHEMAS_BY_NAME:
            found = list(found.values())
        yield from found if isinstance(found, list) else [found]


def _resolve(schema: dict[str, JSON], reference: JSON) -> Any:
    """Returns the part of a schema that a reference such as `#/$defs/Item` names; None if it names no part."""
    if not isinstance(reference, str):
        return None
    node: Any = schema
    for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ["", ""]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _keys(node: dict[str, JSON], keyword: str) -> list[str]:
    found = node.get(keyword)
    return list(found) if isinstance(found, dict) else []
