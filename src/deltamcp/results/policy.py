"""The policy by which a server fits results into a reply, resolved from those of server, tool and request."""

import functools
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import fields, replace

from deltamcp import tokens
from deltamcp.errors import ConfigurationError, UsageError
from deltamcp.results.queries.query import Query, check_query
from deltamcp.values import JSON

DEFAULT_MAX_TOKENS = 20_000
"""The budget of a result where a policy applies and names none: hosts cut results at about 25,000 tokens."""
MIN_MAX_TOKENS = 50
"""The smallest budget that a policy may name; in less, a note and a handle leave no space for data."""
DELTA_MCP_MAX_TOKENS = 500
"""The default of Delta-MCP 0.2, for `compat`."""

META_KEY = "io.github.delta-mcp/result"
"""The key in `_meta` under which a reply describes its result to programs, and a request states its policy."""

SINCE_KEY = "since"
"""The name under which a caller says which result it has, by handle or root: an argument, or a member in `_meta`."""
ROOT_KEY = "pack_root"
"""GCF's name for the same, which is taken too."""
SINCE_SCHEMA: dict[str, JSON] = {
    "type": "string",
    "description": "Handle of an earlier result, to get only changes; empty: all.",
}
QUERY_KEY = "io.github.delta-mcp/query"
"""The key in a tool's `_meta` with the names of the arguments by which its server, not the tool, takes a query."""
QUERY_SCHEMAS: Mapping[str, dict[str, JSON]] = {"fields": {"type": "string"}, "grep": {"type": "string"}}
"""What plain tools list of these arguments; the definition of `continue` beside them says what they are."""
SIZE_KEY = "anthropic/maxResultSizeChars"
"""The key in a tool's `_meta` that keeps hosts from cutting its results again."""
CHARS_PER_TOKEN = 8
"""Maximum characters of a reply for each of its tokens: the hint for hosts, and a limit for texts of few tokens."""
RESET = "reset"
"""A caller sends this instead of a root when it has lost everything the server sent."""

MAX_REQUESTED_TOKENS = 500_000
"""The largest budget that a request gets; it may ask for more, and gets a part. No model reads more at once."""
_MAX_NAMES, _MAX_NAMES_CHARS = 100, 2_000
"""The most names of fields in one setting of a policy: a result is compared once for each of them."""
_MAX_MODEL_CHARS = 100
_OTHER_VOCABULARY_FACTOR = 1.1
"""Tokens of another vocabulary per token of o200k, on the safe side, as for a model that is not known."""


class ResultPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """How a server fits results into the budget of a reply: page size, fields, tables, deltas.

    An author sets a policy for a server or a tool, and a client sets one for a request. Where a field is None, the
    policy of the tool, then that of the server, and then the default of `ResolvedPolicy` applies.
    """

    max_tokens: int | None = None
    """Maximum tokens of a whole reply, including notes and structured content."""
    page_size: int | None = None
    """Maximum rows of one reply; by default as many as fit."""
    rows: str | None = None
    """Path to the rows, as `/data/users` or `data.users`; by default the server looks in the usual places."""
    fields: list[str] | str | None = None
    """The fields of an object, or of each row, to send: dotted paths, or a JMESPath expression. The server stores the
    whole result."""
    tail: float | None = None
    """The share of a cut text's window that shows the end of the text, from 0 to 0.9."""
    tables: bool | None = None
    """Whether the server may send rows as tables where these are shorter than JSON."""
    dictionary: bool | None = None
    """Whether a table may list values that repeat once and refer to them by number."""
    links: bool | None = None
    """Whether a reply that shows a part of a result has a resource link to the whole, for hosts that let their user
    open it; the default is False. Some client libraries put what a link points to into the model's context."""
    model: str | float | None = None
    """The model whose tokens are counted, as `deltamcp.tokens.count` takes it."""
    auto_page: bool | None = None
    """Whether the server cuts pages for Delta-MCP clients by the arguments `page` and `pageSize`. By default it does,
    except where a tool that declares these arguments returns a page of its own; with False, never."""
    deltas: bool | None = None
    """Whether the server sends a caller only the changes since an earlier result. By default it does so for requests
    that name the result they have, and in a conversation that it knows since the last result of the same call. With
    True plain tools list the argument for it, and every result is stored; with False, never."""
    keys: list[str] | None = None
    """Names of members that identify a row, in order of preference; by default the server finds one."""
    volatile: list[str] | None = None
    """Dotted paths of fields that change on every call, as `took_ms` or `items.age`; a result in which only these
    differ counts as unchanged."""
    dedup: bool | Literal["deltas"] | None = None
    """Whether the server sends a reference in place of a row, or of a symbol of a graph, that any call sent to the
    caller before: with True in whole results, with "deltas" in deltas too."""
    preview_above: int | None = None
    """Of a result that costs more tokens than this the first reply has the shape, the first rows and the handle; 0: of
    none. What the caller's fields or `grep` select counts as the result. It does not apply where a nearer policy sets
    `max_tokens`."""
    queries: bool | None = None
    """Whether plain tools take `fields` and `grep`, which select a part of the result; by default those whose policy
    has a `max_tokens`. Tools with parameters of these names, or for any names, and those with an output schema do
    not."""
    compat: bool | None = None
    """Whether Delta-MCP clients get results exactly as Delta-MCP 0.2 sends them, faults included; the budget then does
    not hold."""

    def __post_init__(self) -> None:
        for name, type_ in _field_types(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            try:
                msgspec.convert(value, type_)
            except msgspec.ValidationError as error:
                raise ConfigurationError(f"{name}: {error}.") from None
        if self.max_tokens is not None and self.max_tokens < MIN_MAX_TOKENS:
            raise ConfigurationError(f"max_tokens must be {MIN_MAX_TOKENS} or more, not {self.max_tokens}.")
        if self.page_size is not None and self.page_size < 1:
            raise ConfigurationError(f"page_size must be 1 or more, not {self.page_size}.")
        if self.tail is not None and not 0 <= self.tail <= 0.9:
            raise ConfigurationError(f"tail must be from 0 to 0.9, not {self.tail}.")
        if isinstance(self.model, float | int) and not 0.1 <= self.model <= 10:
            raise ConfigurationError(f"model must be a name, or from 0.1 to 10 times o200k's tokens, not {self.model}.")
        for name, texts in (("volatile", self.volatile or ()), ("keys", self.keys or ()), ("rows", (self.rows or "",))):
            if len(texts) > _MAX_NAMES or sum(map(len, texts)) > _MAX_NAMES_CHARS:
                raise ConfigurationError(f"{name} takes up to {_MAX_NAMES} names and {_MAX_NAMES_CHARS} characters.")
        if isinstance(self.model, str) and len(self.model) > _MAX_MODEL_CHARS:
            raise ConfigurationError(f"model must have at most {_MAX_MODEL_CHARS} characters.")
        if any(not path or ".." in path for path in self.volatile or ()):
            raise ConfigurationError("volatile takes dotted paths, as meta.took_ms.")
        try:
            check_query(Query(self.fields, getattr(self, "grep", None)))
        except UsageError as error:
            raise ConfigurationError(str(error)) from None


@functools.cache
def _field_types(kind: type[ResultPolicy]) -> tuple[tuple[str, Any], ...]:
    """Returns the fields of a policy, all of which admit None; a meta-tool makes a policy for each call."""
    return tuple((field.name, field.type) for field in fields(kind))


class RequestPolicy(
    ResultPolicy, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"
):
    """The policy that a client sends with one request."""

    since: str | None = None
    """The handle or root of the result that the client has; empty where it has none, `reset` where it has lost
    everything the server sent."""
    pack_root: str | None = msgspec.field(default=None, name=ROOT_KEY)
    """The same, as GCF calls it; `since` comes first."""
    grep: str | None = None
    """A regular expression: the client gets the lines or rows that match it."""
    whole: bool | None = None
    """Whether the client wants the result as the tool returned it, and fits it to a budget itself, as a gateway does;
    other fields then have no meaning."""


class ResolvedPolicy(Struct, frozen=True, kw_only=True):
    """The policy for one result, with a value for every field that has a default."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    page_size: int | None = None
    rows: str | None = None
    fields: list[str] | str | None = None
    fields_requested: bool = False
    """Whether the caller chose `fields`, and so is told which of them a result does not have."""
    tail: float = 0.25
    tables: bool = True
    dictionary: bool = True
    links: bool = False
    model: str | float = "o200k"
    auto_page: bool | None = None
    deltas: bool | None = None
    keys: list[str] | None = None
    volatile: list[str] | None = None
    dedup: bool | Literal["deltas"] | None = None
    preview_above: int = 0
    compat: bool = False
    since: str | None = None
    grep: str | None = None

    @property
    def query(self) -> Query:
        return Query(self.fields, self.grep)

    @property
    def has_query(self) -> bool:
        """Whether only a part of a result is asked for."""
        return self.fields is not None or self.grep is not None

    @property
    def has_callers_query(self) -> bool:
        """Whether the caller asks for only a part of a result."""
        return self.grep is not None or (self.fields is not None and self.fields_requested)


def resolve_policy(*policies: ResultPolicy | None) -> ResolvedPolicy:
    """Combines policies, in falling precedence, with the defaults; with `compat` these are Delta-MCP 0.2's defaults."""
    compat = next((policy.compat for policy in policies if policy and policy.compat is not None), False)
    resolved = ResolvedPolicy(max_tokens=DELTA_MCP_MAX_TOKENS, page_size=50) if compat else ResolvedPolicy()
    for policy in reversed(policies):
        if policy is not None:
            resolved = override_policy(policy, resolved)
    return resolved


def merge_policies(*policies: ResultPolicy | None) -> ResultPolicy:
    """Returns one policy for several, in falling precedence."""
    merged: dict[str, JSON] = {}
    for policy in reversed(policies):
        if policy is None:
            continue
        merged |= {name: value for name in policy.__struct_fields__ if (value := getattr(policy, name)) is not None}
        if policy.max_tokens is not None and policy.preview_above is None and "preview_above" in merged:
            merged["preview_above"] = 0  # a budget that somebody names is one for the result, not for a preview
    return ResultPolicy(**merged)


def override_policy(policy: ResultPolicy, base: ResolvedPolicy) -> ResolvedPolicy:
    """Returns `base` with the fields that `policy` sets."""
    overrides = {
        name: value
        for name in policy.__struct_fields__
        if name in base.__struct_fields__ and (value := getattr(policy, name)) is not None
    }
    if policy.max_tokens is not None and policy.preview_above is None:
        overrides["preview_above"] = 0
    if policy.fields is not None:
        overrides["fields_requested"] = isinstance(policy, RequestPolicy)
    if policy.model is not None and isinstance(policy, RequestPolicy):
        overrides["model"] = _requested_model(policy.model, base.model)
    if isinstance(policy, RequestPolicy) and policy.since is None and policy.pack_root is not None:
        overrides["since"] = policy.pack_root
    if policy.max_tokens is not None and isinstance(policy, RequestPolicy):
        overrides["max_tokens"] = min(policy.max_tokens, max(MAX_REQUESTED_TOKENS, base.max_tokens))
    return replace(base, **overrides)


def _requested_model(model: str | float, configured: str | float) -> str | float:
    """Returns the model of a request, or a factor instead of a model whose vocabulary only this request would load.

    To load a vocabulary takes 100 ms, in which nothing else runs, and 20 MB.
    """
    vocabulary = tokens.vocabulary_of(model)
    if vocabulary.name in (tokens.vocabulary_of(configured).name, tokens.vocabulary_of(1.0).name):
        return model
    return vocabulary.factor * _OTHER_VOCABULARY_FACTOR


def size_hint(policy: ResolvedPolicy) -> dict[str, JSON]:
    """Returns the `_meta` of a tool that keeps hosts from cutting its results again; hosts take 500,000 at most."""
    return {SIZE_KEY: min(policy.max_tokens * CHARS_PER_TOKEN, 500_000)}


def described_policy(policy: ResultPolicy) -> dict[str, JSON]:
    """Returns the `_meta` of a tool that tells a gateway what its author wants beside the size."""
    described: dict[str, JSON] = to_builtins(_for_others(policy))
    return {META_KEY: described} if described else {}


def author_policy(meta: Mapping[str, JSON]) -> ResultPolicy | None:
    """Returns the policy that `size_hint` and `described_policy` put into a tool's `_meta`; None if there is none."""
    chars = meta.get(SIZE_KEY)
    if type(chars) is not int:
        return None
    size = ResultPolicy(max_tokens=max(MIN_MAX_TOKENS, chars // CHARS_PER_TOKEN))
    try:
        return merge_policies(size, _for_others(msgspec.convert(meta.get(META_KEY) or {}, ResultPolicy)))
    except (msgspec.ValidationError, ConfigurationError):
        return size


def _for_others(policy: ResultPolicy) -> ResultPolicy:
    """Returns a policy without what the server that cuts decides itself: how much fits, and whose tokens it counts."""
    return replace(policy, max_tokens=None, page_size=None, model=None, queries=None, compat=None)


_RESULT_NAME = re.compile(
    r"R[2-9a-z]{4}|([a-z]{2}\d{3}){4,7}|sha256:[0-9a-f]{8,64}|(?!(19|20)\d{6}$|\d{9,11}$|\d{13,}$)[0-9a-f]{5,64}"
)
"""Handles and roots; dates and seconds, which `since` of many operations takes, are none."""


def take_since(arguments: dict[str, JSON], own: Collection[str] = ()) -> str | None:
    """Takes out of the arguments which result the caller has, and returns it; None where they do not say.

    Args:
        own: The names of arguments that are the function's own, unless their values are such as only name a result.

    Raises:
        UsageError: the value is not a string.
    """
    given = [
        arguments.pop(name, None)
        for name in (SINCE_KEY, ROOT_KEY)
        if name not in own or _names_result(arguments.get(name))
    ]
    since = next((value for value in given if value is not None), None)
    if since is None or isinstance(since, str):
        return since
    raise UsageError(f"{SINCE_KEY} must be the handle of a result, as a text.")


def _names_result(value: JSON) -> bool:
    return isinstance(value, str) and (value in ("", RESET) or _RESULT_NAME.fullmatch(value.strip()) is not None)


def requested_since(meta: Mapping[str, JSON]) -> str | None:
    """Returns the result that a request's `_meta` says its client has; None where it says nothing of one.

    Raises:
        UsageError: the policy in `_meta` is invalid.
    """
    policy = requested_policy(meta) if META_KEY in meta else None
    return None if policy is None else policy.since if policy.since is not None else policy.pack_root


def requested_policy(meta: Mapping[str, JSON]) -> RequestPolicy | None:
    """Returns the policy in a request's `_meta`; None where there is none.

    Raises:
        UsageError: the policy is invalid; the text says why.
    """
    value = meta.get(META_KEY)
    if value is None:
        return None
    try:
        return msgspec.convert(value, RequestPolicy)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise UsageError(f"_meta[{META_KEY!r}]: {error}") from None
