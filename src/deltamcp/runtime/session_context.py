"""What a client carries for an application from one request to the next, sealed, so that the server stores nothing."""

import msgspec

from deltamcp.runtime.seal import Seal
from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Caller
from deltamcp.wire import jsonrpc

_MAX_BYTES = 16 * 1024
"""The value as JSON, which goes to the client and back with every request."""
_MAX_CHARS = 2 * _MAX_BYTES


class SessionContext:
    """The value of one request, and what the function replaces it with."""

    __slots__ = ("_binding", "_new", "_seal", "_sent")

    def __init__(self, seal: Seal, caller: Caller, sent: JSON) -> None:
        """`sent` is what the request has in its `_meta`."""
        self._seal = seal
        self._binding = f"{SESSION_CONTEXT_KEY} {caller.principal.key}".encode()
        self._sent = sent
        self._new: dict[str, JSON] | None = None

    @property
    def value(self) -> dict[str, JSON]:
        """The value; empty if the client sent none, one of another principal, or one that has expired."""
        if self._new is not None:
            return self._new
        sent = self._sent
        found = self._seal.open(sent, self._binding) if isinstance(sent, str) and len(sent) <= _MAX_CHARS else None
        return found if isinstance(found, dict) else {}

    def replace(self, value: dict[str, JSON]) -> None:
        """Sets the value that the client carries from now on.

        Raises:
            ValueError: the value is no JSON object, or too large to be carried.
        """
        encoded = jsonrpc.encode_finite(value)
        if not isinstance(value, dict) or len(encoded) > _MAX_BYTES:
            raise ValueError(f"session_context takes a JSON object of at most {_MAX_BYTES} bytes.")
        self._new = msgspec.json.decode(encoded)

    @property
    def sealed(self) -> str | None:
        """The new value for the client; None if the function set none."""
        return None if self._new is None else self._seal.close(self._new, self._binding)
