"""The next page of a service's response: the arguments of the call that returns it, as far as they are known.

They are read from the `Link` header (RFC 8288), from an address or a cursor in the body, from totals beside the rows,
or from a page that is as full as it may be. Names are compared without case and punctuation: `next_page_token` is
`nextPageToken`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from deltamcp.results.pages import main_list, rows_at
from deltamcp.values import JSON

_CURSORS = frozenset(
    {"cursor", "after", "pagetoken", "nexttoken", "nextpagetoken", "nextcursor", "continuationtoken", "continuation"}
    | {"continue", "marker", "nextmarker", "startingafter", "startcursor", "pagecursor", "pageafter", "aftercursor"}
    | {"scrollid", "paginationtoken", "startkey", "exclusivestartkey", "skiptoken", "pagestate"}
)
"""Arguments that take a cursor."""
_NUMBERS = frozenset({"page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage"})
_OFFSETS = frozenset({"offset", "skip", "start", "startat", "startindex", "pageoffset", "from", "first"})
_SIZES = frozenset(
    {"limit", "perpage", "pagesize", "size", "maxresults", "top", "take", "pagelimit", "count", "maxitems", "rows"}
)
_HOLDERS = frozenset(
    {"links", "paging", "pagination", "meta", "page", "pageinfo", "responsemetadata", "metadata", "cursors", "pages"}
)
"""Members that have what is to be said of pages."""
_NEXT_ADDRESSES = frozenset(
    {"next", "nexturl", "nextlink", "odatanextlink", "nextpageurl", "nexthref", "nextpage", "nextpagelink"}
)
_NEXT_TOKENS = frozenset(
    {"next", "nextcursor", "nextpagetoken", "nexttoken", "nextpage", "nextmarker", "nextoffset", "nextstart", "nextkey"}
    | {"continuationtoken", "continuation", "continue", "endcursor", "after", "cursor", "scrollid", "lastevaluatedkey"}
    | {"nextcontinuationtoken", "nextpagecursor", "paginationtoken", "nextskiptoken"}
)
_FLAGS = frozenset({"hasmore", "hasnextpage", "hasnext", "more", "istruncated"})
_PAGE_TOTALS = frozenset({"totalpages", "pages", "pagecount", "lastpage", "numpages", "pagestotal"})
_ROW_TOTALS = frozenset(
    {"total", "totalcount", "totalitems", "totalresults", "totalsize", "totalelements", "totalrows"}
)
_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:\"[^\"]*\"|[^\s\",;]+))*)")
_NEXT_RELATION = re.compile(r"\brel\s*=\s*(?:\"[^\"]*\bnext\b[^\"]*\"|next\b)", re.IGNORECASE)
_MAX_HEADER_CHARS = 8_192
_MAX_CURSOR_CHARS = 8_192
_MAX_PAIRS = 200
_MAX_MEMBERS = 200
"""The members of an object that are looked at."""


class PageArguments(NamedTuple):
    """The arguments of an operation by which its pages are asked for."""

    names: Mapping[str, str]
    """The argument by the name of the parameter in the query; those of a body by their own."""
    properties: Mapping[str, Any]
    """The schemas of all arguments."""
    hidden: Collection[str] = ()
    """Parameters of the query that no argument sets, such as keys."""

    @property
    def has_pages(self) -> bool:
        """Whether the arguments show that results may have pages."""
        kinds = {_normal(name): argument for name, argument in self.names.items()}
        if any(name in _CURSORS for name in kinds):
            return True
        numbers = {name for name, argument in kinds.items() if self._is_number(argument)}
        return not numbers.isdisjoint(_NUMBERS) or not (numbers.isdisjoint(_OFFSETS) or numbers.isdisjoint(_SIZES))

    def find(self, kinds: Collection[str], number: bool) -> str | None:
        """Returns the first argument of some kinds; `number` is whether it must take one."""
        for name, argument in self.names.items():
            if _normal(name) in kinds and (not number or self._is_number(argument)):
                return argument
        return None

    def _is_number(self, argument: str) -> bool:
        return bool(_types(self.properties.get(argument)) & {"integer", "number"})

    def default(self, argument: str) -> JSON:
        schema = self.properties.get(argument)
        return schema.get("default") if isinstance(schema, dict) else None

    def convert(self, argument: str, text: str) -> JSON:
        """Returns a text of a query as the argument has it."""
        types = _types(self.properties.get(argument))
        if "integer" in types and re.fullmatch(r"-?[0-9]{1,18}", text):
            return int(text)
        if "boolean" in types and text in ("true", "false"):
            return text == "true"
        return text


def next_arguments(
    value: JSON, links: str, arguments: Mapping[str, JSON], pages: PageArguments
) -> dict[str, JSON] | None:
    """Returns all arguments of the call for the page after a response; None if none is known.

    Args:
        value: The JSON of the response.
        links: Its `Link` header.
        arguments: Those of the call that it answers.
    """
    if not pages.names:
        return None
    changed = (
        _from_address(_link_address(links), arguments, pages)
        or _from_address(_address(value), arguments, pages)
        or _from_body(value, arguments, pages)
    )
    return {**arguments, **changed} if changed else None


def _link_address(header: str) -> str:
    """Returns the address of the next page in a `Link` header."""
    for address, parameters in _LINK.findall(header[:_MAX_HEADER_CHARS]):
        if _NEXT_RELATION.search(parameters):
            return str(address)
    return ""


def _holders(value: JSON) -> Iterator[dict[str, JSON]]:
    """Yields the objects of a response that may say something about pages, by normalized names."""
    if not isinstance(value, dict):
        return
    outer = _members(value)
    yield outer
    for name, member in outer.items():
        if name in _HOLDERS and isinstance(member, dict):
            inner = _members(member)
            yield inner
            cursors = inner.get("cursors")
            if isinstance(cursors, dict):
                yield _members(cursors)


def _members(value: dict[str, JSON]) -> dict[str, JSON]:
    return {_normal(name): value[name] for name, _ in zip(value, range(_MAX_MEMBERS), strict=False)}


def _address(value: JSON) -> str:
    """Returns the address of the next page in a response."""
    for holder in _holders(value):
        for name in _NEXT_ADDRESSES:
            member = holder.get(name)
            if isinstance(member, dict):
                member = member.get("href") or member.get("url")
            if isinstance(member, str) and _is_address(member):
                return member
    return ""


def _is_address(text: str) -> bool:
    return len(text) <= _MAX_HEADER_CHARS and (text.startswith(("http://", "https://", "/", "?")) and "?" in text)


def _from_address(address: str, arguments: Mapping[str, JSON], pages: PageArguments) -> dict[str, JSON] | None:
    """Returns what the query of an address changes; None if it has a parameter that no argument sets."""
    if not address:
        return None
    try:
        pairs = parse_qsl(urlsplit(address).query, keep_blank_values=True, max_num_fields=_MAX_PAIRS)
    except ValueError:
        return None
    counts: dict[str, list[str]] = {}
    for name, text in pairs:
        if name in pages.hidden:
            continue
        if name not in pages.names:
            return None
        counts.setdefault(pages.names[name], []).append(text)
    changed: dict[str, JSON] = {}
    for argument, texts in counts.items():
        if isinstance(arguments.get(argument), list | dict):
            continue  # a list may be written in several ways, and is the same on every page
        converted = pages.convert(argument, texts[0])
        if len(texts) == 1 and arguments.get(argument, pages.default(argument)) != converted:
            changed[argument] = converted
    return changed or None


def _from_body(value: JSON, arguments: Mapping[str, JSON], pages: PageArguments) -> dict[str, JSON] | None:
    told: dict[str, JSON] = {}
    for holder in _holders(value):
        told = {**holder, **told}
    flags = [told[name] for name in _FLAGS if isinstance(told.get(name), bool)]
    if flags and not any(flags):
        return None
    path = main_list(value)
    rows = None if path is None else rows_at(value, path)
    return _from_token(told, arguments, pages) or _from_count(told, rows, any(flags), arguments, pages)


def _from_token(
    told: Mapping[str, JSON], arguments: Mapping[str, JSON], pages: PageArguments
) -> dict[str, JSON] | None:
    for name in (one for one in told if one in _NEXT_TOKENS):
        token = told[name]
        is_number = isinstance(token, int) and not isinstance(token, bool)
        if not is_number and not (isinstance(token, str) and 0 < len(token) <= _MAX_CURSOR_CHARS):
            continue
        wanted = _token_kinds(name, is_number or str(token).isdecimal())
        argument = next((found for kinds, number in wanted if (found := pages.find(kinds, number)) is not None), None)
        if argument is None:
            continue
        converted = pages.convert(argument, str(token)) if isinstance(token, str) else token
        if is_number and "string" in _types(pages.properties.get(argument)):
            converted = str(token)
        if arguments.get(argument) != converted:
            return {argument: converted}
    return None


def _token_kinds(name: str, is_number: bool) -> Iterable[tuple[Collection[str], bool]]:
    """Returns the kinds of arguments that a token may be for, the most probable first."""
    yield {name, name.removeprefix("next"), f"page{name.removeprefix('next')}"} & _CURSORS, False
    if is_number and name in ("nextpage", "next"):
        yield _NUMBERS, True
    if is_number and name in ("nextoffset", "nextstart", "next"):
        yield _OFFSETS, True
    yield _CURSORS, False


def _from_count(
    told: Mapping[str, JSON],
    rows: list[JSON] | None,
    has_more: bool,
    arguments: Mapping[str, JSON],
    pages: PageArguments,
) -> dict[str, JSON] | None:
    """Returns the next number or offset, if totals, a flag or a full page show that there are more rows."""
    if not rows:
        return None
    last = rows[-1]
    after = pages.find({"startingafter"}, False)
    if has_more and after is not None and isinstance(last, dict) and isinstance(last.get("id"), str | int):
        return {after: last["id"]}
    size = _number(arguments, pages.find(_SIZES, True), pages)
    total = next((told[name] for name in _ROW_TOTALS if _is_count(told.get(name))), None)
    number_argument, offset_argument = pages.find(_NUMBERS, True), pages.find(_OFFSETS, True)
    if number_argument is not None:
        shown = _number(arguments, number_argument, pages)
        number = shown if shown is not None else told.get("page", 1) if _is_count(told.get("page", 1)) else 1
        last_page = next((told[name] for name in _PAGE_TOTALS if _is_count(told.get(name))), None)
        is_first_zero = pages.default(number_argument) == 0
        if last_page is not None:
            more = number + is_first_zero < last_page
        elif total is not None and size:
            more = (number + is_first_zero) * size < total
        else:
            more = has_more or (size is not None and 0 < size <= len(rows))
        return {number_argument: number + 1} if more else None
    if offset_argument is not None:
        offset = _number(arguments, offset_argument, pages) or 0
        following = offset + len(rows)
        more = following < total if total is not None else has_more or (size is not None and 0 < size <= len(rows))
        return {offset_argument: following} if more else None
    return None


def _number(arguments: Mapping[str, JSON], argument: str | None, pages: PageArguments) -> int | None:
    if argument is None:
        return None
    value = arguments.get(argument, pages.default(argument))
    return value if _is_count(value) else None


def _is_count(value: JSON) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    given = schema.get("type")
    own = (
        {given}
        if isinstance(given, str)
        else {one for one in given if isinstance(one, str)}
        if isinstance(given, list)
        else set()
    )
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else ():
            if isinstance(branch, dict) and isinstance(branch.get("type"), str):
                own.add(branch["type"])
    return own


def _normal(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
