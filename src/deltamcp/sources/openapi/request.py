"""Requests of an operation: its arguments as one schema, with names that differ, and the request that they make."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from deltamcp.catalog.text.clean_text import clean_excerpt
from deltamcp.errors import ToolError
from deltamcp.sources.http import FORM_TYPE, UNPRINTABLE, RequestDraft, fill_path, media_type, text_of
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.operations import DocumentBody, DocumentParameter, OperationFaultError
from deltamcp.sources.openapi.parameters import (
    STYLES,
    Style,
    encode_all,
    encode_reserved,
    read_style,
    write,
    write_parameter,
)
from deltamcp.sources.openapi.schema import Converted, Schemas
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
_MAX_DESCRIPTION_CHARS = 2_000
_MAX_PARTS = 200
"""The schemas that one body is put together from."""
_PLAIN_KEYS = frozenset(
    {"type", "properties", "required", "description", "title", "example", "examples", "nullable", "xml", "externalDocs"}
    | {"minProperties", "maxProperties", "default", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "allOf"}
)
"""The keywords of an object whose properties can be arguments; any other says something about the whole."""
_BASE64 = "base64"
_BASE64_OR_FILE = "base64, or file: and a path"
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(;\s*[\w.+-]+=[\w.+\"-]+)*")


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


class BodyPlan(Struct, frozen=True):
    """How a body is made from arguments."""

    type: BodyType
    fields: dict[str, str]
    """The property of the body by argument; empty if the argument `whole` is the body."""
    whole: str = ""
    required: bool = False
    encodings: dict[str, FieldEncoding] = {}
    choice: str = ""
    """The argument that chooses the media type; empty if there is one type."""


class ArgumentPlan(Struct, frozen=True):
    """Where the arguments of an operation go."""

    parameters: dict[str, Style]
    """By argument."""
    body: BodyPlan | None
    schema: dict[str, JSON]
    """The schema of all arguments, without definitions."""
    definitions: tuple[str, ...]
    """The names of those that it refers to."""


class _ArgumentCollector:
    """Collects arguments and keeps their names apart."""

    def __init__(self) -> None:
        self.properties: dict[str, JSON] = {}
        self.required: list[str] = []
        self.names: list[str] = []

    def add(self, name: str, place: str, converted: Converted, description: Any, required: bool) -> str:
        """Adds an argument and returns its name: the first of a name keeps it, others have their place before it."""
        key, number = name, 1
        while key in self.properties:
            key = f"{place}_{name}" if number == 1 else f"{place}_{name}_{number}"
            number += 1
        self.properties[key] = _describe(converted.schema, description)
        if required:
            self.required.append(key)
        self.names += converted.names
        return key


def plan_arguments(
    document: OpenApiDocument,
    schemas: Schemas,
    parameters: list[DocumentParameter],
    body: DocumentBody | None,
    reads_files: bool,
) -> ArgumentPlan:
    """Plans the arguments of an operation.

    Raises:
        OperationFaultError: one of them cannot be sent.
        ReferenceFaultError: a reference leads nowhere.
    """
    collector = _ArgumentCollector()
    styles: dict[str, Style] = {}
    order = {"path": 0, "query": 1, "querystring": 2, "header": 3, "cookie": 4}
    for one in sorted(parameters, key=lambda one: order.get(one.location, len(order))):
        style = read_style(one.name, one.location, one.value)
        if isinstance(style, str):
            raise OperationFaultError(style)
        converted = schemas.convert(_parameter_schema(document, one), one.base)
        required = one.value.get("required") is True or one.location == "path"
        styles[collector.add(one.name, one.location, converted, one.value.get("description"), required)] = style
    plan = None if body is None else _plan_body(document, schemas, body, collector, reads_files)
    schema: dict[str, JSON] = {"type": "object", "properties": collector.properties}
    if collector.required:
        schema["required"] = [*collector.required]
    schema["additionalProperties"] = False
    return ArgumentPlan(styles, plan, schema, tuple(dict.fromkeys(collector.names)))


def _parameter_schema(document: OpenApiDocument, parameter: DocumentParameter) -> Any:
    content = parameter.value.get("content")
    if isinstance(content, dict) and content:
        media = document.follow(next(iter(content.values())), parameter.base).value
        return media.get("schema", {}) if isinstance(media, dict) else {}
    schema = parameter.value.get("schema", {})
    example = parameter.value.get("example")
    if (
        example is not None
        and isinstance(schema, dict)
        and not schema.keys() & {"example", "examples", "$ref", "default"}
    ):
        return {**schema, "example": example}
    return schema


def _plan_body(
    document: OpenApiDocument, schemas: Schemas, body: DocumentBody, collector: _ArgumentCollector, reads_files: bool
) -> BodyPlan | None:
    content = body.value.get("content")
    found = (
        {kind: document.follow(media, body.base) for kind, media in content.items()}
        if isinstance(content, dict)
        else {}
    )
    chosen = choose_body({kind: one.value for kind, one in found.items()})
    if chosen is None:
        return None
    base = next(one.base for one in found.values() if one.value is chosen.value)
    required = body.value.get("required") is True
    description = body.value.get("description")
    choice = ""
    if len(chosen.media_types) > 1 and chosen.media_types[0].partition(";")[0] != "application/json":
        options: list[JSON] = [*chosen.media_types]
        kinds = Converted({"type": "string", "enum": options, "default": options[0]}, (), 1)
        choice = collector.add("content_type", "body", kinds, None, False)
    elif "*" in chosen.media_types[0]:
        kinds = Converted({"type": "string", "examples": ["image/png"]}, (), 1)
        choice = collector.add("content_type", "body", kinds, f"A media type {chosen.media_types[0]}", True)
    if chosen.form in ("text", "binary"):
        schema = Converted({"type": "string"}, (), 1)
        note = chosen.media_types[0] if chosen.form == "text" else _BASE64_OR_FILE if reads_files else _BASE64
        text = f"{description} ({note})" if isinstance(description, str) and description else note
        whole = collector.add("body", "request", schema, text, required)
        return BodyPlan(chosen, {}, whole, required, {}, choice)
    schema_value = chosen.value.get("schema", {})
    if chosen.form == "lines":
        item = chosen.value.get("itemSchema")
        schema_value = schema_value or {"type": "array", "items": item if isinstance(item, dict) else {}}
    fields = _fields(document, schema_value, base)
    if fields is None and chosen.form in ("form", "multipart"):
        fields = _all_fields(document, schema_value, base)
    if fields is None or (not fields and chosen.form == "json"):
        whole = collector.add("body", "request", schemas.convert(schema_value, base), description, required)
        return BodyPlan(chosen, {}, whole, required, {}, choice)
    names: dict[str, str] = {}
    encodings: dict[str, FieldEncoding] = {}
    given = chosen.value.get("encoding")
    for name, (field, field_base, is_needed) in fields.items():
        if _is_hidden(document, field, field_base):
            continue
        converted = schemas.convert(field, field_base)
        if chosen.form in ("form", "multipart"):
            file = _file_value(document, field, field_base) if chosen.form == "multipart" else None
            is_file_field, kind = file is not None, "" if file is None else file.get("contentMediaType")
            own = given.get(name) if isinstance(given, dict) else None
            encodings[name] = read_encoding(own, is_file_field, kind if isinstance(kind, str) else "")
            if is_file_field:
                converted = _file_schema(converted, reads_files)
        names[collector.add(name, "body", converted, None, is_needed and required)] = name
    return BodyPlan(chosen, names, "", required, encodings, choice)


def _is_hidden(document: OpenApiDocument, field: Any, base: str) -> bool:
    if not isinstance(field, dict):
        return False
    if field.get("readOnly") is True:
        return True
    value = document.follow(field, base).value if "$ref" in field else field
    return isinstance(value, dict) and value.get("readOnly") is True


def _file_value(document: OpenApiDocument, field: Any, base: str) -> Mapping[str, Any] | None:
    """Returns the schema of a file, or of each of a list of files; None if the field is none."""
    found = document.follow(field, base)
    if isinstance(found.value, dict) and found.value.get("type") == "array":
        found = document.follow(found.value.get("items"), found.base)
    return found.value if is_file(found.value) else None


def _file_schema(converted: Converted, reads_files: bool) -> Converted:
    """Returns the schema of a file: a text, or a list of texts, whose description says what it is."""
    note = _BASE64_OR_FILE if reads_files else _BASE64
    schema = converted.schema if isinstance(converted.schema, dict) else {}
    said = schema.get("description")
    text = f"{said} ({note})" if isinstance(said, str) else note
    if schema.get("type") == "array":
        return Converted({"type": "array", "items": {"type": "string"}, "description": text}, (), 2)
    return Converted({"type": "string", "description": text}, (), 1)


def _fields(document: OpenApiDocument, schema: Any, base: str) -> dict[str, tuple[Any, str, bool]] | None:
    """Returns the properties of an object that is nothing but its properties, those of `allOf` among them.

    Each has the address of the document that it is in, and whether it is required. None if the schema says more.
    """
    found: dict[str, tuple[Any, str]] = {}
    required: set[str] = set()
    pending, seen = [(schema, base)], 0
    while pending:
        seen += 1
        part, part_base = pending.pop(0)
        target = document.follow(part, part_base)
        value = target.value
        if seen > _MAX_PARTS or not isinstance(value, dict) or not _is_plain(value):
            return None
        properties = value.get("properties")
        for name, field in properties.items() if isinstance(properties, dict) else ():
            found[name] = (field, target.base)
        needed = value.get("required")
        required |= {name for name in needed if isinstance(name, str)} if isinstance(needed, list) else set()
        parts = value.get("allOf")
        pending += [(one, target.base) for one in parts] if isinstance(parts, list) else []
    return {name: (*field, name in required) for name, field in found.items()}


def _is_plain(schema: Mapping[str, Any]) -> bool:
    if schema.get("type", "object") != "object" or "discriminator" in schema:
        return False
    for key, value in schema.items():
        if key in _PLAIN_KEYS or key.startswith("x-"):
            continue
        if key == "additionalProperties" and value is False:
            continue
        if key in ("anyOf", "oneOf") and isinstance(value, list) and all(map(_only_requires, value)):
            continue  # which of the properties must be there together, the service says
        return False
    return True


def _only_requires(branch: Any) -> bool:
    return isinstance(branch, dict) and branch.keys() <= {"required", "description", "title"}


def _all_fields(document: OpenApiDocument, schema: Any, base: str) -> dict[str, tuple[Any, str, bool]]:
    """Returns the properties of a form, whatever else its schema says; forms have no other body."""
    target = document.follow(schema, base)
    value = target.value if isinstance(target.value, dict) else {}
    properties, required = value.get("properties"), value.get("required")
    needed = required if isinstance(required, list) else []
    return {
        name: (field, target.base, name in needed)
        for name, field in (properties.items() if isinstance(properties, dict) else ())
    }


def _describe(schema: Any, description: Any) -> JSON:
    """Returns a schema with the description of the parameter, which is nearer to its use than that of the schema."""
    text = clean_excerpt(description, _MAX_DESCRIPTION_CHARS) if isinstance(description, str) else ""
    if not text:
        return schema
    made = schema if isinstance(schema, dict) else {} if schema is True else {"not": {}}
    return {**made, "description": text}


def draft_api_request(
    method: str, path: str, plan: ArgumentPlan, arguments: Mapping[str, JSON], read_file: ReadFile
) -> RequestDraft:
    """Drafts the request of an operation.

    Raises:
        ToolError: an argument is missing, or its place in the request does not allow its value.
    """
    in_path: dict[str, str] = {}
    query: list[str] = []
    cookies: list[str] = []
    headers: dict[str, str] = {}
    for name, style in plan.parameters.items():
        value = arguments.get(name)
        if value is None:
            continue
        if style.place == "querystring":
            query.append(_query_string(style.media_type, value))
            continue
        text = write_parameter(style, value)
        match style.place:
            case "path":
                in_path[style.name] = text
            case "query":
                query.append(text)
            case "header":
                if UNPRINTABLE.search(text):
                    raise ToolError(f"The parameter {name} goes into a header and must not have line breaks.")
                headers[style.name.lower()] = text
            case "cookie":
                cookies.append(text)
            case _:
                raise AssertionError(f"there is no place {style.place}")
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    content = None if plan.body is None else _write_body(plan.body, arguments, headers, read_file)
    return RequestDraft(method, fill_path(path, in_path), "&".join(filter(None, query)), headers, content)


def _query_string(media_type: str, value: JSON) -> str:
    if media_type == FORM_TYPE and isinstance(value, dict):
        return write_form(value, {}).decode()
    return encode_all(text_of(value))


def _write_body(
    plan: BodyPlan, arguments: Mapping[str, JSON], headers: dict[str, str], read_file: ReadFile
) -> bytes | None:
    """Returns the body, and adds its type to the headers."""
    fields = {field: arguments[name] for name, field in plan.fields.items() if name in arguments}
    if plan.whole:
        if plan.whole not in arguments:
            return None
        value = arguments[plan.whole]
    else:
        if not fields and not plan.required:
            return None
        value = fields
    chosen = arguments.get(plan.choice) if plan.choice else None
    kind = chosen if isinstance(chosen, str) else plan.type.media_types[0]
    if not _TYPE.fullmatch(kind):
        raise ToolError(f"The argument {plan.choice} must be a media type such as image/png.")
    content: bytes
    match plan.type.form:
        case "json":
            content = write_json(value)
        case "form":
            content = write_form(_members(value), plan.encodings)
        case "multipart":
            content, kind = write_multipart(_members(value), plan.encodings, read_file)
        case "lines":
            content = write_lines(value)
        case "text":
            content = text_of(value).encode()
        case _:
            content = read_bytes(value, plan.whole, read_file)
    headers["content-type"] = kind
    return content


def _members(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


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
