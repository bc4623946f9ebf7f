"""Writes deltas in other formats, for comparison: JSON Patch, unified diff, and gcf-python's delta of keyed rows."""

import difflib
import json
from importlib import metadata
from typing import Any, NamedTuple

import jsonpatch

from bench.corpora.series import State
from deltamcp.deltas.diff import key_rank, unique_values
from deltamcp.results.document import find_rows
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work

GCF_PACKAGE = "gcf-python"


def json_patch(base: State, new: State) -> str | None:
    """Writes a JSON Patch (RFC 6902) as compact JSON; returns None for texts."""
    if isinstance(base.data, str) or isinstance(new.data, str):
        return None
    return jsonrpc.encode(jsonpatch.make_patch(base.value, new.value).patch).decode()


def unified_diff(base: State, new: State) -> str:
    """Writes a diff without context, its shortest form; JSON is written with one item or member per line."""
    return "\n".join(difflib.unified_diff(_lines(base), _lines(new), n=0, lineterm=""))


def _lines(state: State) -> list[str]:
    text = state.data if isinstance(state.data, str) else json.dumps(state.value, indent=0, ensure_ascii=False)
    return text.split("\n")


class KeyedRows(NamedTuple):
    """Two states in the form that gcf-python takes: rows with the same fields and a key that identifies them."""

    key: str
    fields: list[str]
    base: list[dict[str, JSON]]
    new: list[dict[str, JSON]]


def keyed_rows(base: State, new: State) -> KeyedRows | None:
    """Converts two states; returns None if more than the rows differs, or the rows do not have the same fields.

    The members of objects in rows become columns with GCF's path names, and lists become their JSON, because the format
    has no other cells.
    """
    if isinstance(base.data, str) or isinstance(new.data, str):
        return None
    path = find_rows(base.data, None, unlimited_work())
    if path is None or path != find_rows(new.data, None, unlimited_work()):
        return None
    before, rows = _split_rows(base.value, path)
    after, new_rows = _split_rows(new.value, path)
    if before != after or not rows or not new_rows:
        return None
    flat, new_flat = [_flatten(row) for row in rows], [_flatten(row) for row in new_rows]
    fields = list(flat[0])
    if any(list(row) != fields for row in flat + new_flat):
        return None
    if [row for row in flat if row in new_flat] != [row for row in new_flat if row in flat]:
        return None  # a keyed set has no order
    keys = [
        name for name in fields if unique_values(flat, name) is not None and unique_values(new_flat, name) is not None
    ]
    return KeyedRows(min(keys, key=key_rank), fields, flat, new_flat) if keys else None


def _split_rows(value: Any, path: list[str]) -> tuple[JSON, list[Any]]:
    if not path:
        return None, value
    around, rows = _split_rows(value[path[0]] if isinstance(value, dict) else value[int(path[0])], path[1:])
    if isinstance(value, dict):
        return {**value, path[0]: around}, rows
    return [around if place == int(path[0]) else item for place, item in enumerate(value)], rows


def _flatten(row: Any, prefix: str = "") -> dict[str, JSON]:
    if not isinstance(row, dict):
        return {}
    columns: dict[str, JSON] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            columns |= _flatten(value, f"{prefix}{name}>")
        else:
            columns[prefix + name] = jsonrpc.encode(value).decode() if isinstance(value, dict | list) else value
    return columns


def gcf_version() -> str | None:
    """Returns the version of gcf-python, or None if it is not installed."""
    try:
        return metadata.version(GCF_PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def gcf_delta(rows: KeyedRows) -> str | None:
    """Writes the delta of gcf-python, which must be installed; returns None if it refuses the rows."""
    from gcf import GenericSet, diff_generic_sets, encode_generic_delta

    try:
        base, new = (GenericSet(key=rows.key, fields=rows.fields, rows=side) for side in (rows.base, rows.new))
        return str(encode_generic_delta(diff_generic_sets(base, new)))
    except Exception:
        return None
