"""How results are made to fit: what a server, a tool and a request say, and what comes of it."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from deltamcp.errors import ConfigurationError, UnfitError
from deltamcp.results import projection
from deltamcp.values import JSON

MIN_TOKENS = 50
"""Below it a note and a handle leave no room for anything else."""
META_KEY = "io.github.delta-mcp/result"
"""Where a reply's `_meta` tells programs what was done, and where a request's says what is wanted."""

ROOT_KEY = "pack_root"
"""What a caller sends the root it holds by, as the seed has it: among a tool's arguments, or in `_meta`."""
ROOT_SCHEMA: dict[str, JSON] = {
    "type": "string",
    "description": "Root of the result you hold, to get only changes; empty: all.",
}
RESET = "reset"
"""In place of a root: nothing that was ever sent is known any more."""


class ResultPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What to do with results. A field left out is the server's to say, and then the default's below."""

    max_tokens: int | None = None
    """Most tokens of a whole reply, notes and structured content included."""
    page_size: int | None = None
    """Most rows of one reply; as many as fit without."""
    rows: str | None = None
    """Where the rows are, as `/data/users` or `data.users`; found where they commonly are without."""
    fields: list[str] | str | None = None
    """Only these fields of an object, or of each row, by dotted path; or a JMESPath expression. The rest is kept."""
    tail: float | None = None
    """The part of a cut text that shows its end, from 0 to 0.9."""
    tables: bool | None = None
    """Whether rows may come as tables, where that is shorter than JSON."""
    dictionary: bool | None = None
    """Whether values that repeat in a table may be listed once and referred to by number."""
    model: str | float | None = None
    """Whose tokens are counted, as `deltamcp.tokens.count` takes it."""
    auto_page: bool | None = None
    """Whether Delta-MCP's clients turn pages by the arguments `page` and `pageSize`. By default of tools that do not
    declare these themselves."""
    deltas: bool | None = None
    """Whether callers are sent what changed since they were last sent the result of the same call; False where a
    request may not even ask for that. By default it may, by the root it holds."""
    keys: list[str] | None = None
    """Members that tell rows apart from one time to the next, the first that does; found where they are not said."""
    volatile: list[str] | None = None
    """Dotted paths of what changes every time and says nothing, as `took_ms` or `items.age`: alone it is no change."""
    dedup: bool | Literal["deltas"] | None = None
    """Whether a row, or a symbol of a graph, that the caller was sent before, whatever by, is only referred to: where
    a result is sent whole, and with "deltas" in those too."""
    compat: bool | None = None
    """Clients of Delta-MCP get that protocol's results to the byte, its faults included: no budget holds then."""

    def __post_init__(self) -> None:
        for field in fields(type(self)):
            try:
                msgspec.convert(getattr(self, field.name), field.type)
            except msgspec.ValidationError as error:
                raise ConfigurationError(f"{field.name}: {error}.") from None
        if self.max_tokens is not None and self.max_tokens < MIN_TOKENS:
            raise ConfigurationError(f"max_tokens must be {MIN_TOKENS} or more, not {self.max_tokens}.")
        if self.page_size is not None and self.page_size < 1:
            raise ConfigurationError(f"page_size must be 1 or more, not {self.page_size}.")
        if self.tail is not None and not 0 <= self.tail <= 0.9:
            raise ConfigurationError(f"tail must be from 0 to 0.9, not {self.tail}.")
        if isinstance(self.model, float | int) and not 0.1 <= self.model <= 10:
            raise ConfigurationError(f"model must be a name, or from 0.1 to 10 times o200k's tokens, not {self.model}.")
        if any(not path or ".." in path for path in self.volatile or ()):
            raise ConfigurationError("volatile takes dotted paths, as meta.took_ms.")
        try:
            projection.check_fields(self.fields)
        except UnfitError as error:
            raise ConfigurationError(str(error)) from None


class RequestPolicy(
    ResultPolicy, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"
):
    """What one request says."""

    pack_root: str | None = msgspec.field(default=None, name=ROOT_KEY)
    """The root of what the sender holds of this result; empty where it holds nothing, `reset` where it has lost
    everything it was ever sent."""


class ResolvedPolicy(Struct, frozen=True, kw_only=True):
    """What is to be done with one result."""

    max_tokens: int = 20_000
    """RB-63; hosts cut at about 25,000."""
    page_size: int | None = None
    rows: str | None = None
    fields: list[str] | str | None = None
    tail: float = 0.25
    tables: bool = True
    dictionary: bool = True
    model: str | float = "o200k"
    auto_page: bool | None = None
    deltas: bool | None = None
    keys: list[str] | None = None
    volatile: list[str] | None = None
    dedup: bool | Literal["deltas"] | None = None
    compat: bool = False
    pack_root: str | None = None

    @property
    def may_send_changes(self) -> bool:
        """Whether a result may be told by what its caller was sent before."""
        return self.deltas or bool(self.dedup) or (self.deltas is None and self.pack_root is not None)

    @property
    def max_chars(self) -> int:
        """Most characters of a reply: what hosts are told, and kept where a text has few tokens for its length."""
        return self.max_tokens * 8


def resolve_policy(*policies: ResultPolicy | None) -> ResolvedPolicy:
    """The nearest policy first; what none of them says is the default, Delta-MCP's own in the way of Delta-MCP."""
    as_original = next((policy.compat for policy in policies if policy and policy.compat is not None), False)
    made = ResolvedPolicy(max_tokens=500, page_size=50) if as_original else ResolvedPolicy()
    for policy in reversed(policies):
        if policy is not None:
            made = override_policy(policy, made)
    return made


def override_policy(policy: ResultPolicy, base: ResolvedPolicy) -> ResolvedPolicy:
    """What is to be done where this policy is heard first."""
    said = {name: value for name in policy.__struct_fields__ if (value := getattr(policy, name)) is not None}
    return replace(base, **said)


def size_hint(policy: ResolvedPolicy) -> dict[str, JSON]:
    """What hosts are told of a tool, so that they do not cut what is cut already; they take 500,000 at most."""
    return {"anthropic/maxResultSizeChars": min(policy.max_chars, 500_000)}


def parse_root(said: JSON) -> str:
    """
    Raises:
        UnfitError: no root can be meant.
    """
    if said is None or isinstance(said, str):
        return said or ""
    raise UnfitError(f"{ROOT_KEY} must be the root of a result, as a text.")


def requested_root(meta: Mapping[str, JSON]) -> str | None:
    """What a request's `_meta` says that its sender holds of the answer; None where it says nothing.

    Raises:
        UnfitError: it cannot be read.
    """
    said = requested_policy(meta) if META_KEY in meta else None
    return None if said is None else said.pack_root


def requested_policy(meta: Mapping[str, JSON]) -> RequestPolicy | None:
    """What a request's `_meta` says: a budget no smaller than the least, fields, whether tables are understood, a root.

    Raises:
        UnfitError: it says something else; the text tells what.
    """
    said = meta.get(META_KEY)
    if said is None:
        return None
    try:
        return msgspec.convert(said, RequestPolicy)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise UnfitError(f"_meta[{META_KEY!r}]: {error}") from None
