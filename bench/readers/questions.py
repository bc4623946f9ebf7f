"""Questions on the rows of a result, with the answers computed from the rows themselves."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "absent"
"""The answer for a member that a row does not have."""
_MAX_CHARS = 120
_SHORT_CHARS = 40
_KEYS = ("id", "key", "number", "Id", "UniqueId", "Name", "name", "title", "url")
_COUNTED = range(2, 7)
"""The different values of a member whose values are counted."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A question and what is right."""

    text: str
    answer: Any


def table_questions(rows: Sequence[Row], chance: random.Random, count: int) -> list[Question]:
    """Ask for members, absent ones too, for counts, names by value, positions and extremes."""
    key = key_of(rows)
    kinds = [_member, _counted, _odd_member, _named, _last_with, _extreme]
    return _draw(lambda kind: kind(rows, key, chance), kinds, chance, count)


def change_questions(before: Sequence[Row], after: Sequence[Row], chance: random.Random, count: int) -> list[Question]:
    """Ask what there is after changes, where these are, and of what stayed beside them."""
    key = key_of(after)
    kinds = [_changed_member, _which_changed, _neighbour, _how_many, _new_or_gone, _counted_after]
    return _draw(lambda kind: kind(before, after, key, chance), kinds, chance, count)


def key_of(rows: Sequence[Row]) -> str:
    """The member that names a row: it is short, and different in each."""
    for name in (*_KEYS, *rows[0]):
        values = [row.get(name) for row in rows]
        if all(_is_short(value) for value in values) and len({*map(repr, values)}) == len(rows):
            return name
    raise ValueError("no member names the rows")


def has_key(rows: Sequence[Row]) -> bool:
    try:
        return bool(key_of(rows))
    except ValueError:
        return False


def _draw(
    ask: Callable[[Any], Question | None], kinds: Sequence[Any], chance: random.Random, count: int
) -> list[Question]:
    questions: list[Question] = []
    kinds = chance.sample(kinds, len(kinds))
    for at in range(20 * count):
        if len(questions) == count:
            break
        found = ask(kinds[at % len(kinds)])
        if found is not None and all(found.text != other.text for other in questions):
            questions.append(found)
    return questions


# Of tables


def _member(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    row = chance.choice(rows)
    path, value = chance.choice([*_leaves(row)])
    return None if path == key else Question(f"What is {path} where {key} is {json.dumps(row[key])}?", value)


def _odd_member(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    """Of a member that is null, empty or absent in some rows."""
    paths = {path for row in rows for path, _ in _leaves(row)}
    odd = [path for path in sorted(paths) if 0 < sum(at(row, path) in (None, ABSENT, "") for row in rows) < len(rows)]
    if not odd:
        return None
    path, row = chance.choice(odd), chance.choice(rows)
    asked = f"Where {key} is {json.dumps(row[key])}: what is {path}? It may be null, an empty text or absent."
    return Question(asked, at(row, path))


def _counted(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    found = _grouped(rows, key, chance)
    if found is None:
        return None
    path, value, members = found
    return Question(f"In how many of the {len(rows)} rows is {path} {json.dumps(value)}?", len(members))


def _named(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    found = _grouped(rows, key, chance)
    if found is None or len(found[2]) > 8:
        return None
    path, value, members = found
    return Question(f"List {key} of all rows in which {path} is {json.dumps(value)}.", [row[key] for row in members])


def _last_with(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    found = _grouped(rows, key, chance)
    if found is None:
        return None
    path, value, members = found
    return Question(f"What is {key} of the last row in which {path} is {json.dumps(value)}?", members[-1][key])


def _extreme(rows: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    numbers = [
        path
        for path, value in _leaves(rows[0])
        if type(value) in (int, float)
        and path != key
        and all(type(at(row, path)) in (int, float) for row in rows)
        and [at(row, path) for row in rows].count(max(at(row, path) for row in rows)) == 1
    ]
    if not numbers:
        return None
    path = chance.choice(numbers)
    return Question(f"What is {key} of the row with the largest {path}?", max(rows, key=lambda row: at(row, path))[key])


def _grouped(rows: Sequence[Row], key: str, chance: random.Random) -> tuple[str, Any, list[Row]] | None:
    """A member with few different values, one of these, and the rows that have it."""
    few = []
    for path in sorted({path for row in rows for path, _ in _leaves(row)}):
        values = [at(row, path) for row in rows]
        different = {*map(repr, values)}
        if path != key and len(different) in _COUNTED and all(_is_short(value) and value != ABSENT for value in values):
            few.append((path, values))
    if not few:
        return None
    path, values = chance.choice(few)
    value = chance.choice(values)
    return path, value, [row for row, own in zip(rows, values, strict=True) if repr(own) == repr(value)]


# Of changes


def _changed_member(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    pairs = [(old, new) for old, new in _pairs(before, after, key) if old != new]
    if not pairs:
        return None
    old, new = chance.choice(pairs)
    changed = [path for path, value in _leaves(new) if at(old, path) != value]
    if not changed:
        return None
    path = chance.choice(changed)
    return Question(f"What is {path} now where {key} is {json.dumps(new[key])}?", at(new, path))


def _neighbour(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    """Of a member that stayed, in a row that changed: a model may think it changed along."""
    pairs = [(old, new) for old, new in _pairs(before, after, key) if old != new]
    if not pairs:
        return None
    old, new = chance.choice(pairs)
    same = [path for path, value in _leaves(new) if path != key and at(old, path) == value]
    if not same:
        return None
    path = chance.choice(same)
    return Question(f"What is {path} now where {key} is {json.dumps(new[key])}?", at(new, path))


def _which_changed(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    changed = [new[key] for old, new in _pairs(before, after, key) if old != new]
    if not 0 < len(changed) <= 8:
        return None
    asked = f"List {key} of the rows that both the last two replies have and that differ between them."
    return Question(asked, changed)


def _how_many(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    return None if len(before) == len(after) else Question("How many rows are there now?", len(after))


def _new_or_gone(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    sides = [("new in", before, after), ("gone since", after, before)]
    word, base, other = chance.choice(sides)
    names = [repr(row.get(key)) for row in base]
    found = [row[key] for row in other if repr(row.get(key)) not in names]
    place = "the last reply" if word == "new in" else "the reply before the last"
    return Question(f"List {key} of the rows that are {word} {place}.", found) if 0 < len(found) <= 8 else None


def _counted_after(before: Sequence[Row], after: Sequence[Row], key: str, chance: random.Random) -> Question | None:
    found = _grouped(after, key, chance)
    if found is None:
        return None
    path, value, members = found
    return Question(f"In how many rows is {path} {json.dumps(value)} now?", len(members))


def _pairs(before: Sequence[Row], after: Sequence[Row], key: str) -> Iterator[tuple[Row, Row]]:
    old = {repr(row.get(key)): row for row in before}
    for row in after:
        if repr(row[key]) in old:
            yield old[repr(row[key])], row


# Members


def at(row: Row, path: str) -> Any:
    value: Any = row
    for step in path.split("."):
        if not isinstance(value, dict) or step not in value:
            return ABSENT
        value = value[step]
    return value


def _leaves(row: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if "." in name:
            continue
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}.")
        elif isinstance(value, list):
            if 0 < len(value) <= 5 and all(isinstance(item, str) and len(item) <= _SHORT_CHARS for item in value):
                yield path, value
        elif not isinstance(value, str) or (len(value) <= _MAX_CHARS and "\n" not in value):
            yield path, value


def _is_short(value: Any) -> bool:
    return (isinstance(value, str) and 0 < len(value) <= _SHORT_CHARS) or type(value) in (int, bool)
