"""JMESPath expressions: the same as the library's, with every visit, comparison and copy counted."""

import json
from typing import Any

import jmespath
import pytest
from jmespath.parser import Parser

from deltamcp.errors import UsageError
from deltamcp.results.queries import expression
from deltamcp.results.queries.query import check_fields, find_missing, project
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.steps import steps_of

ROWS: list[Any] = [
    {"id": number, "name": f"name {number}", "tags": ["a", f"t{number % 3}"], "owner": {"login": f"u{number % 5}"}}
    for number in range(50)
]
EXPRESSIONS = [
    "[?id > `40`].{id: id, who: owner.login}",
    "[*].tags[]",
    "[?tags == ['a', 't1']] | length(@)",
    '[?owner != `{"login": "u1"}`].id',
    "[?name >= 'name 3'].name",
    "[?name == 'name 7'].id",
    "[?contains(tags, 't2')].id",
    "sort_by(@, &name)[0].id",
    "max_by(@, &id).name",
    "[*].name | sort(@) | join(', ', @)",
    "[0] | to_string(@)",
    "[?id == `1` || id == `true`]",
    "[3:9:2].id",
    "[0].merge(@, owner) | keys(@)",
    "map(&length(name), @)",
    "reverse([*].id)",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_what_an_expression_selects_is_what_the_library_selects(text: str) -> None:
    assert expression.search(text, ROWS, unlimited_work()) == jmespath.search(text, ROWS)


GREEDY = [
    "[?" + "||".join(["name=='x'"] * 100) + "]",
    "[" + ",".join(["max_by(@, &length(name)).id"] * 16) + "]",
    "[?contains(`" + json.dumps([f"u{number}" for number in range(100)]) + "`, owner.login)]",
    "map(&to_string(@), @)",
    "[*].join('', [name, name, name, name])",
    "sort([*].name)",
    "sort_by(@, &name)",
    "[*].tags[] | [*].[@] | []",
]


@pytest.mark.parametrize("text", GREEDY)
def test_the_work_of_an_expression_is_counted(text: str) -> None:
    few = steps_of(lambda work: expression.search(text, ROWS, work))
    many = steps_of(lambda work: expression.search(text, ROWS * 10, work))
    assert many > 8 * few > 8 * len(ROWS)
    with pytest.raises(WorkLimitError):
        expression.search(text, ROWS * 10, Work(many - 1))


@pytest.mark.parametrize(
    "text", ["[?a == b]", "[?contains(`[]`, a) || a == b]", "[?s == t]", "[?s < t]", "[?contains(s, t)]"]
)
def test_a_comparison_of_large_values_takes_steps(text: str) -> None:
    row = {"a": list(range(1_000)), "b": list(range(1_000)), "s": "x" * 200_000, "t": "x" * 200_000 + "y"}
    small = {name: inner[:2] for name, inner in row.items()}
    steps = steps_of(lambda work: expression.search(text, [row] * 10, work))
    assert steps > 10 * 500 + steps_of(lambda work: expression.search(text, [small] * 10, work))


@pytest.mark.parametrize("text", ["[@,@,@,@] | [@,@,@,@]", "[[@,@,@,@],[@,@,@,@]][]", "to_string(to_string([@]))"])
def test_an_expression_does_not_make_more_than_a_message(text: str) -> None:
    with pytest.raises(UsageError, match="copy the value"):
        expression.search(text, ["x" * 9_000_000], unlimited_work())


def test_a_parsed_expression_of_a_caller_is_not_stored() -> None:
    expression._parse_cached.cache_clear()
    for number in range(200):
        expression.check("a || " * 60 + f"b{number}")
        expression.check(f"[?a == '{number}']")
    assert not Parser._CACHE and expression._parse_cached.cache_info().currsize <= 64


@pytest.mark.parametrize("fields", [["a"] * 501, "a" * 10_001, ["a" * 10_001]])
def test_more_fields_than_a_result_has_are_refused(fields: Any) -> None:
    for use in (check_fields, lambda fields: project({}, fields, unlimited_work())):
        with pytest.raises(UsageError, match="at most"):
            use(fields)


@pytest.mark.parametrize("field", ["missing{}", "owner.missing{}", "owner.login.missing{}"])
def test_the_steps_of_paths_do_not_grow_with_rows_times_paths(field: str) -> None:
    fields = [field.format(number) for number in range(400)] + ["id"]
    for use in (
        lambda work: project(ROWS * 20, fields, work),
        lambda work: find_missing(ROWS * 20, fields, None, work),
    ):
        assert steps_of(use) < 10 * len(ROWS * 20) + 20 * len(fields)
