"""A value put together from replies, as a program does it that has nothing else: their texts, and their `_meta`."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from deltamcp.client.reply import Reply
from deltamcp.results.encode import decode
from deltamcp.results.notes import RAW_PREFIX
from deltamcp.results.pointer import parse_path
from deltamcp.values import JSON

ContinueCall: TypeAlias = Callable[[dict[str, JSON]], Awaitable[Reply]]
"""Calls `continue` with arguments."""


class ResultLostError(Exception):
    """The replies do not lead to the whole; the text says where they stop."""


class _PendingValue(NamedTuple):
    """What is to be read, and where it belongs."""

    path: str
    holder: Any
    key: str | int


async def recover(first: Reply, continue_call: ContinueCall) -> JSON:
    """The whole of the result that a first reply shows or begins.

    Raises:
        LostError: it is not to be had.
    """
    handle = first.told.get("handle")
    if handle is None or not first.is_part:
        if first.is_part:
            raise ResultLostError("a part is shown, and no handle leads to the rest")
        return first.value
    return first.whole(await read_all(str(handle), continue_call))


async def read_all(handle: str, continue_call: ContinueCall) -> JSON:
    """All that is kept under a handle.

    Raises:
        LostError: it is not to be had.
    """
    made: list[JSON] = [None]
    # A list instead of calls within calls: values are nested deeper than Python calls.
    waiting = [_PendingValue("", made, 0)]
    while waiting:
        pending = waiting.pop()
        reader = _ValueReader(pending.path)
        while reader.arguments is not None:
            reader.add_reply(await continue_call({"handle": handle, **reader.arguments}))
        pending.holder[pending.key] = reader.value
        waiting += reader.missing
    return made[0]


class _ValueReader:
    """One value, read window by window. What is in it and was too large for a window is to be read by itself."""

    def __init__(self, path: str) -> None:
        self.value: Any = None
        self.missing: list[_PendingValue] = []
        self.arguments: dict[str, JSON] | None = {"path": path, "offset": 0}
        """What to ask for next; None once it was read to its end."""
        self._path = path
        self._texts: list[str] = []

    def add_reply(self, reply: Reply) -> None:
        assert self.arguments is not None, "asked for only while there is more"
        told = reply.told
        if not {"unit", "start", "end", "total"} <= told.keys():
            raise ResultLostError(f"{self._path[:200]!r}, {self.arguments['offset']}: {reply.text[:200]}")
        unit, start, end, total = told["unit"], told["start"], told["end"], told["total"]
        raw = unit == "JSON characters"
        if raw and self.arguments["path"] == self._path:
            # It has no windows of its own, and is told from the beginning as the text of its JSON.
            self._texts, self.arguments = [], {"path": RAW_PREFIX + self._path, "offset": 0}
        if start != self.arguments["offset"] or not start <= end <= total or start == end < total:
            raise ResultLostError(
                f"{self._path[:200]!r}, {self.arguments['offset']}: answered by {start}-{end} of {total}"
            )
        if raw or unit == "characters":
            self._texts.append(_first_text(reply) if end > start else "")
        elif unit in ("rows", "keys"):
            self._append_part(decode(_first_text(reply)), told)
        else:
            raise ResultLostError(f"{self._path[:200]!r} is told in {unit!r}")
        if end < total:
            self.arguments = {**self.arguments, "offset": end}
            return
        self.arguments = None
        if raw:
            self.value, self.missing = decode("".join(self._texts)), []
        elif unit == "characters":
            self.value = "".join(self._texts)

    def _append_part(self, part: Any, told: dict[str, Any]) -> None:
        if self.value is None:
            self.value = part
        elif isinstance(part, list):
            self.value += part
        else:
            self.value |= part
        if len(self.value) != told["end"]:
            raise ResultLostError(f"{self._path[:200]!r}: {len(self.value)} {told['unit']}, said to be {told['end']}")
        for cut in {"/" + cut.split("/")[1] for cut in told.get("cuts", ())}:
            (step,) = parse_path(cut)
            self.missing.append(
                _PendingValue(self._path + cut, self.value, int(step) if isinstance(part, list) else step)
            )


def _first_text(reply: Reply) -> str:
    if not reply.texts:
        raise ResultLostError("a reply without a text")
    return reply.texts[0]
