"""No published case is left out, and none is claimed twice."""

from pathlib import Path

import pytest

from tests.support.gcf_vectors import generic_cases, graph_cases


def test_every_published_case_is_run(shared: Path):
    root = shared / "fixtures" / "gcf" / "tests"
    if not root.is_dir():
        pytest.skip(f"there is no {root}")
    graph, generic = set(graph_cases(root)), set(generic_cases(root))
    every = {directory: set((root / directory).rglob("*.json")) for directory in ("conformance", "conformance-v1")}
    assert {directory: len(files) for directory, files in every.items()} == {"conformance": 323, "conformance-v1": 61}
    assert not graph & generic
    assert graph | generic == set().union(*every.values())
