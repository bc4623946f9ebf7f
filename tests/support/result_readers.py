"""Readers of long results: a program goes by `_meta`, a model by the notes."""

import json
import re
from dataclasses import dataclass
from typing import Any

from deltamcp.results.encode import decode
from tests.support.era_client import EraClient, Result, first_text, result_meta, texts, token_cost


def pointer_token(key: object) -> str:
    return "/" + str(key).replace("~", "~0").replace("/", "~1")


def replace_at(value: Any, pointer: str, new: Any) -> Any:
    """The value with another at the pointer."""
    if not pointer:
        return new
    at = value
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = new
    return value


@dataclass
class ProgramReader:
    """Reads a result whole by what `_meta` says, never looking at a note."""

    peer: EraClient
    handle: str
    budget: int
    tool: str = "continue"
    calls: int = 0

    async def value(self, path: str = "") -> Any:
        shown: list[Any] = []
        cuts: list[str] = []
        offset, unit = 0, ""
        while True:
            self.calls += 1
            asked = f"raw:{path}" if unit == "JSON characters" else path
            result = await self.peer.result_of(self.tool, handle=self.handle, path=asked, offset=offset)
            assert token_cost(result) <= self.budget, result
            said = result_meta(result)
            if said["unit"] == "JSON characters" and unit != "JSON characters":
                shown, cuts, offset = [], [], 0  # what no window can show is begun anew, as a text
            else:
                assert unit in ("", said["unit"])
            assert said["handle"] == self.handle and said["start"] == offset and said["path"] == path, said
            unit = said["unit"]
            if said["total"]:
                assert offset < said["end"] <= said["total"], "it does not go on"
            shown.append("" if unit == "characters" and not said["total"] else first_text(result))
            cuts += said.get("cuts", [])
            offset = said["end"]
            if offset == said["total"]:
                break
        if unit == "characters":
            return "".join(shown)
        if unit == "JSON characters":
            return json.loads("".join(shown))
        whole: Any
        if unit == "rows":
            whole = [row for part in shown for row in decode(part)]
        else:
            assert unit == "keys"
            whole = {key: value for part in shown for key, value in decode(part).items()}
        for cut in cuts:
            assert cut, "a window shows whole units"
            if not any(cut.startswith(other + "/") for other in cuts):
                whole = replace_at(whole, cut, await self.value(path + cut))
        return whole


NEXT = re.compile(r"\boffset=(\d+)")
UNIT = re.compile(r"\b(rows|keys|JSON characters|characters)\b")
SPAN = re.compile(r"^\[(\d+)-(\d+) of (\d+) ")


def cut_marks(value: Any, pointer: str = "") -> list[str]:
    """Where a model sees that something is cut."""
    if isinstance(value, str):
        return [pointer] if re.search(r"… \+\d+ chars$", value) else []
    if isinstance(value, list):
        if value and isinstance(value[-1], str) and re.fullmatch(r"… \+\d+", value[-1]):
            return [pointer]
        return [found for index, item in enumerate(value) for found in cut_marks(item, pointer + pointer_token(index))]
    if isinstance(value, dict):
        if re.fullmatch(r"\+\d+ keys?", str(value.get("…"))):
            return [pointer]
        return [found for key, item in value.items() for found in cut_marks(item, pointer + pointer_token(key))]
    return []


@dataclass
class ModelReader:
    """Reads a result whole by the texts alone."""

    peer: EraClient
    budget: int
    handle: str = ""

    async def whole(self, result: Result) -> Any:
        """All of what the first reply shows a part of."""
        head, note = texts(result)[:2]
        found = re.search(r'continue\(handle="([^"]+)"', note)
        assert found and note[0] == "[" and note[-1] == "]", note
        self.handle = found[1]
        on = NEXT.search(note)
        if "has all" in note:
            return await self.value("")
        if on and "characters" in note:
            return head + await self.value(None, int(on[1]))
        value = decode(head)
        if on:
            rows, pointer = find_rows(value)
            span = SPAN.match(note) or re.search(r"\b(\d+)-(\d+) of (\d+) rows", note)
            assert span and int(span[1]) == 1 and int(span[2]) == len(rows) == int(on[1]), note
            more = await self.value(None, int(on[1]))
            cut = cut_marks(value)
            rows += more
            assert len(rows) == int(span[3])
        else:
            cut = cut_marks(value)
            assert cut, "nothing is marked, and yet it says so"
        for pointer in cut:
            value = replace_at(value, pointer, await self.value(pointer))
        return value

    async def value(self, path: str | None, offset: int = 0) -> Any:
        """What is at a path, or the rows or the text, from an offset on."""
        arguments: dict[str, Any] = {"handle": self.handle} | ({} if path is None else {"path": path})
        shown: list[tuple[int, str]] = []
        at: str | None = path
        raw = False
        while True:
            result = await self.peer.result_of("continue", **arguments, offset=offset)
            assert token_cost(result) <= self.budget, result
            *body, note = texts(result)
            unit = UNIT.search(note)
            assert unit and note[0] == "[" and note[-1] == "]", note
            if unit[1] == "JSON characters" and not raw:
                raw, shown, offset = True, [], 0
            shown.append((offset, body[0] if body else ""))
            on = NEXT.search(note)
            if not on:
                assert "the last" in note, note
                break
            again = re.search(r'path="((?:raw:)?[^"]*)"', note)
            if again:
                arguments["path"] = again[1]
            assert int(on[1]) > offset
            offset = int(on[1])
        if unit[1] == "characters":
            return "".join(text for _, text in shown)
        if raw:
            return json.loads("".join(text for _, text in shown))
        merged: Any = [] if unit[1] == "rows" else {}
        for start, text in shown:
            part = decode(text)
            cut = cut_marks(part)
            assert "" not in cut, "a window shows whole units"
            for pointer in cut:
                index, *rest = pointer[1:].split("/")
                where = (at if at is not None else self.rows_at) + "".join(
                    f"/{step}" for step in (str(start + int(index)) if unit[1] == "rows" else index, *rest)
                )
                part = replace_at(part, pointer, await ModelReader(self.peer, self.budget, self.handle).value(where))
            if isinstance(part, list):
                merged += part
            else:
                merged.update(part)
        return merged

    rows_at: str = ""


def find_rows(value: Any, pointer: str = "") -> tuple[list[Any], str]:
    """The list in an envelope, as a reader sees it."""
    if isinstance(value, list):
        return value, pointer
    for key in ("data", "items", "results", "users"):
        if isinstance(value.get(key), list | dict):
            return find_rows(value[key], pointer + pointer_token(key))
    raise AssertionError(value)
