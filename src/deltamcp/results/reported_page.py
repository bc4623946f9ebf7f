"""Finds what a server says of a page of rows: how many there are in all, or that there are more.

Nobody is to take a page for the whole, so a reply says it, above all one that has only what a query selects. The names
are those of published APIs. A name that may mean something else, such as the `total` of an invoice, counts only beside
another name of pages, or inside an object such as `pagination`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Raw

from deltamcp.results import document
from deltamcp.results.document import RawJSON
from deltamcp.values import JSON
from deltamcp.work import Work


def _names(text: str) -> frozenset[str]:
    """Return the names in a text, which has them without case and punctuation."""
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
_MORE = _names(
    "hasmore hasmoreitems hasmorepages hasmoreresults hasnext hasnextpage incomplete incompleteresults istruncated "
    "moreavailable moreresults truncated"
)
"""True where there are more rows: Stripe, Notion, GraphQL, S3, GitHub."""
_LAST = _names("islast islastpage lastpagereached")
"""False where there are more rows: Jira, Bitbucket."""
_LAST_PAGES = _names("lastpage nbpages numpages pagecount pagestotal totalpages")
_CURRENT_PAGES = _names("currentpage page pagenumber")
_COMPANIONS = (_TOTALS | _NEXT | _MORE | _LAST | _LAST_PAGES) | _names(
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
    """Return a sentence on the page that the rows of a result are; empty if they may be all rows.

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
    """Return the objects around the rows, each with the name under which it has them, and the rows."""
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
            (key in _MORE and value is False) or (key in _LAST and value is True) for key, (_, value) in plain.items()
        )


def _more_names(plain: Mapping[str, tuple[str, JSON]], is_page_object: bool) -> Iterator[str]:
    """Yield the names of the members that say there are more rows."""
    for key, (name, value) in plain.items():
        is_likely = is_page_object or (isinstance(value, str) and _ADDRESS.match(value) is not None)
        says_so = (key in _MORE and value is True) or (key in _LAST and value is False)
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
    """Return a number of rows, also of one written as a text, or as Elasticsearch does; None for anything else."""
    if isinstance(value, dict):
        value = value.get("value") if "relation" in value else None
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_TOTAL_DIGITS:
        return int(value)
    return value if type(value) is int else None


def _plain(name: str) -> str:
    return _NO_LETTERS.sub("", name.lower())
