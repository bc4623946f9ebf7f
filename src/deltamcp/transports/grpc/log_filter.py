"""The filter of what the grpcio package logs of its peers: one line without what they sent, and not often."""

import logging

from grpc._cython import cygrpc

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
