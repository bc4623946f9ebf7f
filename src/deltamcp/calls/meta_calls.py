"""Calls of the meta-tools: what each does, and which operation it runs."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec.structs import replace

from deltamcp.calls import call_log
from deltamcp.calls.operation_search import Searching
from deltamcp.catalog import discovery
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.routing import route
from deltamcp.catalog.view import View
from deltamcp.delivery.changes import Outcomes
from deltamcp.delivery.continuation import Reading
from deltamcp.delivery.delivery import Caller, Wishes
from deltamcp.delivery.sent_results import Call, digest
from deltamcp.errors import UnfitError
from deltamcp.results import project
from deltamcp.results.content import Source
from deltamcp.results.policy import ROOT, Wish, read_root, root_held, wish_of
from deltamcp.values import JSON, Answer, CallTool, Outcome, Text, ToolResult

Operate: TypeAlias = Callable[[Operation, CallTool, Caller, Wishes | None], Awaitable[Outcome]]


class MetaCalls:
    """`operate` runs an operation, its results made to fit as it says itself and as is wished."""

    def __init__(self, searching: Searching, reading: Reading, outcomes: Outcomes, operate: Operate) -> None:
        self._searching = searching
        self._reading = reading
        self._outcomes = outcomes
        self._operate = operate

    async def perform(self, meta: Meta, ask: CallTool, caller: Caller) -> Outcome:
        """
        Raises:
            UnfitError: it was called with what it cannot use.
        """
        view, principal = caller.view, caller.terms.principal
        match meta:
            case Meta.DISCOVER:
                return Answer(await self._discovered(ask.arguments, caller))
            case Meta.GET_SCHEMA:
                text = discovery.schemas(view, *discovery.read_get_schema(ask.arguments))
            case Meta.CONTINUE:
                return Answer(await self._reading.go_on(ask.arguments, principal, wish_of(caller.terms.meta)))
            case Meta.EXECUTE | Meta.QUERY:
                return await self._execute(meta, ask, caller)
        return Answer(await self._reading.begin(Source(text), view.shaping, principal))

    async def _discovered(self, arguments: dict[str, JSON], caller: Caller) -> ToolResult:
        """What there is, or what of it changed since the caller held it."""
        shaping, principal = caller.view.shaping, caller.terms.principal
        held = root_held(caller.terms.meta)
        if ROOT in arguments:
            arguments = dict(arguments)
            held = read_root(arguments.pop(ROOT))
        await self._outcomes.hear(held, principal, caller.channel)
        shaping = replace(shaping, pack_root=held)
        source = Source(await self._discover(caller.view, arguments))
        if not shaping.tells_changes:
            return await self._reading.begin(source, shaping, principal)
        call = Call(principal, caller.channel.conversation, digest([Meta.DISCOVER.value, arguments]))
        return await self._outcomes.reply(source, shaping, call, time.monotonic())

    async def _discover(self, view: View, arguments: dict[str, JSON]) -> str:
        asked = discovery.read_discover(arguments)
        if not asked.queries:
            return discovery.listing(view, asked)
        limit = asked.cursor + asked.limit + 1
        found = await self._searching.find(view, asked.queries, limit, discovery.among(view, asked))
        return discovery.found(view, found[asked.cursor :], asked)

    async def _execute(self, meta: Meta, ask: CallTool, caller: Caller) -> Outcome:
        view = caller.view
        try:
            operation, params, fields, held, repair = route(view, ask.arguments)
        except UnfitError:
            call_log.record_unknown(ask.arguments.get("operation"), caller.terms.principal)
            raise
        if meta is Meta.QUERY and not operation.read_only:
            raise UnfitError(f"{operation.id} does not say that it only reads; use {view.called(Meta.EXECUTE)}.")
        beside = f"({repair})" if repair else ""
        project.check(fields)
        wishes = Wishes(Wish(fields=fields, pack_root=held), beside)
        outcome = await self._operate(operation, CallTool(operation.id, params, ask.inputs), caller, wishes)
        if not beside or not isinstance(outcome, Answer) or not isinstance(outcome.value, ToolResult):
            return outcome
        return Answer(replace(outcome.value, content=[*outcome.value.content, Text(beside)]))
