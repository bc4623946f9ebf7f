"""A tool's arguments as they are typed: a JSON object, `NAME=VALUE` pairs that the tool's schema reads, or both."""

import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

_PAIR = re.compile(r"([A-Za-z_][\w.\-]*)(:?=)(.*)", re.DOTALL)
_MAX_SCHEMA_DEPTH = 20
"""References followed on the way to a type."""
_USAGE = "Usage: delta-mcp call TARGET... TOOL [JSON | NAME=VALUE...]"


class CallCommand(NamedTuple):
    """What the words of `delta-mcp call` come to."""

    target: list[str]
    tool: str
    arguments: dict[str, JSON]
    texts: dict[str, str]
    """Arguments as they were typed, to be read by the tool's schema."""


def parse_call(words: list[str]) -> CallCommand:
    """Read from the end, because only there it is known what is what: pairs, then an object, then the tool.

    Raises:
        ConfigurationError: no tool is named, or its arguments are not to be understood.
    """
    rest = list(words)
    pairs: list[re.Match[str]] = []
    objects: list[str] = []
    while rest:
        pair = _PAIR.fullmatch(rest[-1])
        if pair is not None:
            pairs.append(pair)
        elif rest[-1].lstrip()[:1] in ("{", "[", '"') or rest[-1] == "-":
            objects.append(rest[-1])
        else:
            break
        rest.pop()
    if len(objects) > 1:
        raise ConfigurationError("Give the arguments as one JSON object.")
    arguments = parse_object(sys.stdin.read() if objects[0] == "-" else objects[0]) if objects else {}
    if len(rest) < 2:
        raise ConfigurationError(f"{_USAGE}; JSON begins with {{, and delta-mcp list TARGET... names the tools.")
    texts: dict[str, str] = {}
    for name, how, value in (pair.groups() for pair in reversed(pairs)):
        if name in arguments or name in texts:
            raise ConfigurationError(f"{name} is given twice.")
        if how == ":=":
            arguments[name] = _parse_json(value, name)
        else:
            texts[name] = value
    return CallCommand(rest[:-1], rest[-1], arguments, texts)


def parse_object(text: str) -> dict[str, JSON]:
    """
    Raises:
        ConfigurationError: it is no JSON object.
    """
    value = _parse_json(text, "The arguments")
    if not isinstance(value, dict):
        raise ConfigurationError("The arguments must be a JSON object, which begins with {.")
    return value


def _parse_json(text: str, what: str) -> JSON:
    try:
        return _strict_loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            f"{what}: this is not JSON ({why}); quote it for the shell, as '{{\"a\": 1}}'."
        ) from None


def _strict_loads(text: str) -> JSON:
    return json.loads(text, parse_constant=_reject_constant, parse_float=_parse_finite)


def _reject_constant(constant: str) -> JSON:
    raise ValueError(f"JSON has no {constant}")


def _parse_finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _reject_constant(digits)


def convert_by_schema(texts: Mapping[str, str], schema: JSON) -> dict[str, JSON]:
    """Texts as a schema has them: 5 is a number where a number is wanted, and a text where a text is."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = properties if isinstance(properties, dict) else {}
    return {name: _convert(text, _schema_types(known.get(name), schema)) for name, text in texts.items()}


def _convert(text: str, types: set[str]) -> JSON:
    if types == {"string"}:
        return text
    if types <= {"boolean", "null"} and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = _strict_loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, str) or ("string" in types and not _has_type(value, types)):
        return text
    return value


def _schema_types(schema: Any, root: Any, depth: int = 0) -> set[str]:
    """The types a schema names, in its branches and behind its references too."""
    if not isinstance(schema, dict) or depth > _MAX_SCHEMA_DEPTH:
        return set()
    named = schema.get("type")
    types = {one for one in (named if isinstance(named, list) else [named]) if isinstance(one, str)}
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list) else ():
            types |= _schema_types(branch, root, depth + 1)
    if isinstance(schema.get("$ref"), str):
        types |= _schema_types(_resolve_reference(schema["$ref"], root), root, depth + 1)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not types and isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
        return {"string"}
    return types


def _resolve_reference(reference: str, root: Any) -> Any:
    from deltamcp.results.pointer import parse_path

    if not reference.startswith("#/"):
        return None
    node = root
    for step in parse_path(reference[1:]):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _has_type(value: JSON, types: set[str]) -> bool:
    names = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, list: {"array"}, dict: {"object"}}
    return bool(names.get(type(value), {"null"}) & types)
