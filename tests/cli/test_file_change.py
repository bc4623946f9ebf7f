"""What a user is shown of a change: every line that changes, and no secret."""

import contextlib
import io
import json
from collections import Counter
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.file_change import MASK, mask_secrets, print_change

SECRET = 's3cr3t/\u00fc"x'


@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"KEY": SECRET}},
        {"headers": {"X-Any": SECRET}},
        {"http_headers": {"X-Any": SECRET}},
        {"environment": {"A": SECRET}},
        {"args": ["--api-key", SECRET]},
        {"args": [f"--token={SECRET}"]},
        {"url": f"https://x.example/mcp?k={SECRET}"},
        {"url": "https://user:s3cr3t@x.example/mcp"},
        {"url": "https://x.example/s/s3cr3t0123456789/mcp"},
        {"apiToken": SECRET},
        {"oauth": {"clientSecret": SECRET}},
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_secrets_are_masked_wherever_entries_have_them(entry, suffix):
    document = {"mcp_servers": {"a": {"command": "x", **entry}}}
    written = tomlkit.dumps(document) if suffix == ".toml" else json.dumps(document)
    shown = mask_secrets(Path(f"x{suffix}"), written.encode())
    assert MASK in shown and "s3cr3t" not in shown
    assert '"x"' in shown


@given(st.text(min_size=3), st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_a_value_of_the_environment_is_masked_however_it_is_escaped(secret, ascii, indent):
    written = json.dumps({"s": {"a": {"env": {"K": secret}}}}, ensure_ascii=ascii, indent=indent)
    shown = mask_secrets(Path("x.json"), written.encode())
    assert shown == written.replace(json.dumps(secret, ensure_ascii=ascii), f'"{MASK}"')


@pytest.mark.parametrize("reference", ["${TOKEN}", "Bearer ${env:TOKEN}", "$TOKEN"])
def test_variables_are_shown(reference):
    written = json.dumps({"headers": {"Authorization": reference}})
    assert reference in mask_secrets(Path("x.json"), written.encode())


def test_secrets_in_comments_are_masked():
    text = '{\n  // "GITHUB_TOKEN": "ghp_abcdef",\n  "a": 1\n}'
    assert "ghp_abcdef" not in mask_secrets(Path("x.json"), text.encode())


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
