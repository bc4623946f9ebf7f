"""What the documentation refers to is in this repository: links, files, commands of make, ids."""

import re

import pytest

from tests.docs.mcp_lite_requirements import IDS
from tests.docs.page import PAGES
from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "deltamcp"
TEXTS = (
    *PAGES,
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
PROSE = (*TEXTS, *sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py")))
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_FILE = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|json))?|[\w-]+\.py)`")
_UNRESOLVABLE = re.compile(r"\b(?:RB|CS)-\d+|\b[Ss]eeds? \d|\bissue \d|\bdecision 0\d")
_MCP_LITE_ID = re.compile(r"\bML-(\d+)")
READERS_OWN = {
    "shelf.py",
    "notes.py",
    "app.py",
    "tracker.py",
    "circle.py",
    "notes/server.py",
    "notes/test_server.py",
    "tools/notes.py",
    ".venv/bin/",
    "io.github.delta-mcp/",
}
"""Files that a reader makes."""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_are_there(path):
    text = path.read_text()
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (path.parent / link).exists()]
    for name in {*_FILE.findall(text)} - READERS_OWN:
        if not any((folder / name).exists() for folder in (ROOT, SOURCE, path.parent)):
            missing.append(name)
    assert not missing


def test_no_id_refers_to_what_is_elsewhere():
    found = {path: _UNRESOLVABLE.findall(path.read_text()) for path in PROSE}
    assert {path: ids for path, ids in found.items() if ids} == {}


def test_ids_of_mcp_lite_are_rows_of_its_page():
    found = {path: {int(number) for number in _MCP_LITE_ID.findall(path.read_text())} for path in PROSE}
    assert {path: unknown for path, ids in found.items() if (unknown := ids - set(IDS))} == {}


def test_decision_records_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_commands_of_make_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in TEXTS:
        assert set(re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(), re.MULTILINE)) <= targets
