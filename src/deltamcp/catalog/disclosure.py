"""Disclosure: which surface of the catalog a client sees, and what each surface costs."""

import math
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from deltamcp import tokens
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Surface

OPERATIONS_USED = 3
"""The operations that `auto` expects a conversation to use; the authors of the pattern saw 2 to 5."""

_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{0,100}")


class Disclosure(Struct, frozen=True):
    """How a server lists its operations: `DeltaServer(disclosure=Disclosure("meta", prefix="circle"))`."""

    surface: Literal["full", "meta", "auto"] = "full"
    """`"auto"` chooses the cheaper surface for this catalog, counted in tokens."""
    prefix: str = ""
    """The meta-tools are called `<prefix>_discover` and so on."""
    query: bool = False
    """Adds the meta-tool `query`, which runs only operations that say they are read-only."""
    destructive: bool = False
    """Adds the meta-tool `execute_destructive`: only it runs operations that say they are destructive."""
    scheme: str = ""
    """The URI scheme of operations as resources, `<scheme>://operations/...`; by default from prefix or server name."""

    minimum: int = 0
    """A server with fewer operations lists them as plain tools, whatever `surface` is."""

    def __post_init__(self) -> None:
        if self.surface not in ("full", "meta", "auto"):
            raise ConfigurationError(f'There is no disclosure {self.surface!r}; pick "full", "meta" or "auto".')
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(f"The prefix {self.prefix!r} must be letters, digits, '_', '-' or '.'.")

    @property
    def meta_tool_prefix(self) -> str:
        """The prefix of meta-tools' names with its separator, or an empty text."""
        return f"{self.prefix.rstrip('_')}_" if self.prefix else ""


def definition_tokens(tool: Mapping[str, JSON], model: str | float = "o200k") -> int:
    """Counts the tokens of one definition as hosts put it before a model: name, description and input schema as JSON.

    Whatever this library says about the cost of tools is a sum of these counts. Titles, annotations and output schemas
    are not sent to models, and the brackets and commas between tools differ from host to host.
    """
    shown = {
        "name": tool.get("name"),
        "description": tool.get("description", ""),
        "input_schema": tool.get("inputSchema", {}),
    }
    return tokens.count(msgspec.json.encode(shown).decode(), model)


class SurfaceCosts(NamedTuple):
    """The cost of both surfaces of one catalog, in tokens that a model reads; see `definition_tokens`."""

    full: int
    """All definitions, at the start of a conversation."""
    meta: int
    """The meta-tools and pinned tools, at the start of a conversation."""
    overview: int
    """One call of `discover`."""
    schema: float
    """One call of `get_schema`, on average; over at most 127 operations, evenly chosen."""

    def __str__(self) -> str:
        return (
            f"{self.full} tokens as plain tools; {self.meta} behind meta-tools, {self.overview} for the overview and "
            f"{self.schema:.0f} for each operation used: cheaper up to {self.break_even} operations."
        )

    @property
    def break_even(self) -> int:
        """The number of operations a conversation can use before the meta-tools cost more than all definitions."""
        left = self.full - self.meta - self.overview
        return max(0, math.floor(left / self.schema)) if self.schema else 0

    @property
    def cheaper(self) -> Surface:
        """The cheaper surface for a conversation that uses `OPERATIONS_USED` operations."""
        return Surface.META if self.break_even >= OPERATIONS_USED else Surface.FULL


def uri_scheme(name: str) -> str:
    """Derives a URI scheme from a name; RFC 3986 allows letters, digits, `+`, `-` and `.`, with a letter first."""
    scheme = re.sub(r"[^a-z0-9+.-]+", "-", name.casefold()).strip("-.+")
    return scheme if scheme[:1].isalpha() else f"x-{scheme}".strip("-")
