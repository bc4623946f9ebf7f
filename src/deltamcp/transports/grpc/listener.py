"""The server of the grpcio package, made to serve whatever method a peer names, and to log little of its peers."""

import logging
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

from deltamcp.transports.warning_filter import WARNING_FILTER

_NO_UTF_8 = "Metadata of a gRPC call is no UTF-8"
_NOT_SENT = "A gRPC call ended before its response was sent"


class GrpcLogFilter(logging.Filter):
    """Makes a warning of an error with a traceback that any peer can cause, and passes some of them.

    The text of such an error may have a credential. All other records pass as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, cygrpc.ExecuteBatchError):
            text = _NOT_SENT
        elif isinstance(error, UnicodeDecodeError) and str(record.msg).startswith("Invalid encoding"):
            text = _NO_UTF_8
        else:
            return True
        record.msg, record.args, record.exc_info = text, (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return WARNING_FILTER.filter(record)


GRPC_LOG_FILTER = GrpcLogFilter()
"""The filter of grpcio's logger."""


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
