"""What is said of servers behind this one that cannot be used now, where their operations would be. Pure."""

from collections.abc import Collection, Iterator, Mapping

from deltamcp.catalog import prose
from deltamcp.catalog.clean_text import visible_line

_MAX_CHARS = 160
"""Of what is said of one server; some 40 tokens."""
_MAX_LINES = 12
"""The servers of which a line says why; further ones are named."""
_MAX_NAMED = 50


class ServerNotices:
    """One line for each server that cannot be used; there are none while all are well."""

    def __init__(self, texts: Mapping[str, str], *, is_only_server: bool = False) -> None:
        """
        Args:
            texts: What is wrong, by the category that the server's operations have or would have; texts of others in
                them are not trusted.
            is_only_server: Whether all operations would be those of the one server.
        """
        self._texts = texts
        self._is_only_server = is_only_server

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def texts(self) -> dict[str, str]:
        return {category: _one_line(text) for category, text in self._texts.items()}

    def lines(self, categories: Collection[str] | None = None) -> list[str]:
        """Returns the lines of these categories, or of all; of very many servers only the names."""
        named = [category for category in self._texts if categories is None or category in categories]
        lines = [f"{category}: {_one_line(self._texts[category])}" for category in named[:_MAX_LINES]]
        others = named[_MAX_LINES:]
        if others:
            left_out = f" +{len(others) - _MAX_NAMED}" if len(others) > _MAX_NAMED else ""
            lines.append(f"Not usable either: {' '.join(others[:_MAX_NAMED])}{left_out}")
        return lines

    def category_of(self, name: str) -> str:
        """Returns the category of the server that an unknown operation would be of; empty if it can be of any."""
        if self._is_only_server:
            return next(iter(self._texts), "")
        folded = name.strip().casefold()
        found = [
            category
            for category in self._texts
            if folded == category.casefold() or folded.startswith(tuple(f"{category.casefold()}{end}" for end in "./_"))
        ]
        return max(found, key=len, default="")

    def of(self, name: str) -> str:
        """Returns the line of the server that an unknown operation would be of; empty if no server has that name."""
        category = self.category_of(name)
        return self.lines({category})[0] if category else ""

    def categories_in(self, query: str) -> set[str]:
        """Returns the categories of servers that a query names."""
        words = f" {_plain(query)} "
        return {category for category in self._texts if any(f" {name} " in words for name in _spellings(category))}


NO_NOTICES = ServerNotices({})


def _spellings(category: str) -> Iterator[str]:
    """Yields the names by which people may mean a server: `my-sqlite-server` is meant by `my sqlite`, too."""
    plain = _plain(category)
    if plain:
        yield plain
    words = [word for word in plain.split() if word not in ("mcp", "server")]
    if words:
        yield " ".join(words)
        yield "".join(words)


def _plain(text: str) -> str:
    return " ".join("".join(char if char.isalnum() else " " for char in text.casefold()).split())


def _one_line(text: str) -> str:
    return visible_line(prose.cut(" ".join(text.split()), _MAX_CHARS))
