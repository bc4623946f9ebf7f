"""Parses a tool's arguments as users type them: a JSON object, `NAME=VALUE` pairs typed by the schema, or both."""

import json
import math
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from deltamcp.cli.terminal.targets import missing_word
from deltamcp.client.target import is_whole_target
from deltamcp.errors import ConfigurationError
from deltamcp.results import reference
from deltamcp.values import JSON

_PAIR = re.compile(r"([A-Za-z_][\w.\-]*)(:?=)(.*)", re.DOTALL)
_MAX_SCHEMA_DEPTH = 20
"""How many nested schemas and references are followed to find a type."""


class CallCommand(NamedTuple):
    """The parsed words of `delta-mcp call` and `delta-mcp prompt`."""

    target: list[str]
    name: str
    """The name of the tool or prompt."""
    arguments: dict[str, JSON]
    texts: dict[str, str]
    """The `NAME=VALUE` arguments as typed; `convert_by_schema` converts them."""


def parse_call(words: list[str], verb: str, noun: str, listing_verb: str) -> CallCommand:
    """Parses the words of `delta-mcp call` from the end: pairs, then an object, then the name; the rest is the target.

    Args:
        verb, noun, listing_verb: as in `missing_word`.

    Raises:
        ConfigurationError: nothing is named, or its arguments cannot be parsed.
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
    if len(rest) > 2 and is_whole_target(rest[0]):
        raise ConfigurationError(
            f"{rest[-1]!r} after {rest[1]} is no NAME=VALUE; say which argument it is, as NAME={shlex.quote(rest[-1])}."
        )
    if len(objects) > 1:
        raise ConfigurationError("Give the arguments as one JSON object.")
    arguments = parse_object(sys.stdin.read() if objects[0] == "-" else objects[0]) if objects else {}
    if len(rest) < 2:
        raise missing_word(rest, verb, noun, listing_verb)
    texts: dict[str, str] = {}
    for name, operator, value in (pair.groups() for pair in reversed(pairs)):
        if name in arguments or name in texts:
            raise ConfigurationError(f"{name} is given twice.")
        if operator == ":=":
            arguments[name] = _parse_json(value, name)
        else:
            texts[name] = value
    return CallCommand(rest[:-1], rest[-1], arguments, texts)


def parse_object(text: str) -> dict[str, JSON]:
    """
    Raises:
        ConfigurationError: the text is not a JSON object.
    """
    value = _parse_json(text, "The arguments")
    if not isinstance(value, dict):
        raise ConfigurationError("The arguments must be a JSON object, which begins with {.")
    return value


def _parse_json(text: str, name: str) -> JSON:
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            f"{name}: this is not JSON ({reason}); quote it for the shell, as '{{\"a\": 1}}'."
        ) from None


def load_json(text: str) -> JSON:
    """Reads JSON, and no more: Python's own reader also accepts NaN and Infinity.

    Raises:
        ValueError, RecursionError: this is not JSON, or it is nested too deeply.
    """
    return json.loads(text, parse_constant=_reject_constant, parse_float=_parse_finite)


def _reject_constant(constant: str) -> JSON:
    raise ValueError(f"JSON has no {constant}")


def _parse_finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _reject_constant(digits)


def convert_by_schema(texts: Mapping[str, str], schema: JSON, resolves_references: bool = False) -> dict[str, JSON]:
    """Converts texts to the types of a schema: `5` becomes a number if the schema says so, else it stays a text.

    A value where the schema has a list becomes a list of it.

    If the server `resolves_references`, `{"$result": ...}` is one, whatever the type.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    schemas = properties if isinstance(properties, dict) else {}
    return {
        name: _convert(
            text, set() if resolves_references and _is_reference(text) else _schema_types(schemas.get(name), schema)
        )
        for name, text in texts.items()
    }


def _is_reference(text: str) -> bool:
    try:
        return reference.is_reference(load_json(text))
    except (ValueError, RecursionError):
        return False


def _convert(text: str, types: set[str]) -> JSON:
    if types == {"string"}:
        return text
    if types <= {"boolean", "null"} and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        return [text] if types == {"array"} else text
    if types == {"array"} and not isinstance(value, list):
        return [value]
    if isinstance(value, str) or ("string" in types and not _has_type(value, types)):
        return text
    return value


def _schema_types(schema: Any, root: Any, depth: int = 0) -> set[str]:
    """Returns the types that a schema names, also in its branches and behind its references."""
    if not isinstance(schema, dict) or depth > _MAX_SCHEMA_DEPTH:
        return set()
    keyword_value = schema.get("type")
    names = keyword_value if isinstance(keyword_value, list) else [keyword_value]
    types = {name for name in names if isinstance(name, str)}
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list) else ():
            types |= _schema_types(branch, root, depth + 1)
    if isinstance(schema.get("$ref"), str):
        types |= _schema_types(_resolve_reference(schema["$ref"], root), root, depth + 1)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not types and isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return {"string"}
    return types


def _resolve_reference(reference: str, root: Any) -> Any:
    from deltamcp.results.document import parse_path

    if not reference.startswith("#/"):
        return None
    node = root
    for step in parse_path(reference[1:]):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _has_type(value: JSON, types: set[str]) -> bool:
    names = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, list: {"array"}, dict: {"object"}}
    return bool(names.get(type(value), {"null"}) & types)
