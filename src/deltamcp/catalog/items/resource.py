"""Resources that a client can read at a URI, or at any URI that matches a template."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack
from urllib.parse import unquote

from msgspec import to_builtins

from deltamcp.catalog.items.function import (
    FunctionShape,
    check_options,
    docstring,
    function_name,
    omit_empty,
    read_tags,
    tagged_meta,
)
from deltamcp.catalog.items.prompt import Completer
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Annotations, Icon
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
        self.names: list[str] = [*(name for name, _ in found_names), *self._query]
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


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
MAX_URI_CHARS = 8192
"""The longest URI of a resource that a client may send; RFC 9110 asks for 8,000 at least."""


def split_scheme(uri: str) -> tuple[str, str]:
    """Returns a URI in two parts: the scheme with what ends it, and the rest."""
    separator = "://" if "://" in uri else ":"
    scheme, found, rest = uri.partition(separator)
    return (scheme + found, rest) if found else ("", uri)


class ResourceOptions(TypedDict, total=False):
    """The options that an author can give a resource."""

    name: str
    title: str
    description: str
    mime_type: str
    size: int
    annotations: Annotations
    icons: list[Icon]
    meta: dict[str, JSON]
    tags: Collection[str]
    """As of tools."""
    cache_seconds: float
    """How long clients may cache the contents (2026-07-28); not at all by default."""


class Resource:
    """A function that returns the contents of a URI. `list_item` is its entry in `resources/list`."""

    __slots__ = (
        "_context_type",
        "_options",
        "cache_seconds",
        "function",
        "function_shape",
        "list_item",
        "mime_type",
        "origin",
        "signature",
        "tags",
        "template",
    )

    def __init__(
        self, function: Callable[..., Any], context_type: type, uri: str, **options: Unpack[ResourceOptions]
    ) -> None:
        """
        Raises:
            ConfigurationError: the template's variables and the function's parameters differ.
        """
        check_options(options, ResourceOptions)
        self._context_type = context_type
        self._options = options
        self.function: Callable[..., Any] = function
        self.mime_type: str | None = options.get("mime_type")
        self.cache_seconds: float = options.get("cache_seconds", 0.0)
        self.tags: frozenset[str] = read_tags(options.get("tags", ()))
        if not _SCHEME.match(uri):
            raise ConfigurationError(f"the URI {uri!r} has no scheme; write it as notes://{uri.lstrip('/')}.")
        self.template: UriTemplate | LooseUriTemplate | None = UriTemplate(uri) if "{" in uri else None
        from deltamcp.catalog.items.signature import (
            Signature,  # with pydantic, which items of other servers do not need
        )

        self.signature: Signature = Signature(function, context_type)
        self.function_shape: FunctionShape = self.signature.function_shape
        self.origin: object | None = None
        """Where the resource was registered, if its server is mounted."""
        variables = set(self.template.names) if isinstance(self.template, UriTemplate) else set()
        if not set(self.signature.required) <= variables or not variables <= set(self.signature.names):
            raise ConfigurationError(
                f"the URI {uri!r} has the variables {sorted(variables)}, and the function the parameters "
                f"{list(self.signature.names)}; give them the same names."
            )
        parts = {
            "uriTemplate" if self.template else "uri": uri,
            "name": options.get("name") or function_name(function),
            "title": options.get("title"),
            "description": options.get("description") or docstring(function),
            "mimeType": self.mime_type,
            "size": options.get("size"),
            "annotations": to_builtins(options.get("annotations")),
            "icons": to_builtins(options.get("icons")),
            "_meta": tagged_meta(options.get("meta"), self.tags),
        }
        self.list_item: dict[str, JSON] = omit_empty(parts)

    def variables(self, values: dict[str, str], uri: str) -> dict[str, str]:
        """Returns what the function gets of a URI that is read, from the values of its template's variables."""
        return values

    def with_uri(self, uri: str) -> "Resource":
        """Returns the same resource at another URI."""
        return Resource(self.function, self._context_type, uri, **self._options)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Converts the variables of the URI to keyword arguments of the function.

        Raises:
            InvalidArgumentsError: the variables do not fit the function's types.
        """
        return self.signature.bind(arguments)

    def completer(self, argument: str) -> Completer | None:
        """Returns what completes an argument of the template, if the resource itself knows that."""
        return None

    @property
    def uri(self) -> str:
        return str(self.list_item.get("uri") or self.list_item["uriTemplate"])
