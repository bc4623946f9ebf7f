"""Makes the items that the gateway offers from what an upstream lists."""

import functools
import logging
import re
from collections.abc import Iterator
from typing import Any

from deltamcp.catalog.remote_items import RemoteOperation, RemotePrompt, RemoteResource
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.upstreams.upstream import Upstream
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.values import JSON, RawResult

logger = logging.getLogger("deltamcp")

Item = RemoteOperation | RemoteResource | RemotePrompt


def make_items(
    upstream: Upstream, catalogue: UpstreamCatalogue, config: UpstreamConfig, has_prefix: bool
) -> Iterator[Item]:
    """Yields the items of an upstream; leaves out, and logs, those that cannot be offered."""
    for tool in catalogue.tools:
        try:
            yield _operation(upstream, tool, config, has_prefix)
        except ConfigurationError as error:
            logger.warning("%s: a tool is left out: %s", upstream.name, error)
    for item in (*catalogue.resources, *catalogue.templates):
        try:
            yield RemoteResource(functools.partial(_read, upstream), item)
        except ConfigurationError as error:
            logger.warning("%s: a resource is left out: %s", upstream.name, error)
    for prompt in catalogue.prompts:
        name = str(prompt.get("name"))
        shown = f"{config.name}_{name}" if has_prefix else name
        yield RemotePrompt(functools.partial(_get_prompt, upstream, name), prompt, shown)


def _operation(upstream: Upstream, tool: dict[str, JSON], config: UpstreamConfig, has_prefix: bool) -> RemoteOperation:
    name = tool.get("name")
    if not isinstance(name, str):
        raise ConfigurationError("it has no name.")
    shown = config.rename.get(name, name)
    return RemoteOperation(
        functools.partial(_call, upstream, name),
        tool,
        name=f"{config.name}_{shown}" if has_prefix else shown,
        category=_segment(config.name),
        action=_segment(shown),
    )


def _segment(text: str) -> str:
    """Returns a text as a part of an id."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:64] or "x"


async def _call(upstream: Upstream, name: str, arguments: dict[str, JSON], context: Context) -> RawResult:
    return await upstream.forward("tools/call", {"name": name, "arguments": arguments}, context)


async def _read(upstream: Upstream, uri: str, context: Context) -> RawResult:
    return await upstream.forward("resources/read", {"uri": uri}, context, repeatable=True)


async def _get_prompt(upstream: Upstream, name: str, arguments: dict[str, Any], context: Context) -> RawResult:
    return await upstream.forward("prompts/get", {"name": name, "arguments": arguments}, context, repeatable=True)
