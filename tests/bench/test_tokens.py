"""The token benchmark: the report over a small corpus, and the project's promises over the real one."""

import json
import subprocess
import sys

import pytest

from bench.corpora import retrieval, tokens
from tests.support.paths import ROOT

TOOLS = {
    "first": [
        {"name": "list_issues", "description": "List issues.", "inputSchema": {"type": "object"}},
        {"name": "odd name/with: signs", "description": "Odd.", "inputSchema": {"type": "invented"}},
        {"name": "bare", "inputSchema": {}},
    ],
    "second": [{"name": "list_issues", "description": "The same name.", "inputSchema": {"type": "object"}}],
}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "corpus" / "mcp_tools"
    folder.mkdir(parents=True)
    for server, listed in TOOLS.items():
        (folder / f"{server}.json").write_text(json.dumps({"server": server, "tools": listed}))
    return folder.parent


def test_a_small_corpus(data):
    report = tokens.run(data)
    summary = report["summary"]
    assert summary["tools"] == 4
    assert (summary["rejected_tools"], report["rejected"]) == (0, {})
    assert {"meta_surface_tokens", "index_tokens_per_tool", "get_schema_tokens_per_tool"} <= summary.keys()
    assert report["provenance"].keys() == summary.keys()
    assert report["servers"]["first"]["auto"] == "full"
    assert "list_issues" not in tokens.table(report)  # a table of figures, not of tools


def test_the_command_line_gives_one_object(data):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "tokens", "--data", str(data), "--json"],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    assert json.loads(done.stdout)["summary"]["tools"] == 4


def test_a_folder_that_is_no_corpus_is_told(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "tokens", "--data", str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert "--data DIR" in done.stderr and "Traceback" not in done.stderr


def test_what_is_promised_of_tokens(shared):
    summary = tokens.run(shared / "corpus")["summary"]
    assert summary["rejected_tools"] == 0
    assert summary["demo_index_tokens"] <= 60
    assert summary["demo_index_and_describe_tokens"] < 200
    assert max(summary["meta_surface_tokens_by_operations"].values()) <= 350
    assert summary["discover_84_tokens"] <= 200
    assert summary["five_hits_tokens"] <= 200
    assert summary["get_schema_tokens_per_tool"] <= 90
    assert summary["get_schema_full_ratio"] <= 0.65


@pytest.mark.deep
def test_what_is_promised_of_retrieval(shared):
    summary = retrieval.run(shared / "corpus")["summary"]
    assert summary["macro_recall_at_5"] >= 73
