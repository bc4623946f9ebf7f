"""A result the second time: what it is known by, what changed, and the words for either."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, root_of
from deltamcp.results import dedup, document
from deltamcp.results.content import is_pack
from deltamcp.results.encode import encode
from deltamcp.results.notes import Handle
from deltamcp.results.paginate import find_rows
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import ROOT, Shaping
from deltamcp.tokens import count
from deltamcp.values import JSON

if TYPE_CHECKING:
    from deltamcp.gcf import Session

REANCHOR = 15
"""Deltas in a row, after which a result is sent whole again (GCF 10a.8)."""
MOST = 0.6
"""What a delta may cost of the whole; beyond it a reader is better served with that (seed 001)."""
UNCHANGED_TOKENS = 16
"""What it may cost to be told that nothing changed."""

_SHORTER = (12, 10, 8, 6, 4)


class Before(NamedTuple):
    """What the caller was sent by other calls, where results may refer to it."""

    rows: dict[str, str]
    session: "Session | None"
    in_deltas: bool
    """Whether deltas refer to it too, which GCF 10.6 forbids and its first guide allows."""
    places: dict[str, str]
    """Pointers to what others may refer to in the result at hand."""

    @property
    def forgotten(self) -> "Before":
        """For a caller that has lost it: ids go on counting, so that none means two things."""
        session = deepcopy(self.session)
        if session is not None:
            session.reset()
        return Before({}, session, self.in_deltas, self.places)


class Telling(NamedTuple):
    """A text that refers to what was sent before, or may be referred to."""

    text: str
    form: Literal["json", "table", "text"] = "text"
    note: str = ""
    """On what references are."""
    references: str | None = None
    """Where the rows are that may be references, as a pointer."""
    session: "Session | None" = None
    """What its reader knows of symbols once it has the text."""

    @property
    def whole(self) -> str:
        return f"{self.text}\n{self.note}" if self.note else self.text


class Known(Protocol):
    """A result as it is compared with another."""

    @property
    def root(self) -> str:
        """64 digits."""
        ...

    @property
    def size(self) -> str:
        """How much there is of it, in words."""
        ...

    @property
    def rows(self) -> list[str] | None:
        """Where its rows are, if it has any."""
        ...

    def is_as(self, base: JSON, shaping: Shaping) -> bool:
        """Whether a base as it was kept, of another root, differs only in what does not count."""
        ...

    def since(
        self, base: JSON, roots: tuple[str, str], shaping: Shaping, before: Before | None, is_part: bool
    ) -> Telling | None:
        """The changes from a base as it was kept, a line each; None where they are no shorter, or cannot be told.

        `roots` are the base's and its own, to be told where the format has them. Where only a part of the base was
        shown, nothing is told by what was there.
        """
        ...

    def brief(self, shaping: Shaping, before: Before) -> Telling | None:
        """All of it, with references to what was sent before; None where nothing was.

        With a session it is to be sent even where it is no shorter: ids of other texts would mean something else.
        """
        ...

    def places(self) -> dict[str, str]:
        """Pointers to what others may refer to: rows by their digests, all of it by its root."""
        ...


class Value(NamedTuple):
    """JSON, or a text."""

    value: JSON
    root: str
    size: str
    rows: list[str] | None = None

    def is_as(self, base: JSON, shaping: Shaping) -> bool:
        volatile = shaping.volatile
        return volatile is not None and root_of(base, volatile) == root_of(self.value, volatile)

    def since(
        self, base: JSON, roots: tuple[str, str], shaping: Shaping, before: Before | None, is_part: bool
    ) -> Telling | None:
        from deltamcp.deltas.delta import applied, delta

        keys = shaping.keys or ()
        text = delta(base, self.value, keys, plain=is_part)
        references, meant = None, ALGORITHM + self.root
        if before is not None and before.in_deltas and self.rows is not None and not is_part:
            there = dedup.places(base, self.rows)
            new = self._referred({sign: place for sign, place in before.rows.items() if sign not in there})
            shorter = delta(base, new, keys)
            if len(shorter) < len(text):
                text, references, meant = shorter, pointer(*self.rows), root_of(new)
        if text.startswith("=") or root_of(applied(base, text)) != meant:
            return None
        return Telling(text, references=references)

    def brief(self, shaping: Shaping, before: Before) -> Telling | None:
        referred = self._referred(before.rows)
        if referred is self.value:
            return None
        made = encode(referred, tables=shaping.tables, dictionary=shaping.dictionary, model=shaping.model)
        return Telling(made.text, made.form, dedup.NOTE, pointer(*self.rows or ()))

    def places(self) -> dict[str, str]:
        whole = {self.root: ""}
        return whole if self.rows is None else dedup.places(self.value, self.rows) | whole

    def _referred(self, seen: dict[str, str]) -> JSON:
        made = None if self.rows is None else dedup.referred(self.value, self.rows, seen)
        return self.value if made is None else made


def known(data: str | bytes, value: Any, shaping: Shaping) -> Known:
    """A result by its text or JSON; `value` is what was returned, where that is at hand."""
    if is_pack(value):
        from deltamcp.results import packs

        return packs.known(value)
    if isinstance(data, str):
        lines = data.count("\n") + (not data.endswith("\n"))
        return Value(data, root_of(data).removeprefix(ALGORITHM), _number(lines, "line"))
    made = document.decode(data)
    root = root_of(made).removeprefix(ALGORITHM)
    rows = find_rows(data, shaping.rows)
    if rows is not None:
        return Value(made, root, _number(len(document.items(document.at(data, rows))), "row"), rows)
    return Value(made, root, _number(len(made), "field") if isinstance(made, dict) else "value")


def _number(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"


class Way(NamedTuple):
    """To all of a result that is not told whole."""

    handle: Handle
    is_safe: bool
    """Whether its tool may run once more for it: it only reads."""

    def __str__(self) -> str:
        # Where many callers are one, handles are long: to send a root that nobody holds is shorter.
        name = self.handle.name
        return f'{ROOT}=""' if self.is_safe and len(name) > SHORT_DIGITS else f"{self.handle.tool} {name}"


def unchanged(size: str, way: Way, root: str, said: str | None, elsewhere: bool = False) -> str:
    """To a caller that holds this result, and `said` so by its root, or was only sent it; `elsewhere`, by another."""
    same = f"Executed now: same {size}"
    if said is None:
        texts = [f"{same}; full: {way}", f"{same}; {way}"]
        if elsewhere:
            texts.insert(0, f"{same}, sent before; {way}")
    else:
        texts = [f"{same} as {root[:digits]}" for digits in _SHORTER]
    return next((text for text in texts if count(text) <= UNCHANGED_TOKENS), same)


def changed(text: str, way: Way, roots: tuple[str, str], said: str | None) -> str:
    """The changes under a line that tells what they are, and where all is."""
    if text.startswith("GCF "):
        return text
    if said is None:
        return f"Changed; full: {way}\n{text}"
    return f"Changed since {roots[0][:SHORT_DIGITS]}, now {roots[1][:SHORT_DIGITS]}:\n{text}"


def rooted(root: str) -> str:
    """What is said beside a whole result, for who shall send its root the next time."""
    return f"[pack_root {root[:SHORT_DIGITS]}]"
