"""Tokens of promises: unique, unguessable, opaque."""

import math
import re
from collections import Counter

import pytest

from deltamcp.promises import record
from deltamcp.promises.record import key_of, make_token, shown_key
from tests.support.properties import examples


def test_ml_31_no_token_occurs_twice():
    count = examples(100_000)
    assert len({make_token() for _ in range(count)}) == count


def test_ml_32_a_token_has_at_least_128_bits_of_a_secure_generator(monkeypatch):
    asked: list[str] = []

    def choose(letters: str) -> str:
        asked.append(letters)
        return letters[-1]

    monkeypatch.setattr("deltamcp.promises.record.secrets.choice", choose)
    assert make_token() == "prom_" + "z" * 26, "every character is one of the generator's"
    assert sum(math.log2(len(set(letters))) for letters in asked) >= 128


def test_ml_34_a_token_says_nothing():
    tokens = [make_token() for _ in range(20_000)]
    assert all(re.fullmatch(r"prom_[0-9a-hjkmnp-tv-z]{26}", one) for one in tokens)
    for place in range(5, 31):  # no counter, no time: every character is as likely at every place
        counts = Counter(one[place] for one in tokens)
        assert len(counts) == 32 and max(counts.values()) < 2 * min(counts.values())


def test_ml_32_the_key_does_not_reveal_the_token_and_logs_show_little_of_it():
    made = make_token()
    key = key_of(made)
    assert key is not None and len(key) == 64 and made[5:] not in key
    assert key == key_of(made)
    assert key.startswith(shown_key(key)) and len(shown_key(key)) == 8


@pytest.mark.parametrize(
    "text", ["", "prom_", "prom_" + "a" * 25, "prom_" + "a" * 27, "prom_" + "A" * 26, "x" * 10_000]
)
def test_what_is_no_token_has_no_key(text):
    assert key_of(text) is None
    assert key_of("prom_" + "i" * 26) is None and "i" not in record._DIGITS
