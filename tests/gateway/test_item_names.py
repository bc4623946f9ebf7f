"""Names of tools and prompts at the gateway: allowed everywhere, different, and the same in every process."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltamcp.catalog.items.operation import is_dotted_path, is_id_segment
from deltamcp.gateway.item_names import (
    NamedItem,
    ascii_segment,
    distinct_names,
    distinct_paths,
    distinct_segments,
    id_segment,
)
from deltamcp.gateway.trust.imitation import compare_tools, skeleton

NAMES = st.one_of(
    st.text(max_size=80),
    st.text("aéеяж日हि-_ ", max_size=12),
    st.sampled_from(["read_file", "read file", "read/file", "rеаd_file", "a" * 63, "a" * 64, "a" * 65, "x"]),
)
ITEMS = st.lists(st.tuples(st.sampled_from(["a", "a_b", "b"]), NAMES), unique=True, max_size=12).map(
    lambda pairs: [NamedItem(*pair) for pair in pairs]
)
PREFIXES = {"a": "a", "a_b": "a_b", "b": "b"}


@given(st.lists(NAMES, unique=True, max_size=12))
def test_segments_can_be_parts_of_ids_and_differ(texts):
    segments = distinct_segments(texts, reserved=("index",))
    assert all(map(is_id_segment, segments))
    assert len({*segments, "index"}) == len(texts) + 1


@given(
    st.lists(
        st.tuples(NAMES, st.sampled_from(["", "orders.list", "orders", "a..b", "оrders.list", "x." * 200 + "x"])),
        max_size=12,
    )
)
def test_paths_are_of_the_tree_and_differ_and_are_those_of_the_upstream_where_they_can_be(items):
    items = list(dict(items).items())
    found = distinct_paths([name for name, _ in items], [path for _, path in items])
    assert len({*found}) == len(items)
    assert all(map(is_dotted_path, found))
    assert {"orders.list", "orders"}.intersection(path for _, path in items) <= {*found}


@given(st.lists(NAMES, unique=True, max_size=12), st.randoms())
def test_segments_do_not_depend_on_the_order(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert dict(zip(texts, distinct_segments(texts), strict=True)) == dict(
        zip(shuffled, distinct_segments(shuffled), strict=True)
    )


def test_a_segment_gets_a_suffix_only_where_another_would_be_equal():
    assert distinct_segments(["read file", "list"]) == ["read-file", "list"]
    first, second, third = distinct_segments(["read file", "read/file", "read-file"])
    assert third == "read-file"
    assert re.fullmatch("read-file-[0-9a-f]{6}", first) and re.fullmatch("read-file-[0-9a-f]{6}", second)


@given(ITEMS, st.booleans())
def test_names_are_allowed_and_differ(items, has_prefix):
    names = distinct_names(items, PREFIXES, has_prefix, reserved={"query", "read_file"})
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-]{1,128}", name) for name in names)
    assert len({*names, "query", "read_file"}) == len(items) + 2


@given(st.text("abc_.-XYZ09", min_size=1, max_size=128).filter(lambda name: name.strip("_")))
def test_without_a_prefix_a_name_that_mcp_allows_stays(name):
    assert distinct_names([NamedItem("up", name)], {"up": "up"}, has_prefix=False) == [name]


def test_with_a_prefix_no_name_is_longer_than_models_take():
    (name,) = distinct_names([NamedItem("upstream", "x" * 64)], {"upstream": "upstream"}, has_prefix=True)
    assert len(name) == 64 and name.startswith("upstream_xxx")


def test_of_two_equal_names_the_first_stays_and_the_other_names_its_upstream():
    items = [NamedItem("one", "search"), NamedItem("two", "search"), NamedItem("two", "query")]
    prefixes = {"one": "one", "two": "two"}
    names = distinct_names(items, prefixes, has_prefix=False, reserved={"query"})
    assert names == ["search", "two_search", "two_query"]


def test_a_name_that_is_as_it_was_comes_before_one_that_was_changed():
    items = [NamedItem("one", "read file"), NamedItem("one", "read_file")]
    assert distinct_names(items, {"one": "one"}, has_prefix=False) == ["one_read_file", "read_file"]


def test_prefixed_names_that_run_together_differ():
    items = [NamedItem("a_b", "c"), NamedItem("a", "b_c")]
    first, second = distinct_names(items, PREFIXES, has_prefix=True)
    assert first == "a_b_c" and re.fullmatch("a_b_c_[0-9a-f]{6}", second)


@pytest.mark.parametrize(
    ("text", "id_", "ascii_"),
    [
        ("Números a Letras", "Números-a-Letras", "Numeros-a-Letras"),
        ("Nu\u0301meros", "Números", "Numeros"),
        ("поток данных", "поток-данных", "x"),
        ("हिन्दी", "हिन्दी", "x"),
        ("日本語 tools", "日本語-tools", "tools"),
        ("ｆｕｌｌ", "full", "full"),
        ("a\u202eb\u3164c", "a-b-c", "a-b-c"),
        ("rеаd_file", "r-d_file", "r-d_file"),  # with е and а of Cyrillic
        ("gοοgle поиск", "g-gle-поиск", "g-gle"),  # with ο of Greek
    ],
)
def test_a_segment_keeps_letters_of_any_script_and_a_name_those_of_ascii(text, id_, ascii_):
    assert (id_segment(text), ascii_segment(text)) == (id_, ascii_)


@given(NAMES)
@example("¡AЫ")
@example("\u093eAЫ")
@example("rе" * 32 + "ж")
def test_a_segment_stays_what_it_is(text):
    segment = id_segment(text)
    assert id_segment(segment) == segment == unicodedata.normalize("NFKC", segment)
    assert distinct_segments([segment]) == [segment]
    assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,63}", ascii_segment(text))


@given(st.lists(st.text(max_size=12), unique=True, max_size=6))
def test_no_name_that_was_made_looks_like_a_tool_whose_name_stayed(texts):
    """The tools as the gateway lists them pass the check that tells of imitations."""
    upstreams = ["files", *(f"up{number}" for number in range(len(texts)))]
    items = [NamedItem(upstream, name) for upstream, name in zip(upstreams, ["read_file", *texts], strict=True)]
    names = distinct_names(items, dict(zip(upstreams, upstreams, strict=True)), has_prefix=False)
    made = [name for name, item in zip(names, items, strict=True) if not item.name.isascii()]
    assert "read_file" in names and all(skeleton(name) != skeleton("read_file") for name in made)


@pytest.mark.parametrize("imitation", ["rеаd_file", "reаd_file", "ｒｅａｄ_ｆｉｌｅ", "réad_file", "read\u200b_file"])
def test_a_name_that_looks_like_anothers_is_told_and_gets_another_name_wherever_it_comes(imitation):
    for upstreams in (("files", "evil"), ("evil", "files")):
        listed = {"files": "read_file", "evil": imitation}
        tools = {upstream: [{"name": listed[upstream]}] for upstream in upstreams}
        (told,) = compare_tools(tools).imitations
        assert (told.upstream, told.tool, told.of_tool) == ("evil", imitation, "read_file")
        items = [NamedItem(upstream, listed[upstream]) for upstream in upstreams]
        names = dict(zip(upstreams, distinct_names(items, {"files": "files", "evil": "evil"}, False), strict=True))
        assert names["files"] == "read_file" and re.fullmatch("[a-z_]+_[0-9a-f]{6}", names["evil"])
