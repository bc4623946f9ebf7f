"""Parameter headers (SEP-2243): arguments that clients mirror into `Mcp-Param-*` headers, by `x-mcp-header`."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from deltamcp.catalog.text.clean_text import EXCERPT_CHARS, cut, value_excerpt
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The syntax of header names (RFC 9110, 5.6.2)."""
_PLAIN_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PREFIX, _SUFFIX = "=?base64?", "?="
_HEADER_TYPES = frozenset({"string", "integer", "boolean"})


class ParameterHeader(Struct, frozen=True):
    """An argument and the header that mirrors it."""

    header: bytes
    """The header's name in lower case, as ASGI gives it."""
    path: tuple[str, ...]


def declared_headers(tool: str, schema: Mapping[str, JSON]) -> tuple[ParameterHeader, ...]:
    """Returns the headers that a schema declares.

    Raises:
        ConfigurationError: an annotation stands where SEP-2243 forbids it; clients would drop the tool.
    """
    # Few schemas have the annotation, and searching for the word takes a tenth of the time of walking the schema.
    if b"x-mcp-header" not in jsonrpc.encode(schema):
        return ()
    found: dict[bytes, ParameterHeader] = {}
    for path, node in _find_annotations(schema, ()):
        name = node["x-mcp-header"]
        where = f"Tool {cut(tool, EXCERPT_CHARS)!r}, x-mcp-header {value_excerpt(name)}"
        if path is None:
            raise ConfigurationError(f"{where}: only properties reached through `properties` can be headers.")
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"{where}: must be an HTTP token.")
        if node.get("type") not in _HEADER_TYPES:
            raise ConfigurationError(f"{where}: the property must be a string, an integer or a boolean.")
        header = b"mcp-param-" + name.lower().encode()
        if header in found:
            raise ConfigurationError(f"{where}: used twice.")
        found[header] = ParameterHeader(header, path)
    return tuple(found.values())


def _find_annotations(
    node: Any, path: tuple[str, ...] | None
) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    if isinstance(node, list):
        for child in node:
            yield from _find_annotations(child, None)
    if not isinstance(node, dict):
        return
    if "x-mcp-header" in node:
        yield path or None, node
    for key, child in node.items():
        if key == "properties" and isinstance(child, dict):
            for name, schema in child.items():
                yield from _find_annotations(schema, None if path is None else (*path, name))
        elif key not in ("default", "examples", "const", "enum"):
            yield from _find_annotations(child, None)


def decode(value: bytes) -> str | None:
    """Decodes the value of a header, plain or in base64; None where it is malformed."""
    text = value.decode("latin-1").strip(" \t")
    if not _PLAIN_VALUE.fullmatch(text):
        return None
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text
    payload = text[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = base64.b64decode(payload, validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == payload else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def is_verbatim(sent: bytes | None, value: str) -> bool:
    """Returns whether a header is plain and has the same characters as a text of the body."""
    return (
        sent is not None
        and value.isascii()
        and value.isprintable()
        and sent == value.encode()
        and sent[:1] not in (b"=", b" ")
        and sent[-1:] != b" "
    )


def encode(value: str) -> str:
    """Encodes text as the value of a header: unchanged where that is safe, else in base64."""
    plain = all(32 <= ord(char) <= 126 for char in value) and value == value.strip()
    if plain and not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    return _PREFIX + base64.b64encode(value.encode()).decode() + _SUFFIX


def value_at(arguments: JSON, path: tuple[str, ...]) -> JSON:
    """Returns the argument at a path; None where there is none."""
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(key)
    return arguments


def is_same_value(text: str, value: JSON) -> bool:
    """Returns whether a header equals the argument in the body; numbers are compared by value, as SEP-2243 requires."""
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return isinstance(value, str) and text == value
