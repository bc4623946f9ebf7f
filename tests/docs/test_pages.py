"""What the README and the pages of docs/ show works as it is printed."""

import re

import msgspec
import pytest

from deltamcp import Limits
from tests.docs.page import CANNOT_RUN, PAGES, Page, blocks, reason_not_to_run
from tests.support.paths import ROOT

NOT_RUN = {
    ("client.md", "needs a server on the network"),
    (
        "coming-from-fastmcp.md",
        "a part of the difference of two files, which tests/interop/test_from_fastmcp.py compares",
    ),
    ("command-line.md", "needs a server on the network"),
    ("gateway.md", "it needs a project that has changed"),
    ("gateway.md", "it needs a server that has changed"),
    ("gateway.md", "it writes into the user's own file"),
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


def test_every_reason_not_to_run_a_shell_command_is_that_of_one():
    found = [block.text for path in PAGES for block in blocks(path) if block.language == "sh"]
    lines = [line for text in found for line in text.splitlines()]
    assert {reason for line in lines if (reason := reason_not_to_run(line))} == {*CANNOT_RUN.values()}
    run = [line for line in lines if line.strip() and reason_not_to_run(line) is None and not line.startswith("#")]
    assert len(run) >= 28


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 750


def test_every_limit_is_in_the_table_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", (ROOT / "docs" / "limits.md").read_text(), re.MULTILINE)
    assert {name: float(shown.replace(",", "")) for name, shown in rows} == msgspec.to_builtins(Limits())
