"""What the definitions of the meta-tools tell a model is what the program does."""

import itertools
from typing import Any

import pytest

from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.catalog.items.operation import REDEEM_DEFINITION
from deltamcp.deltas.delta import make_delta, parse_edit
from deltamcp.deltas.edits import apply_edit
from deltamcp.results.changes import delta_words
from deltamcp.results.encode import decode, table_legend
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import Kind, ResultShape, Surface
from deltamcp.work import unlimited_work

TABLE = """\
#id,a?,b.c,.d=x*y
url=u/{id}
&id,name
1,one
2,two

1,,,5
2,7,4,6"""


def test_each_sentence_on_tables_is_true():
    assert table_legend(TABLE).removeprefix("Table: ").split("; ") == [
        "empty cell: null",
        "a?: absent where empty",
        ".b: prefix as before",
        "a=x*y: x, cell, y",
        "{b}: column b",
        "&: lookup",
    ]
    assert decode(TABLE) == [
        {"id": 1, "b": {"c": None, "d": "x5y"}, "url": "u/1", "name": "one"},
        {"id": 2, "a": 7, "b": {"c": 4, "d": "x6y"}, "url": "u/2", "name": "two"},
    ]


CHANGES = """\
[id]
-4
1 n=9
7 -n, url~"7">"8"
+0 like 1 id=2
+{"id":5}"""


def test_each_sentence_on_changes_is_true():
    base = [{"id": 1, "n": 1, "url": "u/1"}, {"id": 4}, {"id": 7, "n": 7, "url": "u/7"}]
    assert [*delta_words(CHANGES)] == [
        "k=v sets only k, no field built from it",
        "-k gone",
        "+row new",
        "+3 row new at index 3",
        '"like x": x as it was before, but for what follows',
        '~"a">"b": a is now b',
    ]
    assert apply_edit(base, parse_edit(CHANGES, base), unlimited_work()) == [
        {"id": 2, "n": 1, "url": "u/1"},
        {"id": 1, "n": 9, "url": "u/1"},
        {"id": 7, "url": "u/8"},
        {"id": 5},
    ]


@pytest.mark.parametrize(
    ("base", "new", "words"),
    [
        ([{"id": n, "a": n} for n in range(9)], [{"id": n, "a": n} for n in range(9) if n != 3], ["-k gone"]),
        ([{"id": n, "a": n} for n in range(9)], [{"id": n, "a": n} for n in range(10)], ["+row new"]),
        (
            [{"id": n, "a": n} for n in range(9)],
            [{"id": n, "a": n} if n != 3 else {"id": 3} for n in range(9)],
            ["-k gone"],
        ),
        ([*"abcdef"], [*"abdef"], ["[]: rows by index from 0", "-k gone"]),
        ({"items": [*"abcdef"]}, {"items": [*"abdef"]}, ["[]: rows by index from 0", "-k gone"]),
        ({"a": 1, "b": 2, "c": "x" * 40}, {"a": 1, "c": "x" * 40}, ["-k gone"]),
        ({"a": {"x": 1, "y": 2}, "c": "x" * 40}, {"a": {"x": 1}, "c": "x" * 40}, ["-k gone"]),
    ],
)
def test_a_single_change_is_explained_as_one_of_many(base, new, words):
    text = make_delta(base, new)
    assert [*delta_words(text)] == words, text
    assert apply_edit(base, parse_edit(text, base), unlimited_work()) == new


def values_inside(value: Any) -> Any:
    yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from values_inside(child)


@pytest.mark.parametrize("results", [None, ResultPolicy(), ResultPolicy(deltas=True)])
@pytest.mark.parametrize("disclosure", [Disclosure("meta"), Disclosure("meta", query=True, destructive=True)])
def test_no_parameter_has_a_list_of_types_which_some_client_libraries_cannot_read(disclosure, results):
    view = Catalog("x", disclosure=disclosure, results=results).view()
    listed: list[Any] = [REDEEM_DEFINITION]
    for surface, shape in itertools.product(Surface, ResultShape):
        page = view.page(Kind.TOOLS, surface, None, result_shape=shape)
        assert page is not None
        listed += page.items
    listed += [view.definition(tool["name"], shape) for tool in list(listed) for shape in ResultShape]
    assert {tool["name"] for tool in listed if tool} >= {"discover", "get_schema", "execute", "continue"}
    types = [value["type"] for value in values_inside(listed) if isinstance(value, dict) and "type" in value]
    assert types and all(isinstance(type_, str) for type_ in types)
