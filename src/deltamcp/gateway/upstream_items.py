"""Makes the items that the gateway offers, and its instructions, from what its upstreams list."""

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from deltamcp.calls.server_items import can_queue_promises
from deltamcp.catalog.catalog import Mount
from deltamcp.catalog.items.operation import ToolOptions
from deltamcp.catalog.items.remote_items import RemoteOperation, RemotePrompt, RemoteResource
from deltamcp.catalog.param_headers import declared_headers
from deltamcp.catalog.text import prose
from deltamcp.catalog.text.clean_text import clean
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.item_names import NamedItem, ascii_segment, distinct_names, distinct_paths, distinct_segments
from deltamcp.gateway.upstream_resources import ResourceClaims, SeenUris, UpstreamResource, complete
from deltamcp.results.policy import (
    META_KEY,
    QUERY_KEY,
    QUERY_SCHEMAS,
    SINCE_KEY,
    SINCE_SCHEMA,
    ResultPolicy,
    author_policy,
    merge_policies,
)
from deltamcp.upstreams.listing import MAX_ITEMS, UpstreamListing
from deltamcp.upstreams.login_upstream import LoginUpstream
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, RawResult

logger: logging.Logger = logging.getLogger("deltamcp")

STATUS_URI = "delta-mcp://gateway/upstreams"
"""The gateway's own resource, whose URI no resource of an upstream gets."""
_WHOLE: dict[str, JSON] = {META_KEY: {"whole": True}}
"""The `_meta` of a request for a result that is not cut."""
_MAX_TOLD = 1_000
"""The sentences about lists that a process logs; servers that change their lists without end have others each time."""

Item = RemoteOperation | RemoteResource | RemotePrompt


class UpstreamOffer(NamedTuple):
    """What one upstream lists, and what the operator says of it."""

    config: UpstreamConfig
    upstream: Upstream
    listing: UpstreamListing


class ItemKey(NamedTuple):
    """An item where it comes from."""

    kind: Literal["tool", "resource", "prompt"]
    upstream: str
    name: str
    """The name or the URI that it has there."""


class _Made(NamedTuple):
    """An item, and all that it was made from."""

    definition: dict[str, JSON]
    name: tuple[str, ...]
    config: UpstreamConfig
    upstream: Upstream
    can_complete: bool
    item: Item


class UpstreamItems:
    """The items of all upstreams. An item whose definition and names stay is the same object after an update."""

    def __init__(self, reserved: frozenset[str], claims: ResourceClaims) -> None:
        """
        Args:
            reserved: Names that no tool may have here.
            claims: Takes note of the URIs in results.
        """
        self._claims = claims
        self._results: ResultPolicy | None = None
        self._has_prefix = False
        self._reserved = reserved
        self._made: dict[ItemKey, _Made] = {}
        self._told: set[str] = set()

    def configure(self, has_prefix: bool, results: ResultPolicy | None, *, anew: bool = False) -> None:
        """Makes items from now on that follow another configuration.

        Args:
            has_prefix: Whether names of tools and prompts begin with that of their upstream.
            results: The gateway's own policy.
            anew: Whether all items are made again.
        """
        self._has_prefix, self._results = has_prefix, results
        if anew:
            self._made = {}

    def update(self, offers: Sequence[UpstreamOffer]) -> dict[ItemKey, Item]:
        """Returns the items of upstreams, which are given in the order of the configuration."""
        self._made = self._make_all(offers)
        return {key: one.item for key, one in self._made.items()}

    def make(self, offers: Sequence[UpstreamOffer]) -> dict[ItemKey, Item]:
        """Returns the items of other lists of the upstreams; those that the last update had, too, are the same."""
        return {key: one.item for key, one in self._make_all(offers).items()}

    def _make_all(self, offers: Sequence[UpstreamOffer]) -> dict[ItemKey, _Made]:
        for offer in offers:
            for kind, count in offer.listing.left_out.items():
                why = (
                    f"names that are too long, or have a credential in them, and what comes after {MAX_ITEMS:,} others."
                )
                self._tell(f"{offer.config.name}: {count} of its {kind} are left out: {why}")
        names = [offer.config.name for offer in offers]
        segments = dict(zip(names, distinct_segments(names, ("index",)), strict=True))
        prefixes = dict(zip(names, distinct_segments(names, ("index",), ascii_segment), strict=True))
        return dict(
            (
                *self._operations(offers, segments, prefixes),
                *self._resources(offers, prefixes),
                *self._prompts(offers, prefixes),
            )
        )

    def _operations(
        self, offers: Sequence[UpstreamOffer], segments: Mapping[str, str], prefixes: Mapping[str, str]
    ) -> Iterator[tuple[ItemKey, _Made]]:
        tools = [(offer, tool) for offer in offers for tool in self._offered_tools(offer)]
        actions: list[str] = []
        for offer in offers:
            own = [tool for one, tool in tools if one is offer]
            actions += distinct_paths(
                [_name_here(tool, offer.config) for tool in own], [_path_here(tool, offer) for tool in own]
            )
        ids = [f"{segments[offer.config.name]}.{action}" for (offer, _), action in zip(tools, actions, strict=True)]
        named = [NamedItem(offer.config.name, _name_here(tool, offer.config)) for offer, tool in tools]
        names = distinct_names(named, prefixes, self._has_prefix, self._reserved | {*ids})
        for (offer, tool), name, id_ in zip(tools, names, ids, strict=True):
            key = ItemKey("tool", offer.config.name, str(tool["name"]))
            one = self._make(
                key,
                offer,
                tool,
                (name, id_),
                functools.partial(_operation, offer, self._claims.seen, self._results, tool, name, id_),
            )
            if one is not None:
                yield key, one

    def _offered_tools(self, offer: UpstreamOffer) -> Iterator[dict[str, JSON]]:
        config = offer.config
        seen: set[str] = set()
        for tool in offer.listing.tools:
            name = tool.get("name")
            if not isinstance(name, str) or not name:
                self._tell(f"{config.name}: a tool is left out: it has no name.")
            elif name in seen:
                self._tell(f"{config.name}: a tool is left out: {name[:100]!r} is listed twice.")
            else:
                seen.add(name)  # also of a tool that is not offered: trust compares the first of a name
                if is_offered(name, tool, config):
                    yield tool

    def _resources(
        self, offers: Sequence[UpstreamOffer], prefixes: Mapping[str, str]
    ) -> Iterator[tuple[ItemKey, _Made]]:
        used: dict[str, UpstreamOffer | None] = {STATUS_URI: None}
        for offer in offers:
            upstream, own = offer.config.name, set[str]()
            for item in (*offer.listing.resources, *offer.listing.templates):
                uri = item.get("uriTemplate", item.get("uri"))
                if not isinstance(uri, str) or not uri:
                    self._tell(f"{upstream}: a resource is left out: it has no URI.")
                    continue
                if uri in own:
                    continue
                own.add(uri)
                segment = prefixes[upstream] if uri in used else ""
                shown = Mount(segment).uri(uri)
                if segment:
                    self._tell(f"{upstream}: {uri[:200]} is another server's too; it is listed as {shown[:200]}.")
                    holder = used[uri]
                    if holder is not None and not (holder.upstream.has_logins or offer.upstream.has_logins):
                        self._claims.tell(uri, holder.config.name, upstream)
                if shown in used:
                    self._tell(f"{upstream}: a resource is left out: {shown[:200]} is taken.")
                    continue
                used[shown] = offer
                key = ItemKey("resource", upstream, uri)
                make = functools.partial(self._resource, offer, item, segment)
                one = self._make(key, offer, item, (shown,), make)
                if one is not None:
                    yield key, one

    def _resource(self, offer: UpstreamOffer, item: dict[str, JSON], segment: str) -> UpstreamResource:
        can_complete = "completions" in offer.listing.capabilities
        return UpstreamResource(
            offer.upstream, self._claims, item, segment=segment, can_complete=can_complete, is_listed=True
        )

    def _prompts(self, offers: Sequence[UpstreamOffer], prefixes: Mapping[str, str]) -> Iterator[tuple[ItemKey, _Made]]:
        prompts: dict[ItemKey, tuple[UpstreamOffer, dict[str, JSON]]] = {}
        for offer in offers:
            for prompt in offer.listing.prompts:
                name = prompt.get("name")
                if isinstance(name, str) and name:
                    prompts.setdefault(ItemKey("prompt", offer.config.name, name), (offer, prompt))
                else:
                    self._tell(f"{offer.config.name}: a prompt is left out: it has no name.")
        named = [NamedItem(upstream, name) for _, upstream, name in prompts]
        names = distinct_names(named, prefixes, self._has_prefix)
        for (key, (offer, prompt)), shown in zip(prompts.items(), names, strict=True):
            make = functools.partial(_prompt, offer, self._claims.seen, prompt, key.name, shown)
            one = self._make(key, offer, prompt, (shown,), make)
            if one is not None:
                yield key, one

    def _make(
        self, key: ItemKey, offer: UpstreamOffer, definition: dict[str, JSON], name: tuple[str, ...], make: Any
    ) -> _Made | None:
        known, (config, upstream, listing) = self._made.get(key), offer
        can_complete = "completions" in listing.capabilities
        basis = (definition, name, config, upstream, can_complete)
        if known is not None and known[:-1] == basis:
            return known
        try:
            return _Made(*basis, make())
        except ConfigurationError as error:
            self._tell(f"{key.upstream}: a {key.kind} is left out: {error}")
            return None

    def _tell(self, text: str) -> None:
        """Logs what an operator should know of a list, once."""
        if text not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(text)
            logger.warning("%s", text)


def is_offered(name: str, tool: Mapping[str, JSON], config: UpstreamConfig) -> bool:
    """Returns whether the operator wants a tool to be offered; `name` is its name at the upstream."""
    if config.read_only and not is_read_only(tool):
        return False
    return _fits(name, config.allow) and not _fits(name, config.deny)


def is_read_only(tool: Mapping[str, JSON]) -> bool:
    """Returns whether a tool says that it only reads, and not that it destroys too."""
    return _has_hint(tool, "readOnlyHint") and not is_destructive(tool)


def is_repeatable(tool: Mapping[str, JSON]) -> bool:
    """Returns whether a call of a tool may be sent again after its server was lost: it only reads, or is idempotent."""
    return is_read_only(tool) or _has_hint(tool, "idempotentHint")


def is_destructive(tool: Mapping[str, JSON]) -> bool:
    """Returns whether a tool says, in so many words, that it destroys."""
    return _has_hint(tool, "destructiveHint")


def _has_hint(tool: Mapping[str, JSON], name: str) -> bool:
    annotations = tool.get("annotations")
    return isinstance(annotations, dict) and annotations.get(name) is True


def _fits(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _name_here(tool: Mapping[str, JSON], config: UpstreamConfig) -> str:
    return config.rename.get(str(tool["name"]), str(tool["name"])) or str(tool["name"])


def _path_here(tool: Mapping[str, JSON], offer: UpstreamOffer) -> str:
    """Returns the path of an operation below its upstream, as the upstream tells it; empty to take its name."""
    name = str(tool["name"])
    return "" if offer.config.rename.get(name) else offer.listing.ids.get(name, "")


def _operation(
    offer: UpstreamOffer,
    seen: SeenUris,
    results: ResultPolicy | None,
    tool: dict[str, JSON],
    name: str,
    id_: str,
) -> RemoteOperation:
    config, name_there = offer.config, str(tool["name"])
    category, _, action = id_.rpartition(".")
    options: ToolOptions = {"name": name, "category": category, "action": action}
    if _fits(name_there, config.pinned):
        options["pinned"] = True
    own_policy = _own_policy(tool, offer.listing)
    if own_policy is not None and config.results is not False:
        options["results"] = merge_policies(config.results, results, own_policy)
    elif config.results is not None:
        options["results"] = config.results
    if config.confirm == "always" or (config.confirm == "destructive" and is_destructive(tool)):
        options["policy"] = "confirm"
    if config.promise == "auto" and can_queue_promises():
        options |= {"promise": "auto", "sync_seconds": config.sync_seconds}
    schema = tool.get("inputSchema")
    headers = declared_headers(name_there, schema) if isinstance(schema, dict) else ()
    sent: dict[str, Any] = {
        "repeatable": is_repeatable(tool),
        "parameter_headers": headers,
        "task_support": _task_support(tool),
        "meta": {} if own_policy is None else _WHOLE,
    }
    call = functools.partial(_call, offer.upstream, seen, name_there, sent)
    definition = tool if own_policy is None else _without_result_arguments(tool)
    abandon, is_own = offer.upstream.abandon, offer.upstream.has_logins
    return RemoteOperation(call, definition, abandon=abandon, is_own=is_own, **options)


def _prompt(offer: UpstreamOffer, seen: SeenUris, prompt: dict[str, JSON], name: str, shown: str) -> RemotePrompt:
    get = functools.partial(_get_prompt, offer.upstream, seen, name)
    if "completions" not in offer.listing.capabilities:
        return RemotePrompt(get, prompt, shown)
    reference = {"type": "ref/prompt", "name": name}
    return RemotePrompt(get, prompt, shown, functools.partial(complete, offer.upstream, reference))


def log_in_operations(upstreams: Sequence[LoginUpstream]) -> list[RemoteOperation]:
    """Returns the operations by which users log in at upstreams; they are there whatever those list."""
    made, names = [], [one.name for one in upstreams]
    segments, prefixes = distinct_segments(names), distinct_segments(names, segment=ascii_segment)
    for upstream, segment, prefix in zip(upstreams, segments, prefixes, strict=True):
        definition: dict[str, JSON] = {
            "name": "log_in",
            "description": f"Log the user in at {upstream.name}, whose tools need that.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        }
        options: ToolOptions = {"name": f"log_in_{prefix}", "category": "gateway", "action": f"log_in_{segment}"}
        made.append(RemoteOperation(functools.partial(_log_in, upstream), definition, **options))
    return made


async def _log_in(upstream: LoginUpstream, arguments: dict[str, JSON], context: Context) -> RawResult:
    return await upstream.log_in(context)


def _own_policy(tool: Mapping[str, JSON], listing: UpstreamListing) -> ResultPolicy | None:
    """Returns the policy by which a Delta-MCP server cuts a tool's results; None if it sends them whole.

    It would keep the rest under a handle that is unknown here. So it is asked for all, and this server cuts.
    """
    meta = tool.get("_meta")
    return author_policy(meta) if listing.is_ours and isinstance(meta, dict) else None


def _without_result_arguments(tool: dict[str, JSON]) -> dict[str, JSON]:
    """Returns a definition without the parameters that its server would take for the result, and not for the tool."""
    schema, meta = tool.get("inputSchema"), tool.get("_meta")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        return tool
    queries = meta.get(QUERY_KEY) if isinstance(meta, dict) else None
    taken = {name for name in QUERY_SCHEMAS if isinstance(queries, list) and name in queries}
    if properties.get(SINCE_KEY) == SINCE_SCHEMA:
        taken.add(SINCE_KEY)
    others = {name: one for name, one in properties.items() if name not in taken}
    return {**tool, "inputSchema": {**schema, "properties": others}} if taken else tool


def _task_support(tool: Mapping[str, JSON]) -> str:
    execution = tool.get("execution")
    return str(execution.get("taskSupport")) if isinstance(execution, dict) else ""


async def _call(
    upstream: Upstream,
    seen: SeenUris,
    name: str,
    options: dict[str, Any],
    arguments: dict[str, JSON],
    context: Context,
) -> RawResult:
    params: dict[str, JSON] = {"name": name, "arguments": arguments}
    result = await upstream.forward("tools/call", params, context, **options)
    seen.learn(upstream, context.principal, result.fields)
    return result


async def _get_prompt(
    upstream: Upstream, seen: SeenUris, name: str, arguments: dict[str, Any], context: Context
) -> RawResult:
    params = {"name": name, "arguments": arguments}
    result = await upstream.forward("prompts/get", params, context, repeatable=True)
    seen.learn(upstream, context.principal, result.fields)
    return result


_ONE_CHARS = 2_000
"""Of the instructions of the only upstream."""
_LINE_CHARS = 120
"""Of the instructions of one of several."""
_ALL_CHARS = 600
"""Of those of all; some 150 tokens, which hosts put before every conversation."""


def gateway_instructions(texts: Mapping[str, str]) -> str | None:
    """Returns the instructions from those of upstreams by name, in the order of the configuration.

    Those of the only upstream are passed on up to a length. Of several, each has a line, until there is no room.
    """
    if len(texts) == 1:
        text = clean(next(iter(texts.values()))[: 2 * _ONE_CHARS]).strip()
        return (text if len(text) <= _ONE_CHARS else f"{text[: _ONE_CHARS - 1].rstrip()}…") or None
    lines: list[str] = []
    for name, text in texts.items():
        excerpt = prose.cut(" ".join(clean(text[:_ONE_CHARS]).split()), _LINE_CHARS)
        line = f"{name}: {excerpt}"
        if excerpt and sum(map(len, lines)) + len(line) <= _ALL_CHARS:
            lines.append(line)
    return "\n".join(["What servers say of themselves:", *lines]) if lines else None
