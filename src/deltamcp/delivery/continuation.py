"""Replies that fit a budget of tokens: the first part of a result, the parts that `continue` returns, and references.

References are arguments that name a stored result, or a part of one, instead of repeating it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import unquote

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.delivery.stored_results import ResultRoot, StoredResults
from deltamcp.errors import UsageError
from deltamcp.results import blocks, document, reference, result_windows
from deltamcp.results.content import ResultData, is_self_describing
from deltamcp.results.notes import Handle, add_notes
from deltamcp.results.pagination import find_rows
from deltamcp.results.policy import META_KEY, ResolvedPolicy, ResultPolicy
from deltamcp.results.stored_result import StoredHeader, parse_continue_arguments, select_fields
from deltamcp.results.window import Window
from deltamcp.values import JSON, Caller, Content, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc

_LARGE_BYTES = 1024 * 1024
"""A thread reads in stored results above this size, one at a time, so that other calls do not wait."""
_MAX_REFERENCED_BYTES = 64 * 1024 * 1024
"""The most bytes of stored results that the arguments of one call may refer to."""
_NO_STRUCTURE = "No part of the result both fits and matches the output schema. "


class Continuation:
    """Returns as much of a result as fits, stores the whole result, and returns further parts of it on request."""

    def __init__(self, stored: StoredResults) -> None:
        self._stored = stored
        self._large_reads = asyncio.Lock()

    async def first_reply(
        self,
        source: ResultData,
        policy: ResolvedPolicy,
        caller: Caller,
        admits: Callable[[JSON], bool] | None = None,
        root: ResultRoot | None = None,
    ) -> ToolResult:
        """Returns the reply to a call: the whole result if it fits, else its first part.

        Args:
            admits: Whether a value matches the output schema; None if the tool promises none.
            root: The result's root. A result with a root is stored even if it fits, to be the base of a delta.
        """
        root_digits = "" if root is None else root.root
        data, promised = source.data, admits is not None
        shown, reason, is_whole = select_fields(data, policy)
        if admits is not None and shown != data and not admits(document.decode(shown)):  # type: ignore[arg-type]
            shown, reason, is_whole = data, "The output schema asks for every field. ", True
        if is_whole:
            policy = replace(policy, fields=None)
        is_projected = shown != data
        value = None if is_projected else source.value
        rows = None if isinstance(shown, str) else find_rows(shown, policy.rows, value)
        whole = None
        if not is_projected:
            whole = result_windows.whole_window(
                shown, policy, source.structured is not UNSET, rows, f"[{reason[:-1]}]" if reason else "", value
            )
        kind: Literal["text", "json"] = "text" if isinstance(data, str) else "json"
        if whole is not None:
            stored = None
            if root is not None:
                head = StoredHeader(kind, rows, policy, root_digits)
                stored, _ = await self._stored.store(data, caller, lambda handle: (head, None), root)
            return _whole_reply(whole, source, policy, stored)

        def show_part(handle: Handle | None) -> tuple[StoredHeader, tuple[Window, bool]]:
            def show(promised: bool, reason: str) -> Window:
                return result_windows.first_window(shown, rows, policy, handle, promised, is_projected, reason, value)

            window, holds = show(promised, reason), True
            if admits is not None and (window.value is UNSET or not admits(window.value)):
                window, holds = show(False, _NO_STRUCTURE), False
            return StoredHeader(kind, rows, policy, root_digits, is_part=True, first=window.next or 0), (window, holds)

        handle, (window, holds) = await self._stored.store(data, caller, show_part, root)
        content: list[Content] = [Text(window.text)]
        meta = _window_meta(window, "")
        if handle is not None:
            meta = {"handle": handle.name, **meta}
            content += [handle.link] if result_windows.is_linked(policy, window) else []
        # Clients accept a result without the structured content of its output schema only as an error.
        reply = ToolResult(content, window.value if promised and holds else UNSET, not holds, {META_KEY: meta})
        return add_notes(reply, window.notes)

    async def first_reply_of_blocks(
        self, result: ToolResult, policy: ResolvedPolicy, caller: Caller, promised: bool
    ) -> ToolResult:
        """Returns the reply for a result of several blocks: texts as far as they fit, and all images and sounds.

        `promised` is whether the output schema requires structured content.
        """
        if blocks.fits(result, policy):
            return result

        def show_part(handle: Handle | None) -> tuple[StoredHeader, ToolResult]:
            return StoredHeader("json", None, replace(policy, fields=None)), blocks.truncate_blocks(
                result, policy, handle, promised
            )

        return (await self._stored.store(blocks.encode_blocks(result), caller, show_part))[1]

    async def next_reply(
        self, arguments: Mapping[str, JSON], caller: Caller, requested: ResultPolicy | None = None
    ) -> ToolResult:
        """Returns the reply to `continue`; `requested` is the policy in the request.

        Raises:
            UsageError: nothing is stored under the handle, or the arguments do not fit the result.
            StoreError: the store cannot be reached.
        """
        read = parse_continue_arguments(arguments)
        stored = await self._stored.find(read.handle, caller)
        if stored.size <= _LARGE_BYTES:
            window, path = stored.read(read, requested)
        else:
            async with self._large_reads:
                window, path = await asyncio.to_thread(stored.read, read, requested)
        meta = {META_KEY: {"handle": read.handle, **_window_meta(window, path)}}
        return add_notes(ToolResult([Text(window.text)], meta=meta), window.notes)

    async def resolve_references(self, arguments: dict[str, JSON], caller: Caller, strict: bool) -> dict[str, JSON]:
        """Returns the arguments with every `{"$result": ...}` replaced by the stored value that it names.

        Unless `strict`, an object that names no stored result is taken for the tool's own and stays.

        Raises:
            UsageError: a reference names no stored value.
            StoreError: the store cannot be reached.
        """
        values: dict[int, JSON] = {}
        parts: dict[tuple[str, str], JSON] = {}
        left = _MAX_REFERENCED_BYTES
        for found in reference.find_references(arguments):
            name, path = found[reference.KEY], found.get("path", "")
            try:
                if not isinstance(name, str) or not isinstance(path, str):
                    raise UsageError(f"{reference.KEY} and path must be strings.")
                stored = await self._stored.open(name, caller)
            except UsageError:
                if strict:
                    raise
                continue
            left -= stored.bytes_at(path)
            if left < 0:
                raise UsageError(
                    f"The results in one call's arguments come to more than {_MAX_REFERENCED_BYTES >> 20} MiB."
                )
            if (name, path) not in parts:
                parts[name, path] = stored.value_at(path)
            value = parts[name, path]
            values[id(found)] = reference.apply_patch(value, found["patch"], left) if "patch" in found else value
        resolved: dict[str, JSON] = reference.replace_references(arguments, values)
        return resolved

    async def stored_resource(self, uri: str, caller: Caller) -> TextResource | None:
        """Returns the stored result at a URI, or the part of it that the URI names; None if there is none.

        Raises:
            StoreError: the store cannot be reached.
        """
        place = self._stored.parse_uri(unquote(uri))
        if place is None:
            return None
        try:
            value = (await self._stored.open(place[0], caller)).value_at(place[1])
        except UsageError:
            return None
        if isinstance(value, str):
            return TextResource(uri, value, "text/plain")
        return TextResource(uri, jsonrpc.encode(value).decode(), "application/json")


def _whole_reply(window: Window, source: ResultData, policy: ResolvedPolicy, stored: Handle | None) -> ToolResult:
    # Programs need the form if the text is not evidently JSON, or if the result is the base of a delta.
    needs_form = window.form == "table" or stored is not None or not is_self_describing(source.data)
    meta: dict[str, JSON] = {"form": window.form} if needs_form else {}
    if stored is not None:
        meta["handle"] = stored.name
    reply, notes = ToolResult([Text(window.text)], source.structured), window.notes
    if source.original_result is not None and window.form != "table" and blocks.fits(source.original_result, policy):
        reply, notes = source.original_result, []
    reply = replace(reply, meta={**(reply.meta or {}), META_KEY: meta}) if meta else reply
    return add_notes(reply, notes)


def _window_meta(window: Window, path: str) -> dict[str, JSON]:
    """Returns the fields from which a program can put a value together from several replies."""
    meta: dict[str, JSON] = {"form": window.form, "unit": window.unit, "path": path}
    if window.unit != "whole":
        meta |= {"start": window.start, "end": window.end, "total": window.total}
    if window.cuts:
        meta["cuts"] = list(window.cuts)
    return meta
