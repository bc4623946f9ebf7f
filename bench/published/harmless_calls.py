"""Calls of a server that nobody has read: of tools that only read, by what they say, with arguments that fit. Pure."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_READING_WORDS = (
    "analyze calculate check compare compute convert count describe detect diff echo encode decode estimate explain"
    " extract find format generate get health help hello info inspect list lookup now ping query random read recommend"
    " resolve search show stats status suggest summarize summary time today validate verify version view what"
)
_CHANGING_WORDS = (
    "add append apply archive authenticate book buy cancel clear click close commit configure connect create delete"
    " deploy destroy disconnect download drop edit exec execute import insert install invoke kill launch login logout"
    " merge move navigate open order patch pay post publish push put record register remove rename replace reset"
    " restart revoke run save schedule screenshot sell send set shell shutdown sign sleep start stop submit swap trade"
    " transfer trigger unregister update upload upsert wait watch write"
)
READING = frozenset(_READING_WORDS.split())
"""Words that the names of tools have that only read."""
CHANGING = frozenset(_CHANGING_WORDS.split())
"""Words that the names of tools have that do more."""
_MOST_DEPTH = 4


class HarmlessCall(NamedTuple):
    tool: str
    arguments: dict[str, Any]


def harmless_calls(tools: list[dict[str, Any]], folder: Path, most: int) -> list[HarmlessCall]:
    """Returns calls of the first tools that read, before those of tools that do not say what they do.

    Args:
        folder: Where paths among the arguments are; has the file hello.txt.
    """
    ranked = sorted((tool for tool in tools if _rank(tool) < 2), key=_rank)
    calls = []
    for tool in ranked:
        try:
            calls.append(HarmlessCall(tool["name"], _example_object(tool["inputSchema"], tool["inputSchema"], folder)))
        except ValueError:
            continue
    return calls[:most]


def is_reading(tool: Mapping[str, Any]) -> bool:
    """Whether a tool says by its annotations or its name that it only reads."""
    return _rank(tool) == 0


def _rank(tool: Mapping[str, Any]) -> int:
    words = re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", tool["name"]).lower())
    annotations = tool.get("annotations") or {}
    if CHANGING & {*words} or (annotations.get("destructiveHint") is True and not annotations.get("readOnlyHint")):
        return 2
    return 0 if annotations.get("readOnlyHint") or READING & {*words} else 1


def _example_object(schema: Mapping[str, Any], root: Mapping[str, Any], folder: Path, depth: int = 0) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    return {
        name: _example(name, properties.get(name, {}), root, folder, depth + 1) for name in schema.get("required") or ()
    }


def _example(name: str, schema: Any, root: Mapping[str, Any], folder: Path, depth: int) -> Any:
    """Returns a value for an argument; raises ValueError if its schema does not tell one."""
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        raise ValueError(name)
    for key in ("default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if "$ref" in schema:
        return _example(name, _referred(schema["$ref"], root), root, folder, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(name, schema[key][0], root, folder, depth + 1)
    types: Any = schema.get("type")
    name_of_type: Any = types[0] if isinstance(types, list) and types else types
    match name_of_type:
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return False
        case "null":
            return None
        case "array":
            return [_example(name, schema.get("items"), root, folder, depth + 1)]
        case "object":
            return _example_object(schema, root, folder, depth)
        case "string" | None:
            return _example_text(name.lower(), schema, folder)
        case _:
            raise ValueError(name)


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping) or part not in found:
            raise ValueError(reference)
        found = found[part]
    return found


def _example_text(name: str, schema: Mapping[str, Any], folder: Path) -> str:
    form = schema.get("format", "")
    if "url" in name or form in ("uri", "url"):
        return "http://127.0.0.1:9/"
    if form == "date-time":
        return "2026-11-16T12:00:00Z"
    if "date" in name or form == "date":
        return "2026-11-16"
    if "file" in name or "path" in name:
        return str(folder / "hello.txt")
    if "dir" in name or "folder" in name:
        return str(folder)
    return str("tea".ljust(schema.get("minLength", 3), "."))
