"""The delta benchmark: the project's promises over the corpus, and the report over unusual data."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.corpora import deltas, other_deltas
from bench.corpora.series import State
from tests.support.paths import ROOT

KEYS = [
    "series",
    "steps",
    "above_full",
    "not_reconstructed",
    "unchanged_tokens_max",
    "ratio_to_full",
    "ratio_to_best_other",
]


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "deltas", *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def written(folder: Path, name: str, lines: list[Any]) -> None:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture(scope="session")
def corpus(shared) -> Path:
    return Path(shared) / "corpus"


def test_what_the_corpus_must_show(corpus):
    report = json.loads(command("--data", str(corpus), "--json"))
    summary = report["summary"]
    assert list(summary)[: len(KEYS)] == KEYS
    assert summary["above_full"] == summary["not_reconstructed"] == 0
    assert summary["unchanged_tokens_max"] <= 16
    assert summary["series_above_best_other"] == []
    rows = next(row for row in report["series"] if row["name"].endswith("rows400_nested"))
    assert rows["each"][0]["outcome"] == "delta"
    assert rows["each"][0]["ours"] <= 110 + 16  # the words that explain the changes, which are said once
    assert report["gcf"] == "gcf-python==2.8.0"


def test_the_table_names_every_series(corpus):
    table = command("--data", str(corpus))
    assert all(path.stem in table for path in (corpus / "evolving").glob("*.jsonl"))


def test_long_series_are_anchored_again_and_told(tmp_path):
    """More steps than deltas may follow each other, with all kinds of values; no step exceeds the full form."""
    chance = random.Random(1)
    rows = [
        {"id": n, "name": f"host-{n}", "load": 0.5, "tags": ["a"], "os": {"name": "Debian", "v": 12}} for n in range(40)
    ]
    polls = []
    for turn in range(40):
        rows = [{**row, "load": chance.random()} if chance.random() < 0.05 else row for row in rows]
        polls.append({"t": turn, "data": {"at": turn, "hosts": rows}})
    written(tmp_path, "evolving/polls.jsonl", polls)
    lines = [f"12:00:{n:02d} worker {n} started with pid {n * 7}" for n in range(50)]
    written(tmp_path, "evolving/log.jsonl", [{"text": "\n".join(lines[: 20 + n])} for n in range(30)])
    written(tmp_path, "evolving/small.jsonl", [{"data": n % 3} for n in range(9)] + [{"data": {"ok": True}}] * 3)
    written(
        tmp_path,
        "evolving/odd.jsonl",
        [{"data": value} for value in list[Any]((None, [], {}, "x", [1, 1.0, True], [{}], {"": [[]]}))],
    )
    calls = [
        {"tool": "get", "args": {"n": n % 2}, "result": {"content": [{"type": "text", "text": str(n // 4) * 90}]}}
        for n in range(12)
    ]
    written(tmp_path, "results/sessions/some.jsonl", [{"session": "a", "calls": calls}])
    report = deltas.run(tmp_path)
    summary = report["summary"]
    assert (summary["above_full"], summary["not_reconstructed"], summary["series_above_best_other"]) == (0, 0, [])
    assert summary["unchanged_tokens_max"] <= 16
    outcomes = [step["outcome"] for row in report["series"] if "polls" in row["name"] for step in row["each"]]
    assert outcomes[15:17] == ["full", "delta"]
    assert outcomes.count("delta") > 30


def test_files_of_another_shape_are_passed_over(tmp_path):
    written(tmp_path, "a.jsonl", [{"something": "else"}, {}])
    (tmp_path / "b.jsonl").write_text("no JSON")
    written(tmp_path, "c.jsonl", [{"data": 1}])
    report = json.loads(command("--data", str(tmp_path), "--json"))
    assert list(report["passed_over"]) == ["a", "b"]
    assert report["summary"]["series"] == 0


@pytest.mark.parametrize("data", ["no-such-folder"])
def test_a_missing_folder_is_told_in_one_sentence(data):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "deltas", "--data", data], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode
    assert done.stderr.count("\n") == 1


def test_the_others_tell_what_they_should():
    base, new = State("", b'[{"id":1,"a":"x"},{"id":2,"a":"y"}]'), State("", b'[{"id":1,"a":"x"},{"id":2,"a":"z"}]')
    assert other_deltas.json_patch(base, new) == '[{"op":"replace","path":"/1/a","value":"z"}]'
    assert other_deltas.unified_diff(base, new).split("\n")[3:] == ['-"a": "y"', '+"a": "z"']
    rows = other_deltas.keyed_rows(base, new)
    assert rows is not None
    assert "## changed [1]{@id,a}\n2|z" in (other_deltas.gcf_delta(rows) or "")
    assert other_deltas.gcf_delta(rows._replace(key="none")) is None


def test_without_gcf_python_the_report_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(other_deltas, "GCF_PACKAGE", "no-such-package-anywhere")
    written(tmp_path, "evolving/rows.jsonl", [{"data": [{"id": 1, "a": turn}]} for turn in range(3)])
    report = deltas.run(tmp_path)
    assert report["gcf"] == "not installed: pip install gcf-python"
    assert [step["gcf"] for step in report["series"][0]["each"]] == [None, None]
