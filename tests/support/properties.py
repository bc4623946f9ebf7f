"""How thoroughly a run tests: the profiles of Hypothesis, the examples of each property, and the combinations.

`quick` is what `make test` runs. It draws the same examples every time, so that only a change makes it fail.
`deep` draws others every time, and as many as each property asks for: `make test-deep`, or `HYPOTHESIS_PROFILE=deep`.
Only `deep` runs what has the mark `deep`, and all combinations of the parameters that a mark `diagonal` names.
"""

import os
from collections.abc import Sequence

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


def off_diagonal(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that are off the diagonal of the parameters which their mark `diagonal` names.

    The diagonal has every value of every parameter, and as few combinations as that takes.
    """
    placed: dict[tuple[str, tuple[str, ...]], dict[pytest.Item, list[int]]] = {}
    axes: dict[tuple[str, str], list[object]] = {}
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        function = item.nodeid.partition("[")[0]
        for mark in item.iter_markers("diagonal"):
            if names := tuple(name for name in mark.args if name in values):
                place = [_place(values[name], axes.setdefault((function, name), [])) for name in names]
                placed.setdefault((function, names), {})[item] = place
    off = set()
    for places in placed.values():
        lengths = [max(axis) + 1 for axis in zip(*places.values(), strict=True)]
        diagonal = [[number % length for length in lengths] for number in range(max(lengths))]
        off |= {item for item, indices in places.items() if indices not in diagonal}
    return off


def _place(value: object, axis: list[object]) -> int:
    """The place of a value among those of its parameter, where it is put if it is new.

    `callspec.indices` has it in some versions of pytest; in others it numbers combinations.
    """
    if value not in axis:
        axis.append(value)
    return axis.index(value)


def only_deep(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that have the mark `deep`, because others of `make test` have their feature and they cost seconds."""
    return {item for item in items if item.get_closest_marker("deep")}


def examples(count: int) -> int:
    """As many examples of `count` as the loaded profile has of a hundred, but a few in any case."""
    drawn = count * settings().max_examples // DEEP_EXAMPLES
    return min(count, max(LEAST_EXAMPLES, drawn))
