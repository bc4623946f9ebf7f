"""How thoroughly a run tests: the profiles of Hypothesis, the examples of each property, and the combinations.

`quick` is what `make test` runs. It draws the same examples every time, so that only a change makes it fail.
`deep` draws others every time, and as many as each property asks for: `make test-deep`, or `HYPOTHESIS_PROFILE=deep`.
Only `deep` runs the tests that are marked so.
"""

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

DEEP_EXAMPLES = 100
QUICK_EXAMPLES = 20
LEAST_EXAMPLES = 10

# Hypothesis' deadline and its check for slowness measure the machine. Fixtures of functions are not reset between the
# examples of one test; those that such tests take hold nothing that an example changes.
_EITHER = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    "print_blob": True,
}


def load_profile() -> None:
    """Registers both profiles and loads the one that the environment names, else the quick one."""
    settings.register_profile("quick", max_examples=QUICK_EXAMPLES, derandomize=True, **_EITHER)  # type: ignore[arg-type]
    settings.register_profile("deep", max_examples=DEEP_EXAMPLES, **_EITHER)  # type: ignore[arg-type]
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def is_deep() -> bool:
    return os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def crossed(*axes: Sequence[Any]) -> list[Any]:
    """All combinations as parameters of a test; those off the diagonal, which has every value, are marked `deep`."""
    longest = max(map(len, axes))
    diagonal = {tuple(index % len(axis) for axis in axes) for index in range(longest)}
    return [
        pytest.param(
            *(axis[index] for axis, index in zip(axes, indices, strict=True)),
            marks=() if indices in diagonal else pytest.mark.deep,
        )
        for indices in itertools.product(*(range(len(axis)) for axis in axes))
    ]


def examples(count: int) -> int:
    """As many examples of `count` as the loaded profile has of a hundred, but a few in any case."""
    drawn = count * settings().max_examples // DEEP_EXAMPLES
    return min(count, max(LEAST_EXAMPLES, drawn))
