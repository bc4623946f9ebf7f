"""Requests that an upstream performs for a caller, without a server in front."""

from collections.abc import Mapping
from typing import Any

from deltamcp.context import Context, ConversationState, RequestProgress, StateStore
from deltamcp.errors import ResourceNotFoundError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import Deadline
from deltamcp.runtime.seal import Seal, SessionContext
from deltamcp.stores.store import open_store
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import LOCAL, Caller, Era, Kind, Principal, Terms
from tests.support.engine_calls import SilentChannel


def context_of(principal: Principal = LOCAL, account: str = "me") -> Context:
    """The context of a request whose sender can do nothing but wait for its answer."""
    caller = Caller(principal, account=account)
    channel: Any = SilentChannel()
    terms = Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=caller)
    return _context(terms, channel, {})


def promised_context(memo: Any = None, answers: dict[str, Any] | None = None) -> Context:
    """The context of a run behind a promise, whose sender was of the handshake era and can be asked anything."""
    caller = Caller(LOCAL, account="me")
    channel: Any = SilentChannel()
    terms = Terms(Era.HANDSHAKE, "2025-11-25", {"elicitation": {}, "sampling": {}}, {}, {}, caller=caller)
    return _context(terms, channel, answers or {}, promise_id="p", memo=memo)


def _context(terms: Terms, channel: Any, answers: dict[str, Any], **options: Any) -> Context:
    session = SessionContext(Seal([], 60.0), terms.caller, None)
    return Context(terms, channel, 1, answers, None, Deadline(60), session, RequestProgress(), NoServer(), **options)


class NoServer:
    """Has nothing to ask of it."""

    async def read_resource(self, uri: str) -> Any:
        raise ResourceNotFoundError(uri)

    def list_items(self, kind: Kind) -> list[dict[str, Any]]:
        return []

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Any:
        raise ToolError(name)

    def open_state(self) -> ConversationState:
        return ConversationState(StateStore(open_store("memory://", Limits()), "test", Limits()), None, "me")


async def call(
    upstream: Upstream, tool: str, *, repeatable: bool = False, principal: Principal = LOCAL, **arguments: Any
) -> Any:
    """Calls a tool of an upstream and returns the structured content of its result."""
    params = {"name": tool, "arguments": arguments}
    result = await upstream.forward("tools/call", params, context_of(principal), repeatable=repeatable)
    return result.fields["structuredContent"]
