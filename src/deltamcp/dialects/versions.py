"""The version table: which revision of MCP has what. No other module spells a version.

Versions are a set with an order by date, nothing more.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.values import JSON, Audio, BlobResource, Content, EmbeddedResource, ResourceLink, Text

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first; what `initialize` can agree on."""

MODERN = ("2026-07-28",)
"""Newest first; what a request may carry in its `_meta`."""

DELTA_MCP = "delta-mcp/0.2.0"
"""What a Delta-MCP client names in `initialize`; another minor version of the same major is understood too."""
DELTA_MCP_BASELINE = "2025-11-25"
"""The MCP revision underneath."""

FIELD_SINCE: Mapping[str, str] = MappingProxyType(
    {
        "annotations": "2025-03-26",
        "title": "2025-06-18",
        "outputSchema": "2025-06-18",
        "_meta": "2025-06-18",
        "icons": "2025-11-25",
    }
)
"""Fields of listed items and the revision that introduced them."""

INFO_FIELD_SINCE: Mapping[str, str] = MappingProxyType(
    {"name": "2024-11-05", "version": "2024-11-05", "title": "2025-06-18"}
)
"""Fields of `serverInfo`; the others came with `_OTHER_INFO_SINCE`."""
_OTHER_INFO_SINCE = "2025-11-25"

RESOURCE_ANNOTATIONS_SINCE = "2024-11-05"
"""Resources had annotations before tools did."""

AUDIO_SINCE = "2025-03-26"
STRUCTURED_SINCE = "2025-06-18"
ANY_STRUCTURED_SINCE = "2026-07-28"
"""Before it, structured content and output schemas are objects only."""

FORM_MODES_SINCE = "2025-11-25"
"""Before it a form had no choice of several, and there was no `mode`: every elicitation was a form."""

PRIMING_SINCE = "2025-11-25"
"""SSE streams open with an empty event to reconnect by, and may be closed to be polled."""

BATCHES_IN = "2025-03-26"
"""The one revision with JSON-RPC batches."""


def is_delta_mcp(version: str) -> bool:
    """Whether a version named in `initialize` is Delta-MCP's, of the major version this server speaks."""
    prefix, _, ours = DELTA_MCP.partition("/")
    return version.startswith(f"{prefix}/") and version.partition("/")[2].partition(".")[0] == ours.partition(".")[0]


def fit_item(item: dict[str, JSON], version: str) -> dict[str, JSON]:
    """A listed item with only the fields a revision knows. Schemas are never touched."""
    kept = {key: value for key, value in item.items() if _is_known(key, item, version)}
    output = kept.get("outputSchema")
    if output is not None and version < ANY_STRUCTURED_SINCE and output.get("type") != "object":
        del kept["outputSchema"]
    return kept


def _is_known(key: str, item: dict[str, JSON], version: str) -> bool:
    if key == "annotations" and "inputSchema" not in item:
        return version >= RESOURCE_ANNOTATIONS_SINCE
    return version >= FIELD_SINCE.get(key, "")


def fit_info(info: dict[str, JSON], version: str) -> dict[str, JSON]:
    """A server's `serverInfo` with only the fields a revision knows."""
    return {key: value for key, value in info.items() if version >= INFO_FIELD_SINCE.get(key, _OTHER_INFO_SINCE)}


def fit_content(content: list[Content], version: str) -> list[Content]:
    """Content with the kinds a revision lacks said in kinds it has: a sound as a blob, a link as text."""
    return [_fit_block(item, version) for item in content]


def _fit_block(item: Content, version: str) -> Content:
    if isinstance(item, Audio) and version < AUDIO_SINCE:
        blob = BlobResource(f"audio:{len(item.data)}", item.data, item.mime_type)
        return EmbeddedResource(blob, item.annotations, item.meta)
    if isinstance(item, ResourceLink):
        return Text(f"{item.title or item.name}: {item.uri}", item.annotations, item.meta)
    return item
