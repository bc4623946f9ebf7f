"""Defects this suite has shown and that are still there: delete a line with its defect."""

import re

import pytest

KNOWN: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in KNOWN.items():
            if "tests/client/" in item.nodeid and re.search(pattern, item.nodeid):
                hangs = reason.endswith("for ever")
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason, run=not hangs))
