"""A reply to `tools/call`: the result as the server sent it, its text and its value. Pure: does no I/O."""

import functools
from typing import Any, NamedTuple

import msgspec

from deltamcp.client.links.link import BYTES_PER_VALUE, DEFAULT_MAX_BYTES, too_large_error
from deltamcp.errors import CallFailedError
from deltamcp.results.content import parse_tool_result
from deltamcp.results.encode import decode
from deltamcp.results.policy import META_KEY
from deltamcp.values import (
    JSON,
    ToolResult,
)
from deltamcp.work import Work, WorkLimitError


class ToolCall(NamedTuple):
    """What a reply is the answer to."""

    name: str
    arguments: dict[str, JSON]


class Reply:
    """A result of `tools/call`. `raw` is the complete object that the server sent."""

    def __init__(
        self,
        raw: dict[str, JSON],
        is_delta: bool = False,
        call: ToolCall | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """`max_bytes` is the size of the largest value that a text of the reply may stand for."""
        self.raw = raw
        self._max_bytes = max_bytes
        self.call = call
        """The call that the reply answers; None if it was not a call of a tool by its name."""
        self._is_delta = is_delta

    @classmethod
    def of(cls, result: ToolResult) -> "Reply":
        """Makes a reply from a result of the library's own, as a server would send it."""
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
        """Returns the reply as a `ToolResult`; unknown content blocks and members stay as the server sent them."""
        return parse_tool_result(self.raw)

    @property
    def content(self) -> list[JSON]:
        """The content blocks, as the server sent them."""
        blocks = self.raw.get("content")
        return blocks if isinstance(blocks, list) else []

    @property
    def is_error(self) -> bool:
        """Whether the tool reported an error."""
        return self.raw.get("isError") is True

    @property
    def error(self) -> dict[str, JSON]:
        """What the server says of an error to programs: `code`, `retryable` and `details`; empty if it says nothing."""
        error = self.raw.get("error")
        return error if isinstance(error, dict) else {}

    @property
    def texts(self) -> list[str]:
        """The text of each text block; the notes that a Delta-MCP server writes below its text are texts apart."""
        texts = [
            block["text"]
            for block in self.content
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        ]
        return (
            [*_split_by_lengths(texts[0], self.delta_meta["lengths"]), *texts[1:]]
            if texts and "lengths" in self.delta_meta
            else texts
        )

    @property
    def text(self) -> str:
        """All text blocks, joined by line breaks."""
        return "\n".join(self.texts)

    @functools.cached_property
    def delta_meta(self) -> dict[str, Any]:
        """The reply's `_meta` of a Delta-MCP server: `handle`, `root`, and which part of the result the text shows.

        `tool` names the tool that reads on, where the server does not list it. `rest` is in replies that the client
        fitted: the server had sent a part, and did not store the rest. Members of an unexpected type are left out.
        """
        meta = self.raw.get("_meta")
        own = meta.get(META_KEY) if isinstance(meta, dict) else None
        return (
            {key: value for key, value in own.items() if _is_valid_member(key, value)} if isinstance(own, dict) else {}
        )

    @property
    def handle(self) -> str | None:
        """The handle under which the server keeps the result: to read on in it, or to ask what changed since.

        None if the server keeps nothing, as of a small result that the reply shows whole.
        """
        handle = self.delta_meta.get("handle")
        return handle if isinstance(handle, str) else None

    @property
    def is_part(self) -> bool:
        """Whether the reply shows only a part of the result."""
        members = self.delta_meta.keys() - {"notes", "lengths"}
        if self._is_delta and not members:
            is_only_page = self.is_page and self.shape.get("totalPages") == 1 and self.shape.get("hasMore") is not True
            return (self.is_page and not is_only_page) or _is_abridged(self.shape)
        return "unit" in members or "rest" in members or members - {"tool"} == {"handle"}

    @property
    def is_selection(self) -> bool:
        """Whether the reply shows all of the result, or all that was selected of it."""
        if self._is_delta and "unit" not in self.delta_meta:
            return not self.is_page and not _is_abridged(self.shape)
        return not self.is_part or (self.delta_meta.get("unit") == "whole" and not self.has_cut_rows)

    @property
    def selects_all(self) -> bool:
        """Whether the query of the call selects a part of the result, and the reply shows all of that part."""
        return self.delta_meta.get("selects") == "all" and "rest" not in self.delta_meta

    @property
    def selects_nothing(self) -> bool:
        """Whether the query of the call selects nothing; the reply then has the shape of the result, and a sentence."""
        return self.delta_meta.get("selects") == "nothing"

    @property
    def has_cut_rows(self) -> bool:
        """Whether some rows of the reply are shown in part; the result that its handle names has them complete."""
        if self.is_page:
            return self.handle is not None and any(map(_is_abridged, self.shape["items"]))
        return bool(self.delta_meta.get("cuts"))

    @functools.cached_property
    def shape(self) -> Any:
        """The JSON in an original Delta-MCP server's text: the value, or the envelope of a page, a cut or a summary."""
        return self._decode_or_text(self.texts[0]) if self._is_delta and self.texts else None

    @property
    def is_page(self) -> bool:
        """Whether the reply is one page of a list in the original Delta-MCP's envelope."""
        shape = self.shape
        return isinstance(shape, dict) and shape.get("paginated") is True and isinstance(shape.get("items"), list)

    def whole(self, stored: JSON) -> JSON:
        """Returns the value of the complete result that the server stores under the reply's handle."""
        are_blocks = (
            "unit" not in self.delta_meta and not self._is_delta and isinstance(stored, dict) and "content" in stored
        )
        return Reply(stored).value if are_blocks else stored

    @functools.cached_property
    def value(self) -> JSON:
        """The result as a value: the structured content, else the JSON or table in the text, else the text.

        Delta-MCP servers say whether a text is JSON. In other servers' replies only a text that begins with `{` or `[`
        is read as JSON. A reply of several blocks gives the list of blocks, without the notes of a Delta-MCP server.
        """
        if "structuredContent" in self.raw:
            return self.raw["structuredContent"]
        meta, texts = self.delta_meta, self.texts
        if "form" in meta and texts:
            return texts[0] if meta["form"] == "text" else self._decode_or_text(texts[0])
        if self._is_delta and texts:
            return self.shape["items"] if self.is_page else self.shape
        blocks = self.content[: max(0, len(self.content) - meta.get("notes", 0))]
        if "lengths" not in meta and (len(blocks) != 1 or len(texts) != len(self.content)):
            return blocks or None
        # A bare 12345 may be a number or an identifier, so it stays a text.
        return self._decode_or_text(texts[0]) if texts[0].lstrip()[:1] in ("{", "[") else texts[0]

    def decode(self, text: str) -> JSON:
        """Decodes a text of the reply.

        Raises:
            ValueError: it is neither JSON nor a table.
            ClientError: the value is too large; `text` has it as it came.
        """
        try:
            return decode(text, Work(self._max_bytes // BYTES_PER_VALUE))
        except WorkLimitError:
            raise too_large_error("The value in the reply's text", self._max_bytes) from None

    def _decode_or_text(self, text: str) -> JSON:
        try:
            return self.decode(text)
        except ValueError:
            return text


def call_failed_error(name: str, reply: Reply) -> CallFailedError:
    error = reply.error
    code, details = error.get("code"), error.get("details")
    return CallFailedError(
        reply.text or f"{name} failed and did not say why.",
        reply,
        code=code if isinstance(code, str) else None,
        retryable=error.get("retryable") is True,
        details=details if isinstance(details, dict) else {},
    )


def _is_abridged(value: Any) -> bool:
    """Whether a value is the shape that the original Delta-MCP gives to a text, list or object it shows in part."""
    return isinstance(value, dict) and (
        value.get("_summarized") is True or (value.get("truncated") is True and isinstance(value.get("preview"), str))
    )


_MAX_MEMBER_CHARS = 1024
"""The longest handle, root or name in a Delta-MCP server's `_meta`; the client stores some of them."""
_COUNT_KEYS = frozenset({"start", "end", "total", "notes"})


def _is_valid_member(key: str, value: Any) -> bool:
    if key == "cuts":
        return isinstance(value, list) and all(isinstance(cut, str) for cut in value)
    if key == "lengths":
        return isinstance(value, list) and all(type(length) is int and length >= 0 for length in value)
    return type(value) is int if key in _COUNT_KEYS else isinstance(value, str) and len(value) <= _MAX_MEMBER_CHARS


def _split_by_lengths(text: str, lengths: list[int]) -> list[str]:
    """Splits a text into parts of these lengths; a line break follows each part that is not empty."""
    parts, start = [], 0
    for length in lengths:
        parts.append(text[start : start + length])
        start += length + (length > 0)
    return parts
