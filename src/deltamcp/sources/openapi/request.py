"""The request of an operation for its arguments."""

import re
from collections.abc import Mapping

from deltamcp.catalog.operations_file.document import PLACEHOLDER
from deltamcp.errors import ToolError
from deltamcp.sources.http import FORM_TYPE, UNPRINTABLE, RequestDraft
from deltamcp.sources.openapi import body as bodies
from deltamcp.sources.openapi.arguments import ArgumentPlan, BodyPlan
from deltamcp.sources.openapi.body import ReadFile
from deltamcp.sources.openapi.parameters import encode_all, text_of, write_parameter
from deltamcp.values import JSON

_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(;\s*[\w.+-]+=[\w.+\"-]+)*")


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
    return RequestDraft(method, _fill_path(path, in_path), "&".join(filter(None, query)), headers, content)


def _query_string(media_type: str, value: JSON) -> str:
    if media_type == FORM_TYPE and isinstance(value, dict):
        return bodies.write_form(value, {}).decode()
    return encode_all(text_of(value))


def _fill_path(path: str, pieces: Mapping[str, str]) -> str:
    def fill_segment(template: str) -> str:
        def piece(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in pieces:
                raise ToolError(f"The parameter {name} is part of the address and must be given.")
            return pieces[name]

        segment = PLACEHOLDER.sub(piece, template)
        if segment != template and segment in (".", ".."):
            raise ToolError(f"A parameter in the address must not be {segment!r}.")
        return segment

    return "/".join(map(fill_segment, path.split("/")))


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
