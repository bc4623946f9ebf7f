"""Entries of servers that tests put behind a gateway."""

from typing import Any

from tests.support.paths import FORKED_PYTHON, ROOT


def module_entry(module: str, *words: str) -> dict[str, Any]:
    """Returns the entry of a Python module of the tests, which serves on stdio."""
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return {"command": str(FORKED_PYTHON), "args": [str(file), *words], "cwd": str(ROOT)}
