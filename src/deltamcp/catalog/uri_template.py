"""URI templates of resources, and the values that their variables have in a URI."""

import re
from bisect import bisect_left, bisect_right
from typing import NamedTuple
from urllib.parse import unquote

from deltamcp.errors import ConfigurationError
from deltamcp.work import Work

_EXPRESSION = re.compile(r"\{([+?/]?)([A-Za-z0-9_.,*]+)\}")
_ANY_EXPRESSION = re.compile(r"\{[^{}]*\}")
_ENDS_SEGMENT = re.compile(r"[/?#]")
_ENDS_LINE = re.compile(r"\n")


class _Variable(NamedTuple):
    name: str
    crosses_segments: bool
    """Whether the value may have slashes."""
    following: str
    """The text of the template between this variable and the next one, or the end."""


class UriTemplate:
    """The part of RFC 6570 that resources use: `{name}`, `{+name}` (slashes allowed) and `{?name,name}`.

    A URI may fit in several ways; then the first variable is as long as possible, then the second, and so on, as with
    a regular expression. Matching refuses values that would escape a directory: an encoded slash or a dot segment
    inside `{name}`, a `..` segment inside `{+name}`.
    """

    def __init__(self, template: str) -> None:
        """
        Raises:
            ConfigurationError: the template has another form.
        """
        self.template = template
        texts: list[str] = [""]
        """The texts before, between and after the variables."""
        found_names: list[tuple[str, bool]] = []
        self._query: list[str] = []
        position = 0
        for found in _EXPRESSION.finditer(template):
            texts[-1] += template[position : found.start()]
            position = found.end()
            operator, names = found.group(1), found.group(2).replace("*", "").split(",")
            if operator == "?":
                self._query.extend(names)
                continue
            for name in names:
                found_names.append((name, operator == "+"))
                texts.append("")
        texts[-1] += template[position:]
        self.names = [*(name for name, _ in found_names), *self._query]
        is_nameable = len(set(self.names)) == len(self.names) and all(map(str.isidentifier, self.names))
        if "{" in template[position:] or not self.names or not is_nameable:
            raise ConfigurationError(
                f"the resource template {template!r} is not supported; use {{name}}, {{+name}} or {{?name}}, each name "
                "once."
            )
        self._start, *following = texts
        self._variables = [_Variable(*named, text) for named, text in zip(found_names, following, strict=True)]

    def match(self, uri: str, work: Work) -> dict[str, str] | None:
        """Returns the decoded variables of a URI; None where the URI does not match.

        Raises:
            WorkLimitError: the URI has too many places where a variable may end.
        """
        query = ""
        if self._query and "?" in uri:
            uri, _, query = uri.partition("?")
        found = self._split(uri, work)
        if found is None:
            return None
        values = {variable.name: unquote(text) for variable, text in zip(self._variables, found, strict=True)}
        for variable in self._variables:
            value = values[variable.name]
            segments = value.split("/") if variable.crosses_segments else [value]
            if ".." in segments or (not variable.crosses_segments and ("/" in value or value == ".")):
                return None
        for pair in query.split("&") if query else ():
            key, _, text = pair.partition("=")
            if key in self._query:
                values[key] = unquote(text)
        return values

    def _split(self, uri: str, work: Work) -> list[str] | None:
        """Returns the parts of a URI that the variables stand for; None where it does not match.

        From the last variable to the first it finds all places where each may end, so that the work is the number of
        variables times the length of the URI, whatever the URI is.
        """
        work.spend()
        if not uri.startswith(self._start):
            return None
        if not self._variables:
            return [] if len(uri) == len(self._start) else None
        if not uri.endswith(self._variables[-1].following):
            return None
        work.scan(len(uri))
        ends_by_variable: list[list[int]] = []
        barriers_by_kind: dict[bool, list[int]] = {}
        ends = [len(uri) - len(self._variables[-1].following)]
        for index in range(len(self._variables) - 1, -1, -1):
            variable = self._variables[index]
            ends_by_variable.append(ends)
            if variable.crosses_segments not in barriers_by_kind:
                barriers_by_kind[variable.crosses_segments] = _barriers(uri, variable, work)
            barriers = barriers_by_kind[variable.crosses_segments]
            text = self._variables[index - 1].following if index else self._start
            places = _places(uri, text, ends[-1], work) if index else [0]
            ends = [place for place in places if _last_end(place + len(text), ends, barriers) is not None]
            if not ends:
                return None
        position = len(self._start)
        parts: list[str] = []
        for variable, ends in zip(self._variables, reversed(ends_by_variable), strict=True):
            end = _last_end(position, ends, barriers_by_kind[variable.crosses_segments])
            assert end is not None, "only places that lead to the end are left"
            parts.append(uri[position:end])
            position = end + len(variable.following)
        return parts


class LooseUriTemplate:
    """A template of any form, also one that `UriTemplate` cannot read: a URI fits that has its plain texts in order.

    It serves to find the server that a URI is for; that server reads the values itself.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        self._texts = _ANY_EXPRESSION.split(template)

    def match(self, uri: str, work: Work) -> dict[str, str] | None:
        """Returns no values; None where the URI does not match."""
        work.scan(len(uri))
        first, *middle = self._texts
        last = middle.pop() if middle else ""
        if not uri.startswith(first) or not uri.endswith(last):
            return None
        place, end = len(first), len(uri) - len(last)
        for text in middle:
            work.spend()
            place = uri.find(text, place, end)
            if place < 0:
                return None
            place += len(text)
        return {} if place <= end else None


def _barriers(uri: str, variable: _Variable, work: Work) -> list[int]:
    """Returns the places of the characters that the value of a variable cannot have."""
    found = [one.start() for one in (_ENDS_LINE if variable.crosses_segments else _ENDS_SEGMENT).finditer(uri)]
    work.spend(len(found))
    return found


def _places(uri: str, text: str, before: int, work: Work) -> list[int]:
    """Returns the places of a text in a URI that begin before a place, with overlaps."""
    places: list[int] = []
    place = uri.find(text, 0, before + len(text))
    while 0 <= place < before:
        work.spend()
        places.append(place)
        place = uri.find(text, place + 1, before + len(text))
    return places


def _last_end(start: int, ends: list[int], barriers: list[int]) -> int | None:
    """Returns the last place where a value of at least one character may end that begins at `start`."""
    barrier = bisect_left(barriers, start)
    index = bisect_right(ends, barriers[barrier]) if barrier < len(barriers) else len(ends)
    return ends[index - 1] if index and ends[index - 1] > start else None
