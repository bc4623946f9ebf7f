"""What the README and the pages of docs/ show works as it is printed."""

import re

import msgspec
import pytest

from deltamcp import Limits
from tests.docs.page import PAGES, Page, blocks
from tests.support.paths import ROOT

NOT_RUN = {
    ("client.md", "needs a server on the network"),
    (
        "coming-from-fastmcp.md",
        "a part of the difference of two files, which tests/interop/test_from_fastmcp.py compares",
    ),
    ("command-line.md", "needs a server on the network"),
    ("gateway.md", "it needs a server that has changed"),
    ("gateway.md", "needs a server on the network"),
    ("mcp-lite.md", "tests/docs/test_mcp_lite.py runs it, at a port of its own"),
}
"""The blocks that are not run, by page and reason."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_shows(path, tmp_path):
    Page(path, tmp_path).run()


def test_only_these_blocks_are_not_run():
    marked = {(path.name, block.reason) for path in PAGES for block in blocks(path) if block.reason is not None}
    assert marked == NOT_RUN


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 750


def test_every_limit_is_in_the_table_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", (ROOT / "docs" / "limits.md").read_text(), re.MULTILINE)
    assert {name: float(shown.replace(",", "")) for name, shown in rows} == msgspec.to_builtins(Limits())
