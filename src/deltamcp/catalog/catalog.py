"""The catalogue: everything one server offers, found by name or address, listed in pages."""

import types
from collections.abc import Iterable, Mapping
from typing import Any

from deltamcp.catalog.completer import Completer
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.prompt import Prompt
from deltamcp.catalog.resource import Resource
from deltamcp.errors import ConfigurationError
from deltamcp.values import Kind, Page


class Catalog:
    """Looks up in constant time; lists in the order of registration, the same bytes until something changes."""

    def __init__(self, page_size: int | None = None) -> None:
        self._page_size = page_size
        self.operations: dict[str, Operation] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completer] = {}
        self._pages: dict[tuple[Kind, int], Page] = {}

    def add(self, item: Operation | Resource | Prompt) -> Kind:
        """
        Raises:
            ConfigurationError: the name or address is taken.
        """
        if isinstance(item, Operation):
            kind = self._put(self.operations, item.name, item, Kind.TOOLS)
        elif isinstance(item, Prompt):
            kind = self._put(self.prompts, item.name, item, Kind.PROMPTS)
        elif item.template is not None:
            kind = self._put(self.templates, item.uri, item, Kind.TEMPLATES)
        else:
            kind = self._put(self.resources, item.uri, item, Kind.RESOURCES)
        return kind

    def _put(self, shelf: dict[str, Any], name: str, item: Any, kind: Kind) -> Kind:
        if name in shelf:
            raise ConfigurationError(f"{name!r} is registered already; remove it first or pick another name.")
        shelf[name] = item
        self._forget(kind)
        return kind

    def remove(self, kind: Kind, name: str) -> None:
        """
        Raises:
            ConfigurationError: there is no such thing.
        """
        shelf = self._shelf(kind)
        if name not in shelf:
            raise ConfigurationError(f"There is nothing called {name!r} to remove.")
        del shelf[name]
        self._forget(kind)

    def _forget(self, kind: Kind) -> None:
        if self._pages:
            self._pages = {key: page for key, page in self._pages.items() if key[0] is not kind}

    def _shelf(self, kind: Kind) -> dict[str, Any]:
        shelves: dict[Kind, dict[str, Any]] = {
            Kind.TOOLS: self.operations,
            Kind.RESOURCES: self.resources,
            Kind.TEMPLATES: self.templates,
            Kind.PROMPTS: self.prompts,
        }
        return shelves[kind]

    def page(self, kind: Kind, cursor: str | None) -> Page | None:
        """One page of a list; None where the cursor is not one of ours."""
        start = _start(cursor)
        if start is None:
            return None
        key = (kind, start)
        page = self._pages.get(key)
        if page is None:
            page = self._make_page(kind, start)
            if page is not None:
                self._pages[key] = page
        return page

    def _make_page(self, kind: Kind, start: int) -> Page | None:
        shelf = self._shelf(kind)
        if start > len(shelf) or (start and self._page_size is None):
            return None
        items = [item.tool if isinstance(item, Operation) else item.listed for item in shelf.values()]
        end = len(items) if self._page_size is None else start + self._page_size
        following = str(end) if end < len(items) else None
        return Page(kind, tuple(items[start:end]), following, {})

    def resource_at(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """The resource at an address and the template's variables in it."""
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        for template in self.templates.values():
            assert template.template is not None, "only templates are on this shelf"
            values = template.template.match(uri)
            if values is not None:
                return template, values
        return None

    def name_of(self, code: types.CodeType) -> str | None:
        """What is registered under a function's code, for reports on it."""
        shelves: dict[str, Mapping[str, Operation | Resource | Prompt]] = {
            "tool": self.operations,
            "resource": {**self.resources, **self.templates},
            "prompt": self.prompts,
        }
        for what, shelf in shelves.items():
            for name, item in shelf.items():
                if getattr(item.function, "__code__", None) is code:
                    return f"The {what} {name}"
        return None

    def nearest(self, name: str, among: Iterable[str]) -> list[str]:
        """Up to three names one may have meant."""
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        found = process.extract(name, list(among), processor=str.casefold, limit=3, score_cutoff=60)
        return [match for match, _, _ in found]


def _start(cursor: str | None) -> int | None:
    if cursor is None:
        return 0
    return int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else None
