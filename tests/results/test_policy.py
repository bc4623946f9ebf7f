"""Policies that cannot be meant are refused where they are made."""

from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer, ResultPolicy

WRONG: list[dict[str, Any]] = [
    {"max_tokens": 500.5},
    {"max_tokens": "500"},
    {"page_size": 1.5},
    {"rows": ["a"]},
    {"fields": 5},
    {"fields": [1]},
    {"fields": "[?"},
    {"tables": "no"},
    {"model": -1},
    {"model": 1e308},
    {"tail": 2},
]


@pytest.mark.parametrize("policy", WRONG)
def test_a_wrong_policy_is_told_where_it_is_made(policy):
    with pytest.raises(ConfigurationError) as raised:
        ResultPolicy(**policy)
    assert next(iter(policy)) in str(raised.value)


def test_a_policy_is_a_policy():
    with pytest.raises(ConfigurationError):
        DeltaServer("x", results=500)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        DeltaServer("x").tool(name="a", results={"max_tokens": 500})(lambda: 1)  # type: ignore[call-overload]
