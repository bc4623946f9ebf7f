"""Drafts of HTTP requests: puts each argument of an operation into its place, without I/O."""

import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode

from msgspec import UNSET, Struct, UnsetType

from deltamcp.catalog.operations_file.document import PLACEHOLDER, HttpHandler, ParameterPlace
from deltamcp.errors import ToolError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_COOKIE_UNSAFE = re.compile(r'[\x00-\x20",;\\\x7f]')


class RequestDraft(Struct, frozen=True):
    """A request without its host."""

    path: str
    query: str
    headers: dict[str, str]
    """Values by name in lower case."""
    json: JSON | UnsetType
    form: str | None


def draft_request(handler: HttpHandler, arguments: dict[str, JSON]) -> RequestDraft:
    """Drafts the request for an operation's arguments.

    Raises:
        ToolError: an argument is missing, or its place in the request does not allow its value.
    """
    placed = [(handler.place_of(parameter), value) for parameter, value in arguments.items()]
    template, _, fixed = handler.path.partition("?")
    in_path = {place.name: _path_text(place.name, value) for place, value in _arguments_in("path", placed)}
    headers = {place.name.lower(): _header_text(place.name, value) for place, value in _arguments_in("header", placed)}
    cookies = "; ".join(
        f"{place.name}={_cookie_text(place.name, value)}" for place, value in _arguments_in("cookie", placed)
    )
    if cookies:
        headers["cookie"] = cookies
    body = {place.name: value for place, value in placed if place.location == "body"}
    form = _encode_pairs(_arguments_in("form", placed))
    return RequestDraft(
        path="/".join(_fill_segment(segment, in_path) for segment in template.split("/")),
        query="&".join(
            part for part in (_fill_template(fixed, in_path), _encode_pairs(_arguments_in("query", placed))) if part
        ),
        headers=headers,
        json=body.get("*", body) if body else UNSET,
        form=form or None,
    )


def _arguments_in(location: str, placed: Iterable[tuple[ParameterPlace, JSON]]) -> list[tuple[ParameterPlace, JSON]]:
    """Returns the arguments that go to one location; null arguments are left out."""
    return [(place, value) for place, value in placed if place.location == location and value is not None]


def _path_text(name: str, value: JSON) -> str:
    items = value if isinstance(value, list) else [value]
    piece = ",".join(quote(_text(item), safe="") for item in items)
    if not piece:
        raise ToolError(f"The parameter {name} is part of an address and must not be empty.")
    return piece


def _fill_template(template: str, pieces: dict[str, str]) -> str:
    def piece(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in pieces:
            raise ToolError(f"The parameter {name} is part of the address and must be given.")
        return pieces[name]

    return PLACEHOLDER.sub(piece, template)


def _fill_segment(template: str, pieces: dict[str, str]) -> str:
    segment = _fill_template(template, pieces)
    if segment != template and segment in (".", ".."):
        raise ToolError(f"A parameter in the address must not be {segment!r}.")
    return segment


def _header_text(name: str, value: JSON) -> str:
    text = ", ".join(map(_text, value)) if isinstance(value, list) else _text(value)
    if UNPRINTABLE.search(text):
        raise ToolError(f"The parameter for the header {name} must not have line breaks or control characters.")
    return text


def _cookie_text(name: str, value: JSON) -> str:
    text = _text(value)
    if _COOKIE_UNSAFE.search(text):
        raise ToolError(f"The parameter for the cookie {name} must not have spaces, quotes, commas or semicolons.")
    return text


def _encode_pairs(placed: Iterable[tuple[ParameterPlace, JSON]]) -> str:
    pairs = [
        (place.name, _text(item))
        for place, value in placed
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    return urlencode(pairs, quote_via=quote)


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else jsonrpc.encode(value).decode()
