"""The page of MCP-lite's requirements, and the tests that are named after them.

python -m tests.docs.mcp_lite_requirements     # fills in the tests of each row, and says which rows have none
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "mcp-lite-requirements.md"
TESTS = ROOT / "tests"
IDS = (
    *range(1, 15),
    *range(20, 45),
    *range(50, 54),
    *range(60, 62),
    *range(70, 91),
    *range(100, 114),
    *range(120, 126),
)
"""The numbers of the requirements."""

_ROW = re.compile(r"^(\| ML-(\d+) \| [^|]+ \| [^|]+ \|)[^|]*\|$", re.MULTILINE)
_NUMBER = re.compile(r"_ml_(\d+)(?=_)")


def row_ids(text: str) -> list[int]:
    return [int(match[2]) for match in _ROW.finditer(text)]


def named_tests() -> dict[int, list[str]]:
    """The tests by the numbers in their names (`test_ml_75_...`), each as its file below `tests/` and its name."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in _function_names(path.read_text()):
            for number in _NUMBER.findall(name) if name.startswith("test_ml_") else ():
                found[int(number)].append(f"{path.relative_to(TESTS)}::{name}")
    return found


def fill(text: str, tests: dict[int, list[str]]) -> str:
    """Returns the page with these tests in its rows."""

    def row(match: re.Match[str]) -> str:
        cell = "<br>".join(f"`{test}`" for test in tests.get(int(match[2]), ()))
        return f"{match[1]} {cell} |" if cell else f"{match[1]} |"

    return _ROW.sub(row, text)


def _function_names(source: str) -> Iterable[str]:
    if "test_ml_" not in source:
        return []
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]


if __name__ == "__main__":
    found = named_tests()
    PAGE.write_text(fill(PAGE.read_text(), found))
    print("without a test:", *(number for number in IDS if number not in found))
    print("without a row:", *sorted(found.keys() - set(IDS)))
