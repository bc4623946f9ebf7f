"""Values as text: every value comes back as it was, and never at a higher price than compact JSON."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.results.encode import decode, encode, table_legend
from deltamcp.results.tables.table_writer import as_table, write_item_table, write_object_table, write_table
from deltamcp.tokens import count
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.equality import is_same
from tests.support.strategies import any_json


def check(value: Any) -> None:
    compact = jsonrpc.encode(value).decode()
    for dictionary in (True, False):
        made = encode(value, dictionary=dictionary)
        assert is_same(decode(made.text), value)
        assert count(made.text) <= count(compact)
        assert (made.form == "json") == (made.text == compact) == (not made.text.startswith("#"))


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Worth it or not, a table holds its rows, and one that lacks lines is noticed."""
    for dictionary in (True, False):
        made = write_table(rows, dictionary, unlimited_work())
        if made is None:
            continue
        assert len(made.lines) in (0, len(rows))
        assert not any("\n" in line or line.startswith("#") for line in made.lines)
        assert is_same(decode(made.text), rows)
        assert is_same(decode("\n".join([made.head, *made.lines])), rows)
        if len(made.lines) > 3:
            with pytest.raises(ValueError, match="rows"):
                decode("\n".join([made.head, *made.lines[: len(rows) // 2]]))


def check_table(value: Any) -> None:
    """Worth it or not, a table of any kind holds its value."""
    for dictionary in (True, False):
        made = as_table(value, dictionary, unlimited_work())
        assert made is None or is_same(decode(made.text), value)
    if isinstance(value, dict):
        text = write_object_table(value, unlimited_work())
        assert text is None or is_same(decode(text), value)


NASTY = [
    "",
    " ",
    "a",
    "a b",
    "a.b",
    "a?",
    "?",
    "#",
    "#1",
    "@",
    "@key",
    "@item",
    "=",
    "a=b",
    "*",
    "{a}",
    "{.a}",
    "{",
    "}",
]
NASTY += ["\\", '"', "a,b", "\t", "\n", "null", "true", "1", "-0", "1e5", "01", "[", "[]", "{}", '{"a"}', '"*"', "\x00"]
NASTY += [
    "\u2028",
    "\x85",
    "ä",
    "a*b",
    "\\*",
    "\\{a}",
    "user",
    "##1",
    "a\r",
    " a",
    "a ",
    "-",
    "NaN",
    "@1",
    "b.c",
    ".",
    "&",
    "&1",
]
nasty = st.sampled_from(NASTY) | st.text(max_size=6)
keys = st.sampled_from(["a", "b", "id", "url", "key", "keys", "item", "0", *NASTY]) | st.text(max_size=4)
numbers = st.integers(-3, 12) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | nasty
leaves = scalars | st.lists(scalars, max_size=2) | st.dictionaries(keys, scalars, max_size=2)


@st.composite
def columns(draw: st.DrawFn, size: int, depth: int, others: list[list[Any]]) -> list[Any]:
    """The values of one column: a constant, what repeats, what is made of other columns, or anything."""
    kind = draw(st.integers(0, 9))
    made: list[Any]
    if kind == 0:
        made = [draw(leaves)] * size
    elif kind == 1:
        few = draw(st.lists(leaves, min_size=1, max_size=3))
        made = [draw(st.sampled_from(few)) for _ in range(size)]
    elif kind == 2:
        made = list(range(draw(st.integers(0, 100)), 1000))[:size]
    elif kind in (3, 4, 5):
        before, between, after = draw(nasty), draw(nasty), draw(nasty)
        first, second = (draw(st.sampled_from(others)) if others else ["x"] * size for _ in range(2))
        made = [f"{before}{one}{between}{other}{after}" for one, other in zip(first, second, strict=True)]
    elif kind == 6 and depth < 2:
        made = draw(objects(size, depth + 1))
    elif kind == 7:
        made = [draw(nasty) for _ in range(size)]
    elif kind == 8 and others:
        made = list(draw(st.sampled_from(others)))
    else:
        made = [draw(leaves) for _ in range(size)]
    if draw(st.integers(0, 3)) == 0:
        made = [None if draw(st.booleans()) else value for value in made]
    return made


@st.composite
def objects(draw: st.DrawFn, size: int, depth: int = 0) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{} for _ in range(size)]
    others: list[list[Any]] = []
    for key in draw(st.lists(keys, max_size=5, unique=True)):
        values = draw(columns(size, depth, others))
        others.append(values)
        holes = draw(st.integers(0, 4)) == 0
        for row, value in zip(made, values, strict=True):
            if not (holes and draw(st.booleans())):
                row[key] = value
    return made


uniform = st.integers(2, 7).flatmap(objects)


@given(any_json)
def test_any_value_comes_back(value):
    check(value)


@given(uniform)
def test_rows_come_back(rows):
    check_rows(rows)
    check_rows(rows * 3)
    check(rows * 3)


@given(uniform, st.lists(keys, min_size=7, max_size=7, unique=True), any_json)
def test_rows_inside_other_values_come_back(rows, names, other):
    check({"a": other, "rows": rows * 4, "#1": [{"#": rows, "b": "#1"}]})
    check([{"a": number, "rows": rows * 3, "more": [other, rows]} for number in range(5)])


@given(uniform, st.lists(keys, min_size=7, max_size=7, unique=True), any_json)
def test_maps_and_objects_come_back(rows, names, other):
    members = dict(zip(names, rows, strict=False))
    lists = {name: rows[: number % 3] for number, name in enumerate(names)}
    few = {"a": other, "b": rows[:2], "c": {"d": rows[:1], "e": rows[:2]}, "f": [rows[:1]]}
    for value in (members, lists, {**members, "a": other, "b": rows}, few, *rows):
        check_table(value)
        check(value)


@given(st.lists(scalars | st.lists(nasty, max_size=3), min_size=3, max_size=8), st.lists(keys, min_size=8, unique=True))
def test_plain_lists_and_maps_come_back(values, names):
    texts = [str(value) for value in values] * 4
    grid = [[value, *texts[:3]] for value in values]
    for value in (values, texts, grid, dict(zip(names, values, strict=False)), dict(zip(names, texts, strict=False))):
        check_table(value) if value else None
        check(value)
        check([value, value, [value]])


REFUSED = ["", "#", "#a", "#a,b\n\n1", "{", "#a=b\n\nc", "#\n\n1", "#a\n=\n\n1", "#a,a\n\n1,1", "#{", "#{}\n#a\n"]
REFUSED += ["#a\nb={c}x\nc={b}x\n\n1", "#a\n&b,c\n\n1", "#a,&1\n&1,b\n0,1\n\n1,7", '#a,b\n\n"1,2', "#a,b\n\n[,2"]


@pytest.mark.parametrize("text", REFUSED)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError):
        decode(text)


@given(st.text(alphabet='#@ab1.=*{}?"\\,\t\n[]', max_size=40))
def test_no_text_does_worse_than_be_refused(text):
    for tried in (text, "#" + text, "#a,b\n" + text):
        with contextlib.suppress(ValueError):
            decode(tried)


def test_deep_and_wide_values_come_back():
    deep: Any = 1
    for _ in range(90):
        deep = [{"a": deep, "b": "some text " * 9}, {"a": 2, "b": "more"}]
    check(deep)
    check({"rows": [{"id": number, "name": "some name"} for number in range(50)], "deep": deep})
    check({str(number): number for number in range(5000)})
    check([{str(number): number for number in range(2000)}] * 2)
    check([{f"{row}": row} for row in range(500)])
    check([{"a": 10**400 + row, "b": -0.0, "c": 1e300 * row} for row in range(9)])


def test_a_value_that_is_no_json_is_refused():
    for value in ("\ud800", [{"a": "\ud800"}, {"a": "b"}], {"\ud800": 1}, [object()]):
        with pytest.raises(ValueError):
            encode(value)


item_lists = st.lists(scalars, max_size=3) | st.lists(st.fixed_dictionaries({"n": nasty, "m": scalars}), max_size=3)
item_lists |= st.lists(st.dictionaries(st.sampled_from("nm"), scalars, max_size=2), max_size=3)
rows_of_lists = st.lists(
    st.fixed_dictionaries({"id": numbers | nasty, "files": item_lists}, optional={"a": scalars}), min_size=2, max_size=6
)
texts_alone = st.lists(st.fixed_dictionaries({"files": st.lists(nasty, max_size=4)}), min_size=2, max_size=6)
objects_alone = st.lists(
    st.fixed_dictionaries({"a[]": st.lists(st.fixed_dictionaries({"n": nasty | numbers}), max_size=4)}), min_size=2
)


@given(rows_of_lists | texts_alone | objects_alone)
def test_lists_inside_rows_come_back(rows):
    for dictionary in (True, False):
        made = write_item_table(rows, dictionary, unlimited_work())
        assert made is None or is_same(decode(made.text), rows)
    check(rows)
    check([*rows, *rows])
    check({"total": 9, "rows": rows * 8})


RELEASES: list[dict[str, Any]] = [
    {"tag": f"v{n}", "files": [{"name": f"x-{n}-{kind}.tar.gz", "size": n * 40} for kind in "abc"[: n % 4]]}
    for n in range(30)
]


def test_fields_of_lists_inside_rows_are_rows_with_the_key_of_their_parent():
    made = encode(RELEASES)
    assert made.text.split("\n")[:6] == [
        "#30:43 tag=v*,files[]?.name=x-*.tar.gz,.size",
        "",
        "0,,",
        "1,1-a,40",
        "2,2-a,80",
        "2,2-b,80",
    ]
    assert "a[]: item of list a, empty: []; #rows:items" in made.legend
    assert decode(made.text) == RELEASES and count(made.text) < 0.6 * count(jsonrpc.encode(RELEASES).decode())
    with pytest.raises(ValueError, match="items"):
        decode(made.text.replace("#30:43", "#30:44"))


def test_lists_of_one_column_come_in_one_line():
    names = [{"files": [{"name": each["name"]} for each in row["files"]]} for row in RELEASES]
    assert encode(names).text.split("\n")[:6] == [
        "#30:43 files[].name=x-*.tar.gz",
        "",
        "",
        "1-a",
        "2-a,2-b",
        "3-a,3-b,3-c",
    ]
    tags = [f"release-{n}" for n in range(60)]
    assert encode(tags).text == f"#60 @item=release-*\n\n{','.join(map(str, range(60)))}"
    for value in (names, tags):
        assert decode(encode(value).text) == value


def test_spaces_at_the_end_of_texts_come_back():
    check([{"id": n, "body": f"value {n} of some "} for n in range(20)])
    check([f"value {n} of some " for n in range(20)])


def test_what_is_constant_is_there_once_with_its_count():
    for value in ([{"draft": False}] * 40, [{"a": "x", "b": {"c": 1}}] * 40, [True] * 80, ["some text"] * 40):
        made = encode(value)
        assert made.text.startswith(f"#{len(value)}\n") and count(made.text) < 15 and not made.legend
        assert is_same(decode(made.text), value)
    with pytest.raises(WorkLimitError):
        decode("#999999999999\na=1\n", Work(1_000))


def test_what_a_table_looks_like():
    people = [("Ann", "ann"), ("Bob", "bob"), ("Cy", "cy")]
    rows = [
        {
            "id": number,
            "url": f"https://example.com/{number}",
            "owner": {"name": f"Dr {people[number % 3][0]}", "mail": f"{people[number % 3][1]}@example.com"},
            "state": "open",
            "closed": None,
            "note": "12" if number % 2 else None,
            **({} if number % 3 else {"extra": [1, "a,b"]}),
        }
        for number in range(6)
    ]
    made = write_table(rows, False, unlimited_work())
    assert made is not None
    assert made.head.split("\n") == [
        "#6 id,owner.name=Dr *,.mail=*@example.com,note=*,extra?",
        "url=https://example.com/{id}",
        "state=open",
        "closed=null",
        "",
    ]
    assert made.lines[:2] == ['0,Ann,ann,,[1,"a,b"]', "1,Bob,bob,12,"]


def test_values_that_repeat_stand_once():
    long = ["one of two long texts that repeat", "and here is the other, which is as long"]
    rows = [{"id": number, "body": long[number * number % 7 % 2]} for number in range(20)]
    made = write_table(rows, True, unlimited_work())
    assert made is not None
    assert made.head.split("\n")[:2] == ["#20 id\t&1", "&1\tbody"]
    assert is_same(decode("\n".join([made.head, *made.lines])), rows)


def test_the_legend_is_short():
    every = encode(
        [{"id": n, "a": {"b": f"x{n}y", "c": f"z{n}", "long": ["one text", None][n % 2]}} for n in range(30)]
    )
    assert every.form == "table" and every.legend == table_legend(every.text) and 0 < count(every.legend) <= 45
    assert not table_legend("#2 id,name\n\n1,a\n2,b")


@pytest.mark.parametrize("folder", ["results", "evolving"])
def test_published_results_come_back(shared, folder):
    found = False
    for path in sorted((shared / "corpus" / folder).rglob("*.json*")):
        for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            found = True
            check(json.loads(line))
    assert found


def test_what_is_promised_of_tokens(shared):
    folder = shared / "corpus" / "results"
    rows = json.loads((folder / "rows400_nested.json").read_text())
    assert count(encode(rows).text) <= 6300
    assert count(encode(rows, dictionary=False).text) <= 6300
    values = [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]
    compact = sum(count(jsonrpc.encode(value).decode()) for value in values)
    assert sum(count(encode(value).text) for value in values) <= 0.42 * compact
    assert sum(count(encode(value, dictionary=False).text) for value in values) <= 0.44 * compact
