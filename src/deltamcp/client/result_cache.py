"""What a client holds of results, and what it makes of replies that tell only what changed."""

from collections import OrderedDict
from typing import Any

from deltamcp.client.reply import Reply
from deltamcp.deltas.delta import apply_delta
from deltamcp.deltas.edits import InvalidDeltaError
from deltamcp.deltas.root import root_of
from deltamcp.results import dedup
from deltamcp.results.encode import decode
from deltamcp.results.pointer import parse_path
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_MAX_BYTES = 64 * 1024 * 1024
"""Of results held at once, as JSON; what was not used for the longest time goes first. A server that builds on what is
gone is asked for everything."""
_MAX_ENTRIES = 4096


class ResultCache:
    """Results by their roots, and by the handles their server has for them."""

    def __init__(self) -> None:
        self._by_root: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._root_by_handle: OrderedDict[str, str] = OrderedDict()
        """By a server's handle."""
        self._root_by_call: OrderedDict[str, str] = OrderedDict()

    def root_for(self, call_key: str) -> str | None:
        """The root of what is held of a call's result, to be sent with the next one."""
        root = self._root_by_call.get(call_key)
        return root if root in self._by_root else None

    def resolve_value(self, reply: Reply, call_key: str = "") -> JSON:
        """The result a reply tells of, whole unless the reply is a part. `call` names what was called, with what.

        Raises:
            DeltaError: it builds on what is not held.
        """
        told = reply.told
        try:
            match told.get("outcome"):
                case "unchanged":
                    value = self._load(told["base"])
                case "delta":
                    value = self._restore(apply_delta(self._load(told["base"]), reply.texts[0]), told)
                case _ if "root" not in told or reply.is_part:
                    return reply.value
                case _:
                    value = self._whole_value(reply, told)
        except (KeyError, IndexError, ValueError, TypeError):
            raise InvalidDeltaError("the reply builds on what is not held here, or cannot be read") from None
        self._store(told["root"], value)
        if call_key:
            _remember(self._root_by_call, call_key, told["root"])
        if "handle" in told:
            _remember(self._root_by_handle, told["handle"], told["root"])
        return value

    def store_whole(self, reply: Reply, call_key: str, value: JSON) -> None:
        """The whole of what a reply told in part or by what was not held, read by its handle."""
        root = reply.told.get("root")
        if isinstance(root, str) and root_of(value) == root:
            self._store(root, value)
            _remember(self._root_by_call, call_key, root)

    def clear(self) -> None:
        """Another connection may not know what this one was sent."""
        self._by_root.clear()
        self._size = 0
        self._root_by_handle.clear()
        self._root_by_call.clear()

    def _store(self, root: str, value: JSON) -> None:
        """As bytes: whoever is given a value may change it."""
        data = jsonrpc.encode(value)
        self._size += len(data) - len(self._by_root.pop(root, b""))
        self._by_root[root] = data
        while self._size > _MAX_BYTES:
            self._size -= len(self._by_root.popitem(last=False)[1])

    def _load(self, root: str) -> JSON:
        self._by_root.move_to_end(root)
        return jsonrpc.decode(self._by_root[root])

    def _whole_value(self, reply: Reply, told: dict[str, Any]) -> JSON:
        if told.get("form") == "text":
            return reply.texts[0]
        if "structuredContent" in reply.raw:
            return reply.raw["structuredContent"]
        return self._restore(decode(reply.texts[0]), told)

    def _restore(self, value: JSON, told: dict[str, Any]) -> JSON:
        """With the rows that were only referred to; what it gives must be what the reply says it is."""
        if "references" in told:
            value = dedup.restore_rows(value, parse_path(told["references"]), self._load_part)
        if root_of(value) != told["root"]:
            raise InvalidDeltaError("this is not what the reply tells of")
        return value

    def _load_part(self, handle: str, path: str) -> JSON:
        value: Any = self._load(self._root_by_handle[handle])
        for step in parse_path(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        found: JSON = value
        return found


def _remember(roots: OrderedDict[str, str], name: str, root: str) -> None:
    roots[name] = root
    roots.move_to_end(name)
    if len(roots) > _MAX_ENTRIES:
        roots.popitem(last=False)
