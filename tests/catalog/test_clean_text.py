"""What is removed from texts of other servers, and that nothing else is."""

import json
import re
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies as st

from deltamcp.catalog.text.clean_text import HIDDEN_CLASS, clean, json_text, visible

HIDDEN = re.compile(f"[\r{HIDDEN_CLASS}\u2028\u2029]")
HIDDEN_CHARS = "\x00\x1b\x07\x7f\x85\u200b\u200e\u202e\u2066\u2069\ufeff\u00ad\u3164\U000e0041\U000e0100\u2028\u2029"
MODIFIERS = "\u200c\u200d\ufe0e\ufe0f\ufe00"
TEXTS = st.text(
    st.characters(codec="utf-8") | st.sampled_from(HIDDEN_CHARS + MODIFIERS + "ab1#é語😀\n\t "), max_size=40
)
JSON_VALUES = st.recursive(
    TEXTS | st.integers(-99, 99) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@hypothesis.given(TEXTS)
def test_nothing_hidden_stays_and_cleaning_again_changes_nothing(text):
    cleaned = clean(text)
    assert not HIDDEN.search(cleaned)
    assert clean(cleaned) == cleaned


@hypothesis.given(TEXTS)
def test_only_hidden_characters_and_modifiers_are_removed(text):
    text = re.sub("[\r\u2028\u2029]", "", text)
    kept = [char for char in text if not HIDDEN.match(char) and char not in MODIFIERS]
    shown = [char for char in clean(text) if char not in MODIFIERS]
    assert shown == [char for char in kept if not "\ufe00" <= char <= "\ufe0f"]


@hypothesis.given(TEXTS)
def test_no_more_than_one_selector_and_one_joiner_stand_side_by_side(text):
    assert not re.search(
        "[\ufe00-\ufe0f]{2}|[\u200c\u200d]{2}|[\x00-\x22\x24-\x29\x2b-\x2f:-\x7f][\ufe00-\ufe0f]", clean(text)
    )


@hypothesis.given(TEXTS)
def test_what_is_made_visible_has_nothing_hidden(text):
    shown = visible(text)
    assert not HIDDEN.search(shown) and clean(shown) == shown


@hypothesis.given(JSON_VALUES)
def test_json_with_visible_characters_decodes_to_the_same_value(value):
    text = json_text(value)
    assert json.loads(text) == value and "\n" not in text and not HIDDEN.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "plain\ttext\nof two lines",
        "café",
        "日本語",
        "👨‍👩‍👧",
        "❤️‍🔥",
        "1️⃣",
        "☎︎",
        "می‌خواهم",
        "क्‍ष",
        "→ … • “quoted”",
        "🏳️‍🌈",
    ],
)
def test_what_scripts_and_emoji_need_stays(text):
    assert clean(text) == text == visible(text)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("safe\x1b[2J\x1b[31mred", "safe[2J[31mred"),
        ("abc\u202efed", "abcfed"),
        ("del\u200bete", "delete"),
        ("hi" + "".join(chr(0xE0000 + ord(char)) for char in "send files"), "hi"),
        ("😀" + "".join(chr(0xE0100 + byte) for byte in b"send"), "😀"),
        ("😀" + "\ufe0f\ufe01\ufe02\ufe03", "😀\ufe0f"),
        ("a\ufe0fb\u200dc", "abc"),
        ("one\u2028two\rthree\r\nfour", "one\ntwo\nthree\nfour"),
    ],
)
def test_hidden_words_are_gone(text, cleaned):
    assert clean(text) == cleaned


def test_the_characters_that_unicode_calls_formats_and_controls_are_hidden():
    kept = {"\t", "\n", "\r", "\u200c", "\u200d"}
    formats = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf")}
    visible_formats = {char for char in formats if not HIDDEN.match(char)} - kept
    # Arabic and Egyptian signs, which have a shape.
    assert all("\u0600" <= char <= "\u08ff" or "\U00011000" <= char <= "\U0001345f" for char in visible_formats)
