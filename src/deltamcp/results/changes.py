"""Compares a result with what its caller was sent before: the last result of the call, and rows of any call."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from deltamcp.deltas.diff import key_rank, unique_values
from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, canonical_bytes, root_digits, root_of
from deltamcp.results import document
from deltamcp.results.content import is_symbol_graph
from deltamcp.results.document import find_rows, pointer
from deltamcp.results.encode import encode
from deltamcp.results.policy import SINCE_KEY, ResolvedPolicy
from deltamcp.results.window import Budget, Handle
from deltamcp.tokens import count
from deltamcp.values import JSON
from deltamcp.work import Work

if TYPE_CHECKING:
    from deltamcp.gcf import Session


SEEN_KEY = "$seen"
"""The member of a reference that names the result with the row, and the path to it: `handle/path`."""
SEEN_NOTE = f"[{SEEN_KEY}: sent before, as handle/path]"
MAX_REMEMBERED_ROWS = 5_000
"""Rows that the server remembers per caller; it forgets the oldest first."""

_MIN_ROW_BYTES = 60
"""Shorter rows are sent again, as a reference would hardly be shorter."""


def replace_seen_rows(value: JSON, path: Sequence[str], seen: Mapping[str, str]) -> JSON | None:
    """Returns the value with references in place of the rows at `path` that the caller has.

    `seen` has the `handle/path` of each row by its digest. The result is None where the caller has none of the rows,
    or where a row looks like a reference itself.
    """
    rows = _rows_at(value, path)
    if not seen or any(type(row) is dict and SEEN_KEY in row for row in rows):
        return None
    names = (
        [name for name in rows[0] if unique_values(rows, name) is not None] if rows and type(rows[0]) is dict else []
    )
    key = min(names, key=key_rank, default=None)
    new_rows = [_row_reference(row, key, seen) for row in rows]
    if all(new is row for new, row in zip(new_rows, rows, strict=True)):
        return None
    return _replace_rows(value, path, new_rows)


def _row_reference(row: Any, key: str | None, seen: Mapping[str, str]) -> JSON:
    place = seen.get(row_digest(row)) if type(row) is dict else None
    if place is None:
        return row
    return {SEEN_KEY: place} if key is None else {key: row[key], SEEN_KEY: place}


def restore_rows(value: JSON, path: Sequence[str], part: Callable[[str, str], JSON]) -> JSON:
    """Returns the value with the original rows in place of the references among the rows at `path`.

    `part` returns the value at a path of the result with a handle.
    """

    def restore_row(row: Any) -> JSON:
        if type(row) is not dict or SEEN_KEY not in row:
            return row
        handle, _, inside = str(row[SEEN_KEY]).partition("/")
        return part(handle, f"/{inside}")

    return _replace_rows(value, path, [restore_row(row) for row in _rows_at(value, path)])


def row_pointers(value: JSON, path: Sequence[str]) -> dict[str, str]:
    """Returns pointers to the rows of a result, by their digests."""
    pointers = {}
    for at, row in enumerate(_rows_at(value, path)):
        if type(row) is dict and (digest := row_digest(row)):
            pointers[digest] = pointer(*path, str(at))
    return pointers


def row_digest(row: JSON) -> str:
    """Returns the digest of a row; empty where the row is too small for a reference."""
    data = canonical_bytes(row)
    return hashlib.sha256(data).hexdigest()[:32] if len(data) >= _MIN_ROW_BYTES else ""


def _rows_at(value: Any, path: Sequence[str]) -> list[Any]:
    """Returns the rows at a path; an empty list where a base has no list there."""
    for step in path:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return []
    return value if isinstance(value, list) else []


def _replace_rows(value: Any, path: Sequence[str], rows: list[JSON]) -> JSON:
    if not path:
        return rows
    if isinstance(value, list):
        at = int(path[0])
        return [*value[:at], _replace_rows(value[at], path[1:], rows), *value[at + 1 :]]
    return {**value, path[0]: _replace_rows(value[path[0]], path[1:], rows)}


REANCHOR_AFTER_DELTAS = 15
"""Deltas in a row after which the server sends the whole result again (GCF 10a.8)."""
MAX_DELTA_SHARE = 0.6
"""The share of the whole result that a delta may cost; beyond it the whole is easier to read (GCF's first guide)."""
MAX_UNCHANGED_TOKENS = 16
"""Tokens that the text of an unchanged result may cost."""

_DIGEST_FACTOR = 4
"""A digest takes so many times as long as a scan."""
_SHORTER_ROOT_DIGITS = (12, 10, 8, 6, 4)


class SentBefore(NamedTuple):
    """The rows and symbols that other calls sent to the caller, to which a result may refer."""

    row_locations: dict[str, str]
    """Where the caller has each row, as `handle/path`, by the row's digest."""
    session: "Session | None"
    """The GCF session with the symbols the caller has."""
    used_in_deltas: bool
    """Whether deltas refer to sent rows too, which GCF 10.6 forbids and its first guide allows."""
    pointers_by_digest: dict[str, str]
    """Pointers to the rows of the current result that later results may refer to."""

    @property
    def after_reset(self) -> "SentBefore":
        """The same without rows and symbols, for a caller that has lost them; symbol ids are not used again."""
        session = None if self.session is None else self.session.copy()
        if session is not None:
            session.reset()
        return SentBefore({}, session, self.used_in_deltas, self.pointers_by_digest)


class ChangeText(NamedTuple):
    """The text of a result that refers to earlier results, or of a delta."""

    text: str
    form: Literal["json", "table", "text"] = "text"
    note: str = ""
    """Explains the references to the model."""
    references: str | None = None
    """Pointer to the rows, some of which are references."""
    session: "Session | None" = None
    """The GCF session of the caller after it has read the text."""
    words: tuple[str, ...] = ()
    """The words that explain the tables in the text."""

    @property
    def text_with_note(self) -> str:
        return f"{self.text}\n{self.note}" if self.note else self.text


class PathToWhole(NamedTuple):
    """How the model gets the whole result where a reply has only its changes."""

    handle: Handle
    is_safe: bool
    """Whether the tool only reads, so that the model may call it again."""

    def __str__(self) -> str:
        # Handles that callers share are long; to call again without a base is shorter.
        name = self.handle.name
        return f'{SINCE_KEY}=""' if self.is_safe and len(name) > SHORT_DIGITS else f"{self.handle.continue_tool} {name}"


class ComparableResult(Protocol):
    """A result that the server compares with an earlier result of the same call."""

    @property
    def root(self) -> str:
        """The root hash, as 64 hexadecimal digits."""
        ...

    @property
    def rows(self) -> list[str] | None:
        """The path to the rows; None where the result has no rows."""
        ...

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy, work: Work) -> bool:
        """Whether the result differs from a stored base only in the policy's volatile fields."""
        ...

    def root_of_base(self, base: JSON, work: Work) -> str:
        """Returns the root of a stored base, as 64 hexadecimal digits; empty where it has none of the same kind."""
        ...

    def unchanged_text(
        self, path_to_whole: PathToWhole, root: str, policy: ResolvedPolicy, elsewhere: bool = False
    ) -> str:
        """Writes the reply for a caller that has the result with this root.

        `elsewhere` means that another call sent the result to the caller.
        """
        ...

    def changes_since(
        self,
        base: JSON,
        roots: tuple[str, str],
        policy: ResolvedPolicy,
        before: SentBefore | None,
        is_part: bool,
        work: Work,
    ) -> ChangeText | None:
        """Returns the changes since a stored base, a line each; None where they are not shorter or not expressible.

        `roots` are the roots of the base and of the result, which the GCF format repeats. With `is_part` the caller
        was shown only a part of the base, so new values do not refer to values of the base.
        """
        ...

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore, work: Work) -> ChangeText | None:
        """Returns the whole result with references to rows sent before; None where no row was sent before.

        With a session the server sends this text even where it is no shorter, because it assigns symbol ids.
        """
        ...

    def pointers_by_digest(self, work: Work) -> dict[str, str]:
        """Returns pointers to the rows by their digests, and to the whole result by its root."""
        ...


class ComparableValue(NamedTuple):
    """A JSON value or a text that the server compares with an earlier one."""

    value: JSON
    root: str
    size_text: str
    """The size for the model, such as `12 rows`."""
    rows: list[str] | None = None

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy, work: Work) -> bool:
        volatile = policy.volatile
        if volatile is None:
            return False
        for _ in volatile:
            count_encoding(self.value, work)
            count_encoding(base, work)
        return root_of(base, volatile) == root_of(self.value, volatile)

    def root_of_base(self, base: JSON, work: Work) -> str:
        count_encoding(base, work)
        return root_of(base).removeprefix(ALGORITHM)

    def unchanged_text(
        self, path_to_whole: PathToWhole, root: str, policy: ResolvedPolicy, elsewhere: bool = False
    ) -> str:
        same = f"Executed now: same {self.size_text}"
        if policy.since is None:
            texts = [f"{same}; full: {path_to_whole}", f"{same}; {path_to_whole}"]
            if elsewhere:
                texts.insert(0, f"{same}, sent before; {path_to_whole}")
        elif root_digits(policy.since) is None:
            return f"{same} as {policy.since.strip()}"
        else:
            texts = [f"{same} as {root[:digits]}" for digits in _SHORTER_ROOT_DIGITS]
        return next((text for text in texts if count(text) <= MAX_UNCHANGED_TOKENS), same)

    def changes_since(
        self,
        base: JSON,
        roots: tuple[str, str],
        policy: ResolvedPolicy,
        before: SentBefore | None,
        is_part: bool,
        work: Work,
    ) -> ChangeText | None:
        from deltamcp.deltas.delta import apply_delta, make_delta

        keys = policy.keys or ()
        text = make_delta(base, self.value, keys, self_contained=is_part, work=work)
        references, expected_root = None, ALGORITHM + self.root
        if before is not None and before.used_in_deltas and self.rows is not None and not is_part:
            base_rows = row_pointers(base, self.rows)
            new = self._with_references(
                {digest: place for digest, place in before.row_locations.items() if digest not in base_rows}
            )
            shorter = make_delta(base, new, keys, work=work)
            if len(shorter) < len(text):
                text, references, expected_root = shorter, pointer(*self.rows), root_of(new)
        # Which does not fit is not sent, so it need not be checked.
        if text.startswith("=") or len(text) > Budget.of(policy).max_chars:
            return None
        count_encoding(base, work)
        if root_of(apply_delta(base, text)) != expected_root:
            return None
        return ChangeText(text, references=references)

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore, work: Work) -> ChangeText | None:
        count_encoding(self.value, work)
        value = self._with_references(before.row_locations)
        if value is self.value:
            return None
        encoded = encode(value, tables=policy.tables, dictionary=policy.dictionary, model=policy.model, work=work)
        return ChangeText(encoded.text, encoded.form, SEEN_NOTE, pointer(*self.rows or ()), words=encoded.words)

    def pointers_by_digest(self, work: Work) -> dict[str, str]:
        count_encoding(self.value, work)
        whole = {self.root: ""}
        return whole if self.rows is None else row_pointers(self.value, self.rows) | whole

    def _with_references(self, row_locations: dict[str, str]) -> JSON:
        replaced = None if self.rows is None else replace_seen_rows(self.value, self.rows, row_locations)
        return self.value if replaced is None else replaced


def comparable(data: str | bytes, value: Any, policy: ResolvedPolicy, work: Work) -> ComparableResult:
    """Returns a result for comparison, from its text or JSON; `value` is the tool's return value, where available.

    Raises:
        TooManyValuesError: the result has too many values to be compared.
    """
    work.scan(_DIGEST_FACTOR * len(data))
    if is_symbol_graph(value):
        from deltamcp.results import symbol_graphs

        return symbol_graphs.comparable_graph(value)
    if isinstance(data, str):
        lines = data.count("\n") + (not data.endswith("\n"))
        return ComparableValue(data, root_of(data).removeprefix(ALGORITHM), _count_text(lines, "line"))
    decoded = document.decode_counted(data, work)
    root = root_of(decoded).removeprefix(ALGORITHM)
    rows = find_rows(data, policy.rows, work)
    if rows is not None:
        return ComparableValue(
            decoded, root, _count_text(len(document.items(document.at(data, rows, work), work)), "row"), rows
        )
    return ComparableValue(decoded, root, _count_text(len(decoded), "field") if isinstance(decoded, dict) else "value")


def count_encoding(value: JSON, work: Work) -> None:
    """Counts the steps of a pass over a value that encodes its parts."""
    work.scan(_DIGEST_FACTOR * len(canonical_bytes(value)))


def _count_text(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"


def changed_text(text: str, path_to_whole: PathToWhole, roots: tuple[str, str], since: str | None) -> str:
    """Writes the changes below a line that says which result changed, or how to get the whole result.

    A GCF delta has both roots in its header and needs no such line.
    """
    if text.startswith("GCF "):
        return text
    if since is None:
        return f"Changed; full: {path_to_whole}\n{text}"
    if root_digits(since) is None:
        return f"Changed since {since.strip()}, now {path_to_whole.handle.name}:\n{text}"
    return f"Changed since {roots[0][:SHORT_DIGITS]}, now {roots[1][:SHORT_DIGITS]}:\n{text}"


_LINE = r"^(?:[^\s=\"{]*\[[^\]\n]*\])?+ *+"
"""The beginning of a line, or of the only change to rows, which stands on the line that names these."""
_FORMS = tuple(
    (re.compile(pattern, re.MULTILINE), words)
    for pattern, words in (
        (rf"{_LINE}[^-+>*=\s][^\n]*=", "k=v sets only k, no field built from it"),
        (r"^[^\s=\"{]*\[\](?: |$)", "[]: rows by index from 0"),
        (rf"{_LINE}-|^[^+\n]*[ ,]-(?=[\w\"])", "-k gone"),
        (rf"{_LINE}\+(?!\d)", "+row new"),
        (rf"{_LINE}\+\d", "+3 row new at index 3"),
        (r"\blike ", '"like x": x as it was before, but for what follows'),
        (r'~"', '~"a">"b": a is now b'),
        (rf"{_LINE}>", ">5 0: row 5 moved to index 0"),
        (r'^\*"', '*"a">"b": in every string'),
        (r"^ *\d+(-\d+|\+)$", "2-4: lines 2 to 4 are now those below; 2+: after line 2"),
    )
)
"""The forms of a delta, and the words that explain them; readers without the words mistook them."""


def delta_words(text: str) -> tuple[str, ...]:
    """Returns the words that explain the forms in the text of a delta; none for GCF, which says itself what it is."""
    return () if text.startswith("GCF ") else tuple(words for form, words in _FORMS if form.search(text))


def words_sentence(words: Sequence[str]) -> str:
    """Returns the sentence that explains the forms in a delta; empty where no words are needed."""
    return f"Changes: {'; '.join(words)}." if words else ""
