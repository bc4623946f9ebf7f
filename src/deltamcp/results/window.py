"""A window, which is the part of a result that one reply shows; the note below it; the frame that counts both.

The note tells the model how large the result is and how to read on. In a small budget it is shorter.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.results.encode import encode, legend_of
from deltamcp.results.policy import CHARS_PER_TOKEN, ResolvedPolicy
from deltamcp.values import JSON, ResourceLink
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

ELLIPSIS = "…"
RAW_PREFIX = "raw:"
"""Before a path in `continue`: read the JSON at the path as characters."""

_BRIEF_BELOW_TOKENS = 100
MIN_HINT_TOKENS = 200
"""In a smaller budget a note has no hints on what else can be done with the result."""
_WHOLE_NOTE = ' path="" has all.'
_CUT_NOTE = f'"{ELLIPSIS}" marks what is cut'
_MAX_PATH_BYTES = 24
"""Longer paths are not repeated in notes: each byte may be a token, and a path may be longer than a reply."""

Unit: TypeAlias = Literal["rows", "keys", "characters", "JSON characters", "whole"]
"""What a window counts: items of a list, members of an object, characters of a text or of JSON, or only the whole."""


class Window(Struct, frozen=True):
    """The units of a result from `start` to `end`, of `total`."""

    unit: Unit
    start: int
    end: int
    total: int
    text: str
    """The part as the model reads it."""
    note: str = ""
    """Tells the model how large the result is, and how to read on."""
    tail: str = ""
    """The end of the text, where the middle is left out."""
    value: JSON | UnsetType = UNSET
    """The part as a value for programs; unset for a text."""
    form: Literal["json", "table", "text"] = "json"
    cuts: tuple[str, ...] = ()
    """Pointers to values that are cut, from the root of the value that the window shows a part of."""
    words: tuple[str, ...] = ()
    """The words that explain the forms in the text."""

    @property
    def next(self) -> int | None:
        return self.end if self.end < self.total else None

    @property
    def span(self) -> str:
        """What the window shows of how much, in words."""
        shown = self.end - self.start
        if self.total <= shown:
            return f"{self.total} {self.unit}"
        return f"{self.start + 1}-{self.end} of {self.total} {self.unit}"

    @property
    def is_part(self) -> bool:
        """Whether the window lacks something."""
        return self.unit != "whole" or bool(self.cuts)

    @property
    def notes(self) -> list[str]:
        """What comes below the text: the note, and the end of a text whose middle is left out."""
        return [part for part in (self.note, self.tail) if part]

    @property
    def texts(self) -> list[str]:
        return [self.text, *self.notes]

    def meta(self, path: str) -> dict[str, JSON]:
        """Returns the fields from which a program can put a value together from several replies.

        `path` is that of the value of which the window shows a part.
        """
        meta: dict[str, JSON] = {"form": self.form, "unit": self.unit, "path": path}
        if self.unit != "whole":
            meta |= {"start": self.start, "end": self.end, "total": self.total}
        if self.cuts:
            meta["cuts"] = list(self.cuts)
        return meta


class Handle(Struct, frozen=True):
    """The name under which the server stores a whole result."""

    name: str
    continue_tool: str
    """The name of the tool that reads on in the result."""
    link: ResourceLink
    """A link to the result, for hosts."""


class Note(Protocol):
    """What a reply says below a window."""

    def text(self, window: Window) -> str: ...


class WholeNote(Struct, frozen=True):
    """The note of a reply with a whole result: its handle, if it says that, and a reason, if there is one."""

    name: str = ""
    reason: str = ""

    def text(self, window: Window | None = None) -> str:
        words = f"handle {self.name}. {self.reason}" if self.name else self.reason
        return f"[{words.rstrip()}]" if words else ""


class SelectionNote(Struct, frozen=True):
    """The note of a reply that has all that was selected of a result."""

    handle: Handle | None
    reason: str

    def text(self, window: Window) -> str:
        if self.handle is None:
            return f"[{self.reason}The rest could not be stored.]"
        return f'[{self.handle.name}: {self.reason}{self.handle.continue_tool}(path="") has all.]'


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


def _short_path(path: str) -> str:
    return path if len(path.encode()) <= _MAX_PATH_BYTES else ""


def with_note(window: Window, note: Note, legend: str = "") -> Window:
    """Returns a window with a note, and in that with the line that explains its forms."""
    text = note.text(window)
    if legend:
        text = f"{text[:-1]} {legend}]" if text else f"[{legend}]"
    return replace(window, note=text)


def without_words(window: Window, told: Set[str]) -> Window:
    """Returns a window whose note does not explain what its reader was told before."""
    left = tuple(word for word in window.words if word not in told)
    if len(left) == len(window.words):
        return window
    before, legend = window.note.removesuffix(f"{legend_of(window.words)}]"), legend_of(left)
    note = f"{before}{legend}]" if legend else f"{before.rstrip()}]" if before != "[" else ""
    return replace(window, note=note, words=left)


# What a reply costs

_ASCII_PER_STEP, _NON_ASCII_PER_STEP = 8, 2
"""Characters whose tokens are counted in the time of a step, or more."""


class Budget(Struct, frozen=True):
    """How many tokens of a model a text may cost."""

    tokens: int
    model: str | float = "o200k"
    max_chars: int = 1 << 62
    """Texts of more characters do not fit, whatever their tokens."""

    @classmethod
    def of(cls, policy: ResolvedPolicy) -> "Budget":
        """Returns the budget that a policy has for a reply."""
        return cls(policy.max_tokens, policy.model, policy.max_tokens * CHARS_PER_TOKEN)

    def spend_count(self, text: str, work: Work) -> None:
        """Counts the steps that counting the tokens of a text takes."""
        work.spend(self._steps(text))

    def _steps(self, text: str) -> int:
        if len(text) > self.max_chars:
            return 0
        return len(text) // (_ASCII_PER_STEP if text.isascii() else _NON_ASCII_PER_STEP)

    def cost(self, text: str) -> int:
        """Returns the tokens of a text; for a text over `max_chars`, a number above the budget."""
        if len(text) > self.max_chars:
            return max(self.tokens + 1, self.tokens * len(text) // self.max_chars)
        return tokens.count(text, self.model)

    def cost_of(self, parts: Iterable[str], work: Work) -> int:
        """Returns the tokens of several texts: the larger of joined by line breaks and counted one by one."""
        parts = [part for part in parts if part]
        work.spend(sum(map(self._steps, parts)))
        joined = self.cost("\n".join(parts))
        return joined if joined > self.tokens else max(joined, sum(map(self.cost, parts)))

    def admits(self, parts: Sequence[str], work: Work) -> bool:
        """Returns whether the texts together, by `cost_of`, are within the budget."""
        # The first count loads the vocabulary for a third of a second, which a small text can do without.
        text = "\n".join(filter(None, parts))
        if len(text) <= self.max_chars and tokens.max_count(text, self.model) <= self.tokens:
            return True
        return self.cost_of(parts, work) <= self.tokens


_MIN_LINK_TOKENS = 200
"""In a smaller budget a reply has no link."""


def may_link(policy: ResolvedPolicy) -> bool:
    """Whether a reply that shows a part of a result has a link to the whole."""
    return policy.links and policy.max_tokens >= _MIN_LINK_TOKENS


class Frame:
    """Everything in a reply besides the window, and the budget for both."""

    def __init__(
        self,
        policy: ResolvedPolicy,
        note: Note,
        work: Work,
        structured: bool = False,
        link: ResourceLink | None = None,
    ) -> None:
        """
        Args:
            structured: Whether the reply has the value as structured content too.
            link: The link to the result, which the reply has if the policy says so.
        """
        self.policy = policy
        self.budget: Budget = Budget.of(policy)
        self.work = work
        self.structured = structured
        self.has_tables: bool = policy.tables and not structured
        """Whether values may be written as tables. MCP: beside structured content, a tool should return the serialized
        JSON as text."""
        self._note = note
        self._link = link if may_link(policy) else None
        self._link_text = "" if self._link is None else jsonrpc.encode(self._link).decode()

    def without_tables(self) -> "Frame":
        policy = replace(self.policy, tables=False)
        return Frame(policy, self._note, self.work, self.structured, self._link)

    def add_note(self, window: Window) -> Window:
        return with_note(window, self._note)

    def make_window(
        self, unit: Unit, value: JSON, start: int, end: int, total: int, cuts: tuple[str, ...] = ()
    ) -> Window:
        """Returns a window with a JSON value, encoded in the fewest tokens."""
        encoded = encode(
            value,
            tables=self.has_tables,
            dictionary=self.policy.dictionary,
            model=self.policy.model,
            work=self.work,
        )
        window = Window(
            unit, start, end, total, encoded.text, value=value, form=encoded.form, cuts=cuts, words=encoded.words
        )
        return with_note(window, self._note, encoded.legend)

    def cost(self, window: Window) -> int:
        """Returns the tokens of the whole reply: every text that a host may show to the model."""
        return self.budget.cost_of(self._counted_parts(window), self.work)

    def fits(self, window: Window) -> bool:
        """Returns whether the whole reply is within the budget."""
        return self.budget.admits(self._counted_parts(window), self.work)

    def _counted_parts(self, window: Window) -> list[str]:
        parts = [*window.texts, self._link_text]
        if self.structured and window.value is not UNSET:
            parts.append(jsonrpc.encode(window.value).decode())
        return parts
