"""The searched fields of a tool: weighs the terms of its name, group, description and parameters."""

from collections.abc import Mapping
from typing import NamedTuple

from deltamcp.catalog.search.services import SERVICES
from deltamcp.catalog.search.words import CONCEPTS, terms
from deltamcp.values import JSON


class _Field(NamedTuple):
    weight: float
    slope: float
    """How much the length of the field matters: 0 not at all, 1 in proportion; BM25's b."""
    typical_words: int
    """The median number of words, over the definitions of some 50 published servers."""


_NAME_FIELD = _Field(2.5, 0.6, 3)
_GROUP_FIELD = _Field(1.5, 0.0, 1)
_DESCRIPTION_FIELD = _Field(1.0, 0.6, 10)
_PARAMETERS_FIELD = _Field(1.0, 0.5, 4)
_NOTES_FIELD = _Field(0.6, 0.5, 12)
_SERVICE_FIELDS = (_NAME_FIELD, _GROUP_FIELD, _DESCRIPTION_FIELD)
"""The fields that tell which service a tool belongs to."""
_MAX_NOTES_CHARS = 1500
"""Characters of the parameters' descriptions that are indexed; the rest is examples and exceptions."""
_MAX_CHOICES = 20
"""Values of an enumeration that are indexed; longer ones list the world's currencies or time zones."""
_MAX_FIELD_CHARS = 50_000
"""Characters of a field that are indexed."""
_MAX_NODES = 10_000
"""Nodes of a schema that are indexed; published tools have up to 2,000."""
_SATURATION = 1.2
"""How soon further repetitions of a word stop adding weight; BM25's k1."""


def term_weights(tool: Mapping[str, JSON], group: str) -> dict[str, float]:
    """Returns the terms of a tool, each with its saturated weight over all fields."""
    names, notes = _parameter_names_and_notes(tool.get("inputSchema"))
    fields = (
        (_NAME_FIELD, text_or_empty(tool.get("name"))),
        (_GROUP_FIELD, group),
        (_DESCRIPTION_FIELD, f"{text_or_empty(tool.get('title'))} {text_or_empty(tool.get('description'))}"),
        (_PARAMETERS_FIELD, " ".join(names)),
        (_NOTES_FIELD, " ".join(notes)[:_MAX_NOTES_CHARS]),
    )
    counts: dict[str, float] = {}
    services: set[str] = set()
    for field, text in fields:
        words = terms(text[:_MAX_FIELD_CHARS])
        unit = field.weight / (1 - field.slope + field.slope * len(words) / field.typical_words)
        for word in words:
            counts[word] = counts.get(word, 0.0) + unit
        if field in _SERVICE_FIELDS:
            services.update(SERVICES.keys() & words)
    concepts: dict[str, float] = {}
    for word, count in counts.items():
        for concept in CONCEPTS.get(word, ()):
            concepts[concept] = max(count, concepts.get(concept, 0.0))
    for service in services:
        for concept in SERVICES[service]:
            concepts[concept] = max(counts[service], concepts.get(concept, 0.0))
    counts.update(concepts)
    return {term: (_SATURATION + 1) * count / (_SATURATION + count) for term, count in counts.items()}


def _parameter_names_and_notes(schema: JSON) -> tuple[list[str], list[str]]:
    """Returns the names of parameters at any depth, and their descriptions and choices."""
    names: list[str] = []
    notes: list[str] = []
    pending = [schema]
    visited = 0
    while pending and visited < _MAX_NODES:
        visited += 1
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        if not isinstance(node, dict):
            continue
        properties = node.get("properties")
        if isinstance(properties, dict):
            names += map(str, properties)
            notes += [
                text_or_empty(child.get("description")) for child in properties.values() if isinstance(child, dict)
            ]
            pending.extend(properties.values())
        choices = node.get("enum")
        if isinstance(choices, list):
            notes += filter(None, map(text_or_empty, choices[:_MAX_CHOICES]))
        pending += [node.get(keyword) for keyword in ("items", "additionalProperties", "anyOf", "oneOf", "allOf")]
        for definitions in (node.get("$defs"), node.get("definitions")):
            if isinstance(definitions, dict):
                pending.extend(definitions.values())
    return names, notes


def text_or_empty(value: JSON) -> str:
    return value if isinstance(value, str) else ""
