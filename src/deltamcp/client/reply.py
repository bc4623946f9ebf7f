"""What a tool answered: the result as it came, and what a program or a model makes of it. Pure."""

import functools
from typing import Any, TypeAlias, cast

import msgspec

from deltamcp.dialects import modern
from deltamcp.results.encode import decode
from deltamcp.results.policy import META_KEY
from deltamcp.values import (
    JSON,
    Annotations,
    Audio,
    BlobResource,
    Content,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc

_FlatContent: TypeAlias = Text | Image | Audio | ResourceLink


class Reply:
    """A result of `tools/call`. `raw` is the object the server sent; nothing of it is ever dropped."""

    def __init__(self, raw: dict[str, JSON], is_delta: bool = False) -> None:
        self.raw = raw
        self._is_delta = is_delta

    @classmethod
    def of(cls, result: ToolResult) -> "Reply":
        """A result that was made here."""
        raw: dict[str, JSON] = {"content": msgspec.to_builtins(result.content)}
        if result.structured is not msgspec.UNSET:
            raw["structuredContent"] = result.structured
        if result.is_error:
            raw["isError"] = True
        if result.meta is not None:
            raw["_meta"] = result.meta
        return cls(raw)

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else f"{self.text[:59]}…"
        return f"<Reply {shown!r}{', in part' if self.is_part else ''}{', an error' if self.is_error else ''}>"

    def result(self) -> ToolResult:
        """The same as a result of our own, what is not ours to know in it as it came."""
        meta, structured = self.raw.get("_meta"), self.raw.get("structuredContent", msgspec.UNSET)
        # Who answered is between that server and its client.
        kept = {key: said for key, said in meta.items() if key != modern.SERVER_KEY} if isinstance(meta, dict) else {}
        return ToolResult(list(map(_parse_content, self.content)), structured, self.is_error, kept or None)

    @property
    def content(self) -> list[JSON]:
        """The blocks, as they came."""
        blocks = self.raw.get("content")
        return blocks if isinstance(blocks, list) else []

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed."""
        return self.raw.get("isError") is True

    @property
    def texts(self) -> list[str]:
        return [
            block["text"]
            for block in self.content
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        ]

    @property
    def text(self) -> str:
        """Everything a model reads of it."""
        return "\n".join(self.texts)

    @functools.cached_property
    def told(self) -> dict[str, Any]:
        """What a Delta-MCP server tells programs beside the text: `handle`, `root`, how much of how much is shown."""
        meta = self.raw.get("_meta")
        told = meta.get(META_KEY) if isinstance(meta, dict) else None
        # Whoever says something else there says nothing.
        return (
            {key: said for key, said in told.items() if _is_valid_member(key, said)} if isinstance(told, dict) else {}
        )

    @property
    def handle(self) -> str | None:
        """By which the rest can be read, where only a part is shown."""
        handle = self.told.get("handle")
        return handle if isinstance(handle, str) and self.is_part else None

    @property
    def is_part(self) -> bool:
        """Whether there is more than it shows."""
        if self._is_delta and not self.told:
            shape = self.shape
            marks = ("truncated", "_summarized")
            return isinstance(shape, dict) and (
                (self.is_page and shape.get("totalPages") != 1) or any(shape.get(mark) is True for mark in marks)
            )
        return "unit" in self.told or self.told.keys() == {"handle"}

    @functools.cached_property
    def shape(self) -> Any:
        """What is in the text of a reply in Delta-MCP's own words: the value, or one of its envelopes around it."""
        return _decode_or_text(self.texts[0]) if self._is_delta and self.texts else None

    @property
    def is_page(self) -> bool:
        """Whether it is one page of a list, in Delta-MCP's own words."""
        shape = self.shape
        return isinstance(shape, dict) and shape.get("paginated") is True and isinstance(shape.get("items"), list)

    def whole(self, kept: JSON) -> JSON:
        """The value of all that is kept under its handle."""
        are_blocks = "unit" not in self.told and not self._is_delta and isinstance(kept, dict) and "content" in kept
        return Reply(kept).value if are_blocks else kept

    @functools.cached_property
    def value(self) -> JSON:
        """The result as a value: structured content, else a JSON object, a list or a table read from the text, else the
        text. Delta-MCP servers tell apart what could be either, and what else is JSON.

        Several blocks that are not one text are given as they are.
        """
        if "structuredContent" in self.raw:
            return self.raw["structuredContent"]
        told, texts = self.told, self.texts
        if "form" in told and texts:
            return texts[0] if told["form"] == "text" else _decode_or_text(texts[0])
        if self._is_delta and texts:
            return self.shape["items"] if self.is_page else self.shape
        if len(self.content) != 1 or len(texts) != 1:
            return self.content if self.content else None
        # What else JSON can say, a text can mean: 12345 may be a number, or somebody's name for something.
        return _decode_or_text(texts[0]) if texts[0].lstrip()[:1] in ("{", "[") else texts[0]


_COUNT_KEYS = frozenset({"start", "end", "total"})


def _is_valid_member(key: str, said: Any) -> bool:
    if key == "cuts":
        return isinstance(said, list) and all(isinstance(cut, str) for cut in said)
    return type(said) is int if key in _COUNT_KEYS else isinstance(said, str)


def _decode_or_text(text: str) -> JSON:
    try:
        return decode(text)
    except ValueError:
        return text


def _parse_content(item: Any) -> Content:
    """One of ours where that keeps every part of it, else the object as it came, which is written as it stands."""
    if not isinstance(item, dict):
        return Text(jsonrpc.encode(item).decode())
    try:
        made = _parse_embedded(item) if item.get("type") == "resource" else msgspec.convert(item, _FlatContent)
    except (msgspec.ValidationError, KeyError, TypeError):
        return cast(Content, item)
    return made if msgspec.to_builtins(made) == item else cast(Content, item)


def _parse_embedded(item: dict[str, JSON]) -> EmbeddedResource:
    held = item["resource"]
    return EmbeddedResource(
        msgspec.convert(held, BlobResource) if "blob" in held else msgspec.convert(held, TextResource),
        msgspec.convert(item.get("annotations"), Annotations | None),
        item.get("_meta"),
    )
