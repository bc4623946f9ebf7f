"""Policies that cannot be meant are refused where they are made."""

from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer, ResultPolicy
from deltamcp.results.policy import (
    META_KEY,
    author_policy,
    described_policy,
    requested_policy,
    resolve_policy,
    size_hint,
)

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
    {"volatile": ["a"] * 101},
    {"keys": ["a" * 2_001]},
    {"rows": "a" * 2_001},
    {"model": "m" * 101},
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


def test_a_request_gets_at_most_a_large_budget_and_no_vocabulary_of_its_own():
    policy = requested_policy({META_KEY: {"maxTokens": 10**9, "model": "llama-3"}})
    assert policy is not None
    resolved = resolve_policy(policy)
    assert resolved.max_tokens == 500_000 and isinstance(resolved.model, float)
    own = resolve_policy(policy, ResultPolicy(max_tokens=700_000, model="llama-3.1"))
    assert own.max_tokens == 700_000 and own.model == "llama-3"


def test_a_definition_tells_the_policy_of_its_author_but_for_what_others_decide_themselves():
    policy = ResultPolicy(
        max_tokens=300, page_size=9, deltas=True, keys=["id"], fields="id,title", model="gpt-4", compat=False
    )
    meta = {**size_hint(resolve_policy(policy)), **described_policy(policy)}
    assert author_policy(meta) == ResultPolicy(max_tokens=300, deltas=True, keys=["id"], fields="id,title")
    assert described_policy(ResultPolicy(max_tokens=300)) == {}


@pytest.mark.parametrize("described", [{"max_tokens": 5}, {"fields": "[?"}, "text", {"unknown": 1}, None])
def test_of_a_description_that_is_wrong_the_size_holds(described):
    assert author_policy({"anthropic/maxResultSizeChars": 2_400, META_KEY: described}) == ResultPolicy(max_tokens=300)
    assert author_policy({META_KEY: described}) is None
