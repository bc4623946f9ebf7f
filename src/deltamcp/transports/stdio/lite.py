"""MCP-lite over a two-way connection, such as stdio: the same messages as over HTTP, one on each line."""

import time

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports.lite.messages import MAX_BATCH, why_refused
from deltamcp.transports.lite.responses import write_response
from deltamcp.transports.stdio.duplex import Connection, Duplex, Respond
from deltamcp.values import LOCAL, Failure, Malformed, Message, Outcome, Principal, Request, Response


class LiteDuplex(Duplex):
    """Serves every request in the dialect MCP-lite; there is no handshake."""

    def __init__(self, engine: Engine, connection: Connection, principal: Principal = LOCAL) -> None:
        super().__init__(engine, connection, principal)
        self._lite = engine.dialects.mcp_lite()

    def _receive_one(self, message: Message, held: int, respond: Respond) -> None:
        super()._receive_one(_check(message), held, respond)

    @property
    def _takes_batches(self) -> bool:
        return True

    def _receive_batch(self, messages: list[Message], held: int) -> None:
        if len(messages) > MAX_BATCH:
            reason = f"A batch may have at most {MAX_BATCH} messages."
            self._write(self._refuse_message(Malformed(Fault.INVALID_REQUEST, reason)))
        else:
            super()._receive_batch([_check(message) for message in messages], held)

    def _refuse_message(self, message: Malformed) -> bytes:
        return self._lite.refuse(*why_refused(message))

    def _write_failure(self, request: Request, failure: Failure) -> bytes:
        return self._lite.refuse(failure, request.id)

    def _start(self, request: Request, held: int, respond: Respond, finish: Respond) -> None:
        self._spawn(request, held, self._serve_lite(request, finish), respond)

    async def _serve_lite(self, request: Request, respond: Respond) -> None:
        started = time.monotonic()
        understood = self._lite.read(request, self.caller)
        outcome: Outcome | None
        if isinstance(understood, Failure):
            outcome = understood
        else:
            terms, ask = understood
            outcome = await self._perform(ask, terms, request.id)
        if outcome is not None:
            await self.wait_writable()
            respond(write_response(self._lite, request, outcome, started)[0])


def _check(message: Message) -> Message:
    """Returns a message that MCP-lite does not have as one that is refused, any other as it is."""
    if isinstance(message, Response):
        failure, id_ = why_refused(message)
        return Malformed(failure.fault, failure.message, id_)
    return message
