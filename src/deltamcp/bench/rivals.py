"""What else a change can be told by: JSON Patch, a unified diff, GCF's delta of keyed rows."""

import difflib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch

from deltamcp.bench.series import State
from deltamcp.deltas.keys import rank, usable
from deltamcp.results.paginate import find_rows
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

GCF = "gcf-python==2.8.0"
_PEER = Path(__file__).parent / "peers" / "gcf_delta.py"
_SECONDS = 600


def json_patch(base: State, new: State) -> str | None:
    """RFC 6902, compact."""
    if isinstance(base.data, str) or isinstance(new.data, str):
        return None
    return jsonrpc.encode(jsonpatch.make_patch(base.value, new.value).patch).decode()


def unified_diff(base: State, new: State) -> str:
    """Without context, which is its shortest; of JSON an item or member a line."""
    return "\n".join(difflib.unified_diff(_lines(base), _lines(new), n=0, lineterm=""))


def _lines(state: State) -> list[str]:
    text = state.data if isinstance(state.data, str) else json.dumps(state.value, indent=0, ensure_ascii=False)
    return text.split("\n")


class Keyed(NamedTuple):
    """Two states as gcf-python takes them: rows of the same fields, told apart by a key."""

    key: str
    fields: list[str]
    base: list[dict[str, JSON]]
    new: list[dict[str, JSON]]


def keyed(base: State, new: State) -> Keyed | None:
    """None where the rows are not all that differs, or have not the same fields.

    Objects in rows are columns by GCF's path names, lists in them their JSON: the format has no other cells.
    """
    if isinstance(base.data, str) or isinstance(new.data, str):
        return None
    path = find_rows(base.data, None)
    if path is None or path != find_rows(new.data, None):
        return None
    before, rows = _apart(base.value, path)
    after, new_rows = _apart(new.value, path)
    if before != after or not rows or not new_rows:
        return None
    flat, new_flat = [_flat(row) for row in rows], [_flat(row) for row in new_rows]
    fields = list(flat[0])
    if any(list(row) != fields for row in flat + new_flat):
        return None
    if [row for row in flat if row in new_flat] != [row for row in new_flat if row in flat]:
        return None  # a keyed set has no order
    keys = [name for name in fields if usable(flat, name) is not None and usable(new_flat, name) is not None]
    return Keyed(min(keys, key=rank), fields, flat, new_flat) if keys else None


def _apart(value: Any, path: list[str]) -> tuple[JSON, list[Any]]:
    if not path:
        return None, value
    around, rows = _apart(value[path[0]] if isinstance(value, dict) else value[int(path[0])], path[1:])
    if isinstance(value, dict):
        return {**value, path[0]: around}, rows
    return [around if place == int(path[0]) else item for place, item in enumerate(value)], rows


def _flat(row: Any, above: str = "") -> dict[str, JSON]:
    if not isinstance(row, dict):
        return {}
    made: dict[str, JSON] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            made |= _flat(value, f"{above}{name}>")
        else:
            made[above + name] = jsonrpc.encode(value).decode() if isinstance(value, dict | list) else value
    return made


def gcf_deltas(pairs: Sequence[Keyed | None], python: str) -> tuple[list[str | None], str]:
    """The deltas, None where it gives none; and what there is to say of it."""
    asked = "".join(json.dumps(pair._asdict()) + "\n" for pair in pairs if pair is not None)
    nothing: list[str | None] = [None] * len(pairs)
    try:
        ran = subprocess.run(  # noqa: S603 - our own script
            [python, str(_PEER)], input=asked, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return nothing, f"did not run: {type(error).__name__}"
    if ran.returncode:
        reason = ran.stderr.strip().rpartition("\n")[2]
        return nothing, "not installed: run with --peer install" if "ModuleNotFoundError" in reason else reason
    answers = iter(json.loads(line) for line in ran.stdout.splitlines())
    return [None if pair is None else next(answers).get("text") for pair in pairs], GCF
