"""Results to measure with: rows, texts and objects of any size, and files of whatever is hard to show in part."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000
SIZES_MB = (1, 10, 50)
_WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "eiusmod", "tempor")


def make_rows(size: int) -> list[dict[str, Any]]:
    """Makes rows of a usual kind, whose JSON is about so many bytes."""
    chance = random.Random(1)
    return [
        {
            "id": number,
            "name": f"user {chance.randrange(10**6)}",
            "email": f"u{chance.randrange(10**6)}@example.com",
            "score": chance.random(),
            "tags": chance.sample(["a", "bb", "ccc", "dddd"], 2),
            "note": None,
            "bio": " ".join(chance.choices(_WORDS, k=10)),
        }
        for number in range(size // 200)
    ]


def make_text(size: int, between: str = " ") -> str:
    """Makes prose of so many characters."""
    chance = random.Random(2)
    some = between.join(chance.choices(_WORDS, k=20_000)) + between
    return (some * (size // len(some) + 1))[:size]


def make_keys(count: int) -> dict[str, Any]:
    return {str(number): {"a": number, "b": "x" * 10} for number in range(count)}


def write_odd_results(folder: Path, giant: int) -> None:
    """Writes files of everything that is hard to show in part, the largest of about `giant` bytes."""
    for name, content in _odd_files(giant):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def _odd_files(giant: int) -> Iterator[tuple[str, str | bytes]]:
    values: dict[str, Any] = {
        "rows": make_rows(giant),
        "rows within": {"total": giant, "page": {"items": make_rows(giant // 50)}, "next": None},
        "string": make_text(giant),
        "keys": make_keys(giant // 500),
        "items of 100 kB": [{"id": number, "body": make_text(giant // 500, f" {number} ")} for number in range(100)],
        "lists of 100 kB": [[number, *range(giant // 5000)] for number in range(20)],
        "deep lists": _nest(900, lambda inner: [inner]),
        "deep objects": _nest(900, lambda inner: {"next": inner}),
        "deep and wide": _nest(150, lambda inner: {"left": [1, 2], "next": [inner, "x" * 40]}),
        "long keys": {name * (giant // 500): 1 for name in "ab"} | {"c": [{"d" * 5000: make_text(9000)}]},
        "odd keys": dict.fromkeys(
            ["", "/", "~", "~1", "a.b", "…", "#1", "raw:", " ", "\n", "0", "é", "😀"], make_text(900)
        ),
        "cells": [{"a,b": f'"{sign}"', "c": sign * 3, "d": [sign], "e": {sign: None}} for sign in "\t\n,#\\\"'=*&{}…|"]
        * 9,
        "marks": ["#1", "##1", "###1", "####1", *({"#": f"#{number}"} for number in range(200))],
        "numbers": [[1, 1.0, True, "1", -0.0, 0, 5e-324, 1.7976931348623157e308, 2**63, 2**64, 10**30, None]] * 90,
        "one number": int("9" * 4000),
        "sparse": [{f"k{number % 37}": number, "deep": {"er": [{}] * (number % 3)}} for number in range(900)],
        "empty ones": [[], {}, "", [[]], [{}], {"": {}}, None] * 200,
        "repeated": {f"copy {number}": make_rows(8_000) for number in range(9)},
        "cjk": [
            {"名前": "東京都千代田区" * 9, "説明": "これは長い文章です。" * (number % 40)} for number in range(300)
        ],
        "emoji": ["👩‍👩‍👧‍👦🏳️‍🌈👍🏽" * number for number in range(90)],
        "null": None,
        "true": True,
    }
    for name, value in values.items():
        yield f"{name}.json", json.dumps(value, ensure_ascii=False, indent=1 if name == "sparse" else None)
    yield "escaped.json", json.dumps(values["cjk"])
    yield "not JSON.json", '{"a": [1, 2,'
    yield "not finite.json", "[NaN, Infinity, 1e999]"
    yield "half a character.json", r'["\ud800"]'
    yield "too deep.json", "[" * 5000 + "]" * 5000
    yield "marked.json", b"\xef\xbb\xbf" + b'{"a": 1}'
    yield "empty.json", ""
    yield "empty.jsonl", ""
    yield "empty.txt", ""
    yield "blank.json", " \n "
    yield (
        "entries.jsonl",
        "\n".join(json.dumps({"t": "1", "data": value}) for value in (make_rows(9_000), None, "x", 1.0)),
    )
    yield "texts.jsonl", json.dumps({"t": "1", "text": make_text(9_000)}) + "\n\n" + json.dumps({"t": "2", "text": ""})
    yield (
        "sessions/calls.jsonl",
        json.dumps({"session": "s", "calls": [{"t": "1", "tool": "a", "result": make_rows(9_000)}]}),
    )
    yield "others.jsonl", '{"a": 1}\n[2]\n'
    yield "giant.txt", make_text(giant, "\n")
    yield "one line.txt", "".join(random.Random(3).choices("abcdefghij0123456789", k=giant // 5))
    yield "one letter.txt", "x" * (giant // 5)
    yield "control signs.txt", "a\0b\x1b[0m" * 2000
    yield "windows.log", "line\r\n" * 5000
    yield "accents.txt", "e" + "\u0301" * 20_000
    yield "cjk.md", "# 見出し\n\n吾輩は猫である。名前はまだ無い。\n" * 400
    yield "emoji.txt", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽" * 900
    yield "spaces.txt", " " * 40_000
    yield "newlines.txt", "\n" * 40_000
    yield "binary.bin", bytes(range(256)) * 20


def _nest(depth: int, around: Callable[[Any], Any]) -> Any:
    value: Any = "the innermost"
    for _ in range(depth):
        value = around(value)
    return value
