"""Request bodies: which media type is sent, the arguments that it has, and their values as bytes."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from deltamcp.errors import ToolError
from deltamcp.sources.http import FORM_TYPE, media_type
from deltamcp.sources.openapi.parameters import STYLES, encode_all, encode_reserved, text_of, write
from deltamcp.values import JSON

ReadFile: TypeAlias = Callable[[str], bytes]
"""Reads a file that an argument names; it raises a ToolError where that is not allowed."""

FILE_PREFIX = "file:"
_RANKS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("json", lambda kind: kind in ("application/json", "text/json")),
    ("json", lambda kind: kind.endswith("+json")),
    ("form", lambda kind: kind == FORM_TYPE),
    ("multipart", lambda kind: kind == "multipart/form-data"),
    ("lines", lambda kind: kind in ("application/jsonl", "application/x-ndjson", "application/ndjson")),
    ("json", lambda kind: kind == "*/*"),
    (
        "text",
        lambda kind: (
            kind.startswith("text/") or kind.endswith(("+xml", "/xml", "/yaml", "+yaml", "/x-yaml", "/graphql", "/sql"))
        ),
    ),
    ("binary", lambda kind: True),
)
"""The forms of bodies, the best first, and the media types that have them."""


class BodyType(Struct, frozen=True):
    """A media type of a body, and how its arguments become bytes."""

    form: str
    """One of `json`, `form`, `multipart`, `lines`, `text` and `binary`."""
    media_types: tuple[str, ...]
    """The types of this form that the operation takes, the default first."""
    value: Mapping[str, Any]
    """The media type object of the default."""


def choose_body(content: Mapping[str, Any]) -> BodyType | None:
    """Returns the media type that is sent: JSON before forms, these before text and binary data."""
    kinds = {kind: value for kind, value in content.items() if isinstance(value, dict)}
    for form, has_form in _RANKS:
        found = [kind for kind in kinds if has_form(media_type(kind))]
        if found:
            default = found[0]
            sent = tuple("application/json" if media_type(one) == "*/*" else one for one in found)
            return BodyType(form, sent, kinds[default])
    return None


def is_file(schema: Any) -> bool:
    """Whether a schema of a form's field is that of a file."""
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "file" or schema.get("format") in ("binary", "byte") or schema.get("contentEncoding"):
        return True
    kind = schema.get("contentMediaType")
    return isinstance(kind, str) and not kind.startswith("text/") and not kind.endswith("json")


def read_bytes(value: JSON, name: str, read_file: ReadFile) -> bytes:
    """Returns the data of an argument: base64, or the content of a file by its path.

    Raises:
        ToolError: it is neither, or the file may not be read.
    """
    if not isinstance(value, str):
        raise ToolError(f"The argument {name} must be base64.")
    if value.startswith(FILE_PREFIX):
        return read_file(value.removeprefix(FILE_PREFIX))
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"The argument {name} must be base64.") from None


def write_json(value: JSON) -> bytes:
    return msgspec.json.encode(value)


def write_lines(value: JSON) -> bytes:
    items = value if isinstance(value, list) else [value]
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


class FieldEncoding(Struct, frozen=True):
    """How a field of a form is written (OpenAPI 3.2, 4.15, Encoding Object)."""

    style: str = ""
    """Empty if the media type decides."""
    explode: bool = True
    allow_reserved: bool = False
    media_type: str = ""
    is_file: bool = False


def read_encoding(value: Any, is_file_field: bool, kind: str = "") -> FieldEncoding:
    """Returns the encoding of a field from its Encoding Object, or the default one.

    Args:
        kind: The media type that the schema of a file has.
    """
    given = value if isinstance(value, dict) else {}
    style, explode = given.get("style"), given.get("explode")
    has_style = "style" in given or "explode" in given or "allowReserved" in given
    name = style if isinstance(style, str) and style in STYLES else "form"
    content_type = given.get("contentType")
    first = content_type.split(",")[0].strip() if isinstance(content_type, str) and "*" not in content_type else ""
    return FieldEncoding(
        name if has_style else "",
        explode if isinstance(explode, bool) else name == "form",
        given.get("allowReserved") is True,
        (first or kind) if (first or kind).isprintable() else "",
        is_file_field,
    )


def write_form(fields: Mapping[str, JSON], encodings: Mapping[str, FieldEncoding]) -> bytes:
    """Writes `application/x-www-form-urlencoded`: lists repeat the name, objects are JSON unless a style says more."""
    parts: list[str] = []
    for name, value in fields.items():
        encoding = encodings.get(name, FieldEncoding())
        if value is None:
            continue
        encode = encode_reserved if encoding.allow_reserved else encode_all
        if encoding.style:
            parts.append(write(name, value, encoding.style, encoding.explode, encode))
        elif encoding.media_type.endswith("json"):
            parts.append(f"{encode_all(name)}={encode_all(write_json(value).decode())}")
        else:
            items = value if isinstance(value, list) else [value]
            parts += (f"{encode_all(name)}={encode_all(text_of(item))}" for item in items if item is not None)
    return "&".join(filter(None, parts)).encode()


def write_multipart(
    fields: Mapping[str, JSON], encodings: Mapping[str, FieldEncoding], read_file: ReadFile
) -> tuple[bytes, str]:
    """Writes `multipart/form-data` (RFC 7578), and returns its media type with the boundary.

    Raises:
        ToolError: a file is not base64, or may not be read.
    """
    parts: list[bytes] = []
    for name, value in fields.items():
        encoding = encodings.get(name, FieldEncoding())
        if value is None:
            continue
        # RFC 7578, 4.3: several values of a field are parts of the same name.
        items = value if isinstance(value, list) and not encoding.media_type.endswith("json") else [value]
        parts += (_part(name, item, encoding, read_file) for item in items if item is not None)
    digest = hashlib.sha256(b"".join(parts)).hexdigest()  # in no part, so that the boundary is none of their lines
    boundary = f"delta-mcp-{digest[:40]}"
    line = f"--{boundary}".encode()
    body = b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"
    return body, f"multipart/form-data; boundary={boundary}"


def _part(name: str, item: JSON, encoding: FieldEncoding, read_file: ReadFile) -> bytes:
    label = _quote_name(name)
    if encoding.is_file:
        kind = encoding.media_type or "application/octet-stream"
        file_name = "file"
        if isinstance(item, str) and item.startswith(FILE_PREFIX):
            file_name = _quote_name(item.removeprefix(FILE_PREFIX).replace("\\", "/").rpartition("/")[2])
        head = f'Content-Disposition: form-data; name="{label}"; filename="{file_name}"\r\nContent-Type: {kind}\r\n\r\n'
        return head.encode() + read_bytes(item, name, read_file)
    as_json = isinstance(item, dict | list) or encoding.media_type.endswith("json")
    kind = encoding.media_type or ("application/json" if as_json else "")
    head = (
        f'Content-Disposition: form-data; name="{label}"\r\n' + (f"Content-Type: {kind}\r\n" if kind else "") + "\r\n"
    )
    return head.encode() + (write_json(item) if as_json else text_of(item).encode())


def _quote_name(text: str) -> str:
    """Escapes a name as browsers do (WHATWG HTML, 4.10.21.8)."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
