"""A caller that puts results together from what it is sent, and nothing else."""

from typing import Any

from deltamcp.deltas.delta import applied
from deltamcp.deltas.edits import DeltaError
from deltamcp.deltas.root import root_of
from deltamcp.results import dedup
from deltamcp.results.encode import decode
from deltamcp.results.pointer import steps
from deltamcp.results.policy import META_KEY
from deltamcp.values import JSON, Text, ToolResult


class Follower:
    """What it holds, by root and by handle."""

    def __init__(self) -> None:
        self._by_root: dict[str, JSON] = {}
        self._by_handle: dict[str, JSON] = {}

    def value(self, reply: ToolResult) -> JSON:
        """The result a reply tells of."""
        told: dict[str, Any] = (reply.meta or {}).get(META_KEY, {})
        text = shown(reply)
        match told.get("outcome"):
            case "unchanged":
                value = self._by_root[told["base"]]
            case "delta":
                value = self._restored(applied(self._by_root[told["base"]], text), told)
            case _:
                value = self._whole(text, told)
        if "root" in told:
            self._by_root[told["root"]] = self._by_handle[told.get("handle", "")] = value
        return value

    def _whole(self, text: str, told: dict[str, Any]) -> JSON:
        text = text.removesuffix(f"\n{dedup.NOTE}")  # shown joins what are two blocks
        return text if told.get("form") == "text" else self._restored(decode(text), told)

    def _restored(self, value: JSON, told: dict[str, Any]) -> JSON:
        """With the rows that were only referred to; what it gives must be what the reply says it is."""
        if "references" in told:
            value = dedup.restored(value, steps(told["references"]), self._part)
        if "root" in told and root_of(value) != told["root"]:
            raise DeltaError("this is not what the reply tells of")
        return value

    def _part(self, handle: str, path: str) -> JSON:
        value: Any = self._by_handle[handle]
        for step in steps(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        found: JSON = value
        return found


def shown(reply: ToolResult) -> str:
    """Everything a model reads of it."""
    return "\n".join(block.text for block in reply.content if isinstance(block, Text))
