"""Answers to `resources/read` and `prompts/get`, and completions of their arguments."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from deltamcp.calls.failures import log_failure, missing_scopes, refuse_withheld
from deltamcp.calls.function_runner import FunctionRunner
from deltamcp.calls.lists import Capabilities, Lists
from deltamcp.calls.middleware import Origin, mount_chain
from deltamcp.calls.request_context import RequestContext, accept_since
from deltamcp.catalog import discovery
from deltamcp.catalog.arguments import InvalidArgumentsError
from deltamcp.catalog.items.prompt import Prompt
from deltamcp.catalog.items.resource import Resource
from deltamcp.catalog.view import did_you_mean
from deltamcp.context import ConversationState, StateStore, conversation_digest
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.delivery.stored_results import ResultOrigin
from deltamcp.errors import Fault, MissingScopesError, ResourceNotFoundError, ToolError, UsageError
from deltamcp.results import content
from deltamcp.runtime.deadline import Deadline
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import StoreError
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    Answer,
    Audio,
    BlobResource,
    Complete,
    Completion,
    Content,
    Contents,
    EmbeddedResource,
    Failure,
    GetPrompt,
    Image,
    Kind,
    Outcome,
    PromptMessage,
    PromptResult,
    RawResult,
    ReadResource,
    ResourceLink,
    Role,
    Text,
    TextResource,
)
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_FIRST_STEPS = 1_000
"""The steps that every request takes at once; for more of them callers take turns."""
_MATCH_STEPS = 50_000
"""The steps of looking for a template that fits a URI, some 25 ms: ten variables in a URI of the greatest length."""


class _Located(NamedTuple):
    """A resource that fits a URI, with the variables of the URI and the arguments that they become."""

    resource: Resource
    variables: dict[str, str]
    arguments: dict[str, Any]


def _missing(uri: str) -> Failure:
    return Failure(Fault.RESOURCE_NOT_FOUND, f"There is no resource at {uri[:200]}.", {"uri": uri})


def _contents(value: Any, uri: str, resource: Resource) -> Contents | RawResult:
    if isinstance(value, RawResult):
        return value
    contents = content.resource_contents(value, uri, resource.mime_type)
    ttl_ms = contents.ttl_ms or int(resource.cache_seconds * 1000)
    return msgspec.structs.replace(contents, ttl_ms=ttl_ms)


def _parse_contents(result: Mapping[str, JSON], uri: str) -> list[TextResource | BlobResource]:
    """Returns the contents that another server sent.

    Raises:
        ToolError: they are none.
    """
    try:
        sent = msgspec.convert(result.get("contents"), list[dict[str, Any]])
        return [_parse_resource(one) for one in sent]
    except msgspec.ValidationError:
        raise ToolError(f"{uri[:200]} cannot be read: its server sent no contents.") from None


def _parse_messages(result: Mapping[str, JSON], prompt: str) -> PromptResult:
    """Returns the messages that another server sent.

    Raises:
        ToolError: they are none.
    """
    try:
        sent = msgspec.convert(result.get("messages"), list[_SentMessage])
        return PromptResult([PromptMessage(one.role, _parse_content(one.content)) for one in sent])
    except msgspec.ValidationError:
        raise ToolError(f"{prompt[:200]} cannot be filled in: its server sent no messages.") from None


def _parse_content(block: dict[str, Any]) -> Content:
    """
    Raises:
        msgspec.ValidationError: it is no content.
    """
    if block.get("type") != "resource":
        return msgspec.convert(block, Text | Image | Audio | ResourceLink)
    return EmbeddedResource(_parse_resource(msgspec.convert(block.get("resource"), dict[str, Any])))


def _parse_resource(sent: dict[str, Any]) -> TextResource | BlobResource:
    """
    Raises:
        msgspec.ValidationError: it has no contents.
    """
    return msgspec.convert(sent, BlobResource) if "blob" in sent else msgspec.convert(sent, TextResource)


class _SentMessage(msgspec.Struct):
    role: Role
    content: dict[str, Any]


class Resources:
    """Answers `resources/read`."""

    def __init__(
        self,
        capabilities: Capabilities,
        runner: FunctionRunner,
        continuation: Continuation,
        changes: ChangeDelivery,
        computations: Computations,
        cache_seconds: float,
    ) -> None:
        self._capabilities = capabilities
        self._runner = runner
        self._continuation = continuation
        self._changes = changes
        self._computations = computations
        self._ttl_ms = int(cache_seconds * 1000)

    async def read(self, ask: ReadResource, request: RequestContext) -> Outcome:
        """Reads the resource at a URI; a caller that sends the root of its last read gets the changes since then."""
        root = await accept_since(request, self._changes)
        if isinstance(root, Failure):
            return root
        origin = ResultOrigin(ask.uri, request.view.scopes)
        try:
            stored = await self._continuation.stored_resource(ask.uri, request.terms.caller)
        except UsageError as error:
            return Failure(Fault.INVALID_PARAMS, str(error))
        except MissingScopesError as error:
            return missing_scopes(error, request.terms.caller)
        except StoreError as error:
            return Failure(Fault.INTERNAL, log_failure(f"The resource {ask.uri[:200]}", error))
        outcome: Outcome
        if stored is None:
            outcome = await self._read_whole(ask, request)
        else:
            outcome, origin = Answer(Contents([stored[0]])), stored[1]
        if root is None or not isinstance(outcome, Answer) or not isinstance(outcome.value, Contents):
            return outcome
        call = CallKey(request.terms.caller, call_digest(["resources/read", ask.uri]), origin)
        return Answer(await self._changes.deliver_contents(outcome.value, call, root))

    async def read_for_function(
        self, request: RequestContext, answers: Mapping[str, JSON], deadline: Deadline, uri: str
    ) -> list[TextResource | BlobResource]:
        """Returns the contents of a resource, for a function that serves a request of the same caller.

        Raises:
            ResourceNotFoundError: there is none, or the caller may not see it.
            ToolError: it cannot be read.
        """
        located = await self._locate(uri, request)
        if isinstance(located, _Located):
            try:
                value = await self._runner.run_within(*located, request, answers, deadline)
            except ResourceNotFoundError:
                raise ResourceNotFoundError(_missing(uri).message) from None
            located = Answer(_contents(value, uri, located.resource))
        match located:
            case Answer(value=Contents(items=items)):
                return items
            case Answer(value=RawResult(fields=fields)):
                return _parse_contents(fields, uri)
            case Failure(fault=Fault.RESOURCE_NOT_FOUND | Fault.UNKNOWN_METHOD, message=message):
                raise ResourceNotFoundError(message)
            case Failure(message=message):
                raise ToolError(message)
            case _:
                raise AssertionError("resources have contents, or there are none")

    async def _read_whole(self, ask: ReadResource, request: RequestContext) -> Outcome:
        located = await self._locate(ask.uri, request)
        if not isinstance(located, _Located):
            return located

        async def read(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            try:
                value = await self._runner.run_call(*located, request, answers, deadline)
            except ResourceNotFoundError:
                return _missing(ask.uri)
            return Answer(_contents(value, ask.uri, located.resource))

        key = ["resources/read", ask.uri]
        return await self._runner.perform(f"The resource {ask.uri[:200]}", key, ask.inputs, request, read)

    async def _locate(self, uri: str, request: RequestContext) -> "_Located | Outcome":
        """Returns the function to read a URI with, and its arguments; or the outcome, where there is no function."""
        if not self._capabilities.offers(Kind.RESOURCES, request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no resources.")
        try:
            found = await self._find(uri, request)
        except WorkLimitError as error:
            return Failure(Fault.INVALID_PARAMS, f"params.uri fits templates in too many ways. {error}")
        if found is None:
            answer = await self._read_operation(uri, request)
            if answer is not None:
                return answer
            unlisted = request.view.find_unlisted(uri, request.terms.caller.principal)
            if unlisted is None:
                return _missing(uri)
            found = unlisted, {}
        resource, values = found
        variables = resource.variables(values, uri)
        try:
            return _Located(resource, variables, resource.bind(variables))
        except InvalidArgumentsError:
            return _missing(uri)

    async def _find(self, uri: str, request: RequestContext) -> tuple[Resource, dict[str, str]] | None:
        """Finds the resource at a URI as the view does, and raises what it raises."""
        principal = request.terms.caller.principal
        try:
            return request.view.resource_at(uri, principal, Work(_FIRST_STEPS))
        except WorkLimitError:
            await self._computations.take_turn(request.terms.caller.account)
            return request.view.resource_at(uri, principal, Work(_MATCH_STEPS))

    async def _read_operation(self, uri: str, request: RequestContext) -> Outcome | None:
        """Reads the tree of operations, a category or an operation; returns None if the URI names none of these."""
        view, resources = request.view, request.view.operation_resources
        path = resources.parse_uri(uri) if resources is not None else None
        if resources is None or path is None:
            return None

        def read(work: Work) -> str | None:
            value = resources.read(uri, discovery.operation_details, work)
            return None if value is None else jsonrpc.encode(value).decode()

        try:
            text = await self._computations.run(request.terms.caller.account, read)
        except WorkLimitError as error:
            return Failure(Fault.INVALID_PARAMS, str(error))
        if text is not None:
            return Answer(Contents([TextResource(uri, text, "application/json")], ttl_ms=self._ttl_ms))
        refused = refuse_withheld((path,), request)
        if refused is not None:
            return refused
        await self._computations.take_turn(request.terms.caller.account)
        ids = view.nearest_names(path.replace("/", "."), view.ids)
        nearest = [resources.uri(id_) for id_ in ids]
        message = f"There is no operation at {uri[:200]}.{did_you_mean(nearest)}"
        return Failure(Fault.RESOURCE_NOT_FOUND, message, {"uri": uri, "nearest": nearest})


class Prompts:
    """Answers `prompts/get` and `completion/complete`."""

    def __init__(self, capabilities: Capabilities, lists: Lists, runner: FunctionRunner) -> None:
        self._capabilities = capabilities
        self._lists = lists
        self._runner = runner

    async def get(self, ask: GetPrompt, request: RequestContext) -> Outcome:
        if not self._capabilities.offers(Kind.PROMPTS, request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no prompts.")
        prompt = request.view.prompts.get(ask.name)
        if prompt is None:
            return await self._lists.unknown("prompt", ask.name, request)
        try:
            arguments = prompt.bind(ask.arguments)
        except InvalidArgumentsError as error:
            return Failure(Fault.INVALID_PARAMS, f"Invalid arguments for {ask.name}. {error}")

        async def fill(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            value = await self._runner.run_call(prompt, ask.arguments, arguments, request, answers, deadline)
            if isinstance(value, RawResult):
                return Answer(value)
            return Answer(content.prompt_result(value, prompt.list_item.get("description")))

        key = ["prompts/get", ask.name, ask.arguments]
        return await self._runner.perform(f"The prompt {ask.name}", key, ask.inputs, request, fill)

    async def get_for_function(
        self,
        prompt: Prompt,
        arguments: Mapping[str, str],
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
    ) -> PromptResult:
        """Returns the messages of a prompt, for a function that serves a request of the same caller.

        Raises:
            ToolError: it cannot be filled in with these arguments.
        """
        try:
            bound = prompt.bind(arguments)
        except InvalidArgumentsError as error:
            raise ToolError(f"Invalid arguments for {prompt.name}. {error}") from None
        value = await self._runner.run_within(prompt, arguments, bound, request, answers, deadline)
        if not isinstance(value, RawResult):
            return content.prompt_result(value, prompt.list_item.get("description"))
        return _parse_messages(value.fields, prompt.name)

    async def complete(self, ask: Complete, request: RequestContext) -> Outcome:
        if not self._capabilities.completes(request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no completions.")
        items: Mapping[str, Prompt | Resource]
        items = request.view.prompts if ask.kind == "prompt" else request.view.templates
        if ask.target not in items:
            return await self._lists.unknown(ask.kind, ask.target, request)
        registered = request.view.completions.get((ask.kind, ask.target, ask.argument))
        completer = registered or items[ask.target].completer(ask.argument)
        if completer is None:
            return Answer(Completion([], total=0, has_more=False))

        async def suggest(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            arguments = completer.bind(ask.value, ask.context)
            value = await self._runner.run_function(completer, arguments, request, answers, deadline)
            return Answer(value if isinstance(value, RawResult) else content.completion(value))

        return await self._runner.perform(f"The completion of {ask.argument}", [], NO_INPUTS, request, suggest)


class FunctionRequest:
    """What a function of a call may ask of its own server: `OwnServerOfCall`, over the request of its caller."""

    __slots__ = ("_answers", "_deadline", "_origins", "_prompts", "_request", "_resources", "_states")

    def __init__(
        self,
        resources: Resources,
        prompts: Prompts,
        states: StateStore,
        request: RequestContext,
        answers: Mapping[str, JSON],
        deadline: Deadline,
        origins: tuple[Origin, ...] = (),
    ) -> None:
        """
        Args:
            states: What functions keep of conversations.
            origins: Those of the function's item, from the server of the request to the function's own.
        """
        self._resources, self._prompts, self._states = resources, prompts, states
        self._request, self._answers, self._deadline = request, answers, deadline
        self._origins = origins

    def in_mounted(self, origin: Origin) -> "FunctionRequest":
        origins = (*self._origins, origin)
        shared = self._resources, self._prompts, self._states, self._request, self._answers, self._deadline
        return FunctionRequest(*shared, origins)

    def open_state(self) -> ConversationState:
        caller, promise = self._request.terms.caller, self._request.promise
        conversation = conversation_digest(caller) if promise is None else promise.conversation
        return ConversationState(self._states, conversation, caller.account)

    async def read_resource(self, uri: str) -> list[TextResource | BlobResource]:
        for origin in reversed(self._origins):
            if origin.outer_uri is not None:
                uri = origin.outer_uri(uri)
        return await self._resources.read_for_function(self._request, self._answers, self._deadline, uri)

    def list_items(self, kind: Kind) -> list[dict[str, JSON]]:
        return [own.list_item for _, own in self._own_items(kind)]

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> PromptResult:
        for prompt, own in self._own_items(Kind.PROMPTS):
            if isinstance(prompt, Prompt) and own.list_item["name"] == name:
                return await self._prompts.get_for_function(
                    prompt, arguments, self._request, self._answers, self._deadline
                )
        raise ToolError(f"There is no prompt {name[:200]!r}.")

    def _own_items(self, kind: Kind) -> Iterator[tuple[Prompt | Resource, Prompt | Resource]]:
        """Yields the items that the caller sees and that are of the function's server: as they are here and there."""
        view = self._request.view
        items: Mapping[Kind, Mapping[str, Prompt | Resource]] = {
            Kind.PROMPTS: view.prompts,
            Kind.RESOURCES: view.resources,
            Kind.TEMPLATES: view.templates,
        }
        for item in items[kind].values():
            if not self._origins:
                yield item, item
                continue
            hooks = self._origins[-1].hooks
            for origin in mount_chain(item, hooks):
                if origin.item is not item and origin.hooks is hooks and isinstance(origin.item, Prompt | Resource):
                    yield item, origin.item
