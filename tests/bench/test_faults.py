"""The benchmark of faults: how it judges replies and libraries, its table, and a few faults from end to end."""

import ast
import json
import subprocess
import sys

import pytest

from bench.faults.connection_faults import CONNECTION_FAULTS
from bench.faults.message_faults import MESSAGE_FAULTS, judge
from bench.faults.outcome import Grade, Outcome, harmed, right, safe, shortfall, worst
from bench.faults.stdio_faults import STDIO_FAULTS
from bench.faults.table import FaultRow, markdown
from bench.hostile.attacked_server import HttpReply
from bench.peers import ROOT


def error(code: int, message: str = "It is wrong.", status: int = 400) -> HttpReply:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return HttpReply(status, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (error(-32700), right("-32700")),
        (error(-32602), safe("-32602")),
        (error(-32700, "one\ntwo"), safe("-32700 with a dump of the validator")),
        (error(-32700, status=500), harmed("500")),
        (HttpReply(0, b""), harmed("never answered")),
        (HttpReply(202, b""), harmed("never answered")),
        (HttpReply(400, b"Bad Request"), safe("400 without a JSON-RPC error")),
        (HttpReply(200, b'{"jsonrpc":"2.0","id":1,"result":{}}'), harmed("accepted")),
    ],
)
def test_a_reply_is_judged_by_what_it_tells(reply: HttpReply, expected: Outcome) -> None:
    assert judge(reply, (-32700,)) == expected


def test_several_faults_are_as_good_as_the_worst_of_them() -> None:
    assert worst([right("413"), safe("431"), right("413")]) == safe("413 · 431 · 413")


def test_ours_falls_short_of_the_better_peer_only() -> None:
    assert shortfall({"ours": safe("a"), "sdk": safe("b"), "fastmcp": harmed("c")}) == ""
    assert "where a peer does better: b" in shortfall({"ours": safe("a"), "sdk": right("b"), "fastmcp": harmed("c")})
    assert shortfall({"ours": safe("a")}) == "a is safe"
    assert shortfall({"ours": right("a")}) == ""


def test_the_table_tells_the_eras_apart_where_they_differ() -> None:
    row = FaultRow(
        "a",
        "a fault",
        {
            "modern": {"ours": right("413"), "sdk": safe("200")},
            "handshake": {"ours": harmed("no answer"), "sdk": safe("200")},
        },
    )
    assert markdown([row], ["ours", "sdk"]).splitlines() == [
        "| fault | Delta-MCP | official SDK | at least as good |",
        "|---|---|---|---|",
        "| a fault | modern: 413; handshake: no answer | 200 | no |",
    ]
    assert row.as_json()["outcomes"]["modern"]["ours"] == {"grade": "right", "text": "413"}


def test_faults_have_names_of_their_own() -> None:
    names = [one.name for one in (*MESSAGE_FAULTS, *CONNECTION_FAULTS, *STDIO_FAULTS)]
    assert len(names) == len(set(names))


def test_no_peer_imports_this_package() -> None:
    for name in ("sdk", "fastmcp", "tools"):
        tree = ast.parse((ROOT / "bench" / "faults" / "servers" / f"{name}.py").read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [module for module in modules if module.startswith("deltamcp")]


def test_faults_are_tried_and_judged_from_end_to_end(tmp_path) -> None:
    file = tmp_path / "outcomes.json"
    words = ["--only", "numbers,exit,sigterm-stream,stdio-id", "--no-peers", "--json", str(file)]
    done = subprocess.run([sys.executable, "-m", "bench.faults", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == ["numbers", "exit", "sigterm-stream", "stdio-id"]
    outcomes = [one for row in rows for by_library in row["outcomes"].values() for one in by_library.values()]
    assert {one["grade"] for one in outcomes} == {Grade.RIGHT.name.lower()}


def test_an_unknown_fault_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.faults", "--only", "body,nothing"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "there is no fault 'nothing'" in done.stderr
