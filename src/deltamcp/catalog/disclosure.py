"""Which face of the catalogue a client sees, and what each costs."""

import math
import re
from typing import Literal, NamedTuple

from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.values import Surface

OPERATIONS_USED = 3
"""Operations that `auto` takes a conversation to use; behind meta-tools conversations were seen to use 2 to 5."""

_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{0,100}")


class Disclosure(Struct, frozen=True):
    """How a server shows what it has: `DeltaServer(disclosure=Disclosure("meta", prefix="circle"))`."""

    surface: Literal["full", "meta", "auto"] = "full"
    """`"auto"` takes meta where, counted in tokens for this catalogue, it is cheaper."""
    prefix: str = ""
    """The meta-tools are called `<prefix>_discover` and so on."""
    query: bool = False
    """Adds the meta-tool `query`, which runs only operations that say they are read-only."""
    scheme: str = ""
    """Operations are also resources, `<scheme>://operations/...`; made of prefix or server's name unless given."""

    minimum: int = 0
    """With fewer operations than this they are listed as plain tools, whatever `surface` says."""

    def __post_init__(self) -> None:
        if self.surface not in ("full", "meta", "auto"):
            raise ConfigurationError(f'There is no disclosure {self.surface!r}; pick "full", "meta" or "auto".')
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(f"The prefix {self.prefix!r} must be letters, digits, '_', '-' or '.'.")

    @property
    def meta_tool_prefix(self) -> str:
        """What stands before a meta-tool's name."""
        return f"{self.prefix.rstrip('_')}_" if self.prefix else ""


class SurfaceCosts(NamedTuple):
    """Tokens of one catalogue's two faces, as a model sees them."""

    full: int
    """Every definition, up front."""
    meta: int
    """The meta-tools, up front."""
    overview: int
    """One `discover`."""
    schema: float
    """One `get_schema`, on average."""

    def __str__(self) -> str:
        return (
            f"{self.full} tokens as plain tools; {self.meta} behind meta-tools, {self.overview} for the overview and "
            f"{self.schema:.0f} for each operation used: cheaper up to {self.break_even} operations."
        )

    @property
    def break_even(self) -> int:
        """Operations a conversation may use before meta has cost more than everything up front."""
        left = self.full - self.meta - self.overview
        return max(0, math.floor(left / self.schema)) if self.schema else 0

    @property
    def cheaper(self) -> Surface:
        """For a conversation that uses `OPERATIONS_USED` operations."""
        return Surface.META if self.break_even >= OPERATIONS_USED else Surface.FULL


def uri_scheme(name: str) -> str:
    """A URI scheme for a name; RFC 3986 has letters, digits, `+`, `-` and `.`, a letter first."""
    made = re.sub(r"[^a-z0-9+.-]+", "-", name.casefold()).strip("-.+")
    return made if made[:1].isalpha() else f"x-{made}".strip("-")
