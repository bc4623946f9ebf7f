"""Caches results in the client and applies to them the changes that a server sends instead of whole results."""

from collections import OrderedDict
from typing import Any

from deltamcp.client.links.received_size import BYTES_PER_VALUE
from deltamcp.client.reply import Reply
from deltamcp.deltas.delta import apply_delta
from deltamcp.deltas.edits import InvalidDeltaError
from deltamcp.deltas.root import root_of
from deltamcp.results import dedup
from deltamcp.results.pointer import parse_path
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_MAX_BYTES = 32 * 1024 * 1024
"""Size of all cached results as JSON. The cache drops the least recently used first; if a server sends changes to a
dropped result, the client reads the complete result."""
_MAX_ENTRIES = 4096
"""Results, handles and calls that are cached; the least recently used are dropped first."""


class ResultCache:
    """Results by their roots, by their server's handles, and by the calls that returned them."""

    def __init__(self) -> None:
        self._by_root: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._root_by_handle: OrderedDict[str, str] = OrderedDict()
        self._root_by_call: OrderedDict[str, str] = OrderedDict()

    def root_for(self, call_key: str) -> str | None:
        """Returns the root of the cached result of a call; the client sends it with the next such call."""
        root = self._root_by_call.get(call_key)
        return root if root in self._by_root else None

    def resolve_value(self, reply: Reply, call_key: str = "") -> JSON:
        """Returns the result that a reply sends in whole, as changes or as unchanged, and caches it.

        A part of a result is returned as it is. `call_key` names the tool and its arguments.

        Raises:
            InvalidDeltaError: the reply's base is not in the cache, or the reply cannot be read.
        """
        meta = reply.delta_meta
        try:
            match meta.get("outcome"):
                case "unchanged":
                    value = self._load(meta["base"])
                case "delta":
                    base, work = self._load(meta["base"]), Work(_MAX_BYTES // BYTES_PER_VALUE)
                    value = self._restore(apply_delta(base, reply.texts[0], work=work), meta)
                case _ if "root" not in meta or reply.is_part:
                    return reply.value
                case _:
                    value = self._whole_value(reply, meta)
        except (KeyError, IndexError, ValueError, TypeError, WorkLimitError):
            raise InvalidDeltaError("the reply's base is not in the cache, or the reply cannot be read") from None
        self._store(meta["root"], value)
        if call_key:
            _remember(self._root_by_call, call_key, meta["root"])
        if "handle" in meta:
            _remember(self._root_by_handle, meta["handle"], meta["root"])
        return value

    def store_whole(self, reply: Reply, call_key: str, value: JSON) -> None:
        """Caches a complete result that the client has read by the reply's handle."""
        root = reply.delta_meta.get("root")
        if isinstance(root, str) and root_of(value) == root:
            self._store(root, value)
            _remember(self._root_by_call, call_key, root)

    def clear(self) -> None:
        """Drops all results, as after a reconnect: the server may not know what it has sent before."""
        self._by_root.clear()
        self._size = 0
        self._root_by_handle.clear()
        self._root_by_call.clear()

    def _store(self, root: str, value: JSON) -> None:
        """Stores bytes, because the caller may change the value that it is given."""
        data = jsonrpc.encode(value)
        self._size += len(data) - len(self._by_root.pop(root, b""))
        self._by_root[root] = data
        while self._size > _MAX_BYTES or len(self._by_root) > _MAX_ENTRIES:
            self._size -= len(self._by_root.popitem(last=False)[1])

    def _load(self, root: str) -> JSON:
        self._by_root.move_to_end(root)
        return jsonrpc.decode(self._by_root[root])

    def _whole_value(self, reply: Reply, meta: dict[str, Any]) -> JSON:
        if meta.get("form") == "text":
            return reply.texts[0]
        if "structuredContent" in reply.raw:
            return reply.raw["structuredContent"]
        return self._restore(reply.decode(reply.texts[0]), meta)

    def _restore(self, value: JSON, meta: dict[str, Any]) -> JSON:
        """Fills in the rows that the reply only refers to, and checks the result against the reply's root."""
        if "references" in meta:
            value = dedup.restore_rows(value, parse_path(meta["references"]), self._load_part)
        if root_of(value) != meta["root"]:
            raise InvalidDeltaError("the result does not have the root that the reply names")
        return value

    def _load_part(self, handle: str, path: str) -> JSON:
        value: Any = self._load(self._root_by_handle[handle])
        for step in parse_path(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        part: JSON = value
        return part


def _remember(roots: OrderedDict[str, str], name: str, root: str) -> None:
    roots[name] = root
    roots.move_to_end(name)
    if len(roots) > _MAX_ENTRIES:
        roots.popitem(last=False)
