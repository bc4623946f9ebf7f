"""The conversation that a request belongs to, where its client names it.

A client's connection says nothing of it: hosts share one process or session among several conversations.
"""

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Caller

CONVERSATION_KEY = "io.github.delta-mcp/conversation"
"""The key in `_meta` under which a client names the conversation whose model reads the result: a text of its own.

Ids that hosts send for other purposes will not do: ChatGPT has one `openai/session` for its model and for its widgets,
Codex one `threadId` for its model and for scripts, and what those read, the model does not."""
_LITE_KEY = "conversation_id"
"""The member of MCP-lite's session context that names it."""
_MAX_CHARS = 256
_MIN_SECRET_CHARS = 16
"""Callers that cannot be told apart are in one conversation if they name one alike, so that a name must be hard to
guess."""


def in_named_conversation(caller: Caller, meta: Mapping[str, JSON]) -> Caller:
    """Returns the caller in the conversation that a request's `_meta` names; as it is if that names none."""
    return _in_conversation(caller, meta[CONVERSATION_KEY]) if CONVERSATION_KEY in meta else caller


def in_lite_conversation(caller: Caller, meta: Mapping[str, JSON]) -> Caller:
    """Returns the same for a request of MCP-lite, whose session context may name the conversation."""
    context = meta.get(SESSION_CONTEXT_KEY)
    if isinstance(context, dict) and _LITE_KEY in context:
        return _in_conversation(caller, context[_LITE_KEY])
    return in_named_conversation(caller, meta)


def _in_conversation(caller: Caller, name: JSON) -> Caller:
    least = _MIN_SECRET_CHARS if caller.shares_handles else 1
    if not isinstance(name, str) or not least <= len(name) <= _MAX_CHARS:
        return caller
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]
    return replace(caller, conversation=f"named {digest}", moves=caller.moves or caller.connection is None)
