"""Results that do not fit: shown in part, read on in by their handle, used by reference."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import unquote

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.delivery.stored_results import Keeping, Rooted
from deltamcp.errors import UnfitError
from deltamcp.results import blocks, document, reference, shape
from deltamcp.results.content import Source, is_as_it_looks
from deltamcp.results.kept import Head, read_asked, wanted
from deltamcp.results.notes import Handle
from deltamcp.results.paginate import find_rows
from deltamcp.results.policy import META_KEY, ResultPolicy, Shaping
from deltamcp.results.window import Window
from deltamcp.values import JSON, Content, Principal, Text, TextResource, ToolResult
from deltamcp.wire import jsonrpc

_LARGE = 1024 * 1024
"""Bytes of a result in which reading may take longer than others should wait; a thread does it, one at a time."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of results that one call's arguments refer to."""
_NO_STRUCTURE = "No part that fits is one the output schema admits. "


class Reading:
    """What callers are shown a part of."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._reads = asyncio.Lock()

    async def begin(
        self,
        source: Source,
        shaping: Shaping,
        principal: Principal,
        admits: Callable[[JSON], bool] | None = None,
        rooted: Rooted | None = None,
    ) -> ToolResult:
        """A result, whole where it fits. `admits` tells whether an output schema holds, where one has to.

        What is `rooted` is kept in any case, to be the base of a delta.
        """
        root = "" if rooted is None else rooted.root
        data, promised = source.data, admits is not None
        shown, why = wanted(data, shaping)
        if admits is not None and shown != data and not admits(document.decode(shown)):  # type: ignore[arg-type]
            shown, why = data, "The output schema asks for every field. "
        if why:
            shaping = replace(shaping, fields=None)
        less = shown != data
        value = None if less else source.value
        rows = None if isinstance(shown, str) else find_rows(shown, shaping.rows, value)
        whole = None
        if not less:
            whole = shape.whole(shown, shaping, source.structured is not UNSET, rows, f"[{why[:-1]}]" if why else "")
        kind: Literal["text", "json"] = "text" if isinstance(data, str) else "json"
        if whole is not None:
            kept = None
            if rooted is not None:
                head = Head(kind, rows, shaping, root)
                kept, _ = await self._keeping.keep(data, principal, lambda handle: (head, None), rooted)
            return _whole(whole, source, shaping, kept)

        def part(handle: Handle | None) -> tuple[Head, tuple[Window, bool]]:
            window, holds = shape.begin(shown, rows, shaping, handle, promised, less, why, value), True
            if admits is not None and (window.value is UNSET or not admits(window.value)):
                window, holds = shape.begin(shown, rows, shaping, handle, False, less, _NO_STRUCTURE, value), False
            return Head(kind, rows, shaping, root, is_part=True, first=window.next or 0), (window, holds)

        handle, (window, holds) = await self._keeping.keep(data, principal, part, rooted)
        content: list[Content] = [Text(text) for text in window.texts]
        told = _told(window, "")
        if handle is not None:
            told = {"handle": handle.name, **told}
            content += [handle.link] if shape.is_linked(shaping, window) else []
        # Without what its output schema promises a result is only accepted as an error.
        return ToolResult(content, window.value if promised and holds else UNSET, not holds, {META_KEY: told})

    async def begin_blocks(
        self, result: ToolResult, shaping: Shaping, principal: Principal, promised: bool
    ) -> ToolResult:
        """The same for a reply of several blocks: texts are shown while they fit, media are not text and stay.

        `promised` tells that an output schema asks for structured content.
        """
        if blocks.fits(result, shaping):
            return result

        def part(handle: Handle | None) -> tuple[Head, ToolResult]:
            return Head("json", None, replace(shaping, fields=None)), blocks.begin(result, shaping, handle, promised)

        return (await self._keeping.keep(blocks.encoded(result), principal, part))[1]

    async def go_on(
        self, arguments: Mapping[str, JSON], principal: Principal, wish: ResultPolicy | None = None
    ) -> ToolResult:
        """`wish` is how a request would have it fit.

        Raises:
            UnfitError: there is nothing to read on in, or not there, or not so.
            StoreError: what is kept cannot be reached.
        """
        asked = read_asked(arguments)
        kept = await self._keeping.found(asked.handle, principal)
        if kept.size <= _LARGE:
            window, path = kept.read(asked, wish)
        else:
            async with self._reads:
                window, path = await asyncio.to_thread(kept.read, asked, wish)
        told = {META_KEY: {"handle": asked.handle, **_told(window, path)}}
        return ToolResult([Text(text) for text in window.texts], meta=told)

    async def resolved(self, arguments: dict[str, JSON], principal: Principal, strict: bool) -> dict[str, JSON]:
        """Arguments with every `{"$result": ...}` in them replaced by what it stands for.

        Unless `strict`, what is under no handle of ours means something else, and stays.

        Raises:
            UnfitError: one of them stands for nothing.
            StoreError: what is kept cannot be reached.
        """
        by: dict[int, JSON] = {}
        parts: dict[tuple[str, str], JSON] = {}
        left = _MOST_BYTES
        for found in reference.found(arguments):
            name, path = found[reference.KEY], found.get("path", "")
            try:
                if not isinstance(name, str) or not isinstance(path, str):
                    raise UnfitError(f"{reference.KEY} and path must be texts.")
                kept = await self._keeping.open(name, principal)
            except UnfitError:
                if strict:
                    raise
                continue
            left -= kept.bytes_at(path)
            if left < 0:
                raise UnfitError(f"The results in one call's arguments come to more than {_MOST_BYTES >> 20} MiB.")
            if (name, path) not in parts:
                parts[name, path] = kept.part(path)
            value = parts[name, path]
            by[id(found)] = reference.changed(value, found["patch"], left) if "patch" in found else value
        made: dict[str, JSON] = reference.replaced(arguments, by)
        return made

    async def resource(self, uri: str, principal: Principal) -> TextResource | None:
        """A kept result or a part of one, whole; None where there is none at the address.

        Raises:
            StoreError: what is kept cannot be reached.
        """
        place = self._keeping.place(unquote(uri))
        if place is None:
            return None
        try:
            value = (await self._keeping.open(place[0], principal)).part(place[1])
        except UnfitError:
            return None
        if isinstance(value, str):
            return TextResource(uri, value, "text/plain")
        return TextResource(uri, jsonrpc.encode(value).decode(), "application/json")


def _whole(window: Window, source: Source, shaping: Shaping, kept: Handle | None) -> ToolResult:
    # Where the form is not JSON, or the result a base, programs are told what to make of it.
    said = window.form == "table" or kept is not None or not is_as_it_looks(source.data)
    told: dict[str, JSON] = {"form": window.form} if said else {}
    if kept is not None:
        told["handle"] = kept.name
    reply = ToolResult([Text(text) for text in window.texts], source.structured)
    if source.given is not None and window.form != "table" and blocks.fits(source.given, shaping):
        reply = source.given
    return replace(reply, meta={**(reply.meta or {}), META_KEY: told}) if told else reply


def _told(window: Window, path: str) -> dict[str, JSON]:
    """What a program needs to put a value together from replies."""
    told: dict[str, JSON] = {"form": window.form, "unit": window.unit, "path": path}
    if window.unit != "whole":
        told |= {"start": window.start, "end": window.end, "total": window.total}
    if window.cuts:
        told["cuts"] = list(window.cuts)
    return told
