"""Excerpts of values for error texts."""

import msgspec
import pytest
from hypothesis import given

from deltamcp.catalog.text.clean_text import EXCERPT_CHARS, path_text, value_excerpt
from tests.support.strategies import any_json


class CountedList(list[object]):
    """Counts the items that are read."""

    def __init__(self, items):
        super().__init__(items)
        self.read = 0

    def __iter__(self):
        for item in super().__iter__():
            self.read += 1
            yield item


def test_only_the_shown_part_of_a_large_value_is_read():
    values = CountedList([[]] * 100_000)
    text = value_excerpt({"a": values})
    assert len(text) == EXCERPT_CHARS
    assert text.endswith("…")
    assert values.read < EXCERPT_CHARS


@given(any_json)
def test_a_short_value_is_written_as_json(value):
    whole = msgspec.json.encode(value).decode()
    assert value_excerpt(value) == (whole if len(whole) <= EXCERPT_CHARS else whole[: EXCERPT_CHARS - 1] + "…")


@pytest.mark.parametrize("value", [[10**5000], "x" * 1_000_000, {"k" * 1_000_000: 1}, [[["x" * 100] * 100] * 100]])
def test_an_excerpt_is_short(value):
    assert len(value_excerpt(value)) <= EXCERPT_CHARS


def test_a_path_is_short():
    assert path_text(["a", 3, "b"]) == "a.3.b"
    assert path_text([]) == "arguments"
    assert len(path_text(["x" * 1_000_000] * 100)) == 300
