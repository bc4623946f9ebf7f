"""Reads series of results, as a call returned them one after another, from a directory.

DIR/evolving/*.jsonl           a state a line, oldest first: {"t": ..., "data": a JSON value}, or "text" and a text
DIR/results/sessions/*.jsonl   a session a line: {"session": ..., "calls": [{"tool": ..., "args": ..., "result": ...}]},
                               each result a JSON value, a text, or a result of MCP's `tools/call`
DIR/**/*.jsonl                 either, where DIR has none of these folders
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp.results.content import ResultData, single_data
from deltamcp.values import JSON, ToolResult
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work


class State(NamedTuple):
    """A result that a call returned."""

    call: str
    """Identifies the tool and its arguments; later states of the same call may be deltas to earlier ones."""
    data: str | bytes
    """Text as `str`, compact JSON as `bytes`."""

    @property
    def text(self) -> str:
        return self.data if isinstance(self.data, str) else self.data.decode()

    @property
    def value(self) -> JSON:
        return self.data if isinstance(self.data, str) else json.loads(self.data)


class Series(NamedTuple):
    """The results of one file or session, oldest first."""

    name: str
    states: list[State]


def read(data: Path) -> tuple[list[Series], dict[str, str]]:
    """Returns the series in a directory, and the files that were passed over with the reasons."""
    folders = [folder for folder in (data / "evolving", data / "results" / "sessions") if folder.is_dir()] or [data]
    all_series: list[Series] = []
    passed_over: dict[str, str] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.jsonl")):
        name = str(path.relative_to(data)).removesuffix(".jsonl")
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
            read_series = list(_read_series(name, lines))
        except (ValueError, LookupError, TypeError, RecursionError, OSError) as error:
            passed_over[name] = f"{type(error).__name__}: {str(error)[:100]}"
        else:
            all_series += [series for series in read_series if len(series.states) > 1]
    return all_series, passed_over


def _read_series(name: str, lines: list[Any]) -> Iterator[Series]:
    if lines and "calls" in lines[0]:
        for number, line in enumerate(lines):
            calls = [State(_call_key(call), _result_data(call["result"])) for call in line["calls"]]
            yield Series(f"{name}#{line.get('session', number)}", calls)
    else:
        yield Series(name, [State("", _state_data(line)) for line in lines])


def _call_key(call: Any) -> str:
    return json.dumps([call["tool"], call.get("args")], sort_keys=True)


def _state_data(line: Any) -> str | bytes:
    if "data" in line:
        return jsonrpc.encode_finite(line["data"])
    text = line["text"]
    jsonrpc.encode(text)  # refuses lone surrogates, as `encode_finite` does
    return str(text)


def _result_data(result: Any) -> str | bytes:
    """Returns the single text or value of a result; the whole result if it has more than one."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        single: ResultData | None = single_data(ToolResult(result["content"]), unlimited_work(), keeps_structure=True)
        if single is not None:
            return single.data if isinstance(single.data, str) else jsonrpc.encode_finite(json.loads(single.data))
    return jsonrpc.encode_finite(result)
