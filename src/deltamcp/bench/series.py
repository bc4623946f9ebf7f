"""States of results, one after another, read from a directory.

DIR/evolving/*.jsonl           a state a line, oldest first: {"t": ..., "data": a JSON value}, or "text" and a text
DIR/results/sessions/*.jsonl   a session a line: {"session": ..., "calls": [{"tool": ..., "args": ..., "result": ...}]},
                               each result a JSON value, a text, or what MCP's `tools/call` answers
DIR/**/*.jsonl                 either, where DIR has none of these folders
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp.results.content import ResultData, single_data
from deltamcp.values import JSON, ToolResult
from deltamcp.wire import jsonrpc


class State(NamedTuple):
    """What a call answered."""

    call: str
    """States of the same call follow each other."""
    data: str | bytes
    """Text as `str`, compact JSON as `bytes`."""

    @property
    def text(self) -> str:
        return self.data if isinstance(self.data, str) else self.data.decode()

    @property
    def value(self) -> JSON:
        return self.data if isinstance(self.data, str) else json.loads(self.data)


class Series(NamedTuple):
    name: str
    states: list[State]


def read(data: Path) -> tuple[list[Series], dict[str, str]]:
    """What is there, and what was passed over with the reason."""
    folders = [folder for folder in (data / "evolving", data / "results" / "sessions") if folder.is_dir()] or [data]
    found: list[Series] = []
    passed_over: dict[str, str] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.jsonl")):
        name = str(path.relative_to(data)).removesuffix(".jsonl")
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
            made = list(_read_series(name, lines))
        except (ValueError, LookupError, TypeError, RecursionError, OSError) as error:
            passed_over[name] = f"{type(error).__name__}: {str(error)[:100]}"
        else:
            found += [one for one in made if len(one.states) > 1]
    return found, passed_over


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
    jsonrpc.encode(text)  # refuses halves of characters, as of data
    return str(text)


def _result_data(result: Any) -> str | bytes:
    """What the model would see of it: the text or value it consists of; the whole where it is more than that."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        source: ResultData | None = single_data(ToolResult(result["content"]))
        if source is not None:
            return source.data if isinstance(source.data, str) else jsonrpc.encode_finite(json.loads(source.data))
    return jsonrpc.encode_finite(result)
