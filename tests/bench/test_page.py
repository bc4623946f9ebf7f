"""The page of the documentation with what `make bench` measured."""

from bench.__main__ import BENCHMARKS
from bench.page import write_page
from bench.report import BenchReport, FigureTable, at_least


def report(figure: float) -> BenchReport:
    table = FigureTable("Calls", "32 connections", ["CPU µs", "a|b"], [("bare", [figure, None])], ["no peers"])
    return BenchReport([table], [at_least("share of bare", figure, 2)])


MEASURED = {"date": "2026-01-02", "command": "python -m bench", "commit": "abc", "cpu": "fast"}


def test_a_section_has_its_tables_and_how_they_were_measured(tmp_path):
    page = tmp_path / "speed.md"
    write_page(page, BENCHMARKS, {"stdio": report(1.5)}, MEASURED)
    text = page.read_text()
    assert text.startswith("# ")
    assert f"## stdio: {BENCHMARKS['stdio']}\n\n`python -m bench`: date 2026-01-02; commit abc; cpu fast." in text
    assert "|  | CPU µs | a\\|b |\n| --- | ---: | ---: |\n| bare | 1.5 | - |\n\n(no peers)\n" in text
    assert "- share of bare: 1.5, target ≥ 2: short by 0.5 (25%)" in text


def test_a_run_of_some_benchmarks_replaces_their_sections_alone(tmp_path):
    page = tmp_path / "speed.md"
    write_page(page, BENCHMARKS, {"stdio": report(1.5), "http": report(3)}, MEASURED)
    first = page.read_text()
    write_page(page, BENCHMARKS, {"stdio": report(2.5)}, MEASURED | {"commit": "def"})
    assert page.read_text() == first.replace("1.5 |", "2.5 |").replace(
        "share of bare: 1.5, target ≥ 2: short by 0.5 (25%)", "share of bare: 2.5, target ≥ 2: met"
    ).replace("commit abc", "commit def").replace("commit def", "commit abc", 1)
