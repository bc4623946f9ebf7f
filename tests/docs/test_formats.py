"""The grammar that docs/formats.md publishes is that of the code."""

import re

from deltamcp.deltas import writer
from deltamcp.results.encode import _FORMS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "formats.md").read_text()


def test_every_change_of_a_delta_is_in_the_grammar():
    lines = re.findall(r"^( ?\S.*?) {3,}\w", writer.__doc__ or "", re.MULTILINE)
    assert len(lines) == 17
    assert [line for line in lines if f"`{line}`" not in PAGE] == []


def test_every_form_of_a_tables_head_is_in_the_grammar():
    heads = "\n".join(re.findall(r'(?:"""|^\| `)(#?[^`"]+)', PAGE, re.MULTILINE))
    assert len(_FORMS) == 7
    assert [words for form, words in _FORMS if not form.search(heads) and "text" not in words] == []
