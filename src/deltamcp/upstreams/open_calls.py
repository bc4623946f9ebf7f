"""The requests that callers of an upstream wait for, which the user who runs the gateway may see and end."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from deltamcp.errors import DeltaError
from deltamcp.values import JSON

_ids = itertools.count(1)


class CallCancelledError(DeltaError):
    """The user who runs the gateway has ended a request."""


class OpenCall:
    """One request that a caller waits for."""

    __slots__ = ("id", "is_cancelled", "method", "name", "since", "task")

    def __init__(self, method: str, name: str, task: "asyncio.Task[Any]") -> None:
        self.id: int = next(_ids)
        """A number that no other request of this process has."""
        self.method: str = method
        self.name: str = name
        self.task: asyncio.Task[Any] = task
        """The name is that of the tool or prompt, or the URI, at the upstream."""
        self.since: float = time.time()
        self.is_cancelled: bool = False


class OpenCalls:
    """The requests of one upstream."""

    def __init__(self) -> None:
        self._calls: dict[int, OpenCall] = {}

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(self._calls.values())

    @contextmanager
    def entered(self, method: str, params: Mapping[str, JSON]) -> Iterator[None]:
        """Lists a request inside the `with` block.

        Raises:
            CallCancelledError: the user has ended it.
        """
        task = asyncio.current_task()
        assert task is not None, "requests are performed in tasks"
        call = OpenCall(method, str(params.get("name") or params.get("uri") or ""), task)
        self._calls[call.id] = call
        try:
            yield
        except asyncio.CancelledError:
            if not call.is_cancelled or task.uncancel():  # the caller went, too
                raise
            raise CallCancelledError from None
        finally:
            del self._calls[call.id]

    def cancel(self, id: int) -> bool:
        """Ends a request; returns False if there is none of this id."""
        call = self._calls.get(id)
        if call is None:
            return False
        if not call.is_cancelled:
            call.is_cancelled = True
            call.task.cancel()
        return True
