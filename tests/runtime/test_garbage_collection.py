"""What is made while the search for garbage is paused."""

import gc
import weakref

import pytest

from deltamcp.runtime.process import collection_paused


class Node:
    def __init__(self) -> None:
        self.own = self


def made_while_paused(count: int) -> "weakref.ref[Node]":
    """Makes so many objects and then garbage in a cycle, and returns a reference to that."""
    gc.collect()
    with collection_paused():
        kept = [[number] for number in range(count)]
        found = weakref.ref(Node())
    gc.collect(0)
    assert len(kept) == count
    return found


def test_garbage_among_few_objects_is_found_by_the_next_search() -> None:
    assert made_while_paused(10_000)() is None


def test_very_many_objects_are_not_searched_at_once() -> None:
    found = made_while_paused(200_000)
    assert found() is not None
    gc.collect()
    assert found() is None


@pytest.mark.parametrize("is_enabled", [True, False])
def test_afterwards_it_is_as_it_was(is_enabled: bool) -> None:
    if not is_enabled:
        gc.disable()
    try:
        with collection_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
