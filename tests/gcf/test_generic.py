"""What the vectors do not ask of the generic profile: every JSON value, hostile ones, and the defects of others."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp.gcf.generic_decoder import decode_generic
from deltamcp.gcf.generic_encoder import GenericStreamEncoder, encode_generic
from deltamcp.gcf.generic_table import encode_generic_grouped
from deltamcp.gcf.scalars import (
    INT64_MAX,
    INT64_MIN,
    GcfError,
    canonical_cell,
    format_number,
    format_scalar,
    parse_scalar,
)
from tests.support.call_count import count_calls
from tests.support.equality import is_same
from tests.support.gcf_numbers import with_whole_integers
from tests.support.properties import examples
from tests.support.strategies import any_json

HEADER = "GCF profile=generic\n"

names = st.sampled_from(["id", "name", "a", "b", "key", "_key", "x y", "a>b", ">", "", "é", "5", "[1]", "a=b"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(INT64_MIN, INT64_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(
        ["-", "~", "^", "^{a}", "true", "1", "a|b", "a,b", "x}y", "k=v", "d=x [1]", "# c", "## x", "@0 x"]
    )
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names, inner, max_size=4)
        | st.lists(st.dictionaries(names, inner, max_size=4), min_size=1, max_size=4)
        | st.dictionaries(names, st.dictionaries(names, inner, max_size=3), min_size=2, max_size=3)
    ),
    max_leaves=30,
)


def _in_domain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_in_domain, [*value, *value.values()]))
    if isinstance(value, list):
        return all(map(_in_domain, value))
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)
    return not isinstance(value, int) or INT64_MIN <= value <= INT64_MAX


def rejected(category: str, text: str) -> None:
    with pytest.raises(GcfError) as fault:
        decode_generic(text if text.startswith("GCF") else HEADER + text)
    assert fault.value.category == category, fault.value


@settings(max_examples=examples(2_000))
@given(values, st.booleans(), st.booleans())
def test_every_value_comes_back(value: Any, flatten: bool, constants: bool) -> None:
    text = encode_generic(value, flatten=flatten, constants=constants)
    assert is_same(decode_generic(text), with_whole_integers(value))
    assert is_same(decode_generic(text.encode()), with_whole_integers(value))
    assert encode_generic(decode_generic(text), flatten=flatten, constants=constants) == text


@settings(max_examples=examples(1_000))
@given(any_json)
def test_any_json_comes_back_or_is_refused(value: Any) -> None:
    if not _in_domain(value):
        with pytest.raises(GcfError):
            encode_generic(value)
    else:
        assert is_same(decode_generic(encode_generic(value)), with_whole_integers(value))


@settings(max_examples=examples(1_000))
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "## x [2]{a,b}",
                "1|2",
                "@0 1|^",
                ".a {}",
                ".b [1]: x",
                "  k=v",
                "    k=v",
                "## y",
                "@0 =1",
                "x|^{a,b,c}",
                "1|2|3",
                "## m [2:]{key,a}",
                "##! summary counts=1",
                "## s [?]{a}",
                '"q"="x"',
                '## [1]{"a>b",c=1}',
                "k[2]: a,b",
            ]
        ),
        max_size=8,
    ).map("\n".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, HEADER + text):
        for dialect in ("v1", "v3"):
            try:
                value = decode_generic(whole, dialect=dialect)
            except GcfError:
                continue
            json.dumps(value)


@settings(max_examples=examples(1_000))
@given(values, st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", *'|,"{}[]:=@^~-.# \n>\\0\t\r'])), max_size=4))
def test_a_damaged_text_is_read_or_refused(value: Any, edits: list[tuple[float, str]]) -> None:
    text = encode_generic(value)
    for where, sign in edits:
        place = int(where * len(text))
        text = text[:place] + sign + text[place + (not sign) :]
    try:
        read = decode_generic(text)
    except GcfError:
        return
    assert is_same(decode_generic(encode_generic(read)), with_whole_integers(read))


@settings(max_examples=examples(300))
@given(values)
def test_v1_carries_all_but_absence(value: Any) -> None:
    def present(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(present, value))
        return {k: present(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    text = encode_generic(value, dialect="v1")
    assert is_same(present(decode_generic(text, dialect="v1")), present(with_whole_integers(value)))


# Defects found in other implementations (specs/gcf.md, section 13), by their number there.


@given(st.floats(1e-6, 1e-4))
def test_2_small_floats_keep_all_their_digits(value: float) -> None:
    assert "e" not in format_number(value)
    assert decode_generic(encode_generic([value])) == [value]
    assert format_number(4.3930922682576205e-05) == "0.000043930922682576205"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 2**63, -(2**63) - 1])
def test_numbers_outside_of_json_are_refused(value: Any) -> None:
    for whole in (value, [value], [{"a": value}, {"a": 1}], {"a": {"b": value}, "c": {"b": 1}}):
        with pytest.raises(GcfError, match="out_of_range"):
            encode_generic(whole)


@pytest.mark.parametrize("value", [b"x", datetime.date(2026, 1, 1), Decimal(1), {1, 2}, object(), 1j])
def test_4_values_outside_of_json_are_refused(value: Any) -> None:
    for whole in (value, [value], {"a": value}, [{"a": value}], [{"a": {"b": value}}], [{"a": [value]}]):
        with pytest.raises(GcfError, match="unsupported_value"):
            encode_generic(whole)
    with pytest.raises(GcfError, match="unsupported_value"):
        canonical_cell([value])


def test_4_tuples_are_arrays_and_subclasses_are_what_they_derive_from() -> None:
    class Text(str):
        pass

    class Whole(int):
        pass

    class Members(dict[str, Any]):
        pass

    assert decode_generic(encode_generic(({"a": (1, 2)}, Members(a=Text("1"))))) == [{"a": [1, 2]}, {"a": "1"}]
    assert decode_generic(encode_generic([Whole(5), Text("x")])) == [5, "x"]


def test_members_have_text_for_a_name() -> None:
    for value in ({1: 2}, [{1: 2}], {"a": {1: 2}, "b": {"c": 1}}, [{"a": {1: 2}}], [{"a": [{1: 2}]}, {"a": [{1: 2}]}]):
        with pytest.raises(GcfError, match="unsupported_value"):
            encode_generic(value)


def test_5_half_a_surrogate_pair_is_refused() -> None:
    for value in ("\ud800", {"\udc00": 1}, [{"a": "x\ud800"}], [{"\ud800": 1}], [{"a": {"\ud800": 1}}]):
        with pytest.raises(GcfError, match="invalid_surrogate"):
            encode_generic(value)
    rejected("invalid_surrogate", "a=\ud800")


def test_6_objects_with_another_order_are_not_flattened() -> None:
    value = [{"n": {"a": 1, "b": 2}}, {"n": {"b": 3, "a": 4}}]
    assert json.dumps(decode_generic(encode_generic(value))) == json.dumps(value)


def test_6_what_the_format_cannot_carry_is_the_order_of_a_row() -> None:
    assert list(decode_generic(encode_generic([{"a": 1, "b": 2}, {"b": 3, "a": 4}]))[1]) == ["a", "b"]
    assert list(decode_generic(encode_generic([{"x>y": 1, "b": 2}]))[0]) == ["b", "x>y"]


def test_9_a_shared_schema_has_no_field_apart() -> None:
    value = [{"k": [{"a>b": 1, "c": 2}]}, {"k": [{"a>b": 1, "c": 2}]}]
    assert decode_generic(encode_generic(value)) == value
    assert encode_generic(value).count(".k [1]{c}") == 2


def test_11_no_value_makes_a_line_or_a_cell_of_its_own() -> None:
    for text in ("a\n@9 x", "a\nb=c", "a|b", "a\r", "x\n## y [1]", "\u2028", "a,b", "# c", ".f {}"):
        for value in (
            text,
            [text, text],
            {text: text},
            [{text: text}, {text: 1}],
            {"a": {"b": text}, "c": {"b": text}},
        ):
            assert decode_generic(encode_generic(value)) == value


def test_12_names_with_spaces_are_quoted() -> None:
    rows = [{"my id": 1, "a b": "x", "c": 1}, {"my id": 2, "a b": "x", "c": 2}]
    assert encode_generic_grouped(rows, "my id", "a b").startswith(f'{HEADER}## [2]{{@"my id","a b",c}} group="a b"\n')
    assert decode_generic(encode_generic_grouped(rows, "my id", "a b")) == rows


def test_14_bare_scalars_are_trimmed() -> None:
    assert decode_generic(HEADER + "a= x \nb[2]: p , 2\t\n## c [1]{d,e}\nu v | 3\n") == {
        "a": "x",
        "b": ["p", 2],
        "c": [{"d": "u v", "e": 3}],
    }


def _deep(kind: str, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"object": {"a": value}, "array": [value], "rows": [{"a": value, "b": 1}]}[kind]
    return value


@pytest.mark.parametrize("kind", ["object", "array", "rows"])
def test_16_depth_is_no_recursion(kind: str) -> None:
    depth = 1_000
    value = decode_generic(encode_generic(_deep(kind, depth)))
    for _ in range(depth):
        value = {"object": lambda it: it["a"], "array": lambda it: it[0], "rows": lambda it: it[0]["a"]}[kind](value)
    assert value == 1
    with pytest.raises(GcfError, match="too_deep"):
        encode_generic(_deep(kind, 3_000))
    with pytest.raises(GcfError, match="too_deep"):
        encode_generic(_deep(kind, 1_000), dialect="v1")


def test_16_a_value_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(GcfError, match="too_deep"):
        encode_generic(ring)


def test_16_a_text_too_deep_is_refused() -> None:
    rejected("too_deep", "\n".join(f"{'  ' * depth}## a" for depth in range(1_500)))


@pytest.mark.parametrize(
    ("header", "function"),
    [
        ("GCF profile=generic delta=true base_root=a new_root=b key=id", "decode_generic_delta"),
        ("GCF profile=generic pack_root=sha256:0 key=id", "decode_generic_full"),
        ("GCF profile=generic unchanged=true pack_root=sha256:0 count=2", "decode_unchanged"),
        ("GCF profile=graph tool=t symbols=0", "the text is a graph: use decode"),
    ],
)
def test_18_other_payloads_are_named(header: str, function: str) -> None:
    with pytest.raises(GcfError, match=function):
        decode_generic(header + "\n")


# Readers.


def test_faults_have_their_line() -> None:
    with pytest.raises(GcfError) as fault:
        decode_generic("GCF profile=generic\n\n# comment\na=1\na=2\n")
    assert (fault.value.line, fault.value.category) == (5, "duplicate_key")


@pytest.mark.parametrize(
    ("category", "text"),
    [
        ("duplicate_field_name", '## [1]{"a>b",a}\n1|2'),
        ("duplicate_field_name", '## [1]{"a>b","a>b>c"}\n1|2'),
        ("invalid_item_id", "## x [2]{a}\n@0 1\n@5 1"),
        ("out_of_range", "a=1e999"),
        ("out_of_range", "a=" + "9" * 5_000),
        ("count_mismatch", f"## x [{'9' * 5_000}]{{a}}\n1"),
        ("keyed_map", "## x [2:]{key,a}\n-|1\n5|2"),
        ("invalid_attachment_marker", '## x [1]{"a>b",c}\n^|1'),
        ("trailing_characters", "=1\n=2"),
        ("invalid_line", "x y=5"),
        ("participating_payload", "## [1]{@id,a}\n1|2"),
        ("invalid_escape", '## x [1]{a,b}\n"\\q"|1'),
        ("unterminated_quote", '## x [1]{a,b}\n1|"x'),
        ("trailing_characters", '## x [1]{a,b}\n"x"y|1'),
        ("invalid_character", 'a="\t"'),
    ],
)
def test_texts_that_are_not_gcf(category: str, text: str) -> None:
    rejected(category, text)


def test_blank_lines_and_comments_are_passed_over() -> None:
    text = "GCF profile=generic\r\n\r\n  \r\n# c\r\n## a\r\n    # c\r\n  b=1\r\n   "
    assert decode_generic(text) == decode_generic(text.replace("\r", "")) == {"a": {"b": 1}}
    assert decode_generic(HEADER + "# c\na=b # c\n \n") == {"a": "b # c"}


def test_an_attachment_may_be_one_level_deeper_and_a_body_too() -> None:
    text = HEADER + "## x [1]{a,b}\n@0 ^{p,q}|^\n  1|2\n  .b [1]{r}\n    3\n"
    assert decode_generic(text) == {"x": [{"a": {"p": 1, "q": 2}, "b": [{"r": 3}]}]}


def test_a_declaration_in_a_cell_may_hold_delimiters() -> None:
    for value in (
        [{"a": {"x|y": None, "": None, "}": None}}],
        [{"a": {'"|': None, "b": None, "^{": None}, "c": "^{x"}],
    ):
        assert "^{" in encode_generic(value)
        assert decode_generic(encode_generic(value)) == value
    assert decode_generic(HEADER + '## [1]{a,b}\n"x" | ^{x\n') == [{"a": "x", "b": "^{x"}]


def test_scalars_are_read_as_they_are_written() -> None:
    for value in (None, True, 0, -5, 0.5, 1e20, "a", "-", "", INT64_MAX, INT64_MIN):
        assert is_same(parse_scalar(format_scalar(value)), value)
        assert is_same(parse_scalar(canonical_cell(value)), value)


# Groups.


def test_groups_come_back_by_group() -> None:
    rows = [{"id": i, "g": "ab"[i % 2], "v": None if i == 2 else i, "c": "k}"} for i in range(5)]
    text = encode_generic_grouped(rows, "id", "g")
    assert text.startswith(f'{HEADER}## [5]{{@id,g,v,c="k}}"}} group=g\ng=a [3]\n0|0\n')
    assert decode_generic(text) == [*rows[::2], *rows[1::2]]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [1],
        {"a": 1},
        [{"id": 1, "g": 1}, {"id": 1, "g": 2}],
        [{"id": 1, "g": 1}, {"id": 2}],
        [{"id": 1, "g": 1, "x": []}],
        [{"id": 1, "g": 1, "a>b": 1}],
    ],
)
def test_what_cannot_be_grouped_is_refused(rows: Any) -> None:
    with pytest.raises(GcfError):
        encode_generic_grouped(rows, "id", "g")


# Streams.


def _stream() -> tuple[list[str], GenericStreamEncoder]:
    written: list[str] = []
    return written, GenericStreamEncoder(written.append)


def test_a_stream_is_read_as_one_text() -> None:
    written, stream = _stream()
    stream.write_kv("a b", "x=1")
    stream.write_inline_array("tags", ["p,q", 1, None])
    stream.write_inline_array("none", [])
    stream.begin_array("rows", ["id", "a,b"])
    stream.write_row([1, "x|y"])
    stream.write_row([None, "~"])
    stream.end_array()
    stream.begin_keyed_map("map", "key", ["v"])
    stream.write_row(["1", True])
    stream.end_array()
    stream.begin_array("empty", ["x"])
    stream.end_array()
    stream.write_section("more")
    stream.write_kv("k", 1.5)
    stream.write_inline_array("l", [2])
    stream.close()
    assert written[-1] == "##! summary counts=2,1,0\n"
    assert decode_generic("".join(written)) == {
        "a b": "x=1",
        "tags": ["p,q", 1, None],
        "none": [],
        "rows": [{"id": 1, "a,b": "x|y"}, {"id": None, "a,b": "~"}],
        "map": {"1": {"v": True}},
        "empty": [],
        "more": {"k": 1.5, "l": [2]},
    }


def test_a_stream_says_what_would_be_misread() -> None:
    _, stream = _stream()
    stream.write_kv("a", 1)
    for wrong in (
        lambda: stream.write_kv("a", 2),
        lambda: stream.write_kv("b", [1]),
        lambda: stream.write_row([1]),
        lambda: stream.end_array(),
        lambda: stream.begin_array("x", []),
        lambda: stream.begin_array("x", ["a>b"]),
        lambda: stream.begin_array("x", ["a", "a"]),
        lambda: stream.write_inline_array("x", [[]]),
    ):
        with pytest.raises(GcfError):
            wrong()
    stream.begin_keyed_map("m", "key", ["v"])
    stream.write_row(["k", 1])
    for values in (["k", 2], [1, 2], ["l"], ["l", {}]):
        with pytest.raises(GcfError):
            stream.write_row(values)
    with pytest.raises(GcfError):
        stream.close()
    stream.end_array()
    with pytest.raises(GcfError):
        stream.write_kv("b", 1)
    stream.close()
    with pytest.raises(GcfError):
        stream.write_section("s")


# Growth.


def test_work_grows_with_the_size() -> None:
    row = {"id": 1, "name": "a, b", "user": {"login": "x", "id": 2}, "tags": ["a", "b"], "items": [{"a": 1, "b": "c"}]}

    def calls(count: int) -> int:
        value = [{**row, "id": place, "name": f"n{place}, x"} for place in range(count)]
        return count_calls(lambda: decode_generic(encode_generic(value)))

    assert calls(4_000) < 8.5 * calls(500)


@pytest.mark.parametrize("text", ["[", "] ", "a", '"', "a["])
def test_no_string_is_slow_to_quote(text: str) -> None:
    """Work that grew with the square of these would not end."""
    for long in (text * 500_000, text * 500_000 + "[", "[" + text * 500_000):
        assert parse_scalar(format_scalar(long)) == long


def test_a_path_of_many_names_is_refused() -> None:
    rejected("too_deep", f'## [1]{{"{">".join("a" * 50_000)}",b}}\n1|2')


def test_rows_without_common_fields_do_not_multiply() -> None:
    value = [{f"k{place}": place} for place in range(5_000)]
    text = encode_generic(value)
    assert decode_generic(text) == value
    assert len(text) < 200_000
