"""Data model of keyed sets: flat rows that one field identifies, and deltas between sets (SPEC 10a)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from deltamcp.gcf.scalars import GcfError, canonical_cell

KeyedRow: TypeAlias = Mapping[str, Any]
"""Cells by field. A missing field is absent, which is not the same as null."""

ABSENT_MARK = "~"


@dataclass(frozen=True, slots=True)
class GenericSet:
    """A set of rows, in the order in which they are sent. Sets that differ only in that order have the same root.

    A row has scalars only, and no fields other than `fields`; its `key` is neither absent nor null. The set copies the
    rows that the caller passes.
    """

    key: str
    fields: Sequence[str]
    rows: Sequence[KeyedRow]
    name: str = "rows"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "rows", tuple(map(dict, self.rows)))
        check_fields(self.key, self.fields)
        known = set(self.fields)
        for row in self.rows:
            check_row(row, self.key, known)

    def by_identity(self) -> dict[str, KeyedRow]:
        """Returns the rows by the canonical form of their key.

        Raises:
            GcfError: two rows have the same key.
        """
        rows: dict[str, KeyedRow] = {}
        for row in self.rows:
            if (identity := canonical_cell(row[self.key])) in rows:
                raise GcfError("duplicate_key", f"two rows have the {self.key!a:.80} {identity!a:.80}")
            rows[identity] = row
        return rows

    def canonical_cells(self) -> dict[str, dict[str, str]]:
        """Returns each row's cells in the form that roots and comparisons use, by the canonical form of its key."""
        return {
            identity: {field: canonical_cell(row[field]) if field in row else ABSENT_MARK for field in self.fields}
            for identity, row in self.by_identity().items()
        }


@dataclass(frozen=True, slots=True)
class GenericDelta:
    """The changes from the set with `base_root` to the set with `new_root`: whole rows, and the keys of removed ones.

    `fields` is empty in a delta decoded from a text without added or changed rows, because such a text has no fields.
    """

    key: str
    fields: Sequence[str]
    base_root: str
    new_root: str
    added: Sequence[KeyedRow] = ()
    changed: Sequence[KeyedRow] = ()
    removed: Sequence[Any] = ()
    tool: str = ""
    delta_tokens: int = 0
    full_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("fields", "added", "changed", "removed"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.fields:
            check_fields(self.key, self.fields)
        known = set(self.fields)
        for row in (*self.added, *self.changed):
            check_row(row, self.key, known)
        self.identities()

    def identities(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Returns the canonical identities of the added, the changed and the removed rows.

        Raises:
            GcfError: an identity occurs twice.
        """
        added = tuple(canonical_cell(row[self.key]) for row in self.added)
        changed = tuple(canonical_cell(row[self.key]) for row in self.changed)
        removed = tuple(canonical_cell(identity) for identity in self.removed)
        identities = (*added, *changed, *removed)
        if len(set(identities)) != len(identities):
            raise GcfError("duplicate_key", f"a delta names one {self.key!a:.80} twice")
        return added, changed, removed


def check_fields(key: str, fields: Sequence[str]) -> None:
    """Refuses fields that occur twice, or a key that is not one of them."""
    if not all(isinstance(field, str) for field in fields):
        raise GcfError("unsupported_value", "the name of a field is not a string")
    if len(set(fields)) != len(fields):
        raise GcfError("duplicate_field_name", f"{fields!a:.80}")
    if key not in fields:
        raise GcfError("missing_key", f"the key {key!a:.80} is not one of the fields")


def check_row(row: KeyedRow, key: str, fields: set[str]) -> None:
    """Refuses a row without a key, or with cells that are not in the fields."""
    if row.get(key) is None:
        raise GcfError("missing_key", f"a row has no {key!a:.80}")
    if not row.keys() <= fields:
        raise GcfError("row_width_mismatch", f"a row has cells that are not in the fields: {list(row)!a:.80}")
