"""Counts the tokens that a text costs in a model's context; the whole library counts with `count`.

The count is exact where splintr-rs is installed and includes the model's vocabulary. For other models it is
the o200k count times a factor. Without splintr-rs the count is an estimate that was fitted on one half of 1,516 texts
(schemas, results, logs, prose, code, queries): on the other half it is 4 % off on average and 11 % at the 95th
percentile.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

SAMPLED_ABOVE_CHARS = 2_000_000
"""Longer texts are counted by samples: 32 windows of 1,024 characters are 0.9 % off on average, 6 % at worst."""

_SAMPLES, _SAMPLE_CHARS = 32, 1024
_PIECE_CHARS = 4_096
"""Longer texts are counted in pieces, because the tokenizer holds the interpreter's lock for as long as it counts, and
counts long texts in threads of its own, which takes longer where the processor is busy."""
_MAX_WORD_CHARS = 200
"""How far before its end a piece may be cut, to end with a word; elsewhere a cut may add a token."""
_IN_WORDS = "'’\u200d" + "".join(map(chr, range(0x300, 0x370)))
"""Characters that may go on a word, besides letters and digits."""


class Vocabulary(NamedTuple):
    """How a family of models counts tokens: a vocabulary, and the model's tokens per token of that vocabulary."""

    name: str
    factor: float = 1.0


MODELS: dict[str, Vocabulary] = {
    "o200k": Vocabulary("o200k_base"),
    "cl100k": Vocabulary("cl100k_base"),
    "gpt-4o": Vocabulary("o200k_base"),
    "gpt-4.1": Vocabulary("o200k_base"),
    "gpt-4.5": Vocabulary("o200k_base"),
    "gpt-5": Vocabulary("o200k_base"),
    "gpt-oss": Vocabulary("o200k_base"),
    "gpt-4": Vocabulary("cl100k_base"),
    "gpt-3.5": Vocabulary("cl100k_base"),
    "o1": Vocabulary("o200k_base"),
    "o3": Vocabulary("o200k_base"),
    "o4": Vocabulary("o200k_base"),
    # Claude's vocabulary is not public. The factors are guesses from published comparisons, on the safe side:
    # 4.7 changed the tokenizer. `model=1.3` overrides them.
    "claude": Vocabulary("o200k_base", 1.5),
    "claude-2": Vocabulary("o200k_base", 1.15),
    "claude-3": Vocabulary("o200k_base", 1.15),
    **{f"claude-{kind}-4": Vocabulary("o200k_base", 1.5) for kind in ("opus", "sonnet", "haiku")},
    **{
        f"claude-{kind}-4{minor}": Vocabulary("o200k_base", 1.15)
        for kind in ("opus", "sonnet", "haiku")
        for minor in ("-0", "-1", "-2025", "-5", "-6")
    },
    "llama-3": Vocabulary("llama3"),
    "qwen": Vocabulary("qwen3"),
    "deepseek": Vocabulary("deepseek_v3"),
    "kimi": Vocabulary("kimi"),
    "glm": Vocabulary("glm4"),
}
"""Vocabularies by the beginning of a model's name; the longest beginning that matches applies."""

_UNKNOWN_MODEL = Vocabulary("o200k_base", 1.1)


def count(text: str, model: str | float = "o200k") -> int:
    """Counts the tokens of a text.

    `model` is the name of a model, or a factor to multiply the o200k count by.
    """
    vocabulary = vocabulary_of(model)
    counter = _counter(vocabulary.name)
    tokens = counter(text) if len(text) <= _PIECE_CHARS else _count_long(text, counter)
    return tokens if vocabulary.factor == 1.0 else math.ceil(tokens * vocabulary.factor)


def max_count(text: str, model: str | float = "o200k") -> int:
    """Returns the most tokens that a text can have, without counting: a token has at least one byte."""
    return math.ceil(len(text.encode(errors="replace")) * vocabulary_of(model).factor)


def is_exact(model: str | float = "o200k") -> bool:
    """Whether `count` uses the model's own tokenizer rather than an estimate."""
    vocabulary = vocabulary_of(model)
    return vocabulary.factor == 1.0 and _tokenizer(vocabulary.name) is not None


def describe(model: str | float = "o200k") -> str:
    """Says what `count` counts for a model: tokens of which vocabulary, times which factor, how exactly."""
    vocabulary = vocabulary_of(model)
    name = vocabulary.name.removesuffix("_base")
    counted = name if _tokenizer(vocabulary.name) else "an estimate of o200k (4 % off on average)"
    if vocabulary.factor != 1.0:
        counted += f" × {vocabulary.factor:g}"
    if isinstance(model, str) and model.casefold() != name:
        counted += f" for {model}" + (", a model that is not known here" if vocabulary is _UNKNOWN_MODEL else "")
    return f"{counted}, exact" if is_exact(model) else counted


@functools.lru_cache(maxsize=256)
def vocabulary_of(model: str | float) -> Vocabulary:
    """Returns the vocabulary of a model, by the model's name with or without a provider before a slash, or a factor."""
    if not isinstance(model, str):
        return Vocabulary("o200k_base", model)
    name = model.casefold().rpartition("/")[2]
    beginnings = [beginning for beginning in MODELS if name.startswith(beginning)]
    return MODELS[max(beginnings, key=len)] if beginnings else _UNKNOWN_MODEL


@functools.cache
def _counter(name: str) -> Callable[[str], int]:
    return _tokenizer(name) or _tokenizer("o200k_base") or estimate


@functools.cache
def _tokenizer(name: str) -> Callable[[str], int] | None:
    try:
        import splintr  # takes 40 ms with its vocabulary
    except ImportError:
        return None
    try:
        # The other methods of splintr read the spelling of a special token as that token.
        encode = splintr.Tokenizer.from_pretrained(name).encode_ordinary
    except ValueError:
        return None
    encode("é")  # makes its tables of characters, for 100 ms

    def count_tokens(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:  # a lone surrogate
            return len(encode(text.encode(errors="replace").decode()))

    return count_tokens


def _count_long(text: str, counter: Callable[[str], int]) -> int:
    if len(text) > SAMPLED_ABOVE_CHARS:
        return _count_sampled(text, counter)
    tokens, start = 0, 0
    while len(text) - start > _PIECE_CHARS:
        end = _word_end(text, start + _PIECE_CHARS)
        tokens += counter(text[start:end])
        start = end
    return tokens + counter(text[start:])


def _word_end(text: str, end: int) -> int:
    """Returns where the last word before `end` ends, because a token never goes on there; else `end`."""
    for at in range(end, end - _MAX_WORD_CHARS, -1):
        if text[at - 1].isalnum() and not text[at].isalnum() and text[at] not in _IN_WORDS:
            return at
    return end


def _count_sampled(text: str, counter: Callable[[str], int]) -> int:
    step = (len(text) - _SAMPLE_CHARS) / (_SAMPLES - 1)
    starts = (round(step * place) for place in range(_SAMPLES))
    windows = (text[start : start + _SAMPLE_CHARS] for start in starts)
    return math.ceil(sum(map(counter, windows)) * len(text) / (_SAMPLES * _SAMPLE_CHARS))


class _Piece(NamedTuple):
    """The estimated tokens of one kind of text: per match of a pattern, and per character of a long match."""

    pattern: str
    weight: float
    free_chars: int = 0
    """Characters of a match that `char_weight` is not counted for."""
    char_weight: float = 0.0


_PIECES = (
    _Piece(r"[A-Z]?[a-z]+|[A-Z]+", 1.035, free_chars=7, char_weight=0.056),
    _Piece(r"[0-9]{1,3}", 1.273),
    _Piece(r"[!-/:-@\[-`{-~]+", 0.748, free_chars=1, char_weight=0.15),
    _Piece(r"\n\s*", 1.172),
    _Piece(r"[\x80-\u07ff]", 0.5),
    _Piece(r"[\u0800-\U0010ffff]", 0.749),
)
"""Fitted to o200k by least squares."""


def estimate(text: str) -> int:
    """Estimates the o200k tokens of a text without a tokenizer."""
    total = 0.0
    for piece in _PIECES:
        matches = re.findall(piece.pattern, text)
        total += piece.weight * len(matches)
        if piece.char_weight:
            long = (len(match) - piece.free_chars for match in matches if len(match) > piece.free_chars)
            total += piece.char_weight * sum(long)
    return math.ceil(total)
