"""The speed benchmarks: how they compute their figures, and that they run without peers and without wrk."""

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import load, machine, messages, peers, report
from bench.__main__ import BENCHMARKS
from deltamcp.values import Era

ROOT = peers.ROOT


def command(name: str, folder: Path) -> dict[str, Any]:
    """Runs a benchmark without peers; an empty PATH has no wrk."""
    words = ["--only", name, "--no-peers", "--rounds", "1", "--seconds", "0.1", "--json", str(folder / "figures.json")]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=ROOT,
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads((folder / "figures.json").read_text())
    assert found.keys() == {"machine", name}
    assert found["machine"].keys() >= {"python", "cpu", "cores", "delta-mcp"}
    assert "mcp" not in found["machine"]
    return dict[str, Any](found[name])


def shape(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Returns the title and sides of each table; a side has a figure for each column."""
    for table in found["tables"]:
        assert all(len(figures) == len(table["columns"]) for _, figures in table["rows"])
    return [(table["title"], [side for side, _ in table["rows"]]) for table in found["tables"]]


def test_stdio_runs_without_peers(tmp_path):
    found = command("stdio", tmp_path)
    assert shape(found) == [
        ("stdio tools/call of add(a, b), 1 in flight", ["bare", "ours modern", "ours handshake"]),
        ("stdio tools/call of add(a, b), 32 in flight", ["bare", "ours modern", "ours handshake"]),
    ]
    assert found["verdicts"] == []


def test_http_runs_without_peers_and_without_wrk(tmp_path):
    found = command("http", tmp_path)
    assert shape(found) == [
        ("HTTP tools/call of add(a, b), 32 connections", ["bare", "thin", "ours modern", "ours handshake"]),
        ("HTTP tools/call of add(a, b), 1 connection", ["bare", "thin", "ours modern", "ours handshake"]),
        ("HTTP tools/list of 100 tools, 32 connections", ["bare", "ours modern", "ours handshake"]),
    ]
    assert all("loaded by a loop in Python, wrk not being installed" in table["notes"] for table in found["tables"])
    assert [verdict["what"].rpartition(" / ")[2] for verdict in found["verdicts"]] == ["bare"] * 6


def test_mcp_lite_runs_without_wrk(tmp_path):
    found = command("mcp_lite", tmp_path)
    paths = ["/mcp", "/mcp-lite/v1/calltools"]
    assert shape(found) == [
        ("tools/call of add(a, b) at both paths of one server, 32 connections", paths),
        ("tools/call of add(a, b) at both paths of one server, 1 connection", paths),
    ]
    assert [verdict["target"] for verdict in found["verdicts"]] == [0.9, 0.9]


def test_start_runs_without_peers(tmp_path):
    found = command("start", tmp_path)
    assert shape(found) == [
        ("Import, CPU", ["msgspec and pydantic alone", "ours", "ours, when serving HTTP"]),
        ("Spawn to first tools/list over stdio", ["bare", "ours"]),
    ]


def test_every_benchmark_is_a_module():
    files = {path.stem for path in (ROOT / "bench" / "benchmarks").glob("*.py")} - {"__init__"}
    assert files == set(BENCHMARKS)


@pytest.mark.parametrize(
    "wrong",
    [("--rounds", "0"), ("--rounds", "many"), ("--seconds", "0"), ("--seconds", "nan"), ("--only", "http,nothing")],
)
def test_options_are_checked(wrong):
    done = subprocess.run([sys.executable, "-m", "bench", *wrong], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"argument {wrong[0]}" in done.stderr


def test_a_peer_that_is_not_installed_is_left_out_and_told(monkeypatch):
    absent = peers.PeerPackage("nothing", "import no_such_module_anywhere")
    present = peers.PeerPackage("pydantic", "import pydantic")
    monkeypatch.setattr(peers, "PEERS", {"absent": absent, "present": present})
    found = peers.find_peers()
    assert found.names == ["present"]
    assert list(found.versions) == ["pydantic"]
    assert found.missing == [
        "absent is left out: ModuleNotFoundError: No module named 'no_such_module_anywhere'; `make bench` installs it"
    ]


def test_no_server_but_ours_imports_this_package():
    files = sorted((ROOT / "bench" / "servers").glob("*.py"))
    assert {path.stem for path in files} >= {"bare", "thin", "ours", *peers.PEERS}
    needing = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "deltamcp":
                needing.add(path.stem)
    assert needing == {"ours", "operated"}


def test_nothing_is_pinned_where_nothing_can_be(monkeypatch):
    monkeypatch.setattr(machine, "PINNED", False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with machine.run_on_core(machine.SERVER_CORE):
        assert "none of them anybody's own" in machine.describe()["cores"]


def test_what_a_generator_told_is_found_in_what_it_printed():
    told = '{"requests":2,"microseconds":9,"bytes":80,"errors":0,"p50_us":3.5,"p99_us":4}'
    assert load.parse_totals(f"Running 1s test\n  2 requests\nDONE {told}\n") == load.LoadTotals(2, 9, 80, 0, 3.5, 4)
    assert load.parse_totals("unable to connect to 127.0.0.1") is None


def test_the_script_for_wrk_says_what_is_sent():
    template = load.RequestTemplate({"Mcp-Method": "tools/call"}, '{"id":', ',"method":"tools/call"}', "/path")
    script = load.wrk_script(template)
    assert (
        '"/path", {["Mcp-Method"] = "tools/call"}, [==[{"id":]==] .. id .. [==[,"method":"tools/call"}]==])' in script
    )
    assert f"sent % {load.IDS} + 1" in script


def test_a_request_carries_what_its_era_asks():
    modern, handshake = (json.loads(messages.call(era, id=7)) for era in (Era.MODERN, Era.HANDSHAKE))
    assert modern["params"].pop("_meta")["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert modern == handshake
    assert handshake["params"] == {"name": "add", "arguments": {"a": 2, "b": 3}}
    assert messages.headers(Era.MODERN, "tools/call", "add")["Mcp-Name"] == "add"
    assert "Mcp-Name" not in messages.headers(Era.HANDSHAKE, "tools/call", "add", "session")


def test_a_reply_is_read_whole_or_out_of_its_event():
    reply = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}'
    assert messages.call_text(reply) == messages.call_text(b"event: message\ndata: " + reply + b"\n\n") == "5"
    assert messages.tool_count(b'{"result":{"tools":[{},{}]}}') == 2
    with pytest.raises(ValueError, match="not the result of a call"):
        messages.call_text(b'{"result":{"isError":true,"content":[{"text":"5"}]}}')
    with pytest.raises(ValueError, match="not a list of tools"):
        messages.tool_count(reply)


def test_ratios_are_taken_inside_rounds():
    assert report.median_ratio([1, 20, 3], [2, 10, 3]) == 1


def test_what_is_not_known_is_a_dash_and_null():
    table = report.FigureTable("T", "how", ["a", "b"], [("us", [1234.5, report.finite_or_none(math.nan)])], ["a note"])
    assert str(table).splitlines() == ["## T", "how", "", "        a  b", "------------", "us  1,234  -", "(a note)"]
    plain = report.BenchReport([table], [report.at_least("x", 4, 8), report.at_most("y", 1, 2, " ms")]).as_json()
    assert json.loads(json.dumps(plain))["tables"][0]["rows"] == [["us", [1234.5, None]]]
    assert [verdict["met"] for verdict in plain["verdicts"]] == [False, True]


def test_a_verdict_says_by_how_much_it_is_missed():
    assert str(report.at_least("x", 4, 8)) == "x: 4, target ≥ 8: short by 4 (50%)"
    assert str(report.at_most("y", 1, 2, " ms")) == "y: 1 ms, target ≤ 2 ms: met"
