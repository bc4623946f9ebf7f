"""The arguments that an operation's schema declares; a source passes on no others."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from deltamcp.catalog.argument_problem import ArgumentProblem, problem_at
from deltamcp.catalog.excerpt import EXCERPT_CHARS, MAX_PROBLEMS, cut
from deltamcp.values import JSON

_SUBSCHEMAS = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
"""The keywords of all drafts whose subschemas apply to the same object."""
_SUBSCHEMAS_BY_NAME = ("dependentSchemas", "dependencies")


class DeclaredArguments:
    """The names of the arguments that a schema declares, in itself or in subschemas for the same object.

    A schema whose `additionalProperties` are true or a schema declares every name.
    """

    def __init__(self, schema: dict[str, JSON], further: Collection[str] = ()) -> None:
        """`further` are names that are declared elsewhere, such as in an address."""
        nodes = list(_object_schemas(schema))
        self._names = dict.fromkeys([name for node in nodes for name in _keys(node, "properties")])
        self._names |= dict.fromkeys(further)
        self._patterns = [pattern for node in nodes for pattern in _keys(node, "patternProperties")]
        self._has_all = any(
            node.get(keyword, False) is not False
            for node in nodes
            for keyword in ("additionalProperties", "unevaluatedProperties")
        )

    def problems(self, arguments: Mapping[str, JSON]) -> list[ArgumentProblem]:
        """Describes the first arguments that are not declared, each in a sentence."""
        if self._has_all or arguments.keys() <= self._names.keys():
            return []
        known = ", ".join(self._names) or "none"
        undeclared = [name for name in arguments if name not in self._names and not self._matches_pattern(name)]
        return [
            problem_at(
                [name],
                "additionalProperties",
                f"{cut(name, EXCERPT_CHARS)}: no such argument; known arguments: {known}.",
            )
            for name in undeclared[:MAX_PROBLEMS]
        ]

    def _matches_pattern(self, name: str) -> bool:
        try:
            return any(re.search(pattern, name) for pattern in self._patterns)
        except re.error:  # a pattern that only JSON Schema's dialect has; the schema itself was checked
            return True


def _object_schemas(schema: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yields a schema, and those of its subschemas that apply to the same object."""
    seen: set[int] = set()
    nodes: list[Any] = [schema]
    while nodes:
        node = nodes.pop(0)
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(reference := node.get("$ref"), str):
            nodes.append(_resolve(schema, reference))
        for keyword in _SUBSCHEMAS:
            found = node.get(keyword)
            if isinstance(found, dict) and keyword in _SUBSCHEMAS_BY_NAME:
                found = list(found.values())
            nodes += found if isinstance(found, list) else [found]


def _resolve(schema: dict[str, JSON], reference: str) -> Any:
    """Returns the part of a schema that a reference such as `#/$defs/Item` names; None if it names no part."""
    node: Any = schema
    for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ["", ""]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _keys(node: dict[str, JSON], keyword: str) -> list[str]:
    found = node.get(keyword)
    return list(found) if isinstance(found, dict) else []
