"""What a user is shown of a change: every line that changes, and which file is written."""

import contextlib
import io
import json
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.terminal.file_change import print_change


def test_changed_lines_are_shown_together_with_a_few_around_them(capsys):
    before = "\n".join(
        ["{", *(f'  "k{number}": {number},' for number in range(20)), '  "z": {', '    "a": 1', "  }", "}"]
    )
    after = before.replace('  "k3": 3,', '  "k3": 30,').replace('    "a": 1', '    "b": 2')
    print_change(Path("x.json"), before.encode(), after.encode())
    assert capsys.readouterr().out.splitlines() == [
        "x.json:",
        "  ...",
        '      "k1": 1,',
        '      "k2": 2,',
        '  -   "k3": 3,',
        '  +   "k3": 30,',
        '      "k4": 4,',
        '      "k5": 5,',
        "  ...",
        '      "k19": 19,',
        '      "z": {',
        '  -     "a": 1',
        '  +     "b": 2',
        "      }",
        "    }",
    ]


@given(st.lists(st.sampled_from("abcde"), max_size=12), st.lists(st.sampled_from("abcde"), max_size=12))
def test_the_lines_that_stay_and_those_that_go_are_the_old_text(old, new):
    def text(letters: list[str]) -> str:
        return json.dumps([letter * 25 for letter in letters], indent=1)

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_change(Path("x.json"), text(old).encode(), text(new).encode())
    lines = [line[2:] for line in printed.getvalue().splitlines()[1:]]
    for marks, whole in (("- ", text(old)), ("+ ", text(new))):
        kept = "\n".join(line[2:] if line != "..." else line for line in lines if line[0] in marks or line == "...")
        assert all(piece.strip("\n") in whole for piece in kept.split("..."))
    gone = [line[2:] for line in lines if line.startswith("- ")]
    come = [line[2:] for line in lines if line.startswith("+ ")]
    assert Counter(text(old).splitlines()) - Counter(gone) + Counter(come) == Counter(text(new).splitlines())


def test_long_lines_are_cut(capsys):
    print_change(Path("x.json"), b"{}", json.dumps({"a": "b" * 9000}).encode())
    assert max(map(len, capsys.readouterr().out.splitlines())) < 300
