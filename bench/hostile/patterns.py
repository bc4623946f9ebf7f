"""200 regular expressions that take other matchers for ever, as they backtrack or make large automata; and a text."""

from collections.abc import Iterator
from itertools import islice

COUNT = 200
_MAX_CHARS = 1_000
"""The longest pattern that is not refused for its length."""
_NESTED = (
    "({0}+)+y",
    "({0}*)*y",
    "({0}+{0}+)+y",
    "(({0}+)+)+$y",
    "({0}|{0})*y",
    "({0}|{0}{0})+y",
    "({0}|{0}?)+y",
    "(?:{0}{{1,9}}){{1,9}}y",
    "({0}?){{20}}{0}{{20}}",
    "(.*{0}){{10}}y",
    "^(.*?{0}){{12}}y$",
    "(?i)({0}+)+y",
    "(?s)(.+{0})+y",
    "[^y]*[^y]*[^y]*[^y]*y",
    "({0}*?)*?y",
)
_LETTERS = ("a", "[ab]", r"\w", r"\pL", "[^y]", "(?:a|b)", ".", r"[\d\D]")
_PUBLISHED = (
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"^([\w-]+\.?)+@([\w-]+\.?)+$",
    r"(\s*,\s*)*$y",
    r"<[^>]*>(.*<[^>]*>)*y",
    r"^(\d+\.?)*y",
    r"(?:\s|<!--[\s\S]*?-->)*y",
    r"([^\n]*\n)*y",
    r"(?:https?://)?([\da-z.-]+)\.([a-z.]{2,6})([/\w .-]*)*/?y",
    r"((\w+)\s*)+=y",
)
"""Patterns of advisories about denial of service by regular expressions."""

TEXT = "\n".join(["a" * 5_000, "ab" * 2_500, "a " * 2_500, "b" * 4_999 + "Y", "\u00e9" * 2_500] * 8)
"""200 kB without the `y` in which most of the patterns end."""


def _patterns() -> Iterator[str]:
    yield from _PUBLISHED
    # Large, or none at all: what is refused takes no time either.
    yield from (f"(a{{{count}}}){{{count}}}" for count in (30, 100, 1_000))
    yield from ("(" * 400 + "a" + ")*" * 299 + ")" * 101, "a|" * 499 + "y", "[a-z]" * 199 + "y", "(?:" * 300, "\\1(a)")
    yield from ("x" * _MAX_CHARS, "(?=a)" * 100, "(a+)+" * 199, "\\pN" * 333, "(?i)" + "\u212a" * 900)
    yield from (form.format(letter) for form in _NESTED for letter in _LETTERS)
    # Automata with a state for each set of places.
    yield from (f"[a-q][^u-z]{{{count}}}y" for count in range(5, 45))
    yield from (f"(?:a?){{{count}}}a{{{count}}}y" for count in range(10, 200, 10))
    yield from (f"{'.*' * count}y" for count in range(2, 22))


HOSTILE_PATTERNS = tuple(islice(dict.fromkeys(_patterns()), COUNT))
