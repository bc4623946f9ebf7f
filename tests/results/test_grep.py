"""`grep`: the lines, rows and members that match a pattern, counted, in a number of steps that grows with the text."""

import functools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.hostile.patterns import HOSTILE_PATTERNS
from bench.hostile.patterns import TEXT as HOSTILE_TEXT
from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.results.queries.grep import MAX_LINES, matching_lines, matching_rows
from deltamcp.results.queries.pattern import MAX_CHARS, parse_pattern
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.steps import steps_of

TEXTS = st.text('abAB \n"\\é', max_size=12)
PATTERNS = st.sampled_from(["a", "a|B", "^a", "b$", "^$", "[ab]+ ", "é", "(?i)AB", "a.*b", '"', "", "x*"])


@given(st.lists(TEXTS, max_size=30).map("\n".join), PATTERNS)
def test_the_lines_found_are_those_that_python_finds(text: str, pattern: str) -> None:
    found = matching_lines(text, parse_pattern(pattern), unlimited_work())
    lines = text.split("\n")[: -1 if text.endswith("\n") else None] if text else []
    expected = [f"{number}:{line.rstrip()}" for number, line in enumerate(lines, 1) if re.search(pattern, line)]
    assert found.text.split("\n") == (expected or [""])
    assert (found.matches, found.total) == (len(expected), len(lines))


@given(st.lists(st.sampled_from(["hit", "a", "b"]), max_size=40), st.integers(1, 5))
def test_lines_around_matches_are_shown_once_and_in_order(lines: list[str], context: int) -> None:
    found = matching_lines("\n".join(lines), parse_pattern(f"-C{context} hit"), unlimited_work())
    near = {
        at + step
        for at, line in enumerate(lines)
        for step in range(-context, context + 1)
        if line == "hit" and 0 <= at + step < len(lines)
    }
    shown = [line for line in found.text.splitlines() if line != "--"]
    assert shown == [f"{at + 1}{':' if lines[at] == 'hit' else '-'}{lines[at]}" for at in sorted(near)]
    gaps = sum(after - before > 1 for before, after in zip(sorted(near), sorted(near)[1:], strict=False))
    assert found.text.splitlines().count("--") == gaps


@given(st.lists(TEXTS, max_size=30), PATTERNS)
def test_the_rows_found_have_a_text_that_matches(values: list[str], pattern: str) -> None:
    items = document.items(jsonrpc.encode([{"text": value} for value in values]), unlimited_work())
    found = matching_rows(items, parse_pattern(pattern), unlimited_work())
    matching = {str(at) for at, text in enumerate(values) if re.search(pattern, text, re.MULTILINE)}
    assert matching <= found.members.keys() and found.total == len(values)


def test_only_the_first_of_very_many_lines_are_shown_and_all_are_counted() -> None:
    found = matching_lines("word\n" * (MAX_LINES + 5), parse_pattern("word"), unlimited_work())
    assert found.matches == found.total == MAX_LINES + 5 and len(found.text.splitlines()) == MAX_LINES


HOSTILE = ["(", "a" * (MAX_CHARS + 1), "(?:a?){1000}a{1000}", "(a{1000}){1000}", "\\", "(?<=a)b", "(a)\\1", "\ud800"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_what_re2_does_not_know_is_refused_in_a_sentence(pattern: str) -> None:
    with pytest.raises(UsageError, match="grep"):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(.*)(.*)(.*)(.*)[^a]$", "[a-q][^u-z]{13}x", "(a|aa)+$", "(a?){30}a{30}"]
)
def test_the_steps_grow_with_the_text_only(pattern: str) -> None:
    few, many = (
        steps_of(functools.partial(matching_lines, "a" * size, parse_pattern(pattern))) for size in (100_000, 1_000_000)
    )
    assert many <= 11 * few


def test_there_are_two_hundred_hostile_patterns() -> None:
    assert len(HOSTILE_PATTERNS) == len(set(HOSTILE_PATTERNS)) == 200


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_the_steps_of_hostile_patterns_grow_with_the_text_only(start: int) -> None:
    text = HOSTILE_TEXT[: len(HOSTILE_TEXT) // 8]
    for expression in HOSTILE_PATTERNS[start : start + 50]:
        try:
            pattern = parse_pattern(expression)
        except UsageError:
            continue
        few, many = (
            steps_of(functools.partial(matching_lines, "\n".join([text] * times), pattern)) for times in (2, 8)
        )
        assert many <= 4.4 * few, expression
        assert len(matching_lines(text, pattern, unlimited_work()).text) < 2 * len(text)
        assert pattern.program_size <= 2_000, expression


def test_a_search_ends_at_its_limit() -> None:
    with pytest.raises(WorkLimitError):
        matching_lines("lorem\n" * 20_000, parse_pattern("lorem"), Work(10_000))
