"""Replies that fit a budget of tokens: the first part of a result, the parts that `continue` returns, and references.

References are arguments that name a stored result, or a part of one, instead of repeating it.
"""

from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from msgspec.structs import replace

from deltamcp.delivery.sent_results import ToldWords
from deltamcp.delivery.stored_results import ResultOrigin, ResultRoot, StoredResults
from deltamcp.errors import UsageError
from deltamcp.results import blocks, document, reference
from deltamcp.results.blocks import add_notes
from deltamcp.results.content import ResultData, single_data
from deltamcp.results.document import RawJSON
from deltamcp.results.policy import DEFAULT_MAX_TOKENS, META_KEY, ResolvedPolicy, ResultPolicy
from deltamcp.results.queries.query import Query, run_query
from deltamcp.results.shown_result import FirstReply, StoredHeader
from deltamcp.results.stored_result import StoredResult, parse_continue_arguments
from deltamcp.results.window import without_words
from deltamcp.runtime.threads import Computations
from deltamcp.values import JSON, Caller, Text, TextResource, ToolResult
from deltamcp.work import Work, WorkLimitError

_MAX_REFERENCED_RESULTS = 64
"""The most stored results that the arguments of one call may refer to; all of them are read from the store."""
_MAX_RESOURCE_BYTES = 8 * 1024 * 1024
"""The largest part of a stored result that is read as a resource: its text is copied and escaped."""
_NO_TEXTS = "[The result has no text or value that fields and grep could select from.]"


class Continuation:
    """Returns as much of a result as fits, stores the whole result, and returns further parts of it on request."""

    def __init__(self, stored: StoredResults, computations: Computations) -> None:
        self._stored = stored
        self._computations = computations
        self.told: ToldWords = ToldWords()

    async def first_reply(
        self, reply: FirstReply, caller: Caller, origin: ResultOrigin, root: ResultRoot | None = None
    ) -> ToolResult:
        """Returns the reply to a call: the whole result if it fits, else its first part.

        `root` is where a result with a root can be found again.
        """
        source, told = reply.source, self.told.of(caller)
        # Most results are small: they fit, and are not stored. To find a place takes 10 µs.
        is_stored = reply.names_whole or root is not None
        may_be_stored = is_stored or len(source.data) > reply.policy.max_tokens
        place = self._stored.place(caller, origin, root) if may_be_stored else None
        while True:
            handle = None if place is None else place.handle
            try:
                part = await self._computations.run(caller.account, partial(reply.show, handle, told))
            except WorkLimitError:
                part = await self._computations.run(caller.account, partial(reply.simplify().show, handle, told))
            if part.is_whole and not is_stored:
                break
            if place is None:
                place = self._stored.place(caller, origin, root)
            elif await self._stored.put(place, part.header, source.data):
                break
        self.told.add(caller, part.words)
        return part.reply

    async def single_data(self, result: ToolResult, caller: Caller, keeps_structure: bool) -> ResultData | None:
        """Returns the one text or JSON value that a result consists of; None if it has more.

        `keeps_structure` is whether the caller expects the structured content as the tool made it.
        """
        try:
            return await self._computations.run(caller.account, lambda work: single_data(result, work, keeps_structure))
        except WorkLimitError:
            return None

    async def first_reply_of_blocks(
        self, result: ToolResult, policy: ResolvedPolicy, caller: Caller, origin: ResultOrigin, promised: bool
    ) -> ToolResult:
        """Returns the reply for a result of several blocks: texts as far as they fit, and all images and sounds.

        A query is asked of the texts. `promised` is whether the output schema requires structured content.
        """
        if policy.has_query and (texts := blocks.texts_of(result)):
            reply = await self.first_reply(FirstReply(ResultData("\n".join(texts)), policy), caller, origin)
            return replace(reply, content=[*reply.content, *blocks.others_of(result)])
        if policy.has_callers_query:
            result = add_notes(result, [_NO_TEXTS])
        if await self._computations.run(caller.account, lambda work: blocks.fits(result, policy, work)):
            return result

        place, data = self._stored.place(caller, origin), blocks.encode_blocks(result)
        head = StoredHeader("json", None, replace(policy, fields=None), is_part=True)
        while True:
            cut = await self._computations.run(
                caller.account, lambda work: blocks.truncate_blocks(result, policy, place.handle, promised, work)
            )
            if await self._stored.put(place, head, data):
                return cut

    async def next_reply(
        self, arguments: Mapping[str, JSON], caller: Caller, requested: ResultPolicy | None = None
    ) -> ToolResult:
        """Returns the reply to `continue`; `requested` is the policy in the request.

        Raises:
            UsageError: nothing is stored under the handle, or the arguments do not fit the result.
            MissingScopesError: the caller lacks scopes for the result.
            StoreError: the store cannot be reached.
        """
        read = parse_continue_arguments(arguments)
        stored, path = await self._stored.find(read.handle, caller), ""
        if read.since:
            base = await self._stored.find(read.since, caller)
            window = await self._computations.run(
                caller.account, lambda work: stored.read_changes(base, read, requested, work)
            )
        else:
            window, path = await self._computations.run(caller.account, lambda work: stored.read(read, requested, work))
        window = without_words(window, self.told.tell(caller, window.words))
        meta = {META_KEY: {"handle": read.handle, **window.meta(path)}}
        return add_notes(ToolResult([Text(window.text)], meta=meta), window.notes)

    async def resolve_references(self, arguments: dict[str, JSON], caller: Caller, strict: bool) -> dict[str, JSON]:
        """Returns the arguments with every `{"$result": ...}` replaced by the stored value that it names.

        Unless `strict`, an object that names no stored result is taken for the tool's own and stays.

        Raises:
            UsageError: a reference names no stored value.
            MissingScopesError: the caller lacks scopes for a result that a reference names.
            StoreError: the store cannot be reached.
        """
        found = await self._computations.run(
            caller.account, lambda work: list(reference.find_references(arguments, work))
        )
        opened: dict[str, StoredResult | None] = {}
        for name in (each[reference.KEY] for each in found):
            if not isinstance(name, str):
                if strict:
                    raise UsageError(f"{reference.KEY} must be a string.")
            elif name not in opened:
                if len(opened) == _MAX_REFERENCED_RESULTS:
                    raise UsageError(f"One call's arguments may refer to at most {_MAX_REFERENCED_RESULTS} results.")
                opened[name] = await self._open_referenced(name, caller, strict)
        results = {name: stored for name, stored in opened.items() if stored is not None}
        return await self._computations.run(
            caller.account, lambda work: _resolve(arguments, found, results, strict, work)
        )

    async def _open_referenced(self, name: str, caller: Caller, strict: bool) -> StoredResult | None:
        try:
            return await self._stored.open(name, caller)
        except UsageError:
            if strict:
                raise
            return None

    async def stored_resource(self, uri: str, caller: Caller) -> tuple[TextResource, ResultOrigin] | None:
        """Returns the stored result at a URI, or the part of it that the URI names; None if there is none.

        Raises:
            MissingScopesError: the caller lacks scopes for the result.
            StoreError: the store cannot be reached.
            UsageError: the part is too large for one reply.
        """
        place = self._stored.parse_uri(unquote(uri))
        if place is None:
            return None
        name, path = place
        try:
            stored = await self._stored.open(name, caller)
            data = await self._computations.run(caller.account, lambda work: stored.parts(work).at(path))
        except WorkLimitError:
            raise
        except UsageError:
            return None
        if len(data) > _MAX_RESOURCE_BYTES:
            raise UsageError(
                f"This has more than {_MAX_RESOURCE_BYTES >> 20} MiB; read a part of it, by a path after the URI, or "
                f"by the tool {self._stored.handle(name).continue_tool}."
            )
        if isinstance(data, str) or document.kind(data) == "text":
            read = TextResource(uri, data if isinstance(data, str) else document.decode(data), "text/plain")
        else:
            read = TextResource(uri, str(memoryview(data), "utf-8"), "application/json")
        return read, ResultOrigin(stored.header.origin, stored.scopes)


def _resolve(
    arguments: dict[str, JSON],
    found: list[dict[str, JSON]],
    results: Mapping[str, StoredResult],
    strict: bool,
    work: Work,
) -> dict[str, JSON]:
    """Returns the arguments with the stored values in place of the references to them."""
    values: dict[int, JSON] = {}
    shared: dict[tuple[str, str, str], JSON] = {}
    parts = {name: stored.parts(work) for name, stored in results.items()}
    bytes_left, values_left = reference.MAX_BYTES, reference.MAX_VALUES
    for each in found:
        name, path = each[reference.KEY], each.get("path", "")
        if not isinstance(path, str):
            if strict:
                raise UsageError("path must be a string.")
            continue
        if name not in results:
            continue
        reference.check_reference(each)
        data = parts[name].at(path)
        fields = each.get("fields")
        if fields is not None:
            data = _select(data, fields, work)
        bytes_left -= len(data)
        values_left -= 1 if isinstance(data, str) else document.estimate_values(data, work)
        work.scan(len(data))
        if bytes_left < 0 or values_left < 0:
            raise UsageError(
                f"The results in one call's arguments come to more than {reference.MAX_BYTES >> 20} MiB "
                f"or {reference.MAX_VALUES} values."
            )
        if "patch" in each:
            value = data if isinstance(data, str) else document.decode_counted(data, work)
            values[id(each)] = reference.apply_patch(value, each["patch"], bytes_left, work)
            continue
        key = (name, path, repr(fields))
        if key not in shared:
            shared[key] = data if isinstance(data, str) else document.decode_counted(data, work)
        values[id(each)] = shared[key]
    resolved: dict[str, JSON] = reference.replace_references(arguments, values, work)
    return resolved


def _select(data: RawJSON | str, fields: JSON, work: Work) -> str | bytes:
    """Returns what a reference selects of a stored result.

    Raises:
        UsageError: that is nothing.
    """
    assert isinstance(fields, str | list), "it was checked"
    found = run_query(data, Query(fields), None, DEFAULT_MAX_TOKENS, work)
    if found.is_miss:
        raise UsageError(f"{reference.KEY}: {found.sentence}")
    return found.data
