"""The bodies of results, as far as both eras write them alike; of other servers to the byte."""

from typing import Any, assert_never

from msgspec import UNSET, Raw

from deltamcp.dialects import tasks, versions
from deltamcp.values import (
    JSON,
    SERVER_KEY,
    About,
    Answer,
    Completion,
    Contents,
    Definitions,
    Done,
    ErrorInfo,
    Manifest,
    Page,
    Promise,
    PromptResult,
    RawResult,
    ResourceRequired,
    SubscriptionEnd,
    Text,
    ToolResult,
)
from deltamcp.wire import jsonrpc

_CACHED_METHODS = frozenset(
    {"resources/read", "tools/list", "resources/list", "resources/templates/list", "prompts/list"}
)
"""The methods whose results say in MCP 2026-07-28 for how long, and for whom, they may be cached."""


def encode_modern(raw: RawResult, method: str) -> bytes:
    """Encodes a result for a client of MCP 2026-07-28, which reads its type first."""
    missing = b""
    if "resultType" not in raw.fields:
        missing += b'"resultType":"complete",'
    if method in _CACHED_METHODS:
        # A server of the handshake era notifies of changes, and says nothing of caches.
        missing += b"" if "ttlMs" in raw.fields else b'"ttlMs":0,'
        missing += b"" if "cacheScope" in raw.fields else b'"cacheScope":"private",'
    if not missing:
        return raw.encoded
    rest = raw.encoded.lstrip()[1:]
    return b"{" + (missing + rest if raw.fields else missing[:-1] + rest)


def encode_handshake(raw: RawResult, version: str) -> bytes:
    """Encodes a result for a client of the handshake era, with only what its version has."""
    if "resultType" not in raw.fields and version >= versions.STRUCTURED_SINCE:
        return raw.encoded
    return jsonrpc.encode(fit_fields(raw.fields, version))


def fit_fields(fields: dict[str, JSON], version: str) -> dict[str, JSON]:
    """Returns the fields of a result that a version of the handshake era has."""
    fitted = {key: value for key, value in fields.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    meta = fitted.get("_meta")
    if isinstance(meta, dict) and SERVER_KEY in meta:
        fitted["_meta"] = {key: value for key, value in meta.items() if key != SERVER_KEY}
        if not fitted["_meta"]:
            del fitted["_meta"]
    structured = fitted.get("structuredContent")
    since = versions.STRUCTURED_SINCE if isinstance(structured, dict) else versions.ANY_STRUCTURED_SINCE
    if "structuredContent" in fitted and version < since:
        del fitted["structuredContent"]
    if isinstance(fitted.get("content"), list) and version < versions.STRUCTURED_SINCE:
        fitted["content"] = [versions.fit_raw_block(block, version) for block in fitted["content"]]
    return fitted


ERROR_KEY = "io.github.delta-mcp/error"
"""The key in the `_meta` of a tool's error under which programs find the author's code."""


def body(answer: Answer, version: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Adds the fields of a result to `fields`, which has those that an era gives every result, and returns it."""
    value = answer.value
    match value:
        case ToolResult():
            tool(value, version, fields)
        case RawResult():
            fields |= fit_fields(value.fields, version)
        case Page():
            fields[value.kind.value] = Raw(_items(value, version))
            if value.next_cursor is not None:
                fields["nextCursor"] = value.next_cursor
        case Definitions():
            tools = [versions.fit_item(item, version) for item in value.tools]
            fields |= tools[0] if value.alone else {"tools": tools}
        case Manifest():
            fields["entries"] = value.entries
            if value.next_cursor is not None:
                fields["nextCursor"] = value.next_cursor
            _meta(value.meta, fields)
        case Contents():
            fields["contents"] = value.items
            _meta(value.meta, fields)
        case PromptResult():
            if value.description:
                fields["description"] = value.description
            fields["messages"] = value.messages
            _meta(value.meta, fields)
        case Completion():
            inner = fields["completion"] = {"values": value.values}
            if value.total is not None:
                inner["total"] = value.total
            if value.has_more is not None:
                inner["hasMore"] = value.has_more
        case About():
            fields["capabilities"] = value.capabilities
            if value.instructions is not None:
                fields["instructions"] = value.instructions
        case Done() | SubscriptionEnd():
            pass
        case Promise():
            fields |= tasks.task_fields(value, version)
        case _:
            assert_never(value)
    return fields


def tool(value: ToolResult, version: str, fields: dict[str, Any]) -> None:
    """Adds the fields of a tool's result to `fields`."""
    fields["content"] = (
        value.content if version >= versions.STRUCTURED_SINCE else versions.fit_content(value.content, version)
    )
    structured = value.structured
    if structured is not UNSET:
        since = versions.STRUCTURED_SINCE if isinstance(structured, dict) else versions.ANY_STRUCTURED_SINCE
        if version >= since:
            fields["structuredContent"] = structured
    if value.meta is not None:
        fields["_meta"] = value.meta
    if value.is_error:
        fields["isError"] = True
        if value.error is not None and not value.error.by_server:
            fields["_meta"] = {**(value.meta or {}), ERROR_KEY: _error_info(value.error)}


def _error_info(error: ErrorInfo) -> dict[str, JSON]:
    """Returns what programs read of an author's error; the errors of the server itself have their text only."""
    info: dict[str, JSON] = {"code": error.code}
    if error.retryable:
        info["retryable"] = True
    if error.details:
        info["details"] = error.details
    return info


def resource_result(outcome: ResourceRequired) -> ToolResult:
    """Returns the error result by which MCP tells the model that a call needs more of a resource."""
    needed = [
        f"{one.kind}: {_amount(one.required)} needed, {_amount(one.available)} available" for one in outcome.resources
    ]
    return ToolResult([Text("\n".join((outcome.message, *needed)))], is_error=True)


def _amount(amount: float | None) -> str:
    return "more" if amount is None else f"{amount:g}"


def _meta(meta: dict[str, JSON] | None, fields: dict[str, Any]) -> None:
    if meta is not None:
        fields["_meta"] = meta


def _items(page: Page, version: str) -> bytes:
    key = f"items {version}"
    encoded = page.encoded.get(key)
    if encoded is None:
        encoded = page.encoded[key] = jsonrpc.encode([versions.fit_item(item, version) for item in page.items])
    return encoded
