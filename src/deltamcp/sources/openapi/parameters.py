"""Values of parameters as texts of a request: the styles of OpenAPI 3.2, 4.12.2 (Style Values), as a table.

Percent-encoding follows RFC 6570: every value by itself, so that a delimiter between values stays what it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import msgspec

from deltamcp.errors import ToolError
from deltamcp.sources.http import text_of
from deltamcp.values import JSON

_RESERVED = ":/?#[]@!$&'()*+,;="
"""RFC 3986, 2.2: what `allowReserved` leaves as it is."""
_QUERY_RESERVED = ":/?[]@!$'()*,;"
"""The same in a query, where `#`, `&`, `=` and `+` would end the value or change it (OpenAPI 3.2, 4.12.2.1)."""

_COOKIE_UNSAFE = re.compile(r"[\x00-\x1f;\x7f]")

Pairs: TypeAlias = list[tuple[str, str]]
"""Names and values, both encoded already."""
Encode: TypeAlias = Callable[[str], str]


class Rule(NamedTuple):
    """How a style writes a value: what is before it, between its items, and whether each has the name."""

    prefix: str
    separator: str
    """Between the items of a list and the members of an object that are not exploded."""
    exploded: str
    """The same of those that are."""
    is_named: bool
    """Whether the value is a pair with the name of the parameter, or several."""


STYLES: Mapping[str, Rule] = {
    "matrix": Rule(";", ",", ";", True),
    "label": Rule(".", ",", ".", False),
    "simple": Rule("", ",", ",", False),
    "form": Rule("", ",", "&", True),
    "spaceDelimited": Rule("", "%20", "&", True),
    "pipeDelimited": Rule("", "%7C", "&", True),
    "tabDelimited": Rule("", "%09", "&", True),
    "deepObject": Rule("", ",", "&", True),
    "cookie": Rule("", ",", "; ", True),
    "simpleSpaces": Rule("", "%20", "%20", False),
    "simplePipes": Rule("", "%7C", "%7C", False),
    "simpleTabs": Rule("", "%09", "%09", False),
}
"""All styles of the specification, and what only Swagger 2.0 has: tabs, and delimiters in a path and in headers."""

PLACES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix", "simpleSpaces", "simplePipes", "simpleTabs"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "tabDelimited"),
    "header": ("simple", "simpleSpaces", "simplePipes", "simpleTabs"),
    "cookie": ("form", "cookie"),
}
"""The styles of each place, the default first."""


def encode_all(text: str) -> str:
    """Percent-encodes everything but unreserved characters."""
    return quote(text, safe="")


def encode_reserved(text: str) -> str:
    """Percent-encodes what no query may have; texts that are encoded already stay as they are."""
    return quote(text, safe=_QUERY_RESERVED + "%" if _has_triples(text) else _QUERY_RESERVED)


def encode_reserved_path(text: str) -> str:
    """The same in a path, where a slash, too, is the value's own."""
    return quote(text, safe=_RESERVED.translate({ord("?"): None, ord("#"): None}))


def as_is(text: str) -> str:
    return text


def check_cookie(text: str) -> str:
    """Returns a text that goes into a cookie as it is.

    Raises:
        ToolError: it would end the cookie.
    """
    if _COOKIE_UNSAFE.search(text):
        raise ToolError("A parameter that goes into a cookie must not have semicolons or control characters.")
    return text


def _has_triples(text: str) -> bool:
    parts = text.split("%")[1:]
    return bool(parts) and all(
        len(part) >= 2 and all(c in "0123456789abcdefABCDEF" for c in part[:2]) for part in parts
    )


def write(name: str, value: JSON, style: str, explode: bool, encode: Encode = encode_all) -> str:
    """Returns a value in a style, with the name where the style has it."""
    rule = STYLES[style]
    if style == "deepObject" and isinstance(value, dict | list):
        return rule.exploded.join(f"{encode_all(key)}={encode(text)}" for key, text in deep_pairs(name, value))
    if rule.is_named:
        return rule.prefix + (rule.exploded or "&").join(
            _join_pair(pair, style) for pair in _pairs(name, value, rule, explode, encode)
        )
    return rule.prefix + _write_unnamed(value, rule, explode, encode)


def _join_pair(pair: tuple[str, str], style: str) -> str:
    # RFC 6570, 3.2.7: a path parameter without a value has no equals sign.
    return pair[0] if style == "matrix" and not pair[1] else f"{pair[0]}={pair[1]}"


def _pairs(name: str, value: JSON, rule: Rule, explode: bool, encode: Encode) -> Pairs:
    label = encode(name)
    match value:
        case list():
            items = [encode(text_of(item)) for item in value if item is not None]
            return [(label, item) for item in items] if explode else [(label, rule.separator.join(items))]
        case dict():
            members = [(encode(key), encode(text_of(member))) for key, member in value.items() if member is not None]
            return members if explode else [(label, rule.separator.join(text for pair in members for text in pair))]
        case _:
            return [(label, encode(text_of(value)))]


def _write_unnamed(value: JSON, rule: Rule, explode: bool, encode: Encode) -> str:
    between = rule.exploded if explode else rule.separator
    if encode is as_is:
        between = unquote(between)
    match value:
        case list():
            return between.join(encode(text_of(item)) for item in value if item is not None)
        case dict():
            members = [(encode(key), encode(text_of(member))) for key, member in value.items() if member is not None]
            return between.join(f"{key}={text}" if explode else f"{key}{rule.separator}{text}" for key, text in members)
        case _:
            return encode(text_of(value))


def deep_pairs(name: str, value: JSON) -> Iterable[tuple[str, str]]:
    """Yields the pairs of `deepObject`: `a[b]=1`. The specification leaves open what is nested in a member; objects and
    lists are written as most servers read them, `a[b][c]=1` and `a[b][0]=1`."""
    match value:
        case dict():
            for key, member in value.items():
                yield from deep_pairs(f"{name}[{key}]", member)
        case list():
            for index, member in enumerate(value):
                yield from deep_pairs(f"{name}[{index}]", member)
        case None:
            return
        case _:
            yield name, text_of(value)


class Style(NamedTuple):
    """How one parameter is written."""

    name: str
    place: str
    """`path`, `query`, `header`, `cookie` or `querystring`."""
    style: str
    explode: bool
    allow_reserved: bool = False
    media_type: str = ""
    """Of a parameter with `content`, which is written as that type instead."""


def read_style(name: str, place: str, parameter: Mapping[str, object]) -> Style | str:
    """Returns the style of a parameter of a document, or what is wrong with it."""
    styles = PLACES.get(place)
    if styles is None and place != "querystring":
        return f"the parameter {name} is in {place!r}, which is no place of a request"
    content = parameter.get("content")
    if isinstance(content, dict) and content:
        kind = str(next(iter(content))).partition(";")[0].strip().lower()
        return Style(name, place, "", False, False, kind or "text/plain")
    if styles is None:
        return f"the parameter {name} is the whole query and needs a content"
    given = parameter.get("style", styles[0])
    if given not in styles:
        return f"the parameter {name} has the style {given!r}, which the {place} does not have"
    style = str(given)
    explode = parameter.get("explode")
    is_exploded = explode if isinstance(explode, bool) else style in ("form", "cookie")
    return Style(name, place, style, is_exploded, parameter.get("allowReserved") is True)


def write_parameter(style: Style, value: JSON) -> str:
    """Returns a parameter as it is in its place: in the query and in cookies with its name.

    Raises:
        ToolError: the place does not allow the value.
    """
    if style.media_type:
        is_json = style.media_type.endswith(("/json", "+json"))
        text = value if isinstance(value, str) and not is_json else msgspec.json.encode(value).decode()
        match style.place:
            case "query":
                return f"{encode_all(style.name)}={encode_all(text)}"
            case "cookie":
                return f"{style.name}={encode_all(text)}"
            case "path":
                return encode_all(text)
            case _:
                return text
    match style.place:
        case "path":
            encode = encode_reserved_path if style.allow_reserved else encode_all
        case "query":
            encode = encode_reserved if style.allow_reserved else encode_all
        case "header":
            encode = as_is
        case _:
            encode = check_cookie if style.style == "cookie" else encode_all
    written = write(style.name, value, style.style, style.explode, encode)
    if style.place == "path" and not written:
        raise ToolError(f"The parameter {style.name} is part of an address and must not be empty.")
    return written
