"""Writes the note below a window, which tells the model how large the result is and how to read on.

In a small budget the note is shorter.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from deltamcp.results.policy import META_KEY
from deltamcp.results.window import Window
from deltamcp.values import JSON, ResourceLink, Text, ToolResult

ELLIPSIS = "…"
RAW_PREFIX = "raw:"
"""Before a path in `continue`: read the JSON at the path as characters."""
EMPTY_NOTE = "(empty result)"
"""The note of a reply that a model could take for one that was lost."""

_BRIEF_BELOW_TOKENS = 100
MIN_HINT_TOKENS = 200
"""In a smaller budget a note has no hints on what else can be done with the result."""
_WHOLE_NOTE = ' path="" has all.'
_CUT_NOTE = f'"{ELLIPSIS}" marks what is cut'
_MAX_PATH_BYTES = 24
"""Longer paths are not repeated in notes: each byte may be a token, and a path may be longer than a reply."""


class Handle(Struct, frozen=True):
    """The name under which the server stores a whole result."""

    name: str
    continue_tool: str
    """The name of the tool that reads on in the result."""
    link: ResourceLink
    """A link to the result, for hosts."""


def is_empty(reply: ToolResult) -> bool:
    """Returns whether a reply has neither structured content nor blocks other than empty texts."""
    return reply.structured is UNSET and not any(
        block.text.strip() if isinstance(block, Text) else True for block in reply.content
    )


def add_notes(reply: ToolResult, notes: Sequence[str]) -> ToolResult:
    """Returns a reply with notes below its text; `lengths` in its `_meta` tells programs where the text ends, and
    `notes` how many blocks at the end are notes.

    Text and notes are one block: client libraries pass several texts to the model as JSON, with an escape for every
    quote and line break. A whole JSON value stays a block of its own, because programs parse it; so do several texts.
    """
    texts = [block for block in reply.content if isinstance(block, Text)]
    if not notes:
        return reply
    meta = reply.meta or {}
    own: dict[str, JSON] = meta.get(META_KEY, {})
    if len(texts) != 1 or _is_whole_json(texts[0].text, own):
        count = own.get("notes", 0) + len(notes)
        return replace(
            reply, content=[*reply.content, *map(Text, notes)], meta={**meta, META_KEY: {**own, "notes": count}}
        )
    text = texts[0].text
    noted = replace(texts[0], text="\n".join(part for part in (text, *notes) if part))
    lengths = [*own.get("lengths", [len(text)]), *map(len, notes)]
    content = [noted if block is texts[0] else block for block in reply.content]
    return replace(reply, content=content, meta={**meta, META_KEY: {**own, "lengths": lengths}})


def _is_whole_json(text: str, meta: dict[str, JSON]) -> bool:
    is_json = meta["form"] == "json" if "form" in meta else text[:1] in ("{", "[")
    return is_json and meta.get("unit", "whole") == "whole" and "cuts" not in meta


class PlainNote(Struct, frozen=True):
    """A note that is the same below every window."""

    sentence: str

    def text(self, window: Window) -> str:
        return self.sentence


class FirstNote(Struct, frozen=True):
    """The note of a first reply that shows a part of a result."""

    handle: Handle | None
    """None where the server could not store the result."""
    max_tokens: int
    reason: str = ""
    """A sentence that begins the note, and a space; or nothing."""
    rows: int | None = None
    """The number of rows of the result, where it has rows."""
    is_projected: bool = False
    """Whether the window shows a part of what the caller or the policy selects of the result."""

    def text(self, window: Window) -> str:
        handle = "" if self.handle is None or self.max_tokens < _BRIEF_BELOW_TOKENS else f"{self.handle.name}: "
        rows = "" if self.rows is None or window.unit == "rows" else f"{self.rows} rows. "
        whole = _WHOLE_NOTE if self.is_projected and self.max_tokens >= MIN_HINT_TOKENS else ""
        return f"[{handle}{self.reason}{rows}{self._rest(window)}{whole}]"

    def _rest(self, window: Window) -> str:
        handle = self.handle
        if handle is None:
            shown = _CUT_NOTE if window.unit == "whole" else window.span
            return f"{shown}. The rest could not be stored; call again with narrower arguments."
        cut = next((short for cut in window.cuts if (short := _short_path(cut))), "")
        call = f'{handle.continue_tool}(handle="{handle.name}"'
        places = {
            "whole": f', path="{cut}")' if cut else ")",
            "JSON characters": f', path="{RAW_PREFIX}", offset={window.end})',
        }
        read_on = call + places.get(window.unit, f", offset={window.end})" if window.next is not None else ")")
        brief = self.max_tokens < _BRIEF_BELOW_TOKENS
        match window.unit:
            case "whole":
                return read_on if brief else f"{_CUT_NOTE}. {read_on} shows it."
            case "characters":
                left = window.total - window.end - len(window.tail)
                return f"{left} of {window.total} characters left out. {read_on}{'' if brief else ' reads on.'}"
            case _ if window.next is None:
                return f"{window.span}. {read_on} has all."
            case _ if brief:
                return f"{window.span}. {read_on}"
            case _:
                inside = f" {_CUT_NOTE}; path=... shows it." if window.cuts and window.unit == "rows" else ""
                return f"{window.span}. {read_on} reads on.{inside}"


class OutlineNote(Struct, frozen=True):
    """The note of a first reply that shows only the shape of a result, because the caller's query selects nothing."""

    handle: Handle
    reason: str

    def text(self, window: Window) -> str:
        return f"[{self.handle.name}: {self.reason}Ask it again by {self.handle.continue_tool}, with fields or grep.]"


class ContinuationNote(Struct, frozen=True):
    """The note of a further reply, whose caller knows the handle and the path."""

    path: str
    max_tokens: int
    problem: str = ""
    """A sentence that begins the note."""

    def text(self, window: Window) -> str:
        place = ""
        if window.unit == "JSON characters":
            is_short = _short_path(self.path) == self.path
            place = f'path="{RAW_PREFIX}{self.path}", ' if is_short else f'"{RAW_PREFIX}" before path, '
        rest = f"next: {place}offset={window.end}" if window.next is not None else "the last"
        cut = f"; {_CUT_NOTE}, path=... shows it" if window.cuts and self.max_tokens >= _BRIEF_BELOW_TOKENS else ""
        return f"[{self.problem}{' ' if self.problem else ''}{window.span}; {rest}{cut}]"


def whole_note(name: str, reason: str) -> PlainNote:
    """Returns the note of a reply with a whole result: its handle, if it says that, and a reason, if there is one."""
    words = f"handle {name}. {reason}" if name else reason
    return PlainNote(f"[{words.rstrip()}]" if words else "")


def selection_note(handle: Handle | None, reason: str) -> PlainNote:
    """Returns the note of a reply that has all that was selected of a result; a reason begins it."""
    if handle is None:
        return PlainNote(f"[{reason}The rest could not be stored.]")
    return PlainNote(f'[{handle.name}: {reason}{handle.continue_tool}(path="") has all.]')


def _short_path(path: str) -> str:
    return path if len(path.encode()) <= _MAX_PATH_BYTES else ""
