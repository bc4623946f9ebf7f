"""Deltas of any JSON value: what they read like, that they give back what they tell of, that nothing is guessed."""

import contextlib
import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltamcp.deltas import diff
from deltamcp.deltas import diff as diffing
from deltamcp.deltas.alignment import Effort, align, longest_increasing_subsequence
from deltamcp.deltas.delta import apply_delta, make_delta
from deltamcp.deltas.edits import InvalidDeltaError
from deltamcp.deltas.root import root_digits, root_of
from deltamcp.work import unlimited_work
from tests.support.equality import is_same
from tests.support.properties import examples
from tests.support.strategies import any_json

ISSUES: list[Any] = [
    {
        "id": number,
        "title": f"Something is wrong with number {number}",
        "status": "Open",
        "by": {"name": "ann", "age": 3},
    }
    for number in range(12)
]
LOG = "\n".join(f"2026-11-15T10:00:{second:02d} worker {second} is ready" for second in range(30))
WORDS = [
    *(
        "a",
        "b",
        "id",
        "name",
        "x y",
        "",
        "like",
        "-q",
        "5",
        "null",
        "true",
        "1e5",
        "+",
        "a,b",
        'q"t',
        "…",
        "abc…",
        "~",
        "=",
    ),
    *(
        "line1\nline2\nline3 with words here",
        "the quick brown fox jumps over the lazy dog",
        "[",
        "{",
        "*",
        "\u2028x",
        "\t",
    ),
    *(
        "ünï",
        "k.e.y",
        ">0",
        "a like b",
        "\r",
        "x\n",
        "\n",
        " lead",
        "trail ",
        "0",
        "-0",
        "12-3",
        "3+",
        "[base]",
        "base[0]",
    ),
]


class Maker:
    """Values that favour what the format treats specially, and others that came of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def scalar(self) -> Any:
        chance = self.random
        kinds: list[Any] = [
            None,
            True,
            False,
            chance.randrange(-3, 50),
            chance.random() * 10,
            float(chance.randrange(-2, 3)),
        ]
        texts = [chance.choice(WORDS), "".join(chance.choice(WORDS) for _ in range(chance.randrange(8)))]
        return chance.choice(kinds + texts)

    def value(self, depth: int = 0) -> Any:
        chance = self.random.random()
        if depth > 3 or chance < 0.35:
            return self.scalar()
        if chance < 0.5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(5))]
        if chance < 0.7:
            return self.table(depth)
        return {self.random.choice(WORDS): self.value(depth + 1) for _ in range(self.random.randrange(6))}

    def table(self, depth: int) -> list[Any]:
        columns = self.random.sample(WORDS, 4)
        named: Any = self.random.choice(
            [int, str, "a-long-identifier-{}".format, lambda number: f"{WORDS[number]} {number}"]
        )
        return [
            {"id": named(number), **{name: self.value(depth + 2) for name in columns if self.random.random() < 0.9}}
            for number in self.random.sample(range(30), self.random.randrange(1, 7))
        ]

    def changed(self, value: Any, depth: int = 0) -> Any:
        chance = self.random
        if chance.random() < 0.08:
            return self.value(depth)
        if isinstance(value, list):
            made = [self.changed(item, depth + 1) if chance.random() < 0.3 else item for item in value]
            if made and chance.random() < 0.3:
                made.pop(chance.randrange(len(made)))
            if chance.random() < 0.3:
                model = chance.choice(made) if made else None
                row = {**model, "id": chance.randrange(1000)} if isinstance(model, dict) else self.value(depth + 1)
                made.insert(chance.randrange(len(made) + 1), row)
            if chance.random() < 0.2:
                chance.shuffle(made)
            return made
        if isinstance(value, dict):
            made_of = {
                name: self.changed(item, depth + 1) if chance.random() < 0.3 else item
                for name, item in value.items()
                if chance.random() < 0.95
            }
            return made_of | {chance.choice(WORDS): self.value(depth + 1)} if chance.random() < 0.3 else made_of
        if isinstance(value, str) and chance.random() < 0.5:
            words = value.split(" ")
            words.insert(chance.randrange(len(words) + 1), chance.choice(WORDS))
            return " ".join(words)
        return self.scalar() if chance.random() < 0.5 else value


def holds(base: Any, new: Any) -> bool:
    text = make_delta(base, new)
    assert (text == "") == is_same(base, new)
    return is_same(apply_delta(base, text), new)


@pytest.mark.parametrize(
    ("base", "new", "text"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ""),
        ({"status": "Open", "n": 1}, {"status": "In Review", "n": 1}, "status=In Review"),
        ({"n": 1, "m": 2}, {"n": 1.0, "m": 2}, "n=1.0"),
        ({"on": True, "n": 2}, {"on": 1, "n": 2}, "on=1"),
        ({"n": "5", "m": "x"}, {"n": "6", "m": "x"}, 'n="6"'),
        ({"owner": {"login": "ann", "id": 1, "x": 2}}, {"owner": {"login": "ann", "id": 1}}, "-owner.x"),
        (
            {"owner": {"login": "ann", "id": 1}, "n": 1},
            {"owner": {"login": "bob", "id": 2}, "n": 1},
            "owner login=bob, id=2",
        ),
        ({"a": [1, 2, 3], "b": "x" * 20}, {"a": [1, 2, 4], "b": "x" * 20}, "a=[1,2,4]"),
        (ISSUES, [*ISSUES[:3], {**ISSUES[3], "status": "Done"}, *ISSUES[4:]], "[id] 3 status=Done"),
        (ISSUES, ISSUES[:5] + ISSUES[6:], "[id] -5"),
        (ISSUES, [*ISSUES[1:], ISSUES[0]], "[id] >0"),
        (
            {"items": ISSUES, "total": 12},
            {"items": [*ISSUES, {**ISSUES[3], "id": 12}], "total": 13},
            "items[id] + like 3 id=12\ntotal=13",
        ),
        (LOG, LOG.replace("worker 7 is ready", "worker 7 is gone"), '8 "ready">"gone"'),
        (LOG, f"{LOG}\none more", "+one more"),
        (LOG, f"{LOG.partition(chr(10))[2]}\none more", "1\n$\n+one more"),
        (LOG, LOG.replace("\n2026-11-15T10:00:04 worker 4 is ready", ""), "5"),
        (ISSUES[0], [ISSUES[0]], "[base]"),
        (ISSUES, ISSUES[2], "base[2]"),
        ({"a": 1}, None, "=null"),
        (
            {str(n): f"https://example.com/old-name/{n}" for n in range(9)},
            {str(n): f"https://example.com/new-name/{n}" for n in range(9)},
            '*"old">"new"',
        ),
    ],
)
def test_a_delta_reads_like_this(base, new, text):
    assert make_delta(base, new) == text
    assert is_same(apply_delta(base, text), new)


def test_a_declared_key_tells_rows_apart():
    base: list[Any] = [{"id": n, "sku": f"S{n}", "n": 0, "note": "as it was before"} for n in range(5)]
    new = [{**row, "id": row["id"] + 1, "n": 1 if row["sku"] == "S3" else 0} for row in base]
    assert make_delta(base, new, ["sku"]).startswith("[sku]\n")


def test_a_rank_is_not_taken_for_a_key():
    names = [f"Player {n}" for n in range(20)]
    about = {name: f"{name} has won {len(name) * place} games" for place, name in enumerate(names)}
    base, new = (
        [{"rank": place, "who": name, "about": about[name]} for place, name in enumerate(listed)]
        for listed in (names, names[1:])
    )
    assert make_delta(base, new).startswith("[who]\n-")


def test_long_keys_are_told_by_their_beginnings():
    rows: list[Any] = [
        {"id": hashlib.sha256(str(n).encode()).hexdigest(), "n": n, "title": "a title"} for n in range(30)
    ]
    new = [{**row, "n": -1} if row["n"] == 7 else row for row in rows]
    assert make_delta(rows, new) == f"[id] {rows[7]['id'][:6]}… n=-1"
    assert apply_delta(rows, make_delta(rows, new)) == new


@settings(max_examples=examples(2_000))
@given(any_json, any_json)
def test_any_pair_of_values(base, new):
    assert holds(base, new)


@settings(max_examples=examples(500))
@given(st.lists(st.text(max_size=8), max_size=12), st.lists(st.text(max_size=8), max_size=12))
@example(["", "", "00000000", "00000000", "0000"], ["00000000", "0000", ""])
def test_any_pair_of_texts(base, new):
    assert holds("\n".join(base), "\n".join(new))


@pytest.mark.parametrize("seed", range(4))
def test_values_and_what_came_of_them(seed):
    maker = Maker(seed)
    for _ in range(examples(4_000)):
        base = maker.value()
        assert holds(base, maker.changed(base)), base


@pytest.mark.parametrize("seed", range(4, 6))
def test_every_edit_is_told_even_where_it_is_not_worth_it(seed, monkeypatch):
    monkeypatch.setattr(
        diffing._Differ, "_shorter_edit", lambda differ, made, new: differ._put(new) if made is None else made
    )
    for name in ("_MIN_STRING_CHARS", "_PIECE_OVERHEAD", "_HUNK_OVERHEAD"):
        monkeypatch.setattr(diff, name, -100)
    maker = Maker(seed)
    for _ in range(examples(4_000)):
        base = maker.value()
        assert holds(base, maker.changed(base)), base


@settings(max_examples=examples(1_000))
@given(any_json, st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=6).map("\n".join))
def test_what_is_no_delta_of_the_base_is_refused(base, text):
    with contextlib.suppress(InvalidDeltaError):
        apply_delta(base, text)


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ({"a": 1}, "b.c=1"),
        ({"a": 1}, "-b"),
        ({"a": 1}, "a b=2"),
        ({"a": "a text that is long enough"}, 'a~"no such">"piece"'),
        (ISSUES, "[id] -77"),
        (ISSUES, "[key] -1"),
        (ISSUES, "[status] Open n=1"),
        (ISSUES, "[id]\n-1\n-1"),
        (ISSUES, "[id] +99 {}"),
        (ISSUES, "base[12]"),
        (LOG, "99\n+x"),
        (LOG, '3 "no such">"piece"'),
        ({"a": 1}, "a=1\na=2"),
        ({"a": 1}, "a={"),
        ([], "a=1"),
    ],
)
def test_a_delta_of_another_base_is_refused(base, text):
    with pytest.raises(InvalidDeltaError):
        apply_delta(base, text)


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), max_size=30))
def test_alignment_pairs_equal_items_in_order(base, new):
    runs = align(base, new, Effort(10_000, unlimited_work()))
    assert all(base[at : at + length] == new[new_at : new_at + length] and length for at, new_at, length in runs)
    ends = [(0, 0), *((at + length, new_at + length) for at, new_at, length in runs)]
    assert all(end <= run.at and new_end <= run.new_at for (end, new_end), run in zip(ends, runs, strict=False))


@given(st.lists(st.integers(0, 50), max_size=40, unique=True))
def test_a_rising_run_rises(numbers):
    run = [numbers[place] for place in longest_increasing_subsequence(numbers)]
    assert run == sorted(run)
    assert len(run) >= 1 or not numbers


# Roots


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: shuffled(value[name], chance) for name in names}
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


@given(any_json, st.randoms(use_true_random=False))
def test_equal_values_have_equal_roots_whatever_their_order(value, chance):
    assert root_of(shuffled(value, chance)) == root_of(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), (2**53, 2**53 + 1), (2**64, float(2**64)), ("1", 1), (None, "null"), ([], {})],
)
def test_different_values_have_different_roots(one, other):
    assert root_of(one) != root_of(other)
    assert root_of([{"a": one}]) != root_of([{"a": other}])


def test_different_values_by_the_hundred_thousand_have_different_roots():
    chance = random.Random(5)
    words = [*WORDS, *map(str, range(100))]

    def scalar() -> Any:
        kind = chance.randrange(5)
        number = chance.randrange(1_000_000)
        return (number, float(number), words[number % len(words)], number % 2 == 0, number / 7)[kind]

    def value() -> Any:
        kind = chance.randrange(4)
        if kind == 0:
            return scalar()
        if kind == 1:
            return [scalar(), scalar()]
        return {words[chance.randrange(9)]: scalar(), "b": [scalar()] if kind == 2 else {"c": scalar()}}

    count, values, roots = examples(1_000_000), set(), set()
    for _ in range(count):
        made = value()
        values.add(hashlib.md5(json.dumps(made, sort_keys=True).encode(), usedforsecurity=False).digest())
        roots.add(root_of(made)[7:39])
    assert len(roots) == len(values) > 0.7 * count


def test_what_is_volatile_does_not_count():
    volatile = ["took_ms", "items.age", "meta.at"]
    base = {"took_ms": 5, "items": [{"id": 1, "age": 3}, {"id": 2, "age": 4}], "meta": {"at": 1, "by": "x"}}
    again = {"took_ms": 9, "items": [{"id": 1, "age": 8}, {"id": 2}], "meta": {"by": "x", "at": None}}
    other = {**again, "items": [{"id": 1, "age": 8}, {"id": 3}]}
    assert root_of(base, volatile) == root_of(again, volatile) != root_of(other, volatile)
    assert root_of(base) != root_of(again)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("a1b2c3d4", "a1b2c3d4"),
        (" SHA256:A1B2C3D4E5F6 ", "a1b2c3d4e5f6"),
        ("a1b2c3d", None),
        ("md5:a1b2c3d4", None),
        ("", None),
        ("a" * 65, None),
        ("reset", None),
    ],
)
def test_a_root_that_was_sent(said, found):
    assert root_digits(said) == found
