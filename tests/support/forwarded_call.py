"""Requests that an upstream performs for a caller, without a server in front."""

from typing import Any

from deltamcp.context import Context
from deltamcp.runtime.deadline import Deadline
from deltamcp.runtime.seal import Seal, SessionContext
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import LOCAL, Caller, Era, Principal, Terms
from tests.support.engine_calls import SilentChannel


def context_of(principal: Principal = LOCAL, account: str = "me") -> Context:
    """The context of a request whose sender can do nothing but wait for its answer."""
    caller = Caller(principal, account=account)
    channel: Any = SilentChannel()
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=caller)
    return Context(terms, channel, 1, {}, None, Deadline(60), SessionContext(Seal([], 60.0), caller, None))


def promised_context(memo: Any = None, answers: dict[str, Any] | None = None) -> Context:
    """The context of a run behind a promise, whose sender was of the handshake era and can be asked anything."""
    caller = Caller(LOCAL, account="me")
    channel: Any = SilentChannel()
    terms = Terms(Era.HANDSHAKE, "2025-11-25", {"elicitation": {}, "sampling": {}}, {}, {}, caller=caller)
    session = SessionContext(Seal([], 60.0), caller, None)
    return Context(terms, channel, 1, answers or {}, None, Deadline(60), session, promise_id="p", memo=memo)


async def call(
    upstream: Upstream, tool: str, *, repeatable: bool = False, principal: Principal = LOCAL, **arguments: Any
) -> Any:
    """Calls a tool of an upstream and returns the structured content of its result."""
    params = {"name": tool, "arguments": arguments}
    result = await upstream.forward("tools/call", params, context_of(principal), repeatable=repeatable)
    return result.fields["structuredContent"]
