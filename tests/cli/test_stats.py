"""`delta-mcp stats`: tables, JSON, days, and a ledger that is empty or no ledger."""

import datetime
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.verbs.stats import draw_days
from deltamcp.gateway.ledger_figures import GATEWAY, LISTED, LedgerFile, LedgerKey, Usage
from tests.support.command_line import PipedRun, assert_one_sentence, run
from tests.support.html_page import Page


def today() -> datetime.date:
    """Returns the day, which may change while the tests run."""
    return datetime.date.today()


def yesterday() -> datetime.date:
    return today() - datetime.timedelta(days=1)


def stats(tmp_path: Path, *words: str) -> PipedRun:
    return run("stats", *words, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))


@pytest.fixture
def ledger(tmp_path: Path) -> LedgerFile:
    file = LedgerFile(tmp_path / "delta-mcp" / "ledger.sqlite")
    file.add(
        {
            LedgerKey(yesterday().isoformat(), "git", "log"): Usage(1, 0, 0, 100, 130),
            LedgerKey(today().isoformat(), "git", LISTED): Usage(1, 0, 0, 16_000, 0),
            LedgerKey(today().isoformat(), GATEWAY, LISTED): Usage(1, 0, 0, 0, 324),
            LedgerKey(today().isoformat(), GATEWAY, "discover"): Usage(2, 0, 0, 0, 500),
            LedgerKey(today().isoformat(), "git", "log"): Usage(3, 1, 0, 5_000, 1_000),
        }
    )
    return file


def test_a_table_by_tool_and_what_it_comes_to(tmp_path, ledger):
    done = stats(tmp_path)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["git", "tools/list", "1", "0", "16,000", "0", "16,000"] in lines
    assert ["git", "log", "4", "1", "5,100", "1,130", "3,970"] in lines
    assert ["(gateway)", "discover", "2", "0", "0", "500", "-500"] in lines
    assert "Together 19,146 tokens were saved, 91% of 21,100." in done.out
    assert f"On 1 day it cost more than it saved: {yesterday()}." in done.out


def test_sums_by_day_and_by_upstream(tmp_path, ledger):
    for by, first in (
        ("day", [str(yesterday()), "1", "0", "100", "130", "-30"]),
        ("upstream", ["git", "5", "1", "21,100", "1,130"]),
    ):
        rows = [line.split() for line in stats(tmp_path, "--by", by).out.splitlines()]
        assert rows[1][: len(first)] == first


def test_days_leave_out_older_ones(tmp_path, ledger):
    done = json.loads(stats(tmp_path, "--days", "1", "--by", "day", "--json").out)
    assert [row["day"] for row in done["rows"]] == [today().isoformat()]
    assert done["total"]["losingDays"] == []
    assert done["total"]["tokens"] == {"before": 21_000, "after": 1_824, "saved": 19_176}
    assert done["total"]["metaTools"]["calls"] == 2 and "o200k" in done["tokenizer"]


def test_reset_forgets_all(tmp_path, ledger):
    assert stats(tmp_path, "--reset").code == 0
    assert "Nothing is counted yet" in stats(tmp_path).out
    assert json.loads(stats(tmp_path, "--json").out)["rows"] == []


def test_a_file_that_is_no_ledger_is_one_sentence(tmp_path, ledger):
    for suffix in ("-wal", "-shm"):
        Path(f"{ledger.path}{suffix}").unlink(missing_ok=True)
    ledger.path.write_bytes(b"no database" * 1000)
    assert_one_sentence(stats(tmp_path), 2)


def test_days_must_be_a_number(tmp_path):
    assert stats(tmp_path, "--days", "all").code == 2


def test_the_days_are_drawn_with_what_was_saved(tmp_path, ledger):
    lines = stats(tmp_path).out.splitlines()
    drawn = {line.split()[0]: line for line in lines if line.startswith("20")}
    assert [*drawn] == [str(yesterday()), str(today())]
    assert drawn[str(today())].split()[1:] == ["█" * 3 + "░" * 37, "19,176"]


def test_a_terminal_that_has_no_bars_is_sent_ascii(tmp_path, ledger):
    done = run("stats", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path), PYTHONIOENCODING="ascii")
    assert done.code == 0 and "###......" in done.out


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=40))
def test_no_bar_is_longer_than_that_of_most_tokens(figures):
    rows = {
        LedgerKey(str(today() - datetime.timedelta(days=ago)), "git", "log"): Usage(1, 0, 0, before, after)
        for ago, (before, after) in enumerate(figures)
    }
    lines = draw_days(rows, today())
    bars = [line[11:51] for line in lines[1:]]
    assert len(bars) in (0, min(30, len(figures)))
    assert all(set(bar) <= {*"█░▒ "} and " " not in bar.rstrip() for bar in bars)
    shown = figures[:30]
    if any(max(pair) for pair in shown):
        largest = max(shown, key=max)
        assert not bars[-1 - shown.index(largest)].endswith(" ")


def test_a_page_has_the_same_figures_loads_nothing_and_runs_nothing(tmp_path, ledger):
    hostile = "<script>alert(1)</script>\u202e"
    ledger.add({LedgerKey(str(today()), hostile, hostile): Usage(1, 0, 0, 10, 10)})
    done = stats(tmp_path, "--html", "saved.html")
    assert done.code == 0 and "Written to saved.html" in done.err
    text = (tmp_path / "saved.html").read_text()
    page = Page(text)
    assert page.open == [] and "19,146" in page.text and f"{today()}: 21,010 without" in page.text
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {"src", "href", "action"} & names and not [name for name in names if name.startswith("on")]
    assert "<script>alert(1)" in page.text and "\u202e" not in text
    assert_one_sentence(stats(tmp_path, "--html", "nowhere/saved.html"), 2)
