"""What a client holds of results, and what it makes of replies that tell only what changed."""

from collections import OrderedDict
from typing import Any

from deltamcp.client.reply import Reply
from deltamcp.deltas.delta import applied
from deltamcp.deltas.edits import DeltaError
from deltamcp.deltas.root import root_of
from deltamcp.results import dedup
from deltamcp.results.encode import decode
from deltamcp.results.pointer import steps
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_BYTES = 64 * 1024 * 1024
"""Of results held at once, as JSON; what was not used for the longest time goes first. A server that builds on what is
gone is asked for everything."""
_CALLS = 4096


class Holdings:
    """Results by their roots, and by the handles their server has for them."""

    def __init__(self) -> None:
        self._by_root: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._roots: OrderedDict[str, str] = OrderedDict()
        """By a server's handle."""
        self._last: OrderedDict[str, str] = OrderedDict()

    def root_for(self, call: str) -> str | None:
        """The root of what is held of a call's result, to be sent with the next one."""
        root = self._last.get(call)
        return root if root in self._by_root else None

    def value(self, reply: Reply, call: str = "") -> JSON:
        """The result a reply tells of, whole unless the reply is a part. `call` names what was called, with what.

        Raises:
            DeltaError: it builds on what is not held.
        """
        told = reply.told
        try:
            match told.get("outcome"):
                case "unchanged":
                    value = self._held(told["base"])
                case "delta":
                    value = self._restored(applied(self._held(told["base"]), reply.texts[0]), told)
                case _ if "root" not in told or reply.is_part:
                    return reply.value
                case _:
                    value = self._whole(reply, told)
        except (KeyError, IndexError, ValueError, TypeError):
            raise DeltaError("the reply builds on what is not held here, or cannot be read") from None
        self._hold(told["root"], value)
        if call:
            _keep(self._last, call, told["root"])
        if "handle" in told:
            _keep(self._roots, told["handle"], told["root"])
        return value

    def hold(self, reply: Reply, call: str, value: JSON) -> None:
        """The whole of what a reply told in part or by what was not held, read by its handle."""
        root = reply.told.get("root")
        if isinstance(root, str) and root_of(value) == root:
            self._hold(root, value)
            _keep(self._last, call, root)

    def forget(self) -> None:
        """Another connection may not know what this one was sent."""
        self._by_root.clear()
        self._size = 0
        self._roots.clear()
        self._last.clear()

    def _hold(self, root: str, value: JSON) -> None:
        """As bytes: whoever is given a value may change it."""
        data = jsonrpc.encode(value)
        self._size += len(data) - len(self._by_root.pop(root, b""))
        self._by_root[root] = data
        while self._size > _BYTES:
            self._size -= len(self._by_root.popitem(last=False)[1])

    def _held(self, root: str) -> JSON:
        self._by_root.move_to_end(root)
        return jsonrpc.decode(self._by_root[root])

    def _whole(self, reply: Reply, told: dict[str, Any]) -> JSON:
        if told.get("form") == "text":
            return reply.texts[0]
        if "structuredContent" in reply.raw:
            return reply.raw["structuredContent"]
        return self._restored(decode(reply.texts[0]), told)

    def _restored(self, value: JSON, told: dict[str, Any]) -> JSON:
        """With the rows that were only referred to; what it gives must be what the reply says it is."""
        if "references" in told:
            value = dedup.restored(value, steps(told["references"]), self._part)
        if root_of(value) != told["root"]:
            raise DeltaError("this is not what the reply tells of")
        return value

    def _part(self, handle: str, path: str) -> JSON:
        value: Any = self._held(self._roots[handle])
        for step in steps(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        found: JSON = value
        return found


def _keep(place: OrderedDict[str, str], name: str, root: str) -> None:
    place[name] = root
    place.move_to_end(name)
    if len(place) > _CALLS:
        place.popitem(last=False)
