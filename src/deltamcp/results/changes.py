"""A result the second time: what it is known by, what changed, and the words for either."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, root_of
from deltamcp.results import dedup, document
from deltamcp.results.content import is_symbol_graph
from deltamcp.results.encode import encode
from deltamcp.results.notes import Handle
from deltamcp.results.pagination import find_rows
from deltamcp.results.pointer import pointer
from deltamcp.results.policy import ROOT_KEY, ResolvedPolicy
from deltamcp.tokens import count
from deltamcp.values import JSON

if TYPE_CHECKING:
    from deltamcp.gcf import Session

REANCHOR_AFTER_DELTAS = 15
"""Deltas in a row, after which a result is sent whole again (GCF 10a.8)."""
MAX_DELTA_SHARE = 0.6
"""What a delta may cost of the whole; beyond it a reader is better served with that (seed 001)."""
MAX_UNCHANGED_TOKENS = 16
"""What it may cost to be told that nothing changed."""

_SHORTER_ROOT_DIGITS = (12, 10, 8, 6, 4)


class SentBefore(NamedTuple):
    """What the caller was sent by other calls, where results may refer to it."""

    row_locations: dict[str, str]
    session: "Session | None"
    used_in_deltas: bool
    """Whether deltas refer to it too, which GCF 10.6 forbids and its first guide allows."""
    pointers_by_digest: dict[str, str]
    """Pointers to what others may refer to in the result at hand."""

    @property
    def after_reset(self) -> "SentBefore":
        """For a caller that has lost it: ids go on counting, so that none means two things."""
        session = deepcopy(self.session)
        if session is not None:
            session.reset()
        return SentBefore({}, session, self.used_in_deltas, self.pointers_by_digest)


class ChangeText(NamedTuple):
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
    def text_with_note(self) -> str:
        return f"{self.text}\n{self.note}" if self.note else self.text


class ComparableResult(Protocol):
    """A result as it is compared with another."""

    @property
    def root(self) -> str:
        """64 digits."""
        ...

    @property
    def size_text(self) -> str:
        """How much there is of it, in words."""
        ...

    @property
    def rows(self) -> list[str] | None:
        """Where its rows are, if it has any."""
        ...

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy) -> bool:
        """Whether a base as it was kept, of another root, differs only in what does not count."""
        ...

    def changes_since(
        self, base: JSON, roots: tuple[str, str], policy: ResolvedPolicy, before: SentBefore | None, is_part: bool
    ) -> ChangeText | None:
        """The changes from a base as it was kept, a line each; None where they are no shorter, or cannot be told.

        `roots` are the base's and its own, to be told where the format has them. Where only a part of the base was
        shown, nothing is told by what was there.
        """
        ...

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore) -> ChangeText | None:
        """All of it, with references to what was sent before; None where nothing was.

        With a session it is to be sent even where it is no shorter: ids of other texts would mean something else.
        """
        ...

    def pointers_by_digest(self) -> dict[str, str]:
        """Pointers to what others may refer to: rows by their digests, all of it by its root."""
        ...


class ComparableValue(NamedTuple):
    """JSON, or a text."""

    value: JSON
    root: str
    size_text: str
    rows: list[str] | None = None

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy) -> bool:
        volatile = policy.volatile
        return volatile is not None and root_of(base, volatile) == root_of(self.value, volatile)

    def changes_since(
        self, base: JSON, roots: tuple[str, str], policy: ResolvedPolicy, before: SentBefore | None, is_part: bool
    ) -> ChangeText | None:
        from deltamcp.deltas.delta import apply_delta, make_delta

        keys = policy.keys or ()
        text = make_delta(base, self.value, keys, self_contained=is_part)
        references, meant = None, ALGORITHM + self.root
        if before is not None and before.used_in_deltas and self.rows is not None and not is_part:
            there = dedup.row_pointers(base, self.rows)
            new = self._with_references(
                {sign: place for sign, place in before.row_locations.items() if sign not in there}
            )
            shorter = make_delta(base, new, keys)
            if len(shorter) < len(text):
                text, references, meant = shorter, pointer(*self.rows), root_of(new)
        if text.startswith("=") or root_of(apply_delta(base, text)) != meant:
            return None
        return ChangeText(text, references=references)

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore) -> ChangeText | None:
        referred = self._with_references(before.row_locations)
        if referred is self.value:
            return None
        made = encode(referred, tables=policy.tables, dictionary=policy.dictionary, model=policy.model)
        return ChangeText(made.text, made.form, dedup.SEEN_NOTE, pointer(*self.rows or ()))

    def pointers_by_digest(self) -> dict[str, str]:
        whole = {self.root: ""}
        return whole if self.rows is None else dedup.row_pointers(self.value, self.rows) | whole

    def _with_references(self, seen: dict[str, str]) -> JSON:
        made = None if self.rows is None else dedup.replace_seen_rows(self.value, self.rows, seen)
        return self.value if made is None else made


def comparable(data: str | bytes, value: Any, policy: ResolvedPolicy) -> ComparableResult:
    """A result by its text or JSON; `value` is what was returned, where that is at hand."""
    if is_symbol_graph(value):
        from deltamcp.results import symbol_graphs

        return symbol_graphs.comparable_graph(value)
    if isinstance(data, str):
        lines = data.count("\n") + (not data.endswith("\n"))
        return ComparableValue(data, root_of(data).removeprefix(ALGORITHM), _count_text(lines, "line"))
    made = document.decode(data)
    root = root_of(made).removeprefix(ALGORITHM)
    rows = find_rows(data, policy.rows)
    if rows is not None:
        return ComparableValue(made, root, _count_text(len(document.items(document.at(data, rows))), "row"), rows)
    return ComparableValue(made, root, _count_text(len(made), "field") if isinstance(made, dict) else "value")


def _count_text(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"


class PathToWhole(NamedTuple):
    """To all of a result that is not told whole."""

    handle: Handle
    is_safe: bool
    """Whether its tool may run once more for it: it only reads."""

    def __str__(self) -> str:
        # Where many callers are one, handles are long: to send a root that nobody holds is shorter.
        name = self.handle.name
        return f'{ROOT_KEY}=""' if self.is_safe and len(name) > SHORT_DIGITS else f"{self.handle.continue_tool} {name}"


def unchanged_text(
    size: str, path_to_whole: PathToWhole, root: str, given_root: str | None, elsewhere: bool = False
) -> str:
    """To a caller that holds this result, and `said` so by its root, or was only sent it; `elsewhere`, by another."""
    same = f"Executed now: same {size}"
    if given_root is None:
        texts = [f"{same}; full: {path_to_whole}", f"{same}; {path_to_whole}"]
        if elsewhere:
            texts.insert(0, f"{same}, sent before; {path_to_whole}")
    else:
        texts = [f"{same} as {root[:digits]}" for digits in _SHORTER_ROOT_DIGITS]
    return next((text for text in texts if count(text) <= MAX_UNCHANGED_TOKENS), same)


def changed_text(text: str, path_to_whole: PathToWhole, roots: tuple[str, str], given_root: str | None) -> str:
    """The changes under a line that tells what they are, and where all is."""
    if text.startswith("GCF "):
        return text
    if given_root is None:
        return f"Changed; full: {path_to_whole}\n{text}"
    return f"Changed since {roots[0][:SHORT_DIGITS]}, now {roots[1][:SHORT_DIGITS]}:\n{text}"


def root_note(root: str) -> str:
    """What is said beside a whole result, for who shall send its root the next time."""
    return f"[pack_root {root[:SHORT_DIGITS]}]"
