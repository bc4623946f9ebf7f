"""Tests of the token counts: exact, by model, sampled and estimated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import tokens


@pytest.mark.parametrize(
    ("text", "count"),
    # Token counts of o200k_base as OpenAI's own tokenizer gives them.
    [
        ("", 0),
        ("hello world", 2),
        ("2 + 2 = 4", 7),
        ("antidisestablishmentarianism", 6),
        ("お誕生日おめでとう", 8),
    ],
)
def test_counts_are_a_tokenizers(text, count):
    assert tokens.is_exact()
    assert tokens.count(text) == count


def test_the_spelling_of_a_special_token_is_text():
    assert tokens.count("<|endoftext|>") > 1


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_has_a_count(text):
    assert tokens.count(text) >= (1 if text else 0)
    assert tokens.estimate(text) >= 0


@given(st.text(st.characters(codec=None), max_size=200), st.sampled_from(["o200k", "claude-opus-4-8", 0.5, 1.7]))
def test_no_text_has_more_tokens_than_the_most_it_can_have(text, model):
    assert tokens.count(text, model) <= tokens.max_count(text, model)


@pytest.mark.parametrize(
    ("model", "vocabulary", "factor"),
    [
        ("gpt-5.2", "o200k_base", 1.0),
        ("openai/gpt-4o-mini", "o200k_base", 1.0),
        ("gpt-4-turbo", "cl100k_base", 1.0),
        ("claude-opus-4-5-20251101", "o200k_base", 1.15),
        ("claude-sonnet-4-20250514", "o200k_base", 1.15),
        ("claude-opus-4-8", "o200k_base", 1.5),
        ("claude-3-7-sonnet", "o200k_base", 1.15),
        ("Qwen/Qwen3-32B", "qwen3", 1.0),
        ("a-model-nobody-knows", "o200k_base", 1.1),
    ],
)
def test_models_have_a_vocabulary_and_a_factor(model, vocabulary, factor):
    assert tokens.vocabulary_of(model) == (vocabulary, factor)


@pytest.mark.parametrize(
    ("model", "text", "is_exact"),
    [
        ("o200k", "o200k, exact", True),
        ("gpt-4-turbo", "cl100k for gpt-4-turbo, exact", True),
        ("claude-opus-4-5", "o200k × 1.15 for claude-opus-4-5", False),
        ("a-model-nobody-knows", "o200k × 1.1 for a-model-nobody-knows, a model that is not known here", False),
        (1.3, "o200k × 1.3", False),
    ],
)
def test_what_is_counted_is_said(model, text, is_exact):
    assert (tokens.describe(model), tokens.is_exact(model)) == (text, is_exact)


def test_a_factor_may_be_given():
    text = "counted and multiplied " * 20
    assert tokens.count(text, 1.5) == pytest.approx(tokens.count(text) * 1.5, abs=1)


def test_large_texts_are_sampled():
    text = "".join(f"line {number}: the value is {number * 7919 % 1000}\n" for number in range(70_000))
    assert len(text) > tokens.SAMPLED_ABOVE_CHARS
    parts = [text[start : start + 500_000] for start in range(0, len(text), 500_000)]
    assert tokens.count(text) == pytest.approx(sum(map(tokens.count, parts)), rel=0.05)


def test_without_a_tokenizer_counts_are_estimated(monkeypatch):
    monkeypatch.setattr(tokens, "_tokenizer", lambda name: None)
    tokens._counter.cache_clear()
    try:
        assert not tokens.is_exact()
        assert tokens.describe("gpt-5") == "an estimate of o200k (4 % off on average) for gpt-5"
        assert tokens.count("hello world") == tokens.estimate("hello world")
    finally:
        tokens._counter.cache_clear()


def test_the_estimate_is_near_on_real_definitions(shared):
    errors = []
    for file in sorted((shared / "corpus" / "mcp_tools").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            text = json.dumps(tool, separators=(",", ":"))
            errors.append(abs(tokens.estimate(text) / tokens.count(text) - 1))
    assert sum(errors) / len(errors) < 0.06


@pytest.mark.parametrize(
    "text", ["It's a line of words.\n", '{"id":12345,"name":"some name","tags":["a","b"]},', "x" * 50]
)
def test_pieces_of_a_long_text_cost_what_the_text_costs(text: str) -> None:
    one = tokens.count(text * 40)
    for times in (400, 4_000):
        assert tokens.count(text * times) == pytest.approx(one * times / 40, rel=0.03)


def test_no_long_text_is_given_to_the_tokenizer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counter(text: str) -> int:
        counted.append(len(text))
        return len(text)

    monkeypatch.setattr(tokens, "_counter", lambda name: counter)
    for text in ("a" * 300_000, "word " * 60_000, "é" * 300_000):
        assert tokens.count(text) == 300_000
    assert max(counted) <= 4_096
