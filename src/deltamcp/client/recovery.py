"""Reassembles a complete result from replies that show parts of it; uses only the replies' texts and `_meta`."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from deltamcp.client.received_size import DEFAULT_MAX_BYTES, TotalSize
from deltamcp.client.reply import Reply
from deltamcp.errors import ResultLostError
from deltamcp.results.notes import RAW_PREFIX
from deltamcp.results.pointer import parse_path
from deltamcp.values import JSON

ContinueCall: TypeAlias = Callable[[dict[str, JSON]], Awaitable[Reply]]
"""Calls the server's `continue` tool with these arguments."""

_MIN_PART_BYTES = 1024
"""The size that a part counts at least, so that a result in endless small parts ends, too."""


class _PendingValue(NamedTuple):
    """The path of a value that is still to be read, and the container and key to put it under."""

    path: str
    container: Any
    key: str | int


async def recover(first: Reply, continue_call: ContinueCall, max_bytes: int = DEFAULT_MAX_BYTES) -> JSON:
    """Returns the complete result of which `first` is the first reply.

    Raises:
        ResultLostError: the rest of the result cannot be read.
        ClientError: the result is larger than `max_bytes`.
    """
    if not first.is_part:
        return first.value
    handle = first.delta_meta.get("handle")
    if handle is None or "rest" in first.delta_meta:
        raise ResultLostError("the server sent a part, and no handle to read the rest by")
    return first.whole(await read_all(str(handle), continue_call, max_bytes))


async def read_all(handle: str, continue_call: ContinueCall, max_bytes: int = DEFAULT_MAX_BYTES) -> JSON:
    """Returns the complete result that the server stores under a handle.

    Raises:
        ResultLostError: the result cannot be read.
        ClientError: the result is larger than `max_bytes`.
    """
    total = TotalSize("The result", max_bytes)
    result: list[JSON] = [None]
    # A list instead of recursion: values may be nested deeper than Python's recursion limit.
    pending_values = [_PendingValue("", result, 0)]
    while pending_values:
        pending = pending_values.pop()
        reader = _ValueReader(pending.path)
        while reader.arguments is not None:
            reply = await continue_call({"handle": handle, **reader.arguments})
            total.add(reply.text.encode(errors="replace"), _MIN_PART_BYTES)
            reader.add_reply(reply)
        pending.container[pending.key] = reader.value
        pending_values += reader.missing
    return result[0]


class _ValueReader:
    """Reads one value window by window; `missing` lists the values in it that were too large for their window."""

    def __init__(self, path: str) -> None:
        self.value: Any = None
        self.missing: list[_PendingValue] = []
        self.arguments: dict[str, JSON] | None = {"path": path, "offset": 0}
        """The arguments of the next `continue`; None when the value is complete."""
        self._path = path
        self._texts: list[str] = []

    def add_reply(self, reply: Reply) -> None:
        assert self.arguments is not None, "the value is not complete"
        meta = reply.delta_meta
        if not {"unit", "start", "end", "total"} <= meta.keys():
            raise ResultLostError(f"{self._path[:200]!r}, {self.arguments['offset']}: {reply.text[:200]}")
        unit, start, end, total = meta["unit"], meta["start"], meta["end"], meta["total"]
        raw = unit == "JSON characters"
        if raw and self.arguments["path"] == self._path:
            # The value has no rows or keys to show in windows; the server sends the text of its JSON instead.
            self._texts, self.arguments = [], {"path": RAW_PREFIX + self._path, "offset": 0}
        if start != self.arguments["offset"] or not start <= end <= total or start == end < total:
            raise ResultLostError(
                f"{self._path[:200]!r}, {self.arguments['offset']}: answered by {start}-{end} of {total}"
            )
        if raw or unit == "characters":
            self._texts.append(_first_text(reply) if end > start else "")
        elif unit in ("rows", "keys"):
            self._append_part(reply.decode(_first_text(reply)), meta)
        else:
            raise ResultLostError(f"{self._path[:200]!r} is shown in the unknown unit {unit!r}")
        if end < total:
            self.arguments = {**self.arguments, "offset": end}
            return
        self.arguments = None
        if raw:
            self.value, self.missing = reply.decode("".join(self._texts)), []
        elif unit == "characters":
            self.value = "".join(self._texts)

    def _append_part(self, part: Any, meta: dict[str, Any]) -> None:
        if self.value is None:
            self.value = part
        elif isinstance(part, list):
            self.value += part
        else:
            self.value |= part
        if len(self.value) != meta["end"]:
            raise ResultLostError(f"{self._path[:200]!r}: {len(self.value)} {meta['unit']} instead of {meta['end']}")
        for cut in {"/" + cut.split("/")[1] for cut in meta.get("cuts", ())}:
            (step,) = parse_path(cut)
            self.missing.append(
                _PendingValue(self._path + cut, self.value, int(step) if isinstance(part, list) else step)
            )


def _first_text(reply: Reply) -> str:
    if not reply.texts:
        raise ResultLostError("a reply without a text")
    return reply.texts[0]
