"""Reading in a stored result: what is kept for further pages is small and known, and every read is counted."""

import functools
from typing import Any

import pytest

from deltamcp.errors import UsageError
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import StoredHeader
from deltamcp.results.stored_result import (
    ContinueArguments,
    StoredResult,
    pack_result,
    parse_continue_arguments,
)
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.steps import steps_of


def stored(value: Any, **header: Any) -> StoredResult:
    kind = "text" if isinstance(value, str) else "json"
    data = value if isinstance(value, str) else jsonrpc.encode(value)
    return StoredResult(pack_result(StoredHeader(kind, None, ResolvedPolicy(max_tokens=300), **header), data))  # type: ignore[arg-type]


def read(result: StoredResult, **arguments: Any) -> str:
    return result.read(ContinueArguments("R", **arguments), None, unlimited_work())[0].text


ROWS = [{"id": number, "name": f"name {number}"} for number in range(5_000)]
TINY: list[Any] = [[] for _ in range(200_000)]


def test_views_are_accounted_and_few() -> None:
    result = stored(TINY[:10_000])
    assert result.view_bytes == 0
    for number in range(30):
        read(result, grep=f"\\[|{number}")
        assert 0 < result.view_bytes < 20_000_000
    assert len(result._selections) <= 8


def test_a_view_of_tiny_items_takes_few_bytes_each() -> None:
    result = stored(TINY)
    read(result)
    assert result.view_bytes < 12 * len(TINY)


def test_what_a_caller_sends_is_not_kept() -> None:
    result = stored(ROWS)
    for number in range(5):
        read(result, fields=[f"name{'x' * 5_000}{number}", "id"])
        read(result, grep=f"{'y' * 900}{number}")
    assert all(len(key) == 16 for key in result._selections)


@pytest.mark.parametrize(
    "arguments",
    [
        {"grep": "name"},
        {"fields": ["id"]},
        {"fields": "[?id > `3`]"},
        {"path": "raw:"},
        {"path": "/4999"},
        {"grep": "name", "fields": "id"},
        {"page": 30},
        {},
    ],
)
def test_every_read_takes_steps(arguments: dict[str, Any]) -> None:
    values = [{**row, "text": "lorem ipsum " * 5} for row in ROWS]
    read_with = functools.partial(stored(values).read, ContinueArguments("R", **arguments), None)
    steps = steps_of(read_with)
    assert steps > len(jsonrpc.encode(values)) // 256
    with pytest.raises(WorkLimitError):
        stored(values).read(ContinueArguments("R", **arguments), None, Work(steps // 2))


def test_an_object_of_very_many_members_is_read_as_characters() -> None:
    result = stored({str(number): number for number in range(60_000)})
    assert read(result).startswith('{"0":0,"1":1,') and read(result, path="/59999") == "59999"
    assert result.view_bytes < 2_000_000


def test_a_read_that_was_stopped_leaves_the_pages_right() -> None:
    whole, result = stored(ROWS), stored(ROWS)
    for limit in range(0, 60_000, 5_000):
        with pytest.raises(WorkLimitError):
            result.read(ContinueArguments("R", page=20), None, Work(limit))
    assert read(result, page=20) == read(whole, page=20)


def test_fields_of_very_many_values_are_refused_and_paths_are_not() -> None:
    result = stored({"items": [[[]]] * 200_000})
    with pytest.raises(UsageError, match="path of a part"):
        read(result, path="", fields=["items"])
    assert read(result, path="/items/199999") == "[[]]"


def test_numbers_in_a_text_may_not_be_long() -> None:
    assert parse_continue_arguments({"handle": "R", "page": "9" * 5_000}).page == int("9" * 18)
