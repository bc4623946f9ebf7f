"""Errors for callers: one sentence, with an id under which the server's log has the traceback."""

import asyncio
import logging
import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec import UNSET

from deltamcp.calls.request_context import RequestContext
from deltamcp.context import MissingCapabilityError
from deltamcp.dialects.dialect import Dialect
from deltamcp.errors import FAULTS, Fault, MissingScopesError, PeerError, RemoteError, ToolErrorCode
from deltamcp.results.content import server_error
from deltamcp.stores.store import StoreUnreachableError
from deltamcp.values import Caller, Failure, Outcome, Request, ToolResult

logger: logging.Logger = logging.getLogger("deltamcp")


def log_failure(subject: str, error: BaseException) -> str:
    """Logs an error with its traceback under a new id, and returns a sentence for the caller.

    `subject` names the failed item and begins the sentence, such as "The tool add". The sentence says where the log is,
    and nothing of the error, which may hold secrets.
    """
    return _report(subject, error).text


def crash_result(subject: str, error: BaseException) -> ToolResult:
    """Logs an error as `log_failure` does, and returns the tool error with its sentence and its id."""
    report = _report(subject, error)
    details = {} if report.error_id is None else {"error_id": report.error_id}
    return server_error(report.text, ToolErrorCode.INTERNAL, retryable=report.retryable, details=details)


class _Report(NamedTuple):
    text: str
    error_id: str | None = None
    retryable: bool = False


def _report(subject: str, error: BaseException) -> _Report:
    if isinstance(error, PeerError):
        return _Report(f"{subject} failed: the client refused a request ({error}).")
    if isinstance(error, StoreUnreachableError):  # its circuit breaker has logged it
        sentence = f"{subject} failed: stored results cannot be reached now; try again in a few seconds."
        return _Report(sentence, retryable=True)
    error_id = secrets.token_hex(4)
    logger.error("%s failed, error %s", subject, error_id, exc_info=error)
    return _Report(f"{subject} failed (error {error_id}); {_log_name()} says why.", error_id)


def _log_name() -> str:
    """Names the log by what receives its errors: stderr, or a file, whose folder is not the caller's business."""
    handlers = [handler for handler in _log_handlers(logger) if handler.level <= logging.ERROR]
    for handler in handlers:
        if isinstance(handler, logging.FileHandler):
            return f"the server's log, {Path(handler.baseFilename).name},"
    if any(isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr for handler in handlers):
        return "the server's log, which is its stderr,"
    return "the server's log"


def _log_handlers(logger: logging.Logger) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    ancestor: logging.Logger | None = logger
    while ancestor is not None:
        handlers += ancestor.handlers
        ancestor = ancestor.parent if ancestor.propagate else None
    if not handlers and logging.lastResort is not None:  # by which Python writes errors to stderr
        handlers.append(logging.lastResort)
    return handlers


def missing_capability(error: MissingCapabilityError) -> Failure:
    return Failure(Fault.MISSING_CAPABILITY, str(error), {"requiredCapabilities": error.required})


_REMOTE_FAULTS: Mapping[int, Fault] = MappingProxyType(
    {
        FAULTS[Fault.UNKNOWN_METHOD].modern: Fault.UNKNOWN_METHOD,
        FAULTS[Fault.INVALID_PARAMS].modern: Fault.INVALID_PARAMS,
        FAULTS[Fault.RESOURCE_NOT_FOUND].handshake: Fault.RESOURCE_NOT_FOUND,
        FAULTS[Fault.MISSING_CAPABILITY].modern: Fault.MISSING_CAPABILITY,
        # These are about how this server sent the request; its client could only misunderstand them.
        FAULTS[Fault.HEADER_MISMATCH].modern: Fault.INTERNAL,
        FAULTS[Fault.UNSUPPORTED_VERSION].modern: Fault.INTERNAL,
    }
)
"""The faults that eras report by different codes or HTTP statuses, by the code that another server sent."""


def remote_failure(error: RemoteError) -> Failure:
    """Returns another server's error as it was, except that each era has its own code for some."""
    data = UNSET if error.data is None else error.data
    fault = _REMOTE_FAULTS.get(error.code)
    if fault is None:
        return Failure(Fault.INTERNAL, str(error), data, code=error.code)
    # 2026-07-28 has one code for a URI that nothing is at and for params that do not fit; only the former name a URI.
    if fault is Fault.INVALID_PARAMS and error.method == "resources/read" and isinstance(data, dict) and "uri" in data:
        fault = Fault.RESOURCE_NOT_FOUND
    return Failure(fault, str(error), data)


def missing_scopes(error: MissingScopesError, caller: Caller) -> Failure:
    """Returns the failure that a client answers by asking for more scopes."""
    data = {"missingScopes": sorted(error.missing)}
    return Failure(
        Fault.INSUFFICIENT_SCOPE,
        str(error),
        data,
        missing_scopes=error.missing,
        granted_scopes=caller.principal.scopes,
    )


def refuse_withheld(names: Iterable[str], request: RequestContext) -> Failure | None:
    """Returns the failure of a request that names operations whose scopes the caller lacks; None if it names none."""
    try:
        request.view.withheld.check(names)
    except MissingScopesError as error:
        return missing_scopes(error, request.terms.caller)
    return None


def is_cancelled() -> bool:
    """Whether the current request was cancelled; False if a function raised CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def encode_response(dialect: Dialect, request: Request, outcome: Outcome, version: str) -> bytes:
    """Returns the response with an outcome; if JSON cannot express the outcome, the response with a failure."""
    try:
        return dialect.write(request, outcome, version)
    except ValueError as error:
        logger.error("a result could not be written as JSON: %s", error)
        return dialect.write(request, Failure(Fault.INTERNAL, "The result could not be written as JSON."), version)
