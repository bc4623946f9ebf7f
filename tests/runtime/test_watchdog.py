"""The watchdog: it must not stop the process that it watches."""

import gc
import sys
import threading
import types

from deltamcp.runtime.deadline import Watchdog


def test_no_garbage_is_collected_while_frames_are_read(monkeypatch):
    """CPython 3.11 deadlocks otherwise: a collection inside `sys._current_frames` can want the lock that it holds."""
    states: list[bool] = []
    read = sys._current_frames

    def watched() -> dict[int, types.FrameType]:
        states.append(gc.isenabled())
        return read()

    monkeypatch.setattr(sys, "_current_frames", watched)
    watchdog = Watchdog(60, lambda code: None)
    assert watchdog._blocking_function(threading.get_ident()).startswith("The function ")
    assert states == [False]
    assert gc.isenabled()
