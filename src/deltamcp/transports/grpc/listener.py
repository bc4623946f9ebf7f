"""The server of the grpcio package, made to serve on whatever method a peer names."""

import logging
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

from deltamcp.transports.grpc.log_filter import GRPC_LOG_FILTER

logging.getLogger("grpc._cython.cygrpc").addFilter(GRPC_LOG_FILTER)

_UNKNOWN = "Method not found!"
"""What grpcio says of an unknown method itself."""


class _Calls(cygrpc.AioServer):  # type: ignore[misc]  # grpc has no types
    """Accepts calls: grpcio those of registered methods, whose names it knows; this class refuses all others.

    grpcio would decode the names of those others in the task that accepts all calls: one `:path` that is no UTF-8 ends
    that task, and with it the server and everybody's calls. None of this is public; hence the bounds of grpcio's
    version in `pyproject.toml`.
    """

    def __init__(self, loop: Any, *arguments: Any) -> None:
        super().__init__(loop, *arguments)
        self._event_loop = loop
        self._refusals: set[Any] = set()

    async def _request_call(self) -> Any:
        """Refuses calls of methods that are not registered, until the server stops, which raises."""
        while True:
            call = await super()._request_call()
            context = cygrpc._ServicerContext(call, None, None, self._event_loop)  # noqa: SLF001
            refusal = context.abort(grpc.StatusCode.UNIMPLEMENTED, _UNKNOWN)
            serving = cygrpc._schedule_rpc_coro(refusal, call, self._event_loop, "unknown")  # noqa: SLF001
            task = self._event_loop.create_task(serving)
            self._refusals.add(task)
            task.add_done_callback(self._refusals.discard)


class GrpcListener(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A `grpc.aio` server that serves registered methods only, at most so many `calls` at once."""

    def __init__(
        self, interceptor: grpc.aio.ServerInterceptor, channel_options: list[tuple[str, int]], calls: int
    ) -> None:
        self._loop = cygrpc.get_working_loop()
        self._server = _Calls(self._loop, None, (), (interceptor,), tuple(channel_options), calls)
