"""A tool call that an upstream goes on with after its reply, as a task: the caller's call waits for it here."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, TypeAlias

from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.client import GatewayClient
from deltamcp.client.links.link import peer_error
from deltamcp.client.pending_call import CallState, PendingCall, ended_state, parse_task
from deltamcp.client.reply import Reply
from deltamcp.context import Context, InputPending
from deltamcp.dialects import tasks
from deltamcp.errors import ClientError, ConnectionLostError, PeerError, UnreachableError, UpstreamError
from deltamcp.upstreams.forwarded_request import ask_caller, forward
from deltamcp.upstreams.parked_calls import ParkedCalls
from deltamcp.upstreams.relayed_messages import RelayedMessages
from deltamcp.values import JSON, Era, RawResult
from deltamcp.wire import jsonrpc

_ASK_SECONDS = 30.0
"""How long an upstream may take to say how far a task is."""
_CANCEL_SECONDS = 3.0
"""How long the gateway tries to cancel a task that nobody waits for any more."""
_TASK = "task"
"""The key of a memo that has the id of the task; `requests` has the questions that the caller was asked."""

ForwardRequest: TypeAlias = Callable[[GatewayClient, str, Mapping[str, JSON], Context], Awaitable[RawResult]]
"""`forward`, where everything else is known."""


async def call_tool(
    client: GatewayClient,
    method: str,
    params: Mapping[str, JSON],
    context: Context,
    parked_calls: ParkedCalls,
    *,
    in_use: Callable[[], AbstractContextManager[None]],
    messages: RelayedMessages,
    task_support: str = "",
    **options: Any,
) -> RawResult:
    """Has an upstream call a tool for a caller; waits for the result also where the upstream answers with a task.

    Args:
        task_support: What the tool's definition says of tasks (2025-11-25): `required`, `optional`, or anything else.
        options: As of `forward`, as are the other arguments.

    Raises:
        InputPending, UpstreamError, PeerError, ConnectionLostError, DeadlineError: as `forward`; an upstream that
            cancelled its task is an `UpstreamError`, too.
    """
    resume = functools.partial(forward, parked_calls=parked_calls, in_use=in_use, messages=messages)
    follow = functools.partial(_await_task, client, context, str(params.get("name")), resume, messages)
    memo = context.memo
    if isinstance(memo, dict) and "parked" in memo and _TASK in memo:
        async with _task_of_caller(client, memo[_TASK]):
            return _without_related_task(await resume(client, "tasks/result", {"taskId": memo[_TASK]}, context))
    if isinstance(memo, dict) and _TASK in memo:
        return await follow(CallState(memo[_TASK], "input_required", questions=memo["requests"]))
    server = client.server
    # A call that runs behind a promise takes its time; any other is answered soonest without a task.
    is_long = task_support == "required" or (task_support == "optional" and context.promise_id is not None)
    as_task = server.takes_tasks and is_long
    sent = {**params, "task": {}} if as_task else params
    result = await forward(client, method, sent, context, parked_calls, in_use=in_use, messages=messages, **options)
    if as_task and "task" in result.fields:
        return await follow(parse_task(result.fields["task"]))
    if server.era is Era.MODERN and result.fields.get("resultType") == "task":
        return await follow(parse_task(result.fields))
    return result


async def _await_task(
    client: GatewayClient,
    context: Context,
    name: str,
    forward_request: ForwardRequest,
    messages: RelayedMessages,
    state: CallState,
) -> RawResult:
    """Asks for a task as often as the upstream wants to be asked, until it has ended or asks the caller something."""
    protocol = _CallerTasks(client, context, forward_request)
    answers = _CallerAnswers(context, state.token, messages)
    pending = PendingCall(name, state, lambda: protocol, answers, _no_reply, _no_value)
    changes = 0
    async with _task_of_caller(client, state.token), aclosing(pending.updates()) as updates:
        async for one in updates:
            changes += 1
            if one.progress is not None:
                await context.report_progress(one.progress, one.total, messages.progress(one.message))
            elif one.message is not None:  # MCP's tasks have words, and no figures
                await context.report_progress(changes, None, messages.progress(one.message))
    if pending.state.error is not None:
        raise peer_error(pending.state.error)
    if pending.state.result is None:
        raise UpstreamError(f"{name} did not end: the server behind it cancelled the call.")
    return RawResult(jsonrpc.encode(pending.state.result), pending.state.result)


@asynccontextmanager
async def _task_of_caller(client: GatewayClient, id_: JSON) -> AsyncIterator[None]:
    """Cancels a task whose caller's call fails or is cancelled meanwhile; if the caller is asked, the memo names it."""
    try:
        yield
    except InputPending as pending:
        memo = pending.memo if isinstance(pending.memo, dict) else {}
        raise InputPending(pending.requests, {**memo, _TASK: id_}) from None
    except (ConnectionLostError, UnreachableError):
        raise
    except BaseException:
        await cancel_task(client, id_)
        raise


async def cancel_task(client: GatewayClient, id_: JSON) -> None:
    """Cancels a task of an upstream, unless that takes long or the upstream refuses."""
    with suppress(ClientError, PeerError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await client.request("tasks/cancel", {"taskId": id_}, timeout=_ASK_SECONDS)


class _CallerTasks:
    """Asks an upstream for the task of a caller's call; implements `PromiseProtocol`."""

    waits = False

    def __init__(self, client: GatewayClient, context: Context, forward_request: ForwardRequest) -> None:
        self._client = client
        self._context = context
        self._forward_request = forward_request
        self._is_modern = client.server.era is Era.MODERN

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        state = await self.status(token)
        if self._is_modern or state.status not in ("input_required", "completed", "failed"):
            return state
        # It waits until the call has ended, and the server asks meanwhile (2025-11-25, "Input Required Status").
        result = await self._forward_request(self._client, "tasks/result", {"taskId": token}, self._context)
        return ended_state(_without_related_task(result).fields, token)

    async def status(self, token: str) -> CallState:
        return parse_task(await self._client.request("tasks/get", {"taskId": token}, timeout=_ASK_SECONDS))

    async def answer(self, token: str, responses: dict[str, JSON]) -> None:
        params = {"taskId": token, "inputResponses": responses}
        await self._client.request("tasks/update", params, timeout=_ASK_SECONDS)

    async def cancel(self, token: str) -> None:
        await self._client.request("tasks/cancel", {"taskId": token}, timeout=_ASK_SECONDS)


class _CallerAnswers(ClientCallbacks):
    """Answers the questions of a task by asking the caller."""

    def __init__(self, context: Context, token: str | None, messages: RelayedMessages) -> None:
        super().__init__(None, None, None)
        self._context = context
        self._token = token
        self._messages = messages

    async def retry_params(self, result: Mapping[str, JSON]) -> dict[str, JSON]:
        requests = result["inputRequests"]
        memo = {_TASK: self._token, "requests": requests}
        return {"inputResponses": await ask_caller(self._context, requests, memo, self._messages)}


def _without_related_task(result: RawResult) -> RawResult:
    """Returns a result without the id of the upstream's task, which the caller does not know."""
    meta = result.fields.get("_meta")
    if not isinstance(meta, dict) or tasks.RELATED_KEY not in meta:
        return result
    rest = {key: value for key, value in meta.items() if key != tasks.RELATED_KEY}
    fields = {key: value for key, value in result.fields.items() if key != "_meta"}
    if rest:
        fields["_meta"] = rest
    return RawResult(jsonrpc.encode(fields), fields)


async def _no_reply(result: dict[str, JSON]) -> Reply:
    raise AssertionError("the result is passed on as it is")


async def _no_value(name: str, reply: Reply) -> JSON:
    raise AssertionError("the result is passed on as it is")
