"""The result benchmark: counts what results cost a model, whole and under budgets, and checks that none is lost.

It measures the files under DIR/results and DIR/evolving, or under DIR if it has neither:

*.json     a JSON value; a text if it does not parse
*.jsonl    a result a line, {"t": ..., "data": a JSON value} or {"t": ..., "text": a text}; or a session a line,
           {"session": ..., "calls": [{"t": ..., "tool": ..., "args": ..., "result": a JSON value}]}; or a text
*          a text; files that are not UTF-8 are passed over
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from deltamcp import tokens
from deltamcp.client.reply import Reply
from deltamcp.client.result_reader import recover
from deltamcp.costs.audit import Figures, align
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData
from deltamcp.results.encode import EncodedText, decode, encode
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import FirstReply
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import MemoryStore
from deltamcp.values import JSON, LOCAL, Caller, Text, ToolResult
from deltamcp.wire import jsonrpc

Progress: TypeAlias = Callable[[str], None]

BUDGETS = (500, 2_000, 10_000)
CALLER = Caller(LOCAL)
# Reading a very large result to its end takes longer than the default lifetime of a stored result.
LIMITS = Limits(kept_seconds=86_400, kept_seconds_in_all=86_400)

METHOD = (
    "Tokens of o200k_base. As sent: a file's own text, an entry of a .jsonl as compact JSON or its text. In full: the "
    "shortest form of the whole. Under a budget: everything a model is shown of a reply, texts, structured content and "
    "links, joined or block by block, whichever is more; reported is the largest first reply of a file. Every reply of "
    "`continue` has the same budget; one above it is an overrun. Recovered: the replies alone, their texts and _meta, "
    "give the value back, with 1, 1.0 and true as different values; so do the forms in full. Every result is read to "
    "its end under every budget, however long that takes."
)
_SAMPLED = f"~: longer than {tokens.SAMPLED_ABOVE_CHARS:,} characters, tokens estimated from samples."


class SampleResult(NamedTuple):
    """A result as a tool might return it."""

    data: str | bytes
    """Text as `str`, compact JSON as `bytes`."""
    sent: str | None = None
    """The text of its file, if it has a file of its own."""

    @property
    def compact(self) -> str:
        return self.data if isinstance(self.data, str) else self.data.decode()


def run(data: Path, progress: Progress = lambda _: None) -> Figures:
    """Measures every file and returns the report, which includes failures; calls `progress` with the current step."""
    rows: list[Figures] = []
    passed_over: dict[str, str] = {}
    for path in files(data):
        # A file name may have bytes that are not UTF-8.
        name = str(path.relative_to(data)).encode(errors="replace").decode()
        try:
            content = path.read_bytes().decode()
        except UnicodeDecodeError:
            passed_over[name] = "binary: not UTF-8"
        except OSError as error:
            passed_over[name] = f"cannot be read: {error.strerror}"
        else:
            rows.append({"file": name, **_measure_file(read_results(path.suffix, content), name, progress)})
    return {
        "summary": _summary(rows),
        "files": rows,
        "passed_over": passed_over,
        "method": METHOD,
        "tokenizer": "o200k_base, exact" if tokens.is_exact() else "an estimate of o200k_base",
    }


# Reading files


def files(data: Path) -> list[Path]:
    folders = [folder for folder in (data / "results", data / "evolving") if folder.is_dir()] or [data]
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def read_results(suffix: str, content: str) -> list[SampleResult]:
    """Reads the results in a file; the file is one text if it is not in the format of its suffix."""
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError, MemoryError):
        if suffix == ".json":
            return [SampleResult(_compact_json(content), content)]
        if suffix == ".jsonl":
            entries = [entry for line in content.split("\n") if line.strip() for entry in _entries(json.loads(line))]
            return entries or [SampleResult(content, content)]
    return [SampleResult(content, content)]


def _compact_json(content: str) -> bytes:
    """
    Raises:
        ValueError: no tool could return this: it has an infinite number or a lone surrogate.
    """
    return jsonrpc.encode_finite(json.loads(content))


def _entries(line: Any) -> Iterator[SampleResult]:
    if "calls" in line:
        for call in line["calls"]:
            yield SampleResult(jsonrpc.encode_finite(call["result"]))
    elif "data" in line:
        yield SampleResult(jsonrpc.encode_finite(line["data"]))
    else:
        if not isinstance(line["text"], str):
            raise TypeError("text is a text")
        jsonrpc.encode(line["text"])  # refuses lone surrogates, as `encode_finite` does
        yield SampleResult(line["text"])


# Measuring


def _measure_file(listed: Sequence[SampleResult], name: str, progress: Progress) -> Figures:
    """Adds up the figures of a file's results."""
    row: Figures = {
        "results": len(listed),
        "tokens_as_sent": 0,
        "tokens_compact": 0,
        "tokens_ours_full": 0,
        "tokens_ours_full_without_dictionary": 0,
        "sampled": any(len(result.compact) > tokens.SAMPLED_ABOVE_CHARS for result in listed),
        "forms": Counter(),
        "above_compact": 0,
        "budgets": {str(budget): Counter() for budget in BUDGETS},
        "not_recovered": [],
    }
    for number, result in enumerate(listed, 1):
        label = name if len(listed) == 1 else f"{name}, result {number} of {len(listed)}"
        progress(f"{label}: in full")
        _count_in_full(result, number, row)
        for budget in BUDGETS:
            figures, began = row["budgets"][str(budget)], time.perf_counter()

            def on_reply(replies: int, label: str = f"{label}: {budget:,} tokens") -> None:
                progress(f"{label}, reply {replies:,}")

            meter = Meter(budget, on_reply)
            try:
                recovered = asyncio.run(meter.read(result.data))
                problem = None if is_same(recovered, result.data) else "what came back differs"
            except Exception as error:
                problem = _reason(error)
            figures["first_reply"] = max(figures["first_reply"], meter.first)
            figures["replies"] += meter.replies
            figures["overruns"] += meter.overruns
            figures["recovered"] += problem is None
            figures["seconds"] += time.perf_counter() - began
            if problem is not None:
                row["not_recovered"].append({"result": number, "budget": budget, "reason": problem})
    for figures in row["budgets"].values():
        figures["seconds"] = round(figures["seconds"], 3)
    return row


def _count_in_full(result: SampleResult, number: int, row: Figures) -> None:
    compact = result.compact
    compact_tokens = tokens.count(compact)
    row["tokens_as_sent"] += compact_tokens if result.sent is None else tokens.count(result.sent)
    row["tokens_compact"] += compact_tokens
    try:
        encoded = [_encode_in_full(result.data, dictionary) for dictionary in (True, False)]
    except Exception as error:
        row["not_recovered"].append({"result": number, "budget": None, "reason": _reason(error)})
        row["tokens_ours_full"] += compact_tokens
        row["tokens_ours_full_without_dictionary"] += compact_tokens
        return
    costs = [compact_tokens if form.text == compact else tokens.count(form.text) for form in encoded]
    row["forms"]["text" if isinstance(result.data, str) else encoded[0].form] += 1
    row["tokens_ours_full"] += costs[0]
    row["tokens_ours_full_without_dictionary"] += costs[1]
    row["above_compact"] += max(costs) > compact_tokens


def _encode_in_full(data: str | bytes, dictionary: bool) -> EncodedText:
    if isinstance(data, str):
        return EncodedText(data, "json")
    encoded = encode(msgspec.json.decode(data), dictionary=dictionary)
    if not is_same(decode(encoded.text), data):
        raise ValueError(f"the {encoded.form} in full {'with' if dictionary else 'without'} dictionary differs")
    return encoded


class Meter:
    """Reads a result to its end under a budget, and counts the replies that exceed the budget."""

    def __init__(self, budget: int, on_reply: Callable[[int], None] = lambda _: None) -> None:
        self.budget = budget
        self.first = 0
        """Tokens of the first reply."""
        self.replies = 0
        self.overruns = 0
        self._on_reply = on_reply

    async def read(self, data: str | bytes) -> JSON:
        """Delivers a result reply by reply and returns the value that a client reassembles from the replies.

        Raises:
            Exception: the result could not be delivered or reassembled.
        """
        stored = StoredResults(MemoryStore(), LIMITS, "bench", "delta", "continue")
        continuation = Continuation(stored, Computations(LIMITS.work_steps))
        value = None if isinstance(data, str) else msgspec.json.decode(data)
        first = await continuation.first_reply(
            FirstReply(ResultData(data, value=value), ResolvedPolicy(max_tokens=self.budget)), CALLER, UNSCOPED
        )
        self.first = self._count(first)

        async def continue_call(arguments: dict[str, JSON]) -> Reply:
            reply = await continuation.next_reply(arguments, CALLER)
            self._count(reply)
            return Reply.of(reply)

        reply = Reply.of(first)
        if not reply.is_part:  # `Reply.value` would guess whether it is a text or JSON; here that is known
            if isinstance(data, str):
                return reply.texts[0]
            return reply.value if reply.delta_meta else jsonrpc.decode(reply.texts[0].encode())
        return await recover(reply, continue_call)

    def _count(self, reply: ToolResult) -> int:
        reply_tokens = cost(reply)
        self.replies += 1
        self.overruns += reply_tokens > self.budget
        self._on_reply(self.replies)
        return reply_tokens


def cost(reply: ToolResult) -> int:
    """Counts the tokens of all that a host may show of a reply, its blocks joined or apart, whichever is more."""
    parts = [block.text if isinstance(block, Text) else jsonrpc.encode(block).decode() for block in reply.content]
    if reply.structured is not UNSET:
        parts.append(jsonrpc.encode(reply.structured).decode())
    return max(tokens.count("\n".join(parts)), sum(map(tokens.count, parts)))


def is_same(value: JSON, data: str | bytes) -> bool:
    """Whether a value equals the encoded one; 1, 1.0 and true differ here, unlike with `==`."""
    if isinstance(data, str):
        return isinstance(value, str) and value == data
    # The members of an object have no order.
    return jsonrpc.encode_finite(value) == data or _sorted(value) == _sorted(msgspec.json.decode(data))


_sorted = msgspec.json.Encoder(order="sorted").encode


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300].encode(errors="replace").decode()


# Reporting


def _summary(rows: Sequence[Figures]) -> Figures:
    added = ("tokens_as_sent", "tokens_compact", "tokens_ours_full", "tokens_ours_full_without_dictionary")
    return {
        "files": len(rows),
        "results": sum(row["results"] for row in rows),
        "budget_overruns": sum(found["overruns"] for row in rows for found in row["budgets"].values()),
        "not_recovered": sum(len(row["not_recovered"]) for row in rows),
        "above_compact": sum(row["above_compact"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in added},
    }


def table(report: Figures) -> str:
    """Formats a report for people."""
    head = ["file", "results", "as sent", "compact", "in full", "no dict.", "form"]
    lines = [[*head, *(text for budget in BUDGETS for text in (f"≤{budget:,}", "replies", "back"))]]
    lines += [_line(row) for row in report["files"]]
    summary = report["summary"]
    closing = (
        f"{summary['results']:,} results of {summary['files']:,} files under budgets of "
        f"{', '.join(f'{budget:,}' for budget in BUDGETS)} tokens: {summary['budget_overruns']:,} replies above their "
        f"budget, {summary['not_recovered']:,} times not recovered, {summary['above_compact']:,} dearer than compact."
    )
    return "\n".join(
        [
            report["tokenizer"],
            "",
            *align(lines, left=(0, head.index("form"))),
            "",
            *(f"{name:<36} {value:>12,}" for name, value in summary.items()),
            "",
            *([_SAMPLED] if any(row["sampled"] for row in report["files"]) else []),
            *(f"passed over {name}: {why}" for name, why in report["passed_over"].items()),
            *_failures(report["files"]),
            report["method"],
            closing,
        ]
    )


def _line(row: Figures) -> list[str]:
    mark = "~" if row["sampled"] else ""
    costs = ("tokens_as_sent", "tokens_compact", "tokens_ours_full", "tokens_ours_full_without_dictionary")
    forms = ", ".join(form if len(row["forms"]) == 1 else f"{count} {form}" for form, count in row["forms"].items())
    line = [row["file"][-48:], f"{row['results']:,}", *(f"{mark}{row[name]:,}" for name in costs), forms]
    for found in row["budgets"].values():
        back = "yes" if found["recovered"] == row["results"] else f"{found['recovered']} of {row['results']}"
        line += [f"{found['first_reply']:,}{'!' * bool(found['overruns'])}", f"{found['replies']:,}", back]
    return line


def _failures(rows: Sequence[Figures]) -> Iterator[str]:
    for row in rows:
        for failure in row["not_recovered"]:
            under = "in full" if failure["budget"] is None else f"budget {failure['budget']:,}"
            yield f"not recovered {row['file']}, result {failure['result']}, {under}: {failure['reason']}"
        for budget, found in row["budgets"].items():
            if found["overruns"]:
                yield f"above its budget {row['file']}, budget {int(budget):,}: {found['overruns']:,} replies"
