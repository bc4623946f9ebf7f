"""Entries of servers that tests put behind a gateway."""

import sys
from typing import Any

from tests.support.paths import ROOT


def module_entry(module: str, *words: str) -> dict[str, Any]:
    """Returns the entry of a Python module of the tests, which serves on stdio."""
    return {"command": sys.executable, "args": ["-m", module, *words], "cwd": str(ROOT)}
