"""Counts what a server in this process is asked to do."""

from typing import Any

from deltamcp import DeltaServer


class RequestCount:
    """What a server in this process was asked, by the kind of question."""

    def __init__(self) -> None:
        self.asks: list[Any] = []

    def count(self, kind: type) -> int:
        return sum(isinstance(ask, kind) for ask in self.asks)

    def forget(self) -> None:
        self.asks.clear()


def count_requests(server: DeltaServer) -> RequestCount:
    """Listens in on everything a server is asked to do."""
    counted = RequestCount()
    engine: Any = server.engine
    perform = engine.perform

    def heard(ask: Any, *more: Any) -> Any:
        counted.asks.append(ask)
        return perform(ask, *more)

    engine.perform = heard
    return counted
