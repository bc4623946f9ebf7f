"""Converts values into the result shapes that Delta-MCP clients know: `truncated`, `paginated`, `_summarized`.

`original_shape` makes the shapes exactly as Delta-MCP 0.2 does, mistakes included; `budgeted_shape` makes shapes that
fit a token budget, and `own_page_shape` does so for tools that take pages themselves. Lengths are JavaScript's: UTF-16
code units.
"""

import enum
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, islice
from typing import NamedTuple

from deltamcp.results.policy import DELTA_MCP_MAX_TOKENS
from deltamcp.values import JSON
from deltamcp.wire.canonical import encode_canonical

_DEFAULT_PAGE_SIZE = 50
_CHARS_PER_TOKEN = 4
"""Delta-MCP's estimate."""
_MIN_NOTE_TOKENS = 200
_MIN_PAGE_NUMBER_TOKENS = 100
"""Budgets from which a shape has a note or a page its numbers; a page's note costs 24 tokens, its numbers 19."""
_GLIMPSE_DIVISOR = 10
"""An item too large for a page shows at least the budget's characters divided by this number, if they fit."""
_MAX_DEPTH = 10_000
"""Node's own stack ends near this depth; the limit also stops at a value that contains itself."""

_encode_python_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_DIFFERS_FROM_JAVASCRIPT = re.compile(r"(?<=[0-9])\.0(?![0-9])|(?<=[0-9])e[-+][0-9]|[\ud800-\udfff]")
"""Where Python's JSON and JavaScript's can differ; a match inside a string only costs time."""
_SEARCHED_CHARS = 64 * 1024
"""How much is searched at a time; a regular expression keeps the interpreter's lock for as long as it searches."""
_MAX_INTEGER_DIGITS = 4300
"""Python's default limit for converting an integer to text."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_JAVASCRIPT_WHITESPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_DECIMAL_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARS = 100
"""Longer texts are not read as numbers: the pattern takes time in proportion to the square of their length."""
_PREFIXED_NUMBER = re.compile(r"0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")


class ShapedValue(NamedTuple):
    """A value as the server sends it, and whether a part of the original is cut."""

    value: JSON
    cut: bool


class _ShapeDetail(enum.Enum):
    """How much information a shape has besides the data."""

    NOTES = enum.auto()
    NUMBERS = enum.auto()
    MARKS = enum.auto()


def original_shape(
    value: JSON,
    max_tokens: JSON = DELTA_MCP_MAX_TOKENS,
    paginate_after: JSON = None,
    page: JSON = None,
    page_size: JSON = None,
) -> JSON:
    """Returns a tool's value in the shape that Delta-MCP's result handler gives it; a small value stays unchanged.

    `page` and `page_size` are the raw arguments of the call, None where absent. As in Delta-MCP, JavaScript's
    `Number()` converts them, and anything but a positive number counts as absent.

    The function keeps Delta-MCP's mistakes: pages have no budget, the last page's note offers another page, and a
    preview may end within a character.

    Raises:
        TypeError, ValueError: as `stringify`.
    """
    limit = _positive_integer(max_tokens) or DELTA_MCP_MAX_TOKENS
    abridged = functools.partial(
        _abridged_shape, value, limit, _ShapeDetail.NOTES, _utf16_prefix, limit * _CHARS_PER_TOKEN
    )
    if isinstance(value, str):
        return value if _utf16_length(value) <= limit * _CHARS_PER_TOKEN else abridged(value)
    if isinstance(value, list | tuple):
        size = _choose_page_size(page_size, paginate_after)
        if len(value) > size:
            number = _clamp_page(page, len(value), size)
            items = list(value[(number - 1) * size : number * size])
            return _page_shape(items, len(value), number, size, _ShapeDetail.NOTES, offers_next=True)
        return value if _estimate_tokens(stringify(value)) <= limit else abridged(stringify(value, 2))
    if isinstance(value, dict):
        text = stringify(value)
        return value if _estimate_tokens(text) <= limit else abridged(text)
    return value


def budgeted_shape(
    value: JSON,
    fits: Callable[[str], bool],
    max_tokens: JSON = DELTA_MCP_MAX_TOKENS,
    page: JSON = None,
    page_size: JSON = None,
    paginate_after: JSON = None,
    pages_by_argument: bool = True,
) -> ShapedValue:
    """Returns a tool's value in a Delta-MCP shape for which `fits(stringify(shape.value))` holds.

    `fits` says whether a JSON text is within `max_tokens` of the model's tokens. Every value has a shape that fits 50
    tokens; below that the function returns the smallest shape, which may not fit.

    - A preview is the longest beginning of the compact JSON that fits, and ends between characters. Its note gives its
      length.
    - A list that is too long, or does not fit, is divided into pages. Where not all pages of the requested size fit,
      all pages are smaller: with the same arguments, or the `pageSize` of the reply, the next page starts where this
      one ends.
    - An item that does not fit on a page by itself has its own truncated or summarised shape, without a note.
    - The last page's note offers no next page, and no note does where the caller cannot request pages by argument
      (`pages_by_argument`). Under 200 tokens there are no notes, and under 100 a page has only `paginated`, `hasMore`
      and `items`; other shapes lose their numbers only where they do not fit otherwise.

    Raises:
        TypeError, ValueError: as `stringify`.
    """
    limit = _positive_integer(max_tokens) or DELTA_MCP_MAX_TOKENS
    if isinstance(value, list | tuple) and value:
        size = _choose_page_size(page_size, paginate_after)
        texts = [stringify(item) for item in value]
        if len(texts) <= size and fits(f"[{','.join(texts)}]"):
            return ShapedValue(value, False)
        return ShapedValue(_fit_page(value, texts, fits, limit, page, size, pages_by_argument), True)
    text = stringify(value)
    return ShapedValue(value, False) if fits(text) else ShapedValue(_fit_value(value, text, fits, limit), True)


def own_page_shape(
    value: JSON,
    fits: Callable[[str], bool],
    max_tokens: JSON = DELTA_MCP_MAX_TOKENS,
    page: JSON = None,
    page_size: JSON = None,
    default_size: JSON = None,
) -> ShapedValue:
    """Returns the value of a tool that takes `page` itself, for which `fits(stringify(shape.value))` holds.

    A list of more rows than `page_size`, or else `default_size`, is not one page of the tool's: the requested page is
    cut from it as in `budgeted_shape`. Any other list is the tool's own page, and stays as it is. Where that does not
    fit, the shape is a preview, which no client takes for a page: after a page with fewer rows, the next page of the
    tool's would not start where this one ends.

    Raises:
        TypeError, ValueError: as `stringify`.
    """
    size = _positive_integer(_to_number(page_size)) or _positive_integer(default_size)
    if not isinstance(value, list | tuple) or (size is not None and len(value) > size):
        return budgeted_shape(value, fits, max_tokens, page, page_size, default_size)
    text = stringify(value)
    if fits(text):
        return ShapedValue(value, False)
    limit = _positive_integer(max_tokens) or DELTA_MCP_MAX_TOKENS
    advice = "" if size is None else " Pass a smaller pageSize."
    return ShapedValue(_fit_value(value, text, fits, limit, advice), True)


def stringify(value: JSON, indent: int = 0) -> str:
    """Writes JSON as JavaScript's `JSON.stringify` does, with two differences that follow from Python's values.

    Keys keep their order even where they look like numbers, and integers keep all their digits.

    Raises:
        TypeError: the value contains something that is not JSON.
        ValueError: the value contains itself, or is nested deeper than 10,000 levels.
    """
    if not indent:
        try:
            text = _encode_python_json(value)
        except (ValueError, RecursionError):
            return _write_json(value, indent)
        ends = range(_SEARCHED_CHARS, len(text) + _SEARCHED_CHARS, _SEARCHED_CHARS)
        if not any(_DIFFERS_FROM_JAVASCRIPT.search(text, end - _SEARCHED_CHARS, end + 2) for end in ends):
            return text
    return _write_json(value, indent)


def _write_json(value: JSON, indent: int) -> str:
    """Writes JSON without recursion, because values may be nested deeper than Python's stack."""
    parts: list[str] = []
    open_: list[tuple[Iterator[tuple[str, JSON]], str]] = []
    colon = ": " if indent else ":"
    while True:
        if value and isinstance(value, dict | list | tuple):
            if len(open_) == _MAX_DEPTH:
                raise ValueError(f"a value is nested deeper than {_MAX_DEPTH} levels")
            separator, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
            open_.append((_labelled_members(value, colon), closing))
        else:
            parts.append(_scalar_text(value))
            separator = ","
        while open_:
            members, closing = open_[-1]
            member = next(members, None)
            if member is not None:
                label, value = member
                parts += (separator, _line_break(indent, len(open_)), label)
                break
            open_.pop()
            parts += (_line_break(indent, len(open_)), closing)
            separator = ","
        else:
            return "".join(parts)


def _labelled_members(value: JSON, colon: str) -> Iterator[tuple[str, JSON]]:
    if isinstance(value, dict):
        return (
            (_quote(key if isinstance(key, str) else _scalar_text(key)) + colon, inner) for key, inner in value.items()
        )
    return (("", inner) for inner in value)


def _line_break(indent: int, depth: int) -> str:
    return "\n" + " " * (indent * depth) if indent else ""


def _scalar_text(value: JSON) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, float):
        return encode_canonical(value).decode() if math.isfinite(value) else "null"
    if isinstance(value, int) and value.bit_length() > 3 * _MAX_INTEGER_DIGITS:
        return f"{Decimal(value):f}"
    return _encode_python_json(value)


def _quote(text: str) -> str:
    quoted = _encode_python_json(text)
    if not _SURROGATE.search(quoted):
        return quoted
    # Two halves of a character that stand side by side are the character.
    joined = quoted.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", joined)


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _utf16_prefix(text: str, count: int) -> str:
    return text[:count].encode("utf-16-le", "surrogatepass")[: 2 * count].decode("utf-16-le", "surrogatepass")


def _character_prefix(text: str, count: int) -> str:
    first = _utf16_prefix(text, count)
    return first[:-1] if "\ud800" <= first[-1:] <= "\udbff" else first


def _estimate_tokens(text: str) -> int:
    return math.ceil(_utf16_length(text) / _CHARS_PER_TOKEN)


def _positive_integer(value: JSON) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        return None
    return math.floor(value)


def _to_number(value: JSON) -> float:
    """Converts a value other than a list as JavaScript's `Number()` does."""
    if isinstance(value, str):
        text = value.strip(_JAVASCRIPT_WHITESPACE)
        if len(text) > _MAX_NUMBER_CHARS:
            return math.nan
        if _DECIMAL_NUMBER.fullmatch(text):
            return float(text)
        value = int(text, 0) if _PREFIXED_NUMBER.fullmatch(text) else math.nan if text else 0
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.inf


def _choose_page_size(page_size: JSON, paginate_after: JSON) -> int:
    return _positive_integer(_to_number(page_size)) or _positive_integer(paginate_after) or _DEFAULT_PAGE_SIZE


def _clamp_page(page: JSON, total: int, size: int) -> int:
    return min(_positive_integer(_to_number(page)) or 1, math.ceil(total / size))


def _page_shape(
    items: list[JSON], total: int, number: int, size: int, detail: _ShapeDetail, offers_next: bool
) -> dict[str, JSON]:
    pages = math.ceil(total / size)
    if detail is _ShapeDetail.MARKS:
        return {"paginated": True, "hasMore": number < pages, "items": items}
    shape = {
        "paginated": True,
        "totalItems": total,
        "page": number,
        "pageSize": size,
        "totalPages": pages,
        "hasMore": number < pages,
        "items": items,
    }
    if detail is _ShapeDetail.NOTES:
        following = f" Pass page={number + 1} for next page." if offers_next else ""
        shape["note"] = f"Page {number}/{pages}. {total} total items.{following}"
    return shape


def _abridged_shape(
    value: JSON,
    limit: int,
    detail: _ShapeDetail,
    first: Callable[[str, int], str],
    chars: int,
    text: str,
    advice: str = "",
) -> dict[str, JSON]:
    """Returns the shape of one value with `chars` characters of it; `text` is the string itself, or the value's JSON.

    `advice` ends the note of a list.
    """
    if isinstance(value, dict):
        return _summary_shape(value, limit, detail, first, chars, text)
    preview, length, tokens = first(text, chars), _utf16_length(text), _estimate_tokens(text)
    shape: dict[str, JSON] = {"truncated": True}
    if detail is not _ShapeDetail.MARKS:
        shape |= {"totalChars": length, "estimatedTokens": tokens}
    shape["preview"] = preview
    if detail is _ShapeDetail.NOTES and isinstance(value, str):
        shape["note"] = (
            f"String truncated to ~{limit} tokens ({_utf16_length(preview)} chars). "
            f"Full length: {length} chars (~{tokens} tokens)."
        )
    elif detail is _ShapeDetail.NOTES:
        shape["note"] = f"JSON result truncated to ~{limit} tokens. Total: ~{tokens} tokens.{advice}"
    return shape


def _summary_shape(
    value: dict[str, JSON], limit: int, detail: _ShapeDetail, first: Callable[[str, int], str], chars: int, text: str
) -> dict[str, JSON]:
    shape: dict[str, JSON] = {"_summarized": True}
    if detail is not _ShapeDetail.MARKS:
        shape |= {"_totalKeys": len(value), "_estimatedTokens": _estimate_tokens(text)}
    if detail is _ShapeDetail.NOTES:
        shape["_note"] = f"Object exceeded ~{limit} token budget. Showing key structure and value previews."
    for place, (key, inner) in enumerate(value.items()):
        preview = _preview(inner, first)
        chars -= _utf16_length(stringify({key: preview}))
        if chars < 0:
            shape["_truncatedKeys"] = len(value) - place
            break
        shape[key] = preview
    return shape


def _preview(value: JSON, first: Callable[[str, int], str]) -> JSON:
    if isinstance(value, str):
        return value if _utf16_length(value) <= 100 else first(value, 100) + "…"
    if isinstance(value, list | tuple):
        return f"[Array({len(value)})]"
    if isinstance(value, dict):
        keys = ", ".join(map(str, islice(value, 5)))
        return f"{{Object: {keys}{', ...' if len(value) > 5 else ''}}}"
    return value


def _possible_details(limit: int, numbers_from: int) -> list[_ShapeDetail]:
    min_tokens = {_ShapeDetail.NOTES: _MIN_NOTE_TOKENS, _ShapeDetail.NUMBERS: numbers_from, _ShapeDetail.MARKS: 0}
    return [detail for detail in _ShapeDetail if limit >= min_tokens[detail]]


def _largest_count(upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Returns the largest count that fits, to within a 64th; `lower` must fit."""
    if fits(upper):
        return upper
    while upper - lower > 1 + lower // 64:
        middle = (lower + upper) // 2
        if fits(middle):
            lower = middle
        else:
            upper = middle
    return lower


def _fit_value(value: JSON, text: str, fits: Callable[[str], bool], limit: int, advice: str = "") -> JSON:
    whole = value if isinstance(value, str) else text
    for detail in _possible_details(limit, 0):
        shape = functools.partial(_abridged_shape, value, limit, detail, _character_prefix, text=whole, advice=advice)
        if fits(stringify(shape(chars=0))):
            return shape(chars=_largest_count(limit * _CHARS_PER_TOKEN, _fits_with_chars(shape, fits)))
    return shape(chars=0)


def _fits_with_chars(shape: Callable[..., JSON], fits: Callable[[str], bool]) -> Callable[[int], bool]:
    return lambda chars: fits(stringify(shape(chars=chars)))


def _fit_page(
    items: Sequence[JSON],
    texts: list[str],
    fits: Callable[[str], bool],
    limit: int,
    page: JSON,
    size: int,
    pages_by_argument: bool,
) -> JSON:
    """Returns the requested page of the list, with the most detail with which all pages of the list fit."""
    for detail in _possible_details(limit, _MIN_PAGE_NUMBER_TOKENS):
        for glimpse in (limit * _CHARS_PER_TOKEN // _GLIMPSE_DIVISOR, 0):
            listing = _PagedList(items, texts, fits, limit, detail, glimpse, pages_by_argument)
            fitting_size = listing.largest_size(min(size, len(items)))
            if fitting_size is not None:
                return listing.page(_clamp_page(page, len(items), fitting_size), fitting_size)
    return listing.page(_clamp_page(page, len(items), 1), 1)


class _PagedList:
    """A list divided into pages; items too large for a page are abridged to `glimpse` characters."""

    def __init__(
        self,
        items: Sequence[JSON],
        texts: list[str],
        fits: Callable[[str], bool],
        limit: int,
        detail: _ShapeDetail,
        glimpse: int,
        pages_by_argument: bool,
    ) -> None:
        self._pages_by_argument = pages_by_argument
        self._items, self._texts, self._limit, self._detail, self._glimpse = items, texts, limit, detail, glimpse
        self._fits = fits
        # The last page but one of single items has the longest frame.
        before, _, after = self._page_text(["\0"], max(1, len(items) - 1), 1).partition("\0")
        self._too_large = {at for at, text in enumerate(texts) if not fits(f"{before}{text}{after}")}
        self._item_texts = [
            stringify(self._shown_item(at, glimpse)) if at in self._too_large else text for at, text in enumerate(texts)
        ]
        self._byte_offsets = [0, *accumulate(len(text.encode()) for text in self._item_texts)]

    def largest_size(self, requested: int) -> int | None:
        """Returns the largest page size up to the requested one; None where a page of one item does not fit.

        The search looks at the page with the most bytes first, and then checks every page.
        """
        size = requested
        while True:
            size = 1 + _largest_count(size - 1, lambda more: self._page_fits(self._heaviest_page(more + 1), more + 1))
            if all(self._page_fits(number, size) for number in range(1, math.ceil(len(self._items) / size) + 1)):
                return size
            if size == 1:
                return None
            size -= max(1, size // 8)

    def page(self, number: int, size: int) -> JSON:
        """Returns a page; items that are too large are abridged to as many characters as fit."""
        span = range(len(self._items))[(number - 1) * size : number * size]
        chars = self._glimpse
        if self._too_large.intersection(span):
            chars = _largest_count(
                self._limit * _CHARS_PER_TOKEN,
                lambda chars: self._fits(stringify(self._make_page(span, number, size, chars))),
                self._glimpse,
            )
        return self._make_page(span, number, size, chars)

    def _make_page(self, span: range, number: int, size: int, chars: int) -> dict[str, JSON]:
        return self._frame_items([self._shown_item(at, chars) for at in span], number, size)

    def _frame_items(self, items: list[JSON], number: int, size: int) -> dict[str, JSON]:
        total = len(self._items)
        return _page_shape(
            items, total, number, size, self._detail, offers_next=self._pages_by_argument and number * size < total
        )

    def _shown_item(self, at: int, chars: int) -> JSON:
        item = self._items[at]
        if at not in self._too_large:
            return item
        detail = _ShapeDetail.MARKS if self._detail is _ShapeDetail.MARKS else _ShapeDetail.NUMBERS
        text = item if isinstance(item, str) else self._texts[at]
        return _abridged_shape(item, self._limit, detail, _character_prefix, chars, text)

    def _page_text(self, shown: Sequence[str], number: int, size: int) -> str:
        frame = stringify(self._frame_items([], number, size))
        return frame.replace('"items":[]', f'"items":[{",".join(shown)}]', 1)

    def _page_fits(self, number: int, size: int) -> bool:
        return self._fits(self._page_text(self._item_texts[(number - 1) * size : number * size], number, size))

    def _heaviest_page(self, size: int) -> int:
        ends = [*self._byte_offsets[size::size], self._byte_offsets[-1]]
        return 1 + max(
            range(math.ceil(len(self._items) / size)), key=lambda at: ends[at] - self._byte_offsets[at * size]
        )
