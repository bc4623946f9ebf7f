"""Keyed sets: their texts, deltas, roots and sessions."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import gcf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.gcf import (
    DEFAULT_REANCHOR_N,
    GcfError,
    GenericDelta,
    GenericDeltaSession,
    GenericSet,
    decode_generic_delta,
    decode_generic_full,
    diff_generic_sets,
    encode_generic_delta,
    encode_generic_full,
    fixed_n,
    generic_pack_root,
    kind_of,
    root_matches,
    short_root,
    size_guard,
    verify_generic_delta,
)
from deltamcp.gcf.scalars import canonical_cell
from tests.support.gcf_packs import attempt_outcome, damage, raises_gcf

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "-", "~", "^", "true", "1", "a|b", 'a"b', "# a", "## a", "@1", "a\nb", " a", "[1]: x", "^{a}", "ä b"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
IDENTITIES = st.integers(0, 9) | st.sampled_from(["1", "a", "true", True, 2**53, 2**53 + 1]) | TEXTS
NAMES = st.sampled_from(["id", "my id", "é", '"', "a|b", "a,b", "a}b", "@x", "~", "", "a>b", "a=b"])


def cells(row: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """A row in which 1 is not true, and nothing is not null."""
    return frozenset((field, canonical_cell(value)) for field, value in row.items())


def contents(rows: GenericSet) -> set[frozenset[tuple[str, str]]]:
    return {cells(row) for row in rows.rows}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[GenericSet, GenericSet]:
    """Two sets of the same fields, so that the one has a delta to the other."""
    fields = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    key = draw(st.sampled_from(fields))
    shape = st.fixed_dictionaries(
        {key: IDENTITIES}, optional={field: SCALARS | st.sampled_from([1, True]) for field in fields if field != key}
    )
    many = st.lists(shape, max_size=6, unique_by=lambda row: canonical_cell(row[key]))
    name = draw(NAMES)
    base, new = draw(many), draw(many)
    kept = {canonical_cell(row[key]): row for row in base if draw(st.booleans())}
    merged = {**{canonical_cell(row[key]): row for row in new}, **kept}
    return GenericSet(key, fields, base, name), GenericSet(key, fields, list(merged.values()), name)


@given(pairs())
def test_a_delta_applied_gives_the_new_set(pair: tuple[GenericSet, GenericSet]):
    base, new = pair
    delta = diff_generic_sets(base, new)
    text = encode_generic_delta(delta)
    assert kind_of(text) == "generic-delta"
    for received in (delta, decode_generic_delta(text)):
        found = verify_generic_delta(base, received)
        assert contents(found) == contents(new)
        assert generic_pack_root(found) == generic_pack_root(new) == delta.new_root
    short = replace(delta, base_root=short_root(delta.base_root), new_root=short_root(delta.new_root, 8))
    assert contents(verify_generic_delta(base, decode_generic_delta(encode_generic_delta(short)))) == contents(new)
    touched = {*map(cells, delta.added), *map(cells, delta.changed)}
    assert touched == contents(new) - contents(base)


@given(pairs())
def test_a_full_text_is_read_as_it_was_written(pair: tuple[GenericSet, GenericSet]):
    text = encode_generic_full(pair[1], "t")
    found, root = decode_generic_full(text)
    assert kind_of(text) == "generic-full"
    assert (found.key, found.fields, found.name) == (pair[1].key, pair[1].fields, pair[1].name)
    assert [cells(row) for row in found.rows] == [cells(row) for row in pair[1].rows]
    assert root == generic_pack_root(found)
    assert encode_generic_full(found, "t") == text
    _, short = decode_generic_full(encode_generic_full(found, root_digits=12))
    assert len(short) == 12
    assert root_matches(root, short)


@given(pairs(), st.randoms(use_true_random=False))
def test_a_damaged_text_is_read_or_refused(pair: tuple[GenericSet, GenericSet], chance: random.Random):
    with suppress(GcfError):
        decode_generic_full(damage(encode_generic_full(pair[0]), chance))
    with suppress(GcfError):
        decode_generic_delta(damage(encode_generic_delta(diff_generic_sets(*pair)), chance))


@given(pairs(), st.randoms())
def test_a_root_knows_no_order(pair: tuple[GenericSet, GenericSet], chance: random.Random):
    rows, fields = list(pair[0].rows), list(pair[0].fields)
    chance.shuffle(rows)
    chance.shuffle(fields)
    assert generic_pack_root(GenericSet(pair[0].key, fields, rows)) == generic_pack_root(pair[0])
    same = contents(pair[0]) == contents(pair[1])
    assert (generic_pack_root(pair[0]) == generic_pack_root(pair[1])) is same


@given(pairs(), st.sampled_from([fixed_n(), fixed_n(1), fixed_n(3), size_guard()]), st.randoms())
def test_a_reader_follows_a_session(pair: tuple[GenericSet, GenericSet], policy: Any, chance: random.Random):
    session = GenericDeltaSession(pair[0], "t", policy)
    held, _ = decode_generic_full(session.current_full())
    for turn in range(1, 9):
        new = chance.choice(pair)
        text, full = session.next(new)
        held = decode_generic_full(text)[0] if full else verify_generic_delta(held, decode_generic_delta(text))
        assert contents(held) == contents(new)
        assert session.turn == turn
        assert (
            decode_generic_full(session.current_full())[0].rows == decode_generic_full(encode_generic_full(new))[0].rows
        )


ROWS = GenericSet("id", ["id", "n"], [{"id": 1, "n": "a"}, {"id": 2, "n": None}, {"id": 3}])


def test_the_policies():
    assert fixed_n().every == DEFAULT_REANCHOR_N == 15
    with pytest.raises(ValueError, match="at least 1"):
        fixed_n(0)
    session = GenericDeltaSession(ROWS)
    assert [session.next(ROWS)[1] for _ in range(30)] == 2 * [*14 * [False], True]
    wide = GenericSet("id", ["id", "n", "m"], ROWS.rows)
    for policy in (fixed_n(), size_guard()):
        session = GenericDeltaSession(ROWS, policy=policy)
        assert session.next(wide) == (encode_generic_full(wide), True)
        assert session.next(replace(wide, name="others"))[1]
        assert session.turn == 2


def test_what_is_refused_leaves_a_session_as_it_was():
    session = GenericDeltaSession(ROWS)
    before = session.current_full()
    for bad in ([{"id": 1, "n": []}], [{"id": 1}, {"id": 1}]):
        with pytest.raises(GcfError):
            session.next(replace(ROWS, rows=bad))
    assert (session.current_full(), session.turn) == (before, 0)


def test_parts_are_ordered_by_the_canonical_identity():
    new = GenericSet("id", ["id", "n"], [{"id": identity} for identity in (9, 10, "b", True, "a", 1)])
    delta = diff_generic_sets(replace(ROWS, rows=[]), new)
    assert [row["id"] for row in delta.added] == ["a", "b", 1, 10, 9, True]
    assert diff_generic_sets(new, replace(ROWS, rows=[])).removed == ("a", "b", 1, 10, 9, True)


# Where the reference is wrong


def test_defect_3_integers_count_to_their_last_digit():
    big = [GenericSet("id", ["id", "n"], [{"id": 1, "n": 2**53 + one}]) for one in (0, 1)]
    assert generic_pack_root(big[0]) != generic_pack_root(big[1])
    assert diff_generic_sets(*big).changed == ({"id": 1, "n": 2**53 + 1},)
    keys = GenericSet("id", ["id"], [{"id": 2**53}, {"id": 2**53 + 1}])
    assert decode_generic_full(encode_generic_full(keys))[0] == keys


@pytest.mark.parametrize("cell", [[], {}, {"a": [1, 2]}, (1,), b"a", {1}, object()])
def test_defect_4_a_cell_is_a_scalar(cell: object):
    nested = GenericSet("id", ["id", "n"], [{"id": 1, "n": cell}])
    for attempt in (
        lambda: generic_pack_root(nested),
        lambda: encode_generic_full(nested),
        lambda: diff_generic_sets(ROWS, nested),
        lambda: encode_generic_delta(GenericDelta("id", ["id", "n"], "a", "b", added=nested.rows)),
    ):
        with raises_gcf("unsupported_value"):
            attempt()


def test_defect_5_nothing_is_not_null():
    null = replace(ROWS, rows=[{"id": 3, "n": None}])
    absent = replace(ROWS, rows=[{"id": 3}])
    assert generic_pack_root(null) != generic_pack_root(absent)
    delta = diff_generic_sets(null, absent)
    assert "\n3|~\n" in encode_generic_delta(delta)
    assert verify_generic_delta(null, decode_generic_delta(encode_generic_delta(delta))) == absent
    assert decode_generic_full(encode_generic_full(ROWS))[0] == ROWS


@pytest.mark.parametrize("cell", [math.nan, math.inf, 2**63, -(2**63) - 1])
def test_defect_5_numbers_are_those_of_json(cell: float):
    with raises_gcf("out_of_range"):
        generic_pack_root(replace(ROWS, rows=[{"id": 1, "n": cell}]))


@pytest.mark.parametrize("name", ["my id", "", '"', "é", "a b=c", "user-id", '"my id"', "a\\u0020b"])
def test_defect_12_every_name_can_be_written(name: str):
    rows = GenericSet(name, [name, "n"], [{name: 1, "n": 2}], name=name)
    text = encode_generic_full(rows)
    assert text.count("\n") == 3
    assert decode_generic_full(text)[0] == rows
    delta = diff_generic_sets(rows, replace(rows, rows=[{name: 1, "n": 3}]))
    assert verify_generic_delta(rows, decode_generic_delta(encode_generic_delta(delta))).rows == ({name: 1, "n": 3},)


def test_defect_12_a_key_is_written_as_the_header_allows():
    text = encode_generic_full(GenericSet("my id", ["my id"], []), root_digits=8)
    assert text == 'GCF profile=generic pack_root=e3b0c442 key="my\\u0020id"\n## rows [0]{@"my id"}\n'
    for name in ("a\tb", "a\nb"):
        with raises_gcf("invalid_token"):
            generic_pack_root(GenericSet(name, [name], [{name: 1}]))


def test_defect_13_an_identity_is_there_once():
    same: list[list[dict[str, Any]]] = [[{"id": 1}, {"id": 1}], [{"id": 1}, {"id": 1.0}], 2 * [{"id": "a"}]]
    for rows in same:
        with raises_gcf("duplicate_key"):
            generic_pack_root(GenericSet("id", ["id"], rows))
    GenericSet("id", ["id"], [{"id": 1}, {"id": "1"}, {"id": True}]).by_identity()
    with raises_gcf("duplicate_key"):
        decode_generic_full("GCF profile=generic pack_root=a key=id\n## rows [2]{@id}\n1\n1\n")
    for sections in ("## added [2]{@id}\n1\n1\n", "## added [1]{@id}\n1\n## removed [1]{@id}\n1\n"):
        with raises_gcf("duplicate_key"):
            decode_generic_delta(f"GCF profile=generic delta=true base_root=a new_root=b key=id\n{sections}")


@pytest.mark.parametrize(
    ("key", "fields", "rows", "category"),
    [
        ("id", ["n"], [], "missing_key"),
        ("id", ["id", "id"], [], "duplicate_field_name"),
        ("id", ["id"], [{}], "missing_key"),
        ("id", ["id"], [{"id": None}], "missing_key"),
        ("id", ["id"], [{"id": 1, "n": 2}], "row_width_mismatch"),
        (1, [1], [], "unsupported_value"),
    ],
)
def test_a_set_that_is_wrong_is_refused(key: Any, fields: Any, rows: Any, category: str):
    with raises_gcf(category):
        GenericSet(key, fields, rows)


@pytest.mark.parametrize(
    ("body", "category"),
    [
        ("", "malformed_full"),
        ("1\n", "malformed_section"),
        ("## rows\n", "malformed_section"),
        ("## rows [0]\n", "malformed_section"),
        ("## rows [0]{id}\n", "malformed_section"),
        ("## rows [0]{@id} x\n", "malformed_section"),
        ("## rows [0]{@id,@n}\n", "malformed_section"),
        ("## rows [0]{@id,n=1}\n", "malformed_section"),
        ("## rows [00]{@id}\n", "invalid_count"),
        ("## rows [0]{@n}\n", "missing_key"),
        ("## rows [0]{@id,id}\n", "duplicate_field_name"),
        ("## rows [1]{@id}\n~\n", "missing_key"),
        ("## rows [1]{@id}\n^\n", "invalid_attachment_marker"),
        ("## rows [1]{@id}\n1|2\n", "row_width_mismatch"),
        ('## rows [1]{@id}\n"a"b\n', "trailing_characters"),
        ('## rows [1]{@id}\n"a\n', "unterminated_quote"),
        ("## rows [2]{@id}\n1\n", "count_mismatch"),
        ("## rows [1]{@id}\n1\n## more [0]{@id}\n", "malformed_full"),
    ],
)
def test_a_full_text_that_is_wrong_is_refused(body: str, category: str):
    with raises_gcf(category):
        decode_generic_full(f"GCF profile=generic pack_root=a key=id\n{body}")


@pytest.mark.parametrize(
    "body",
    [
        "## rows [0]{@id}",
        "## added [0]{@n}",
        "## added [0]{@id}\n## added [0]{@id}",
        "## added [0]{@id,n}\n## changed [0]{@id,m}",
        "## removed [0]{@id,n}",
    ],
)
def test_a_delta_text_that_is_wrong_is_refused(body: str):
    with raises_gcf("malformed_delta"):
        decode_generic_delta(f"GCF profile=generic delta=true base_root=a new_root=b key=id\n{body}\n")
    with raises_gcf("malformed_delta"):
        decode_generic_delta("GCF profile=generic delta=true base_root=a new_root=b\n")


@pytest.mark.parametrize(
    ("change", "category"),
    [
        ({"base_root": 64 * "0"}, "base_mismatch"),
        ({"base_root": "sha256:e3b0c4"}, "base_mismatch"),
        ({"new_root": 64 * "0"}, "root_mismatch"),
        ({"added": [{"id": 1}]}, "delta_invalid"),
        ({"changed": [{"id": 9}]}, "delta_invalid"),
        ({"removed": [9]}, "delta_invalid"),
        ({"fields": ["n", "id"]}, "delta_invalid"),
        ({"key": "n"}, "delta_invalid"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(change: dict[str, Any], category: str):
    nothing = diff_generic_sets(ROWS, ROWS)
    assert verify_generic_delta(ROWS, nothing) == ROWS
    with raises_gcf(category):
        verify_generic_delta(ROWS, replace(nothing, **change))


def test_sets_of_other_fields_have_no_delta():
    for other in (GenericSet("id", ["n", "id"], []), GenericSet("n", ["id", "n"], []), replace(ROWS, name="more")):
        with raises_gcf("delta_invalid"):
            diff_generic_sets(ROWS, other)


def test_cells_are_read_without_the_space_around_them():
    text = 'GCF profile=generic pack_root=a key=id\n## rows [2]{@id,n}\n 1 | ~ \n"a" |\tb c\n'
    assert decode_generic_full(text)[0].rows == ({"id": 1}, {"id": "a", "n": "b c"})


def test_rows_keep_their_places():
    new = replace(ROWS, rows=[{"id": 0}, {"id": 3, "n": 1}, {"id": 1, "n": "a"}])
    found = verify_generic_delta(ROWS, diff_generic_sets(ROWS, new))
    assert [row["id"] for row in found.rows] == [1, 3, 0]


# Beside the reference


def random_set(chance: random.Random) -> GenericSet:
    twist = chance.choice(["", "", "", "absent", "large", "small", "nested", "name", "nan"])
    plain: list[Any] = [None, True, False, 1, -5, 0.5, 1e300, 129.5, "a", "", "-", "a|b", "é", "x y", "1"]
    special = {"large": 2**53 + 1, "small": 4.3930922682576205e-05, "nested": [1], "nan": math.nan}
    rows: list[dict[str, Any]] = [
        {"id": identity, "a": chance.choice(plain), "b": chance.choice(plain)}
        for identity in chance.sample([1, 2, 10, "1", "a", "b c", True], chance.randrange(1, 5))
    ]
    if twist in special:
        rows[0]["a"] = special[twist]
    if twist == "absent":
        del rows[0]["a"]
    return GenericSet("id", ["id", "a", "b"], rows, "my rows" if twist == "name" else "rows")


def holds(test: Callable[[Any], bool]) -> Callable[[GenericSet], bool]:
    return lambda rows: any(test(cell) for row in rows.rows for cell in row.values())


DIFFERENCES: dict[str, Callable[[GenericSet], bool]] = {
    "an absent cell becomes a null": lambda rows: any(len(row) < 3 for row in rows.rows),
    "an integer loses its last digit": holds(lambda cell: type(cell) is int and cell > 2**53),
    "a small float loses its last digits": holds(lambda cell: type(cell) is float and 1e-6 <= abs(cell) < 1e-4),
    "a nested cell becomes Python": holds(lambda cell: isinstance(cell, list)),
    "a section's name is not quoted": lambda rows: " " in rows.name,
    "what is no number becomes 0": holds(lambda cell: type(cell) is float and math.isnan(cell)),
}


def ours(base: GenericSet, new: GenericSet) -> str:
    return encode_generic_full(base) + encode_generic_delta(diff_generic_sets(base, new))


def theirs(base: GenericSet, new: GenericSet) -> str:
    twins = [gcf.GenericSet(s.key, list(s.fields), [dict(row) for row in s.rows], s.name) for s in (base, new)]
    return str(gcf.encode_generic_full(twins[0]) + gcf.encode_generic_delta(gcf.diff_generic_sets(*twins)))


def test_full_texts_and_deltas_differ_from_the_reference_only_where_it_is_wrong():
    chance, seen = random.Random(20260907), Counter[str]()
    for _ in range(3_000):
        base, new = random_set(chance), random_set(chance)
        new = replace(new, name=base.name)
        mine, other = attempt_outcome(ours, base, new), attempt_outcome(theirs, base, new)
        if mine == other:
            seen["equal"] += 1
            continue
        classes = [name for name, test in DIFFERENCES.items() if test(base) or test(new)]
        assert classes, (base, new, mine, other)
        seen[classes[0]] += 1
    assert seen.keys() == {*DIFFERENCES, "equal"}
    assert seen["equal"] > 300
