"""What `delta-mcp` alone and `--help` show: every command under a heading, in lines that fit a terminal."""

import argparse
import itertools

import pytest

from deltamcp.cli.main import VERBS, VerbGroup, make_parser
from tests.support.command_line import run, run_on_terminal


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    return run("--help", cwd=tmp_path_factory.mktemp("place")).out


def test_delta_mcp_alone_shows_the_help(top, tmp_path):
    shown = run_on_terminal(cwd=tmp_path)

    assert shown.code == 0
    assert shown.text.replace("\r\n", "\n") == top


def test_every_command_is_under_the_heading_of_its_group(top):
    headings = [part.partition(":\n") for part in top.split("\n\n")]
    shown = {
        heading: [line.split()[0] for line in lines.splitlines() if line.startswith("  ") and line[2] != " "]
        for heading, _, lines in headings
    }

    for group in VerbGroup:
        assert shown[group.value] == [name for name, verb in VERBS.items() if verb.group is group]


def test_the_commands_of_a_group_stand_together():
    assert [group for group, _ in itertools.groupby(verb.group for verb in VERBS.values())] == [*VerbGroup]


def test_what_others_call_a_command_is_no_command_and_leads_to_one_only():
    others = [name for verb in VERBS.values() for name in verb.other_names]

    assert len(others) == len({*others, *VERBS} - {*VERBS})


@pytest.mark.parametrize("columns", ["80", "200"])
def test_all_help_fits_80_columns(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    parser = make_parser(VERBS)
    verbs = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {"delta-mcp": parser.format_help(), **{name: verb.format_help() for name, verb in verbs.items()}}

    long = {name: [line for line in text.splitlines() if len(line) > 80] for name, text in helps.items()}
    assert {name: lines for name, lines in long.items() if lines} == {}


def test_help_of_a_command_has_two_ways(tmp_path):
    assert run("help", "validate", cwd=tmp_path) == run("validate", "--help", cwd=tmp_path)
