"""The versions of MCP, and the features that each has. No other module has a version in its code.

Versions are dates, so that comparing two as texts tells which is newer.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.values import JSON, Audio, BlobResource, Content, EmbeddedResource, ResourceLink, Text

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions that client and server can agree on in `initialize`, newest first."""

MODERN = ("2026-07-28",)
"""The versions that a request may state in its `_meta`, newest first."""

DELTA_MCP = "delta-mcp/0.2.0"
"""The version that a Delta-MCP client sends in `initialize`; the server accepts every version with the same major."""
DELTA_MCP_BASELINE = "2025-11-25"
"""The MCP version that Delta-MCP is based on."""
DELTA_MCP_HEADERS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The values of `MCP-Protocol-Version` that the original server of Delta-MCP accepts."""

FIELD_SINCE: Mapping[str, str] = MappingProxyType(
    {
        "annotations": "2025-03-26",
        "title": "2025-06-18",
        "outputSchema": "2025-06-18",
        "_meta": "2025-06-18",
        "icons": "2025-11-25",
        "execution": "2025-11-25",
    }
)
"""The fields of listed items, and the version that introduced each."""
FIELD_UNTIL: Mapping[str, str] = MappingProxyType({"execution": "2025-11-25"})
"""The fields of listed items that later versions do not have, and the last version of each."""

TASKS_IN = "2025-11-25"
"""The only version in which tasks are part of the protocol."""
TASKS_EXTENSION_SINCE = "2026-07-28"
"""Since this version tasks are an extension, with another wire form."""

INFO_FIELD_SINCE: Mapping[str, str] = MappingProxyType(
    {"name": "2024-11-05", "version": "2024-11-05", "title": "2025-06-18"}
)
"""The fields of `serverInfo`; `_OTHER_INFO_SINCE` introduced all others."""
_OTHER_INFO_SINCE = "2025-11-25"

RESOURCE_ANNOTATIONS_SINCE = "2024-11-05"
"""Resources had annotations before tools did."""

AUDIO_SINCE = "2025-03-26"
STRUCTURED_SINCE = "2025-06-18"
ANY_STRUCTURED_SINCE = "2026-07-28"
"""Before this version, structured content and output schemas are objects only."""

FORM_MODES_SINCE = "2025-11-25"
"""Before this version forms have no multiple-choice fields, and elicitation has no `mode`: it is always a form."""

PRIMING_SINCE = "2025-11-25"
"""Since this version, SSE streams begin with an empty event whose id lets a client reconnect after an early close."""

WITHOUT_HEADER = "2025-03-26"
"""The version of a request over HTTP that neither names one nor belongs to a session."""

BATCHES_IN = "2025-03-26"
"""The only version with JSON-RPC batches."""


def is_delta_mcp(version: str) -> bool:
    """Whether a version in `initialize` is one of Delta-MCP, with the major version that this server supports."""
    prefix, _, own = DELTA_MCP.partition("/")
    return version.startswith(f"{prefix}/") and version.partition("/")[2].partition(".")[0] == own.partition(".")[0]


def fit_item(item: dict[str, JSON], version: str) -> dict[str, JSON]:
    """Returns a listed item with only the fields that a version has. Schemas themselves do not change."""
    fitted = {key: value for key, value in item.items() if _is_known(key, item, version)}
    output = fitted.get("outputSchema")
    if output is not None and version < ANY_STRUCTURED_SINCE and output.get("type") != "object":
        del fitted["outputSchema"]
    return fitted


def _is_known(key: str, item: dict[str, JSON], version: str) -> bool:
    if key == "annotations" and "inputSchema" not in item:
        return version >= RESOURCE_ANNOTATIONS_SINCE
    return FIELD_SINCE.get(key, "") <= version <= FIELD_UNTIL.get(key, version)


def fit_info(info: dict[str, JSON], version: str) -> dict[str, JSON]:
    """Returns the `serverInfo` with only the fields that a version has."""
    return {key: value for key, value in info.items() if version >= INFO_FIELD_SINCE.get(key, _OTHER_INFO_SINCE)}


def fit_content(content: list[Content], version: str) -> list[Content]:
    """Returns content for a version before `STRUCTURED_SINCE`, which has no links, and perhaps no sounds."""
    return [_fit_block(item, version) for item in content]


def fit_raw_block(block: JSON, version: str) -> JSON:
    """Does for a content block of another server what `fit_content` does for the server's own."""
    match block:
        case {"type": "audio", "data": str(data), "mimeType": mime_type} if version < AUDIO_SINCE:
            blob = {"uri": f"audio:{len(data) * 3 // 4}", "blob": data, "mimeType": mime_type}
            kept = {key: value for key, value in block.items() if key not in ("data", "mimeType")}
            return {**kept, "type": "resource", "resource": blob}
        case {"type": "resource_link", "uri": str(uri)}:
            return {"type": "text", "text": f"{block.get('title') or block.get('name') or 'Resource'}: {uri}"}
        case _:
            return block


def _fit_block(item: Content, version: str) -> Content:
    if isinstance(item, Audio) and version < AUDIO_SINCE:
        blob = BlobResource(f"audio:{len(item.data)}", item.data, item.mime_type)
        return EmbeddedResource(blob, item.annotations, item.meta)
    if isinstance(item, ResourceLink):
        return Text(f"{item.title or item.name}: {item.uri}", item.annotations, item.meta)
    return item
