"""The pictures of the README show the figures that were measured, and the README and the benchmarks say the same."""

import json

import pytest

from bench.picture import AUDIT, COLORS, FIGURES, FOLDER, describe, draw, draw_terminal
from tests.support.paths import ROOT

FOUND = json.loads(FIGURES.read_text())


@pytest.mark.parametrize("theme", COLORS)
def test_pictures_are_drawn_from_the_figures(theme):
    assert (FOLDER / f"agents-{theme}.svg").read_text() == draw(FOUND, COLORS[theme])
    assert (FOLDER / f"audit-{theme}.svg").read_text() == draw_terminal(AUDIT.read_text(), COLORS[theme])


def test_the_readme_says_what_was_measured():
    readme = (ROOT / "README.md").read_text()
    assert f'alt="{describe(FOUND)}"' in readme
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    assert f"| {FOUND['gateway']['solved_after_a_mistake']} mistakes |" in measured
    assert FOUND["gateway"]["solved"] == FOUND["plain"]["solved"] == FOUND["tasks"]


def test_pictures_load_nothing():
    for path in FOLDER.glob("*.svg"):
        assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")
