"""How fast results are made to fit, in what memory; and whether odd and giant ones are read to their ends.

In process. To fit: from the value a tool returned to the first reply, the whole kept in this process. Memory: what is
allocated on the way at most, the kept result included, beside the value's own JSON. Odd results: what
`delta-mcp bench results` says of a directory of them.
"""

import asyncio
import json
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deltamcp.bench import results
from deltamcp.bench.speed import report
from deltamcp.bench.speed.report import Report, Table
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import StoredResults
from deltamcp.limits import Limits
from deltamcp.results.content import Source, returned
from deltamcp.results.policy import Shaping
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import ToolResult
from deltamcp.wire import jsonrpc

BUDGET = 2_000
ROUNDS = 9
GROWN = (1, 10, 50)
"""Megabytes."""
MEGABYTE = 1_000_000
WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "eiusmod", "tempor")


def measure() -> Report:
    quick, verdicts = _quick()
    grown, further = _grown()
    odd, last = _odd_ones()
    return Report([quick, grown, odd], [*verdicts, *further, *last])


def _quick() -> tuple[Table, list[report.Verdict]]:
    one = rows(MEGABYTE)
    values: dict[str, Any] = {
        "rows": one,
        '{"items": rows}': {"total": len(one), "items": one},
        "text": text(MEGABYTE, "\n"),
        "35,000 keys": keys(35_000),
    }
    found = {name: _milliseconds(value, ROUNDS) for name, value in values.items()}
    how = f"1 MB to {BUDGET:,} tokens, the median of {ROUNDS}."
    table = Table("Results made to fit", how, ["ms"], [(name, [spent]) for name, spent in found.items()])
    return table, [report.at_most(f"1 MB to fit, {name}", spent, 15, " ms") for name, spent in found.items()]


def _grown() -> tuple[Table, list[report.Verdict]]:
    lines: list[tuple[str, list[float | None]]] = []
    verdicts: list[report.Verdict] = []
    kinds: dict[str, Callable[[int], Any]] = {"rows": rows, "string": text}
    for name, make in kinds.items():
        values = [make(size * MEGABYTE) for size in GROWN]
        times = [_milliseconds(value, 3) for value in values]
        memory = _memory(values[-1])
        lines.append((name, [*times, times[-1] / times[0] / (GROWN[-1] / GROWN[0]), memory]))
        verdicts.append(report.at_most(f"{GROWN[-1]} MB to fit, {name}", times[-1], 600, " ms"))
        verdicts.append(report.at_most(f"{GROWN[-1]} MB to fit, {name}: memory / its JSON", memory, 3))
    columns = [*(f"{size} MB, ms" for size in GROWN), "growth / size's", f"{GROWN[-1]} MB, memory / JSON"]
    return Table("The same of larger ones", f"To {BUDGET:,} tokens, the median of 3.", columns, lines), verdicts


def _odd_ones() -> tuple[Table, list[report.Verdict]]:
    with tempfile.TemporaryDirectory() as folder:
        write_odd(Path(folder), GROWN[-1] * MEGABYTE)
        found = results.run(Path(folder))
    slow = [(row["file"], [b["seconds"] for b in row["budgets"].values()]) for row in found["files"]]
    slowest = sorted(slow, key=lambda one: -sum(one[1]))[:12]
    summary = found["summary"]
    how = f"{summary['results']} results of {summary['files']} files, the slowest to be read to their ends, in s."
    columns = [f"{budget:,} tokens" for budget in results.BUDGETS]
    table = Table("Odd and giant results", how, columns, [(name, [*spent]) for name, spent in slowest])
    counted = [budget for row in found["files"] for budget in row["budgets"].values()]
    replies, readings = sum(budget["replies"] for budget in counted), summary["results"] * len(results.BUDGETS)
    return table, [
        report.at_least("odd results: replies within budget", replies - summary["budget_overruns"], replies),
        report.at_least("odd results: recovered", readings - summary["not_recovered"], readings),
        report.at_least(
            "odd results: no dearer than compact", summary["results"] - summary["above_compact"], summary["results"]
        ),
    ]


def _milliseconds(value: Any, rounds: int) -> float:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        reply = _fitted(value)
        times.append(time.perf_counter() - began)
        if results.cost(reply) > BUDGET:
            raise RuntimeError(f"a reply of {results.cost(reply)} tokens")
    return statistics.median(times) * 1e3


def _memory(value: Any) -> float:
    """Most bytes allocated on the way for each byte of its JSON."""
    size = len(jsonrpc.encode(value))
    tracemalloc.start()
    try:
        _fitted(value)
        return tracemalloc.get_traced_memory()[1] / size
    finally:
        tracemalloc.stop()


def _fitted(value: Any) -> ToolResult:
    continuation = Continuation(StoredResults(MemoryStore(), Limits(), "bench", "delta", "continue"))
    source = returned(value, None)
    assert isinstance(source, Source), "neither content nor nothing"
    return asyncio.run(continuation.first_reply(source, Shaping(max_tokens=BUDGET), results.CALLER))


# What is measured with


def rows(size: int) -> list[dict[str, Any]]:
    """Rows of a usual kind, whose JSON is about so many bytes."""
    chance = random.Random(1)
    return [
        {
            "id": number,
            "name": f"user {chance.randrange(10**6)}",
            "email": f"u{chance.randrange(10**6)}@example.com",
            "score": chance.random(),
            "tags": chance.sample(["a", "bb", "ccc", "dddd"], 2),
            "note": None,
            "bio": " ".join(chance.choices(WORDS, k=10)),
        }
        for number in range(size // 200)
    ]


def text(size: int, between: str = " ") -> str:
    """Prose of so many characters."""
    chance = random.Random(2)
    some = between.join(chance.choices(WORDS, k=20_000)) + between
    return (some * (size // len(some) + 1))[:size]


def keys(count: int) -> dict[str, Any]:
    return {str(number): {"a": number, "b": "x" * 10} for number in range(count)}


def write_odd(folder: Path, giant: int) -> None:
    """Files of everything that is hard to show in part, the largest of about `giant` bytes."""
    for name, content in _odd(giant):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def _odd(giant: int) -> Iterator[tuple[str, str | bytes]]:
    values: dict[str, Any] = {
        "rows": rows(giant),
        "rows within": {"total": giant, "page": {"items": rows(giant // 50)}, "next": None},
        "string": text(giant),
        "keys": keys(giant // 500),
        "items of 100 kB": [{"id": number, "body": text(giant // 500, f" {number} ")} for number in range(100)],
        "lists of 100 kB": [[number, *range(giant // 5000)] for number in range(20)],
        "deep lists": _nested(900, lambda inner: [inner]),
        "deep objects": _nested(900, lambda inner: {"next": inner}),
        "deep and wide": _nested(150, lambda inner: {"left": [1, 2], "next": [inner, "x" * 40]}),
        "long keys": {name * (giant // 500): 1 for name in "ab"} | {"c": [{"d" * 5000: text(9000)}]},
        "odd keys": dict.fromkeys(["", "/", "~", "~1", "a.b", "…", "#1", "raw:", " ", "\n", "0", "é", "😀"], text(900)),
        "cells": [{"a,b": f'"{sign}"', "c": sign * 3, "d": [sign], "e": {sign: None}} for sign in "\t\n,#\\\"'=*&{}…|"]
        * 9,
        "marks": ["#1", "##1", "###1", "####1", *({"#": f"#{number}"} for number in range(200))],
        "numbers": [[1, 1.0, True, "1", -0.0, 0, 5e-324, 1.7976931348623157e308, 2**63, 2**64, 10**30, None]] * 90,
        "one number": int("9" * 4000),
        "sparse": [{f"k{number % 37}": number, "deep": {"er": [{}] * (number % 3)}} for number in range(900)],
        "empty ones": [[], {}, "", [[]], [{}], {"": {}}, None] * 200,
        "repeated": {f"copy {number}": rows(8_000) for number in range(9)},
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
    yield "entries.jsonl", "\n".join(json.dumps({"t": "1", "data": value}) for value in (rows(9_000), None, "x", 1.0))
    yield "texts.jsonl", json.dumps({"t": "1", "text": text(9_000)}) + "\n\n" + json.dumps({"t": "2", "text": ""})
    yield (
        "sessions/calls.jsonl",
        json.dumps({"session": "s", "calls": [{"t": "1", "tool": "a", "result": rows(9_000)}]}),
    )
    yield "others.jsonl", '{"a": 1}\n[2]\n'
    yield "giant.txt", text(giant, "\n")
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


def _nested(depth: int, around: Any) -> Any:
    value: Any = "the innermost"
    for _ in range(depth):
        value = around(value)
    return value
