"""A tool that gives promises, where the extra that runs them is missing."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer
from deltamcp.calls import server_items

NEEDS = r"promise='auto' needs: pip install 'delta-mcp\[promises\]'\.$"


@pytest.fixture
def without_docket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    find = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "docket" else find(name, package)

    server_items.can_queue_promises.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", find_spec)
        yield
    server_items.can_queue_promises.cache_clear()


def report(year: int) -> str:
    """Writes the report of a year."""
    return f"report {year}"


def operations_file(folder: Path) -> Path:
    path = folder / "operations.json"
    path.write_text(json.dumps({"operations": {"report": {"promise": "auto", "parameters": {}}}}))
    return path


@pytest.mark.usefixtures("without_docket")
def test_a_tool_that_gives_promises_is_refused_with_what_to_install():
    server = DeltaServer("reports")
    with pytest.raises(ConfigurationError, match=r"test_registration.py:\d+ report: " + NEEDS):
        server.tool(report, promise="auto")
    server.tool(report)


@pytest.mark.usefixtures("without_docket")
def test_an_operations_file_with_a_promise_is_refused_with_what_to_install(tmp_path):
    server = DeltaServer("reports")
    with pytest.raises(ConfigurationError, match=NEEDS):
        server.operations(operations_file(tmp_path), {"report": report})


@pytest.mark.usefixtures("without_docket")
def test_a_mounted_server_refuses_it_too():
    inner, outer = DeltaServer("inner"), DeltaServer("outer")
    outer.mount(inner, "in")
    with pytest.raises(ConfigurationError, match=NEEDS):
        inner.tool(report, promise="auto")


def test_an_operations_file_says_which_operations_give_promises(tmp_path):
    server = DeltaServer("reports")
    path = operations_file(tmp_path)
    keys = {"promise": "always", "sync_seconds": 2.5, "on_redelivery": "rerun", "parameters": {}}
    path.write_text(json.dumps({"operations": {"report": keys}}))
    server.operations(path, {"report": report})
    operation = server.engine.catalog.operations["report"]
    assert (operation.promise_policy, operation.sync_seconds, operation.may_rerun) == ("always", 2.5, True)
