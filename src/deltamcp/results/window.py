"""A window, which is the part of a result that one reply shows, and the frame that counts the reply's tokens."""

from collections.abc import Set
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from deltamcp.results.budget import Budget
from deltamcp.results.encode import encode, legend_of
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work

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


class Note(Protocol):
    """What a reply says below a window."""

    def text(self, window: Window) -> str: ...


def with_note(window: Window, note: Note) -> Window:
    """Returns a window with a note, and with the words that explain its forms in that."""
    text, legend = note.text(window), legend_of(window.words)
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


class Frame:
    """Everything in a reply besides the window, and the budget for both."""

    def __init__(
        self, policy: ResolvedPolicy, note: Note, work: Work, other_text: str = "", structured: bool = False
    ) -> None:
        """
        Args:
            other_text: Other text of the reply that the model reads, such as a link.
            structured: Whether the reply has the value as structured content too.
        """
        self.policy = policy
        self.budget: Budget = policy.budget
        self.work = work
        self.structured = structured
        self.has_tables: bool = policy.tables and not structured
        """Whether values may be written as tables. MCP: beside structured content, a tool should return the serialized
        JSON as text."""
        self._note = note
        self._other_text = other_text

    def without_tables(self) -> "Frame":
        policy = replace(self.policy, tables=False)
        return Frame(policy, self._note, self.work, self._other_text, self.structured)

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
        return self.add_note(window)

    def cost(self, window: Window) -> int:
        """Returns the tokens of the whole reply: every text that a host may show to the model."""
        return self.budget.cost_of(self._counted_parts(window), self.work)

    def fits(self, window: Window) -> bool:
        """Returns whether the whole reply is within the budget."""
        return self.budget.admits(self._counted_parts(window), self.work)

    def _counted_parts(self, window: Window) -> list[str]:
        parts = [*window.texts, self._other_text]
        if self.structured and window.value is not UNSET:
            parts.append(jsonrpc.encode(window.value).decode())
        return parts
