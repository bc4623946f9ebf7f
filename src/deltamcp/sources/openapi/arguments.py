"""The arguments of an operation, under names that differ, as one schema; and the request that they make."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from deltamcp.catalog.text.clean_text import clean_excerpt
from deltamcp.errors import ToolError
from deltamcp.sources.http import FORM_TYPE, UNPRINTABLE, RequestDraft, fill_path
from deltamcp.sources.openapi import body as bodies
from deltamcp.sources.openapi.body import BodyType, FieldEncoding, ReadFile, choose_body, is_file, read_encoding
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.operations import DocumentBody, DocumentParameter, OperationFaultError
from deltamcp.sources.openapi.parameters import Style, encode_all, read_style, text_of, write_parameter
from deltamcp.sources.openapi.schema import Converted, Schemas
from deltamcp.values import JSON

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
        return bodies.write_form(value, {}).decode()
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
            content = bodies.write_json(value)
        case "form":
            content = bodies.write_form(_members(value), plan.encodings)
        case "multipart":
            content, kind = bodies.write_multipart(_members(value), plan.encodings, read_file)
        case "lines":
            content = bodies.write_lines(value)
        case "text":
            content = text_of(value).encode()
        case _:
            content = bodies.read_bytes(value, plan.whole, read_file)
    headers["content-type"] = kind
    return content


def _members(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
