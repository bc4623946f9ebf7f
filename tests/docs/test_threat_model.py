"""The tests that the threat model names exist."""

import ast
import functools
import re
from pathlib import Path

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
HEADER = "| what a peer tries | what happens | test |"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_row_of_the_threat_model_names_tests_that_exist():
    text = (ROOT / "docs" / "threat-model.md").read_text()
    section = text.partition("## What is bounded, and the test")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and line != HEADER]
    assert len(rows) > 20
    missing = []
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"a row without a test: {row}"
        for file, name in named:
            if name not in functions(TESTS / file):
                missing.append(f"{file}::{name}")
    assert missing == []


@functools.cache
def functions(path: Path) -> set[str]:
    """The names of a file's functions; none if there is no such file."""
    tree = ast.parse(path.read_text() if path.exists() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
