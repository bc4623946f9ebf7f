"""What the definitions of the meta-tools tell a model is what the program does."""

import re

from deltamcp.catalog.meta_tools import CHANGES_LEGEND
from deltamcp.deltas.edits import apply_edit
from deltamcp.deltas.parser import parse_edit
from deltamcp.results.encode import TABLE_LEGEND, decode
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
    assert TABLE_LEGEND.removeprefix("Tables: ").removesuffix(".").split("; ") == [
        "empty cell: null (a?: absent)",
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
    assert re.split(r"; |, (?=\+)", CHANGES_LEGEND.removeprefix(" Changes: ").removesuffix(".")) == [
        "k=v sets only k, no field built from it",
        "-k gone",
        "+row new",
        "+3 at index 3",
        '"like x": x as it was before, but for what follows',
        '~"a">"b": a is now b',
    ]
    assert apply_edit(base, parse_edit(CHANGES, base), unlimited_work()) == [
        {"id": 2, "n": 1, "url": "u/1"},
        {"id": 1, "n": 9, "url": "u/1"},
        {"id": 7, "url": "u/8"},
        {"id": 5},
    ]
