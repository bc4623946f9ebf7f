"""What the README and the pages of docs/ show works as it is printed."""

import pytest

from tests.docs.page import PAGES, Page, blocks
from tests.support.paths import ROOT

NOT_RUN: set[tuple[str, str]] = set()
"""The blocks that are not run, by page and reason."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_shows(path, tmp_path):
    Page(path, tmp_path).run()


def test_only_these_blocks_are_not_run():
    marked = {(path.name, block.reason) for path in PAGES for block in blocks(path) if block.reason is not None}
    assert marked == NOT_RUN


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 750
