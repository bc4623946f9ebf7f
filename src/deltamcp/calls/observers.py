"""Observers of calls: told when an operation's call starts and how it ends. The call log is one of them."""

import functools
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET

from deltamcp import tokens
from deltamcp.results import content
from deltamcp.values import JSON, Answer, Caller, Outcome, Text, ToolResult
from deltamcp.wire import jsonrpc

logger = logging.getLogger("deltamcp")


class ObservedCall:
    """One call. `outcome`, `seconds` and the token counts are there once it has finished."""

    def __init__(self, name: str, is_known: bool, arguments: dict[str, JSON], caller: Caller) -> None:
        self.name = name
        """The operation's id; where there is no such operation, what the caller asked for."""
        self.is_known = is_known
        """Whether there is such an operation for this caller."""
        self.arguments = arguments
        self.caller = caller
        self.outcome: Outcome | None = None
        """None where the call was cancelled."""
        self.seconds = 0.0
        self.value: Any = UNSET
        """What the function returned, where it ran to its end."""

    @functools.cached_property
    def tokens_before(self) -> int | None:
        """What the function's whole result would cost a model; counted when it is asked for. None without a result."""
        if self.value is UNSET:
            return None
        try:
            return _count_tokens(content.tool_result(self.value, None))
        except ValueError:  # a value that cannot be sent
            return None

    @functools.cached_property
    def tokens_after(self) -> int | None:
        """What the result costs a model as it was sent; counted when it is asked for. None without a result."""
        match self.outcome:
            case Answer(ToolResult() as result):
                return _count_tokens(result)
            case _:
                return None


class CallObserver(Protocol):
    """Pass one as `DeltaServer(observers=[...])`. Its methods must not block; what they raise is logged."""

    @property
    def is_active(self) -> bool:
        """Whether it wants to know of calls at present."""
        ...

    def call_started(self, call: ObservedCall) -> None: ...

    def call_finished(self, call: ObservedCall) -> None: ...


class Observation:
    """One call on its way through the observers that are active."""

    def __init__(self, call: ObservedCall, observers: Sequence[CallObserver]) -> None:
        self.call = call
        self._observers = observers
        self._began = time.perf_counter()
        self._tell("call_started")

    def finish(self, outcome: Outcome | None) -> None:
        self.call.seconds = time.perf_counter() - self._began
        self.call.outcome = outcome
        self._tell("call_finished")

    def _tell(self, event: str) -> None:
        for observer in self._observers:
            try:
                getattr(observer, event)(self.call)
            except Exception:
                logger.exception("an observer failed")


def _count_tokens(result: ToolResult) -> int:
    texts = [block.text for block in result.content if isinstance(block, Text)]
    if result.structured is not UNSET:
        texts.append(jsonrpc.encode(result.structured).decode())
    return sum(map(tokens.count, texts))
