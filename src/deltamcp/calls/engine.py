"""One ask to one outcome. Read this first: everything that runs an author's code is awaited here.

A transport reads bytes, a dialect makes of them `Terms` and an `Ask`, `Engine.perform` gives an
`Outcome`, the same dialect writes it. What goes wrong inside an author's function ends here, as an
error the model can read or a failure with an id that the log explains; nothing else leaks.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol

import msgspec

from deltamcp.calls import call_log
from deltamcp.calls.meta_calls import MetaCalls
from deltamcp.calls.operation_search import Searching
from deltamcp.catalog import discovery, render
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.signature import ArgumentError
from deltamcp.catalog.view import View, did_you_mean
from deltamcp.context import Channel, Context, InputPending, MissingCapabilityError
from deltamcp.delivery.changes import Outcomes
from deltamcp.delivery.continuation import Reading
from deltamcp.delivery.delivery import Caller, Fitting, Ran, Wishes, held, limited, shaping_of
from deltamcp.delivery.delta_mcp import Paging
from deltamcp.delivery.sent_results import Call, digest
from deltamcp.delivery.stored_results import Keeping
from deltamcp.dialects import delta_mcp
from deltamcp.errors import Fault, InputDeclinedError, PeerError, ResourceNotFoundError, ToolError, UnfitError
from deltamcp.limits import Limits
from deltamcp.results import content, reference
from deltamcp.results.policy import root_held
from deltamcp.runtime.change_hub import Hub
from deltamcp.runtime.deadline import Deadline, guarded
from deltamcp.runtime.lifespan import Life, Lifespan
from deltamcp.runtime.seal import Seal
from deltamcp.runtime.threads import Threads
from deltamcp.runtime.watchdog import Watchdog
from deltamcp.stores.store import Store, StoreError
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    About,
    Answer,
    Ask,
    CallTool,
    Complete,
    Completion,
    Contents,
    Definitions,
    Describe,
    Discover,
    Done,
    Era,
    Failure,
    Filter,
    GetPrompt,
    InputRequired,
    Inputs,
    Kind,
    ListItems,
    ListManifest,
    Outcome,
    Ping,
    ReadResource,
    RequestId,
    Terms,
    TextResource,
)
from deltamcp.wire import jsonrpc

_SIGNATURE_TOKENS = 120
"""Of the signature that comes with an argument error (RB-61)."""
_NO_ANSWERS: Mapping[str, JSON] = {}
_WRONG_CURSOR = Failure(Fault.INVALID_PARAMS, "params.cursor is not one this server gave; start without it.")

logger = logging.getLogger("deltamcp")


class Runnable(Protocol):
    """What the catalogue holds: an author's function and how to call it."""

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def context_name(self) -> str | None: ...


Performer = Callable[[Any, Terms, Channel, RequestId], Coroutine[Any, Any, Outcome]]


class Engine:
    """A catalogue brought to life: who offers it, within which limits, who listens for changes."""

    def __init__(
        self,
        catalog: Catalog,
        info: dict[str, JSON],
        instructions: str | None,
        limits: Limits,
        lifespan: Lifespan | None,
        state_key: bytes | None,
        cache_seconds: float,
        searching: Searching,
        store: Store,
    ) -> None:
        self.catalog = catalog
        self.info = info
        self.limits = limits
        self.cache_seconds = cache_seconds
        self.hub = Hub()
        self.life = Life(lifespan, lambda: Watchdog(limits.stall_seconds, catalog.name_of))
        self._instructions = instructions
        self._seal = Seal(state_key, limits.input_seconds)
        self._threads = Threads(limits.threads)
        keeping = Keeping(
            store, limits, info["name"], catalog.scheme, f"{catalog.disclosure.before}{Meta.CONTINUE.value}"
        )
        self._reading = Reading(keeping)
        self._paging = Paging(keeping)
        self._outcomes = Outcomes(keeping, self._reading)
        self._fitting = Fitting(self._reading, self._paging, self._outcomes)
        self._meta_calls = MetaCalls(searching, self._reading, self._outcomes, self._operate)
        self._performers: dict[type[Ask], Performer] = {
            CallTool: self._call,
            ListItems: self._list,
            Describe: self._describe,
            ListManifest: self._manifest,
            ReadResource: self._read,
            GetPrompt: self._prompt,
            Complete: self._complete,
            Discover: self._introduce,
            Ping: self._pong,
        }

    # Asks

    def perform(self, ask: Ask, terms: Terms, channel: Channel, request_id: RequestId) -> Coroutine[Any, Any, Outcome]:
        """The corridor: every ask that is not about a session or a subscription. Await what it returns."""
        return self._performers[type(ask)](ask, terms, channel, request_id)

    def about(self) -> About:
        """What the server says of itself."""
        capabilities: dict[str, JSON] = {"logging": {}}
        if self.catalog.completions:
            capabilities["completions"] = {}
        if self._offers(Kind.PROMPTS):
            capabilities["prompts"] = {"listChanged": True}
        if self._offers(Kind.RESOURCES):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self._offers(Kind.TOOLS):
            capabilities["tools"] = {"listChanged": True}
        return About(self.info, capabilities, self._instructions)

    def _offers(self, kind: Kind) -> bool:
        catalog = self.catalog
        if kind is Kind.TOOLS:
            # A server without anything is taken for one whose tools are yet to come.
            return bool(catalog.operations) or not (catalog.prompts or catalog.resources or catalog.templates)
        if kind is Kind.PROMPTS:
            return bool(catalog.prompts)
        # Behind meta-tools operations are resources; under `auto` they may come to be.
        return bool(catalog.resources or catalog.templates) or catalog.view().bounds

    def honoured(self, wanted: Filter) -> Filter:
        """The part of a subscription this server can keep."""
        return Filter(frozenset(kind for kind in wanted.kinds if self._offers(kind)), wanted.uris)

    async def _introduce(self, ask: Discover, *_: Any) -> Outcome:
        return Answer(self.about())

    async def _pong(self, ask: Ping, *_: Any) -> Outcome:
        return Answer(Done())

    # Lists

    async def _list(self, ask: ListItems, terms: Terms, *_: Any) -> Outcome:
        view = self.catalog.view(terms.principal.scopes)
        if not self._offers(ask.kind):
            return Failure(Fault.UNKNOWN_METHOD, f"This server offers no {ask.kind.value}.")
        page = view.page(ask.kind, terms.surface or view.surface, ask.cursor, ask.whole)
        return _WRONG_CURSOR if page is None else Answer(page)

    async def _describe(self, ask: Describe, terms: Terms, *_: Any) -> Outcome:
        view = self.catalog.view(terms.principal.scopes)
        most = delta_mcp.MOST_NAMES
        if not ask.names:
            return Failure(Fault.INVALID_PARAMS, "params.names is empty; name a tool.", {"reason": "empty"})
        if len(ask.names) > most:
            return Failure(Fault.INVALID_PARAMS, f"params.names takes at most {most} names.", {"maxNames": most})
        found = {name: view.definition(name) for name in ask.names}
        unknown = [name[:200] for name, tool in found.items() if tool is None]
        if unknown and ask.alone:
            return self._unknown("tool", ask.names[0], terms)
        if unknown:
            message = f"There are no tools {', '.join(map(repr, unknown[:10]))}."
            return Failure(Fault.NOT_FOUND, message, {"unknownNames": unknown})
        return Answer(Definitions(tuple(tool for name in ask.names if (tool := found[name])), ask.alone))

    async def _manifest(self, ask: ListManifest, terms: Terms, channel: Channel, *_: Any) -> Outcome:
        page = self.catalog.view(terms.principal.scopes).manifest(ask.cursor)
        if page is None:
            return _WRONG_CURSOR
        held = await self._root_held(terms, channel)
        if isinstance(held, Failure):
            return held
        if held is None:
            return Answer(page)
        call = Call(terms.principal, channel.conversation, digest(["tools/manifest", ask.cursor]))
        return Answer(await self._outcomes.manifest(page, call, held))

    async def _root_held(self, terms: Terms, channel: Channel) -> str | Failure | None:
        try:
            held = root_held(terms.meta)
        except UnfitError as error:
            return Failure(Fault.INVALID_PARAMS, str(error))
        await self._outcomes.hear(held, terms.principal, channel)
        return held

    # Calls

    async def _call(self, ask: CallTool, terms: Terms, channel: Channel, request_id: RequestId) -> Outcome:
        view = self.catalog.view(terms.principal.scopes)
        operation = view.operations.get(ask.name)
        caller = Caller(terms, view, channel, request_id)
        if operation is not None:
            return await self._operate(operation, ask, caller, None)
        meta = view.meta_tools.get(ask.name)
        if meta is None:
            call_log.record_unknown(ask.name, terms.principal)
            return self._unknown("tool", ask.name, terms)
        try:
            return await self._meta_calls.perform(meta, ask, caller)
        except UnfitError as error:
            return Answer(content.error_result(str(error)))
        except Exception as error:
            return Answer(content.error_result(_broken(f"The tool {ask.name}", error)))

    def _operate(
        self, operation: Operation, ask: CallTool, caller: Caller, wishes: Wishes | None
    ) -> Coroutine[Any, Any, Outcome]:
        """What every operation passes, whatever it was called by. Await what it returns."""
        operate = self._audited if call_log.is_on() else self._unaudited
        return operate(operation, ask, caller, wishes)

    async def _unaudited(self, operation: Operation, ask: CallTool, caller: Caller, wishes: Wishes | None) -> Outcome:
        terms, channel, flat = caller.terms, caller.channel, wishes is None
        try:
            shaping = shaping_of(operation, caller.view, terms, wishes)
            given, turn = ask.arguments, None
            if reference.is_in(given):
                given = await self._reading.resolved(given, terms.principal, strict=caller.view.bounds)
            if shaping is not None:
                given, shaping = held(operation, shaping, given)
                await self._outcomes.hear(shaping.pack_root, terms.principal, channel)
            if terms.delta and shaping is not None:
                given, turn = self._paging.turned(operation, given, shaping)
            arguments = operation.bind(given)
        except UnfitError as error:
            return Answer(content.error_result(str(error)))
        except StoreError as error:
            return Answer(content.error_result(_broken(f"The tool {ask.name}", error)))
        except ArgumentError as error:
            signature = render.line(operation.tool, ask.name, "", _SIGNATURE_TOKENS)
            return Answer(content.error_result(f"Invalid arguments for {ask.name}. {error} Call {signature}."))
        answers: Mapping[str, JSON] = _NO_ANSWERS
        if ask.inputs is not NO_INPUTS:
            opened = self._answers(ask.inputs, terms, ["tools/call", operation.name, ask.arguments])
            if isinstance(opened, Failure):
                return opened
            answers = opened
        deadline = Deadline(operation.timeout or self.limits.handler_seconds, channel)
        began = time.monotonic()
        try:
            if turn is not None and shaping is not None:
                page = await self._paging.snapshot(turn, shaping, terms.principal)
                if page is not None:
                    return Answer(page)
            if operation.policy == "confirm":
                context = Context(terms, channel, caller.request_id, answers, self.life.state, deadline)
                await guarded(self._confirm(operation, given, context), deadline)
            if operation.is_async and operation.context_name is None:
                value = await guarded(operation.function(**arguments), deadline)
            else:
                value = await self._run(operation, arguments, terms, channel, caller.request_id, answers, deadline)
            return Answer(await self._fitting.reply(value, operation, shaping, turn, Ran(caller, given, flat, began)))
        except (ToolError, InputDeclinedError, ResourceNotFoundError) as error:
            if isinstance(error, MissingCapabilityError) and terms.era is Era.MODERN:
                return _missing(error)
            return Answer(limited(error, operation, flat) or content.error_result(str(error)))
        except InputPending as pending:
            return self._questions(pending, terms, ["tools/call", operation.name, ask.arguments], answers)
        except asyncio.CancelledError as error:
            if deadline.expired and deadline.forgive():
                return Answer(content.error_result(f"{ask.name} was stopped: it took too long."))
            if not _is_cancelled():
                return Answer(content.error_result(_broken(f"The tool {ask.name}", error)))
            raise
        except BaseException as error:
            return Answer(
                limited(error, operation, flat) or content.error_result(_broken(f"The tool {ask.name}", error))
            )

    async def _audited(self, operation: Operation, ask: CallTool, caller: Caller, wishes: Wishes | None) -> Outcome:
        began = time.perf_counter()
        outcome: Outcome | None = None
        try:
            outcome = await self._unaudited(operation, ask, caller, wishes)
        finally:
            call_log.record(operation, caller.terms.principal, ask.arguments, outcome, began)
        return outcome

    async def _confirm(self, operation: Operation, arguments: dict[str, JSON], context: Context) -> None:
        """
        Raises:
            ToolError, InputDeclinedError: the user cannot be asked, or said no.
        """
        terms = context.terms
        if terms.era is Era.HANDSHAKE and not context.can("elicitation"):
            raise ToolError(f"{operation.id} runs only with the user's consent, and this client cannot ask for it.")
        with_what = jsonrpc.encode(arguments).decode()
        shown = with_what if len(with_what) <= 500 else with_what[:499] + "…"
        form: dict[str, JSON] = {"type": "object", "properties": {}}
        answer = await context.elicit(f"Run {operation.id} with {shown}?", form, key=f"confirm {operation.id}")
        if not answer.accepted:
            raise InputDeclinedError(f"The user declined to run {operation.id}.")

    async def _read(self, ask: ReadResource, terms: Terms, channel: Channel, request_id: RequestId) -> Outcome:
        held = await self._root_held(terms, channel)
        if isinstance(held, Failure):
            return held
        read = await self._read_whole(ask, terms, channel, request_id)
        if held is None or not isinstance(read, Answer) or not isinstance(read.value, Contents):
            return read
        call = Call(terms.principal, channel.conversation, digest(["resources/read", ask.uri]))
        return Answer(await self._outcomes.contents(read.value, call, held))

    async def _read_whole(self, ask: ReadResource, terms: Terms, channel: Channel, request_id: RequestId) -> Outcome:
        kept = await self._kept_resource(ask.uri, terms)
        if kept is not None:
            return kept
        view = self.catalog.view(terms.principal.scopes)
        if not self._offers(Kind.RESOURCES):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no resources.")
        missing = Failure(Fault.RESOURCE_NOT_FOUND, f"There is no resource at {ask.uri[:200]}.", {"uri": ask.uri})
        found = self.catalog.resource_at(ask.uri)
        if found is None:
            return self._operation_resource(ask.uri, view) or missing
        resource, variables = found
        try:
            arguments = resource.signature.bind(variables)
        except ArgumentError:
            return missing

        async def read(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            try:
                value = await self._run(resource, arguments, terms, channel, request_id, answers, deadline)
            except ResourceNotFoundError:
                return missing
            read = content.contents(value, ask.uri, resource.mime_type)
            return Answer(msgspec.structs.replace(read, ttl_ms=read.ttl_ms or int(resource.cache_seconds * 1000)))

        return await self._settled(
            f"The resource {ask.uri[:200]}", ["resources/read", ask.uri], ask.inputs, terms, channel, read
        )

    async def _kept_resource(self, uri: str, terms: Terms) -> Outcome | None:
        """A result that was shown in part; None where there is none at the address."""
        try:
            kept = await self._reading.resource(uri, terms.principal)
        except StoreError as error:
            return Failure(Fault.INTERNAL, _broken(f"The resource {uri[:200]}", error))
        return None if kept is None else Answer(Contents([kept]))

    def _operation_resource(self, uri: str, view: View) -> Outcome | None:
        """The tree, a category or an operation, where operations are resources; None where that is not asked for."""
        path = view.resources.path(uri) if view.resources is not None else None
        if view.resources is None or path is None:
            return None
        value = view.resources.read(uri, discovery.described)
        if value is not None:
            text = TextResource(uri, jsonrpc.encode(value).decode(), "application/json")
            return Answer(Contents([text], ttl_ms=int(self.cache_seconds * 1000)))
        near = [view.resources.uri(id_) for id_ in view.nearest(path.replace("/", ".")[:200], view.ids)]
        message = f"There is no operation at {uri[:200]}.{did_you_mean(near)}"
        return Failure(Fault.RESOURCE_NOT_FOUND, message, {"uri": uri, "nearest": near})

    async def _prompt(self, ask: GetPrompt, terms: Terms, channel: Channel, request_id: RequestId) -> Outcome:
        if not self._offers(Kind.PROMPTS):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no prompts.")
        prompt = self.catalog.prompts.get(ask.name)
        if prompt is None:
            return self._unknown("prompt", ask.name, terms)
        try:
            arguments = prompt.signature.bind(ask.arguments)
        except ArgumentError as error:
            return Failure(Fault.INVALID_PARAMS, f"Invalid arguments for {ask.name}. {error}")

        async def fill(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            value = await self._run(prompt, arguments, terms, channel, request_id, answers, deadline)
            return Answer(content.prompt_result(value, prompt.listed.get("description")))

        request = ["prompts/get", ask.name, ask.arguments]
        return await self._settled(f"The prompt {ask.name}", request, ask.inputs, terms, channel, fill)

    async def _complete(self, ask: Complete, terms: Terms, channel: Channel, request_id: RequestId) -> Outcome:
        if not self.catalog.completions:
            return Failure(Fault.UNKNOWN_METHOD, "This server completes nothing.")
        known = self.catalog.prompts if ask.kind == "prompt" else self.catalog.templates
        if ask.target not in known:
            return self._unknown(ask.kind, ask.target, terms)
        completer = self.catalog.completions.get((ask.kind, ask.target, ask.argument))
        if completer is None:
            return Answer(Completion([], total=0, has_more=False))

        async def suggest(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            arguments = completer.bind(ask.value, ask.context)
            value = await self._run(completer, arguments, terms, channel, request_id, answers, deadline)
            return Answer(content.completion(value))

        return await self._settled(f"The completion of {ask.argument}", [], Inputs(), terms, channel, suggest)

    async def _settled(
        self,
        what: str,
        request: list[JSON],
        inputs: Inputs,
        terms: Terms,
        channel: Channel,
        run: Callable[[Mapping[str, JSON], Deadline], Coroutine[Any, Any, Outcome]],
    ) -> Outcome:
        """Runs what is not a tool: its errors are protocol errors, for there is no result to carry them."""
        answers = self._answers(inputs, terms, request)
        if isinstance(answers, Failure):
            return answers
        deadline = Deadline(self.limits.handler_seconds, channel)
        try:
            return await run(answers, deadline)
        except MissingCapabilityError as error:
            return _missing(error)
        except (ToolError, InputDeclinedError) as error:
            return Failure(Fault.INTERNAL, str(error))
        except InputPending as pending:
            return self._questions(pending, terms, request, answers)
        except asyncio.CancelledError as error:
            if deadline.expired and deadline.forgive():
                return Failure(Fault.TIMEOUT, f"{what} took too long.")
            if not _is_cancelled():
                return Failure(Fault.INTERNAL, _broken(what, error))
            raise
        except BaseException as error:
            return Failure(Fault.INTERNAL, _broken(what, error))

    async def _run(
        self,
        runnable: Runnable,
        arguments: dict[str, Any],
        terms: Terms,
        channel: Channel,
        request_id: RequestId,
        answers: Mapping[str, JSON],
        deadline: Deadline,
    ) -> Any:
        context: Context | None = None
        if runnable.context_name is not None:
            context = Context(terms, channel, request_id, answers, self.life.state, deadline)
            arguments = {**arguments, runnable.context_name: context}
        if runnable.is_async:
            return await guarded(runnable.function(**arguments), deadline)
        try:
            return await guarded(self._threads.run(channel.caller, runnable.function, arguments), deadline)
        except asyncio.CancelledError:
            if context is not None:
                context.cancelled = True
            raise

    def _unknown(self, what: Literal["tool", "prompt", "template"], name: str, terms: Terms) -> Failure:
        view = self.catalog.view(terms.principal.scopes)
        among: dict[str, Mapping[str, Any]] = {
            "tool": view.operations,
            "prompt": self.catalog.prompts,
            "template": self.catalog.templates,
        }
        meant = view.find(name) if what == "tool" else None
        nearest = [meant.name] if meant is not None else view.nearest(name[:200], among[what])
        message = f"There is no {what} {name[:200]!r}.{did_you_mean(nearest)}"
        return Failure(Fault.NOT_FOUND, message, {"name": name[:200], "nearest": nearest})

    # Questions to the client, modern era

    def _answers(self, inputs: Inputs, terms: Terms, request: list[JSON]) -> Mapping[str, JSON] | Failure:
        """What the client has answered so far: in this round, and in the rounds our own state tells of."""
        if inputs.state is None:
            return inputs.responses
        earlier = self._seal.open(inputs.state, _binding(terms, request))
        if earlier is None:
            return Failure(Fault.INVALID_PARAMS, "params.requestState is not valid for this request; send it anew.")
        return {**earlier, **inputs.responses}

    def _questions(
        self, pending: InputPending, terms: Terms, request: list[JSON], answers: Mapping[str, JSON]
    ) -> InputRequired:
        return InputRequired(pending.requests, self._seal.close(dict(answers), _binding(terms, request)))


def _binding(terms: Terms, request: list[JSON]) -> bytes:
    whole = msgspec.json.encode([terms.principal.id, *request], order="deterministic")
    return hashlib.sha256(whole).digest()


def _is_cancelled() -> bool:
    """Whether somebody cancelled this request, rather than a function raising CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _missing(error: MissingCapabilityError) -> Failure:
    return Failure(Fault.MISSING_CAPABILITY, str(error), {"requiredCapabilities": error.required})


def _broken(what: str, error: BaseException) -> str:
    """Logs an error in full under an id, and gives the sentence that may be told."""
    if isinstance(error, PeerError):
        return f"{what} failed: the client refused a request ({error})."
    reference = secrets.token_hex(4)
    logger.error("%s failed, error %s", what, reference, exc_info=error)
    return f"{what} failed (error {reference}); the server's log says why."
