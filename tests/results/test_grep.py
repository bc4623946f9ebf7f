"""`grep`: the units that hold a word, in a number of steps that grows with the text and the words only."""

import functools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.results.grep import MAX_LINES, MAX_WORD_CHARS, MAX_WORDS, matching_units
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.steps import steps_of

TEXTS = st.text('abAB \n"\\é', max_size=12)


@given(st.lists(TEXTS, max_size=30), st.lists(st.text('abAB"\\é', min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_items_found_are_those_that_hold_a_word(values: list[str], words: list[str]) -> None:
    items = document.items(jsonrpc.encode(values), unlimited_work())
    found = matching_units(items, "|".join(words), unlimited_work()).units
    expected = [place for place, text in enumerate(values) if any(word.lower() in text.lower() for word in words)]
    assert [int(place) for place in found] == expected


@given(st.lists(TEXTS, max_size=30).map("\n".join), st.integers(1, 3_000), st.text("abAB", min_size=1, max_size=3))
def test_the_lines_found_are_those_that_hold_a_word(text: str, times: int, word: str) -> None:
    text = (text + "\n") * times
    found = matching_units(text, word, unlimited_work())
    expected = [line for line in text.splitlines() if word.lower() in line.lower()]
    lines = str(found.units).splitlines()
    assert [re.sub(r"^\d+: ", "", line) for line in lines] == [line.rstrip() for line in expected[:MAX_LINES]]
    assert found.are_all == (len(expected) <= MAX_LINES)
    for line in lines[:3]:
        offset, _, shown = line.partition(": ")
        assert text[int(offset) :].startswith(shown)


@pytest.mark.parametrize("words", ["|".join(["word"] * (MAX_WORDS + 1)), "w" * (MAX_WORD_CHARS + 1)])
def test_more_words_than_a_model_sends_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="search for fewer"):
        matching_units("text", words, unlimited_work())


@pytest.mark.parametrize("unit", ["lorem ipsum dolor", "aaaaaaaaaaaaaaab" * 8, "é" * 60])
def test_the_steps_grow_with_the_text_and_the_words(unit: str) -> None:
    rows = document.items(jsonrpc.encode([unit] * 20_000), unlimited_work())
    chars = 20_000 * len(unit)
    for words in (1, MAX_WORDS):
        grep = "|".join(f"{'a' * 10}z{number}" for number in range(words))
        steps = steps_of(functools.partial(matching_units, rows, grep))
        assert steps < 20_000 + chars * (10 + words) // 100


def test_a_search_ends_at_its_limit() -> None:
    rows = document.items(jsonrpc.encode(["lorem"] * 20_000), unlimited_work())
    with pytest.raises(WorkLimitError):
        matching_units(rows, "lorem", Work(10_000))
