"""`ConversationState`: what a server's functions keep of one conversation, in the store that replicas share."""

import hashlib
from collections.abc import Callable

import msgspec

from deltamcp.errors import NoConversationError, ToolError
from deltamcp.limits import Limits
from deltamcp.stores.store import SharedStore, StoreError
from deltamcp.values import JSON, Caller
from deltamcp.wire import jsonrpc

_NAME = "state"
_MAX_SECONDS = 7 * 86_400.0
_MAX_ATTEMPTS = 100
"""Of several calls that change the state at once one succeeds in each attempt, and the others try again."""


def conversation_digest(caller: Caller) -> str | None:
    """Returns what stands for a caller's conversation, and reveals no session id; None if it names none.

    Two principals never share a conversation, also where they name it alike.
    """
    conversation = caller.conversation or caller.connection
    if conversation is None:
        return None
    text = f"{caller.principal.owner}\0{conversation}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class StateStore:
    """The states of all conversations of one server."""

    def __init__(self, store: SharedStore, server: str, limits: Limits) -> None:
        self._store, self._server, self._limits = store, server, limits

    async def read(self, conversation: str) -> bytes | None:
        return await self._store.get(self._owner(conversation), _NAME)

    async def write(self, conversation: str, expected: bytes | None, data: bytes, account: str) -> bool:
        """Stores a state in place of the one that was read; returns False if that has changed meanwhile.

        It counts towards an account of its own for each caller, so that results do not displace it.

        Raises:
            ToolError: the state is too large.
        """
        if len(data) > self._limits.state_bytes:
            raise ToolError(f"The state of a conversation may have {self._limits.state_bytes:,} bytes as JSON.")
        owner, idle_seconds, own_account = self._owner(conversation), self._limits.state_seconds, f"states, {account}"
        if expected is None:
            return await self._store.add(owner, _NAME, data, idle_seconds, _MAX_SECONDS, own_account)
        return await self._store.replace(owner, _NAME, expected, data, idle_seconds, _MAX_SECONDS, own_account)

    def _owner(self, conversation: str) -> str:
        return f"state of {conversation} at {self._server}"


class ConversationState:
    """A small mapping of one conversation, from texts to JSON. Every method may raise `StoreError`.

    Calls of the same conversation share it, at any replica; other conversations and principals have their own.
    """

    __slots__ = ("_account", "_conversation", "_states")

    def __init__(self, states: StateStore, conversation: str | None, account: str) -> None:
        self._states, self._conversation, self._account = states, conversation, account

    async def get(self, key: str, default: JSON = None) -> JSON:
        """Returns the value of a key, or `default`.

        Raises:
            NoConversationError: the request names no conversation.
        """
        return (await self.all()).get(key, default)

    async def all(self) -> dict[str, JSON]:
        """Returns a copy of the whole mapping.

        Raises:
            NoConversationError: as `get`.
        """
        return _decode(await self._states.read(self._conversation_or_error()))

    async def set(self, key: str, value: JSON) -> None:
        """Sets a key.

        Raises:
            NoConversationError: as `get`.
            ToolError: the mapping would be larger than `Limits.state_bytes`.
            ValueError: JSON cannot express the value.
        """
        jsonrpc.encode_finite(value)
        await self._change(lambda mapping: mapping.__setitem__(key, value))

    async def delete(self, key: str) -> None:
        """Removes a key, if it is there.

        Raises:
            NoConversationError: as `get`.
        """
        await self._change(lambda mapping: mapping.pop(key, None))

    async def update(self, key: str, change: Callable[[JSON], JSON], default: JSON = None) -> JSON:
        """Sets a key to what `change` returns for its value, and returns that: `update("calls", lambda n: n + 1, 0)`.

        No concurrent change is lost; `change` may therefore be called several times.

        Raises:
            NoConversationError, ToolError, ValueError: as `set`.
        """

        def change_key(mapping: dict[str, JSON]) -> JSON:
            mapping[key] = change(mapping.get(key, default))
            return mapping[key]

        return await self._change(change_key)

    async def _change(self, change: Callable[[dict[str, JSON]], JSON]) -> JSON:
        conversation = self._conversation_or_error()
        for _ in range(_MAX_ATTEMPTS):
            before = await self._states.read(conversation)
            mapping = _decode(before)
            changed = change(mapping)
            if await self._states.write(conversation, before, jsonrpc.encode_finite(mapping), self._account):
                return changed
        raise StoreError("The state of a conversation is changed by too many calls at once.")

    def _conversation_or_error(self) -> str:
        if self._conversation is None:
            raise NoConversationError
        return self._conversation


def _decode(data: bytes | None) -> dict[str, JSON]:
    found: dict[str, JSON] = {} if data is None else msgspec.json.decode(data)
    return found
