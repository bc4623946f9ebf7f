"""What is said of a value in place of it: its shape, and that it is a page of more.

    {total:int, items:127 x {id:int, user:{login}, labels?:0-4 x str}, files:60 x *:{size:int}}

`n x` is a list of n items, `n x *` an object whose n keys are data. A name without a type is of a text, and one that
ends with `?` is not in every item.

Nobody is to take a page for the whole, so a reply says it, above all one that has only what a query selects. The names
are those of published APIs. A name that may mean something else, such as the `total` of an invoice, counts only beside
another name of pages, or inside an object such as `pagination`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Raw, Struct

from deltamcp import tokens
from deltamcp.results import document
from deltamcp.results.document import RawJSON
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

_MIN_DATA_KEYS = 6
"""An object with fewer members has names for keys, whatever they look like."""
_MIN_COMMON_SHARE = 0.5
"""The members of an object with data for keys have at least this share of their own names in common."""
_MAX_DEPTH = 12
_MAX_ITEMS = 1_000
"""Items of a list whose shapes are put together; of longer lists these are spread over the list."""
_MAX_MEMBERS = 200
"""Names of an object that are looked at."""
_NAME = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@-]{0,39}")
_PLAIN_WORD = re.compile(r"[A-Za-z_$@]+(?:[_-][A-Za-z]+)*")
_DEPTHS, _WIDTHS = (8, 4, 3, 2, 1), (60, 30, 15, 8, 4)
"""How many objects inside each other, and members of each, are written; of those that fit, what has most is taken."""
_MORE = "…"


class ValueShape(Struct):
    """What values at one place have in common."""

    types: dict[str, None]
    """The types of the values that are neither list nor object, in the order in which they were seen."""
    members: "dict[str, ValueShape]"
    """The members of the objects, by name."""
    counts: dict[str, int]
    """In how many of the objects each member is."""
    objects: int = 0
    """How many objects there are."""
    left_out: int = 0
    """How many members were not looked at, in the object with the most of them."""
    data_keys: tuple[int, int] | None = None
    """The least and the most keys, where the keys of the objects are data; `member` then is the shape of what they
    have."""
    member: "ValueShape | None" = None
    lengths: tuple[int, int] | None = None
    """The least and the most items of the lists; None where there is no list."""
    item: "ValueShape | None" = None


def _empty() -> ValueShape:
    return ValueShape({}, {}, {})


def shape_of(value: JSON, work: Work) -> ValueShape:
    """Returns the shape of a value."""
    return _merge([value], work, 0)


def _merge(values: Sequence[JSON], work: Work, depth: int) -> ValueShape:
    """Returns what the values have in common."""
    shape = _empty()
    objects: list[dict[str, JSON]] = []
    items: list[JSON] = []
    for value in values:
        work.spend()
        if isinstance(value, dict):
            objects.append(value)
        elif isinstance(value, list):
            least, most = shape.lengths or (len(value), len(value))
            shape.lengths = min(least, len(value)), max(most, len(value))
            room = max(1, _MAX_ITEMS // len(values))
            items += value if len(value) <= room else value[:: -(-len(value) // room)]
        else:
            shape.types[_type_name(value)] = None
    if items and depth < _MAX_DEPTH:
        shape.item = _merge(items, work, depth + 1)
    if objects and depth < _MAX_DEPTH:
        _add_objects(shape, objects, work, depth)
    return shape


def _add_objects(shape: ValueShape, objects: list[dict[str, JSON]], work: Work, depth: int) -> None:
    sizes = [len(each) for each in objects]
    if all(_has_data_keys(each, work) for each in objects):
        shape.data_keys = min(sizes), max(sizes)
        room = max(1, _MAX_ITEMS // len(objects))
        inside = [value for each in objects for value in list(each.values())[:room]]
        shape.member = _merge(inside, work, depth + 1)
        return
    shape.objects = len(objects)
    found: dict[str, list[JSON]] = {}
    for each in objects:
        work.spend(len(each) // 8)
        for name, value in each.items():
            if name in found:
                found[name].append(value)
            elif len(found) < _MAX_MEMBERS:
                found[name] = [value]
            else:
                shape.left_out = max(shape.left_out, len(each) - _MAX_MEMBERS)
    shape.counts = {name: len(values) for name, values in found.items()}
    shape.members = {name: _merge(values, work, depth + 1) for name, values in found.items()}


def _has_data_keys(value: Mapping[str, JSON], work: Work) -> bool:
    """Whether the keys of an object are data, such as versions, dates or ids: its members are alike.

    Objects below names that are words are taken for data only if they have most of their own names in common.
    """
    if len(value) < _MIN_DATA_KEYS:
        return False
    work.spend(len(value) // 4)
    kinds = {type(member) for member in value.values()} - {type(None)}
    if len(kinds) != 1:
        return False
    words = sum(_PLAIN_WORD.fullmatch(key) is not None for key in value)
    if words * 2 <= len(value):
        return True
    inner = [_inner_names(member) for member in value.values()]
    alike = [names for names in inner if names]
    if len(alike) * 2 <= len(value):
        return False
    common, every = set.intersection(*alike), set.union(*alike)
    return len(common) >= _MIN_COMMON_SHARE * len(every)


def _inner_names(value: JSON) -> set[str]:
    if isinstance(value, list) and value:
        value = value[0]
    return set(value) if isinstance(value, dict) else set()


def _type_name(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "str" if isinstance(value, str) else "int" if isinstance(value, int) else "float"


# Writing


def shape_text(shape: ValueShape, max_tokens: int, model: str | float = "o200k") -> str:
    """Writes a shape in at most so many tokens: as deep and as wide as fits."""
    texts = dict.fromkeys(
        _write(shape, depth, width, is_narrow) for is_narrow in (False, True) for depth in _DEPTHS for width in _WIDTHS
    )
    costs = {text: tokens.count(text, model) for text in texts}
    fitting = [text for text, cost in costs.items() if cost <= max_tokens]
    if not fitting:
        return _cut(min(costs, key=costs.__getitem__), max_tokens, model)
    return max(fitting, key=lambda text: (_count_names(text), costs[text]))


def _count_names(text: str) -> int:
    """Returns how many different names a shape says, and types, which are few."""
    return len(set(_NAME.findall(text)))


def _cut(text: str, max_tokens: int, model: str | float) -> str:
    while tokens.count(text + _MORE, model) > max_tokens:
        text = text[: len(text) * 3 // 4]
    return text + _MORE


def _write(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    """Writes a shape; of a narrow one only the largest part is opened in each object."""
    parts = [name for name in shape.types if name != "null" or len(shape.types) == 1]
    if shape.lengths is not None:
        item = "" if shape.item is None else f" x {_write(shape.item, depth, width, is_narrow)}"
        parts.append(f"{_range(shape.lengths)}{item}" if item else "[]")
    if shape.data_keys is not None and shape.member is not None:
        parts.append(f"{_range(shape.data_keys)} x *:{_write(shape.member, depth, width, is_narrow)}")
    if shape.objects:
        parts.append(_write_object(shape, depth, width, is_narrow))
    if "null" in shape.types and parts and parts != ["null"]:
        parts.append("null")
    return "|".join(parts) or _MORE


def _write_object(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    if not depth:
        return f"{{{_MORE}}}" if shape.members else "{}"
    shown = list(shape.members)[:width]
    opened = {max(shown, key=lambda name: _size(shape.members[name]))} if is_narrow and shown else {*shown}
    members = [
        _write_name(name)
        + "?" * (shape.counts[name] < shape.objects)
        + _write_type(shape.members[name], depth if name in opened else 1, width, is_narrow)
        for name in shown
    ]
    more = len(shape.members) - len(shown) + shape.left_out
    return f"{{{', '.join(members)}{f', {_MORE} +{more}' * bool(more)}}}"


def _size(shape: ValueShape) -> int:
    """Returns how many values a part has, about."""
    size = 1 + sum(map(_size, shape.members.values()))
    if shape.lengths is not None and shape.item is not None:
        size += shape.lengths[1] * _size(shape.item)
    if shape.data_keys is not None and shape.member is not None:
        size += shape.data_keys[1] * _size(shape.member)
    return size


def _write_type(shape: ValueShape, depth: int, width: int, is_narrow: bool) -> str:
    text = _write(shape, depth - 1, width, is_narrow)
    return "" if text == "str" else f":{text}"


def _write_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else jsonrpc.encode(name[:40]).decode()


def _range(counts: tuple[int, int]) -> str:
    least, most = counts
    return str(least) if least == most else f"{least}-{most}"


def _names(text: str) -> frozenset[str]:
    """Returns the names in a text, which has them without case and punctuation."""
    return frozenset(text.split())


_TOTALS = _names(
    "hitcount nbhits numfound odatacount totalcount totaldocs totalelements totalentries totalhits totalmatches "
    "totalobjects totalrecords totalresults totalresultcount totalrows"
)
"""How many rows there are in all: GitHub, Google, Algolia, Solr, OData, Spring, Cloudflare."""
_LIKELY_TOTALS = _names("available count hits total totalitems totalsize")
"""The same beside another name of pages: Jira, Django, Elasticsearch, Salesforce. Alone they may be sums."""
_NEXT = _names(
    "continuationtoken lastevaluatedkey moretopicsurl nextcontinuationtoken nextcursor nextlink nextmarker nextoffset "
    "nextpage nextpagecursor nextpagetoken nextpageurl nextrecordsurl nexttoken nexturl odatanextlink "
    "remainingitemcount"
)
"""Where the next page is; empty where there is none: MCP, Slack, Google, AWS, OData, Salesforce, Kubernetes."""
_LIKELY_NEXT = _names("continue next")
"""The same inside an object about pages, or as an address: JSON:API, HAL, HubSpot, MediaWiki, Django."""
_MORE_NAMES = _names(
    "hasmore hasmoreitems hasmorepages hasmoreresults hasnext hasnextpage incomplete incompleteresults istruncated "
    "moreavailable moreresults truncated"
)
"""True where there are more rows: Stripe, Notion, GraphQL, S3, GitHub."""
_LAST = _names("islast islastpage lastpagereached")
"""False where there are more rows: Jira, Bitbucket."""
_LAST_PAGES = _names("lastpage nbpages numpages pagecount pagestotal totalpages")
_CURRENT_PAGES = _names("currentpage page pagenumber")
_COMPANIONS = (_TOTALS | _NEXT | _MORE_NAMES | _LAST | _LAST_PAGES) | _names(
    "currentpage itemsperpage limit maxresults next offset page pageindex pagenumber pagesize perpage prev previous "
    "resultsperpage skip startat startindex"
)
_PAGE_OBJECTS = _names(
    "cursor links meta metadata page pageinfo pager pagination paging responsemetadata resultinfo searchinformation"
)
"""Objects about pages, beside rows or beside what is around them."""
_NO_LETTERS = re.compile(r"[^a-z0-9]")
_ADDRESS = re.compile(r"https?://|/")
_MAX_LEVELS = 4
_MAX_LEVEL_MEMBERS = 100
"""An object with more members is data, not something around rows."""
_MAX_FACT_BYTES = 2_000
"""A longer member says nothing of pages."""
_MAX_TOTAL_DIGITS = 15


def page_sentence(data: str | RawJSON, rows: Sequence[str] | None, work: Work) -> str:
    """Returns a sentence on the page that the rows of a result are; empty if they may be all rows.

    Args:
        rows: The path to the rows; None where only the list that is most of the result can be meant.
    """
    if isinstance(data, str) or rows == []:
        return ""
    try:
        levels, listed = _levels(data, rows, work)
    except document.TooManyMembersError:
        return ""
    said = [(name, facts) for name, members in reversed(levels) if (facts := _Facts(members, name)).has_any]
    if listed is None or not said:
        return ""
    count = len(document.items(listed, work))
    for _, facts in said:
        if facts.total is not None and facts.total > count:
            return f"This is a page of {count}; the server reports {facts.total:,} in all."
    more = next((facts.more for _, facts in said if facts.more), "")
    return f"This is a page of {count}; the server has more ({more})." if more else ""


def _levels(
    data: RawJSON, rows: Sequence[str] | None, work: Work
) -> tuple[list[tuple[str, Mapping[str, Raw]]], RawJSON | None]:
    """Returns the objects around the rows, each with the name under which it has them, and the rows."""
    levels: list[tuple[str, Mapping[str, Raw]]] = []
    for depth in range(_MAX_LEVELS + 1):
        kind = document.kind(data)
        if kind == "list":
            return levels, data if rows is None or depth == len(rows) else None
        if kind != "object" or (rows is not None and depth == len(rows)):
            break
        members = document.members(data, work)
        if len(members) > _MAX_LEVEL_MEMBERS:
            break
        name = _largest(members, len(data)) if rows is None else rows[depth]
        if name not in members:
            break
        work.spend(len(members))
        levels.append((name, members))
        data = members[name]
    return levels, None


def _largest(members: Mapping[str, Raw], size: int) -> str:
    name = max(members, key=lambda each: len(members[each]), default="")
    return name if name and 2 * len(members[name]) >= size else ""


class _Facts:
    """What an object says of the rows in it."""

    def __init__(self, members: Mapping[str, Raw], rows_name: str) -> None:
        self.total: int | None = None
        self.more = ""
        """The name of the member that says there are more rows."""
        beside = [(name, value) for name, value in members.items() if name != rows_name]
        self._has_other_list = any(document.kind(value) == "list" and len(value) > len("[]") for _, value in beside)
        self._read({name: document.decode(value) for name, value in beside if len(value) <= _MAX_FACT_BYTES}, False)

    @property
    def has_any(self) -> bool:
        return self.total is not None or bool(self.more)

    def _read(self, members: Mapping[str, JSON], is_page_object: bool) -> None:
        plain = {_plain(name): (name, value) for name, value in members.items()}
        is_sure = is_page_object or not _COMPANIONS.isdisjoint(plain)
        for key, (_, value) in plain.items():
            if key in _PAGE_OBJECTS and isinstance(value, dict) and not is_page_object:
                self._read(value, True)
            elif key in _TOTALS or (key in _LIKELY_TOTALS and (is_sure or isinstance(value, dict))):
                # Which of several lists is counted is not said.
                self.total = self.total if self._has_other_list else _number(value) or self.total
        if not self._says_last(plain):
            self.more = self.more or next(_more_names(plain, is_page_object), "")

    def _says_last(self, plain: Mapping[str, tuple[str, JSON]]) -> bool:
        """Whether a member says that there are no more rows; servers send cursors beside it."""
        return any(
            (key in _MORE_NAMES and value is False) or (key in _LAST and value is True)
            for key, (_, value) in plain.items()
        )


def _more_names(plain: Mapping[str, tuple[str, JSON]], is_page_object: bool) -> Iterator[str]:
    """Yields the names of the members that say there are more rows."""
    for key, (name, value) in plain.items():
        is_likely = is_page_object or (isinstance(value, str) and _ADDRESS.match(value) is not None)
        says_so = (key in _MORE_NAMES and value is True) or (key in _LAST and value is False)
        if says_so or ((key in _NEXT or (key in _LIKELY_NEXT and is_likely)) and _is_place(value)):
            yield name
    pages = [value for key, (_, value) in plain.items() if key in _CURRENT_PAGES and type(value) is int]
    last = [(name, value) for key, (name, value) in plain.items() if key in _LAST_PAGES and type(value) is int]
    if pages and last and isinstance(last[0][1], int) and pages[0] < last[0][1] and pages[0] > 0:
        yield last[0][0]


def _is_place(value: JSON) -> bool:
    """Whether a value leads to a next page: neither empty nor the last of its kind."""
    return value is not None and value is not False and value not in ("", 0, "null", "0", [], {})


def _number(value: JSON) -> int | None:
    """Returns a number of rows, also of one written as a text, or as Elasticsearch does; None for anything else."""
    if isinstance(value, dict):
        value = value.get("value") if "relation" in value else None
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_TOTAL_DIGITS:
        return int(value)
    return value if type(value) is int else None


def _plain(name: str) -> str:
    return _NO_LETTERS.sub("", name.lower())
