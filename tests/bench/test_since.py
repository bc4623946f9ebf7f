"""The since benchmark: what the states of results cost behind two replicas, and that readers have every one of them."""

import json
from pathlib import Path

import pytest

from bench.corpora import since

MOST_SHARE = 0.3


@pytest.mark.deep
def test_the_steps_of_the_corpus_cost_less_than_a_third_in_both_eras(shared: Path) -> None:
    figures = since.run(shared / "corpus")["figures"]
    assert {(one["form"], one["era"]) for one in figures} == {(a, b) for a in ("whole", "previews") for b in since.ERAS}
    for one in figures:
        summary = one["summary"]
        assert summary["series"] >= 7 and summary["full"] > 200_000
        assert summary["ratio_to_full"] <= MOST_SHARE, one
        assert (summary["above_full"], summary["not_reconstructed"]) == (0, 0), one


def test_a_series_is_asked_for_at_both_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number, "name": f"thing {number * 7 % 31}", "stock": number} for number in range(120)]
    states = [rows, rows, [*rows[:50], *rows[51:]], [{**row, "stock": 7} if row["id"] == 3 else row for row in rows]]
    (tmp_path / "stock.jsonl").write_text("\n".join(json.dumps({"data": state}) for state in states))
    monkeypatch.setattr(since, "ERAS", ("modern",))
    monkeypatch.delitem(since.FORMS, "previews")
    report = since.run(tmp_path)
    [[series]] = [one["series"] for one in report["figures"]]
    assert [step["outcome"] for step in series["steps"]] == ["unchanged", "delta", "delta"]
    assert (series["above_full"], series["not_reconstructed"]) == (0, 0)
    assert "stock" in since.table(report)
