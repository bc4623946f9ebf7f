"""The search for tables: counted, so that rows made to be compared with each other do not take long."""

from typing import Any

import pytest

from deltamcp.results.encode import encode
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError
from tests.support.steps import steps_of

ORDINARY = [
    {"id": number, "name": f"user {number}", "url": f"https://example.com/{number}", "on": number % 3 > 0}
    for number in range(300)
]
HOSTILE: dict[str, Any] = {
    "columns that determine each other": [[bool(row % 2) for _ in range(200)] + [row] for row in range(150)],
    "constants that begin alike": {f"k{number}": "a" * 400 + f"b{number}" * (number // 3) for number in range(200)},
    "groups that differ in their last row": [
        {f"g{column}": {"a": 1 if row < 99 else column, "b": 2} for column in range(100)} for row in range(100)
    ],
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_value_that_takes_long_takes_many_steps(value: Any) -> None:
    def steps_per_byte(value: Any) -> float:
        return steps_of(lambda work: encode(value, work=work)) / len(jsonrpc.encode(value))

    assert steps_per_byte(value) > 3 * steps_per_byte(ORDINARY)
    with pytest.raises(WorkLimitError):
        encode(value, work=Work(len(jsonrpc.encode(value)) // 3))


def test_an_ordinary_table_of_a_reply_is_made_at_once() -> None:
    assert steps_of(lambda work: encode(ORDINARY, work=work)) < 20_000
