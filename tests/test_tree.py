"""The tests lie as the source does: a package has a folder of its own, and no test module imports another."""

import ast
import re
from pathlib import Path

from tests.support.paths import ROOT

TESTS, SOURCE = ROOT / "tests", ROOT / "src" / "deltamcp"
SUITES = {"bench", "conformance", "delta_mcp_scenarios", "deploy", "docs", "faults", "interop", "node", "support"}
"""Folders of tests that concern no package alone, and what tests share."""


def folders(place: Path) -> set[str]:
    return {path.name for path in place.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))}


_TEST_IMPORT = re.compile(r"^\s*(?:from|import)\b.*(?:\b(?:test_|conftest)|\($)", re.MULTILINE)
"""A line that may import a test module, or continues on the next."""


def imported(path: Path) -> set[str]:
    """What a file imports; nothing if no line of it may import a test module."""
    found: set[str] = set()
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if _TEST_IMPORT.search(text) else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def test_every_folder_is_a_packages_or_a_suites():
    assert folders(TESTS) - SUITES <= folders(SOURCE)


def test_no_module_imports_a_test_module_or_fixtures():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in TESTS.rglob("*.py")}
    private = {name for name in modules if name.rpartition(".")[2].startswith(("test_", "conftest"))}
    assert {name: found for name, path in modules.items() if (found := imported(path) & private)} == {}


def test_no_file_is_longer_than_1500_lines():
    assert [path for path in TESTS.rglob("*.py") if len(path.read_text().splitlines()) > 1_500] == []
