"""Writes results of other servers for clients of either era: to the byte, except for what the era demands."""

from deltamcp.dialects import versions
from deltamcp.values import JSON, SERVER_KEY, RawResult
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
