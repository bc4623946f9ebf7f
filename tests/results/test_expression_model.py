"""2,000 random values and expressions: JMESPath's functions are the library's, and the others a plain model's."""

import json
import random
from collections.abc import Callable
from typing import Any

import jmespath
import pytest
from jmespath.exceptions import JMESPathError

from deltamcp.errors import UsageError
from deltamcp.results.queries import expression
from deltamcp.work import unlimited_work
from tests.support.equality import is_same

CASES = 2_000
NAMES = ["a", "b", "c", "name", "n"]
WORDS = ["", "a", "b", "ab", "open", "closed", "é", "10", "x y"]
REFUSED = "refused"


# Values


def random_value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(9 if depth else 6)
    if kind < 2:
        return chance.choice(WORDS)
    if kind < 4:
        return chance.choice([0, 1, -3, 7, 10, 2.5, -0.25])
    if kind < 6:
        return chance.choice([None, True, False])
    size = chance.randrange(5)
    if kind == 6:
        return {chance.choice(NAMES): random_value(chance, depth - 1) for _ in range(size)}
    if kind == 7:
        return [random_value(chance, depth - 1) for _ in range(size)]
    return random_rows(chance, size)


def random_rows(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """Rows as servers send them: each name has values of one kind, some of which are missing."""
    makers: list[Callable[[], Any]] = [lambda: chance.choice(WORDS), lambda: chance.randrange(-5, 20)]
    kinds = {name: chance.choice(makers) for name in NAMES}
    rows = []
    for _ in range(size):
        row: dict[str, Any] = {name: make() for name, make in kinds.items() if chance.random() < 0.95}
        if chance.random() < 0.5:
            row["c"] = {name: chance.choice(WORDS) for name in chance.sample(NAMES, 2)}
        rows.append(row)
    return rows


# Expressions

ONE = ["abs", "avg", "ceil", "floor", "keys", "length", "max", "min", "reverse", "sort", "sum", "to_array"]
ONE += ["to_number", "to_string", "type", "values"]
TWO = ["contains", "ends_with", "starts_with", "merge", "not_null"]
BY = ["max_by", "min_by", "sort_by"]


def random_expression(chance: random.Random, depth: int = 4) -> str:
    def inner() -> str:
        return random_expression(chance, depth - 1)

    if depth <= 0:
        return chance.choice([*NAMES, "@", "`1`", "'a'", "`[1, 2]`", "`null`"])
    forms: list[Callable[[], str]] = [
        lambda: chance.choice(NAMES),
        lambda: f"{inner()}.{chance.choice(NAMES)}",
        lambda: f"{inner()}[{chance.randrange(-3, 4)}]",
        lambda: (
            f"{inner()}[{chance.choice(['', '1', '-2'])}:{chance.choice(['', '3'])}:{chance.choice(['', '2', '-1'])}]"
        ),
        lambda: f"{inner()}[*].{chance.choice(NAMES)}",
        lambda: f"{inner()}[].{chance.choice(NAMES)}",
        lambda: f"{inner()}[][]",
        lambda: f"{inner()}.*",
        lambda: f"{inner()}[?{comparison(chance, depth - 1)}]",
        lambda: f"[{inner()}, {inner()}]",
        lambda: f"{{x: {inner()}, y: {inner()}}}",
        lambda: f"({inner()}) | {inner()}",
        lambda: f"({comparison(chance, depth - 1)})",
        lambda: f"{chance.choice(ONE)}({inner()})",
        lambda: f"{chance.choice(TWO)}({inner()}, {inner()})",
        lambda: f"{chance.choice(BY)}({inner()}, &{chance.choice(NAMES)})",
        lambda: f"{chance.choice(BY)}(@, &{chance.choice(NAMES)})",
        lambda: f"{chance.choice(ONE)}([*].{chance.choice(NAMES)})",
        lambda: f"[?{chance.choice(NAMES)} {chance.choice(['==', '>', '!='])} `{chance.randrange(9)}`]",
        lambda: f"[*].{{x: {chance.choice(NAMES)}, y: {chance.choice(NAMES)}}}",
        lambda: f"map(&{chance.choice([*NAMES, '@', 'type(@)'])}, {inner()})",
        lambda: f"join({chance.choice(WORDS)!r}, {inner()})",
    ]
    return chance.choice(forms)()


def comparison(chance: random.Random, depth: int) -> str:
    left, right = random_expression(chance, depth - 1), random_expression(chance, depth - 1)
    text = f"{left} {chance.choice(['==', '!=', '<', '<=', '>', '>='])} {right}"
    more = chance.choice(["", "", " && @", " || b", ""])
    return f"!({text}){more}" if chance.random() < 0.2 else text + more


def outcome(search: Callable[[str, Any], Any], text: str, value: Any) -> Any:
    try:
        return search(text, value)
    except (UsageError, JMESPathError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return REFUSED


@pytest.mark.parametrize("part", range(4))
def test_jmespath_is_evaluated_as_its_library_does(part: int) -> None:
    chance, selected = random.Random(part), 0
    for _ in range(5 * CASES):
        value = random_rows(chance, 5) if chance.random() < 0.7 else random_value(chance)
        text = random_expression(chance, chance.randrange(1, 4))
        expected = outcome(jmespath.search, text, value)
        found = outcome(lambda text, value: expression.search(text, value, unlimited_work()), text, value)
        assert is_same(found, expected), (text, value)
        selected += expected not in (REFUSED, None, [])
        if selected == CASES // 4:
            return
    pytest.fail("most cases are refused")


# The functions beyond JMESPath


def key_text(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    )


def model_count(rows: list[Any]) -> dict[str, int]:
    keys = [key_text(row.get("a")) for row in rows]
    return dict(sorted(((key, keys.count(key)) for key in dict.fromkeys(keys)), key=lambda pair: -pair[1]))


def model_group(rows: list[Any]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key_text(row.get("a")) for row in rows)
    return {key: [row for row in rows if key_text(row.get("a")) == key] for key in keys}


def model_sums(rows: list[Any]) -> dict[str, float]:
    sums = {key: sum(row.get("n") or 0 for row in part) for key, part in model_group(rows).items()}
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def model_unique(rows: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for row in rows:
        if not any(is_same(row, other) for other in kept):
            kept.append(row)
    return kept


def model_rows(members: dict[str, Any]) -> list[Any]:
    rows = []
    for key, value in members.items():
        for inner in value if isinstance(value, list) else [value]:
            rows.append({"key": key, **({"value": inner} if not isinstance(inner, dict) else inner), "key": key})  # noqa: F601
    return rows


MODELS: dict[str, Callable[[Any], Any]] = {
    "count_by(@, &a)": model_count,
    "group_by(@, &a)": model_group,
    "sum_by(@, &n)": lambda rows: sum(row.get("n") or 0 for row in rows),
    "sum_by(@, &a, &n)": model_sums,
    "unique(@)": model_unique,
    "unique([*].b)": lambda rows: model_unique([row["b"] for row in rows if row.get("b") is not None]),
    "rows(group_by(@, &a))": lambda rows: model_rows(model_group(rows)),
}


@pytest.mark.parametrize("text", MODELS)
def test_functions_beyond_jmespath_are_those_of_a_plain_model(text: str) -> None:
    chance = random.Random(text)
    for _ in range(CASES // len(MODELS) + 1):
        rows: list[Any] = [
            {
                "a": random_value(chance, 1),
                "b": random_value(chance, 2),
                "n": chance.choice([None, 1, -2, 7, 0.5]),
                **({"key": "own"} if chance.random() < 0.2 else {}),
            }
            for _ in range(chance.randrange(8))
        ]
        rows += [dict(reversed(row.items())) for row in rows if chance.random() < 0.3]
        found, expected = expression.search(text, rows, unlimited_work()), MODELS[text](rows)
        assert is_same(found, expected), rows
        assert not isinstance(found, dict) or list(found) == list(expected)


def test_rows_of_any_object_are_those_of_a_plain_model() -> None:
    chance = random.Random("rows")
    for _ in range(CASES // 8):
        members = {name: random_value(chance) for name in chance.sample([*NAMES, "1.0", "2020-01-01"], 4)}
        assert is_same(expression.search("rows(@)", members, unlimited_work()), model_rows(members)), members
