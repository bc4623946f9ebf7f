"""The result benchmark: the report over unusual data, and the project's promises over the corpus."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.corpora import results
from bench.sample_results import write_odd_results
from deltamcp.client.reply import Reply
from deltamcp.client.result_reader import recover
from deltamcp.errors import ResultLostError
from deltamcp.results.policy import META_KEY, MIN_MAX_TOKENS
from deltamcp.values import Text, ToolResult
from deltamcp.wire import jsonrpc
from tests.support.paths import ROOT
from tests.support.properties import examples, is_deep
from tests.support.strategies import any_json

GIANT = 300_000
"""Bytes; `python -m bench --only results` has 50 MB."""
NOTHING_LOST = {"budget_overruns": 0, "not_recovered": 0, "above_compact": 0}

budgets = st.integers(MIN_MAX_TOKENS, 400)
texts = st.text(max_size=3_000) | st.lists(st.text(max_size=60), max_size=90).map("\n".join)


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "results", *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def lost(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: summary[name] for name in NOTHING_LOST}


SOME = ("results/rows400_nested.json", "results/sessions/k8s_core.jsonl", "evolving/github_setMergeOptions.jsonl")
"""Files of the corpus that `make test` measures; `make test-deep` has all."""


@pytest.fixture
def corpus(shared, tmp_path):
    if is_deep():
        return shared / "corpus"
    for name in SOME:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(shared / "corpus" / name)
    return tmp_path


def test_what_is_promised_of_results(corpus):
    report = json.loads(command("--data", str(corpus), "--json"))
    assert lost(report["summary"]) == NOTHING_LOST, [row["not_recovered"] for row in report["files"]]
    assert report["summary"]["tokens_ours_full"] < report["summary"]["tokens_compact"]
    of = {row["file"]: row for row in report["files"]}
    nested = of["results/rows400_nested.json"]
    assert nested["tokens_ours_full"] <= 15_300
    assert nested["tokens_ours_full_without_dictionary"] <= 17_200
    assert of["results/sessions/k8s_core.jsonl"]["results"] > 100  # calls, not lines
    assert {name.partition("/")[0] for name in of} == {"results", "evolving"}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    write_odd_results(folder, GIANT)
    return folder


@pytest.mark.deep
def test_nothing_odd_is_lost(odd):
    report = json.loads(command("--data", str(odd), "--json"))
    assert lost(report["summary"]) == NOTHING_LOST, [row["not_recovered"] for row in report["files"]]
    assert report["passed_over"] == {"binary.bin": "binary: not UTF-8"}
    forms = {row["file"]: row["forms"] for row in report["files"]}
    assert forms["not JSON.json"] == forms["half a character.json"] == forms["others.jsonl"] == {"text": 1}
    assert forms["deep objects.json"] == forms["null.json"] == {"json": 1}
    assert forms["texts.jsonl"] == {"text": 2}
    assert {row["file"]: row["results"] for row in report["files"]}["entries.jsonl"] == 4


def test_a_table_for_people(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps([{"id": number, "name": "x" * 20} for number in range(400)]))
    (tmp_path / "a file with a long name.txt").write_text("One line.\n" * 900)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    lines = command("--data", str(tmp_path)).splitlines()
    head, *rows = (line for line in lines if line.startswith(("file ", "rows.json", "a file with")))
    assert all(row.index("yes") == head.index("back") + 1 for row in rows)
    assert "passed over picture.png: binary: not UTF-8" in lines
    assert lines[-1].startswith("2 results of 2 files under budgets of 500, 2,000, 10,000 tokens: 0 replies above")


def test_a_place_without_results_is_told(tmp_path):
    empty = json.loads(command("--data", str(tmp_path), "--json"))
    assert (empty["summary"]["files"], empty["files"]) == (0, [])
    done = subprocess.run(
        [sys.executable, "-m", "bench", "results", "--data", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "--data DIR" in done.stderr and "Traceback" not in done.stderr


def test_what_fails_is_told_and_the_rest_measured(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "b.json").write_text("[2]")

    def broken(text: str) -> Any:
        if text == "[1]":
            raise RuntimeError("a fault of ours")
        return [2.0]

    monkeypatch.setattr(results, "decode", broken)
    report = results.run(tmp_path)
    first, second = report["files"]
    assert first["not_recovered"] == [{"result": 1, "budget": None, "reason": "RuntimeError: a fault of ours"}]
    assert "differs" in second["not_recovered"][0]["reason"]  # 2.0 is not 2
    assert report["summary"]["not_recovered"] == 2
    assert "not recovered a.json, result 1, in full: RuntimeError: a fault of ours" in results.table(report)


@pytest.mark.parametrize(("value", "other"), [(1, 1.0), (1, True), (0.0, -0.0), (None, False), ("1", 1), ([], {})])
def test_values_that_look_alike_are_told_apart(value, other):
    assert results.is_same([value], jsonrpc.encode([value]))
    assert not results.is_same([value], jsonrpc.encode([other]))


async def test_replies_that_do_not_go_on_are_not_followed_forever():
    def reply(text: str, **told: Any) -> Reply:
        meta = {META_KEY: {"handle": "Rabcd", "form": "json", "path": "", **told}}
        return Reply.of(ToolResult([Text(text)], meta=meta))

    async def stuck(arguments: dict[str, Any]) -> Reply:
        return reply("[1]", unit="rows", start=0, end=1, total=2)

    async def fewer(arguments: dict[str, Any]) -> Reply:
        return reply("[1]", unit="rows", start=0, end=2, total=2)

    first = reply("[1]", unit="rows", start=0, end=1, total=2)
    with pytest.raises(ResultLostError, match="answered by 0-1 of 2"):
        await recover(first, stuck)
    with pytest.raises(ResultLostError, match="1 rows instead of 2"):
        await recover(first, fewer)


def check(data: str | bytes, budget: int) -> None:
    meter = results.Meter(budget)
    assert results.is_same(asyncio.run(meter.read(data)), data)
    assert (meter.overruns, meter.first <= budget) == (0, True)


@given(any_json | st.lists(any_json, min_size=5, max_size=40), budgets)
@settings(max_examples=examples(150))
@example([{"a": 1, "b": 1.0, "c": True}] * 90, MIN_MAX_TOKENS)
@example({"…": {"…": ["…"] * 90}, "": {"/~": "x" * 900}}, MIN_MAX_TOKENS)
def test_any_value_is_recovered_within_any_budget(value, budget):
    check(jsonrpc.encode_finite(value), budget)


@given(texts, budgets)
@settings(max_examples=examples(150))
@example("e" + "\u0301" * 900, MIN_MAX_TOKENS)
@example("👩‍👩‍👧‍👦" * 200, MIN_MAX_TOKENS)
def test_any_text_is_recovered_within_any_budget(text, budget):
    check(text, budget)
