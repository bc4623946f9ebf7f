"""A server's questions during a call: answered at the terminal, by `--answer`, or not at all; in both eras."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PipedRun, run, run_on_terminal
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON, PROGRAM, ROOT

EVERYTHING = (str(FORKED_PROGRAM), "serve", str(ROOT / "examples" / "everything.py"))

ASKING = """
from deltamcp import Context, DeltaServer, elicitation

server = DeltaServer("asking", "1")
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@server.tool
async def visit(ctx: Context) -> str:
    "Visit a page."
    return (await ctx.elicit_url("Please sign in", "https://login.example.com/start?x=1")).action


@server.tool
async def confirm(ctx: Context) -> str:
    "Confirm."
    return (await ctx.elicit("Really?", {"type": "object", "properties": {}})).action


@server.tool
async def both(ctx: Context) -> str:
    "Ask twice at once."
    answers = await ctx.ask(first=elicitation("First?", NAME), second=elicitation("Second?", NAME))
    return " ".join(answers[key]["content"]["name"] for key in ("first", "second"))
"""

OFFICIAL = """
from pydantic import BaseModel
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("official")


class Table(BaseModel):
    seats: int
    inside: bool = True


@server.tool()
async def book(ctx: Context) -> str:
    "Book a table."
    answer = await ctx.elicit("How many?", Table)
    return f"{answer.action} {getattr(answer, 'data', None)}"


server.run()
"""

NEEDS_URL = """
import json, sys

opened = False
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "needs-url", "version": "1"}}
        case "tools/list":
            answer["result"] = {"tools": [{"name": "files", "inputSchema": {"type": "object"}}]}
        case "tools/call" if opened:
            answer["result"] = {"content": [{"type": "text", "text": "a.txt"}]}
        case "tools/call":
            opened = True
            answer["error"] = {"code": -32042, "message": "Authorization is needed.", "data": {"elicitations": [
                {"mode": "url", "elicitationId": "1", "url": "https://example.com/grant", "message": "Grant access"}]}}
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
"""Answers its first call with the error of MCP 2025-11-25 that asks the user to open a URL."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("questions")
    for name, source in {"asking.py": ASKING, "official.py": OFFICIAL, "needs_url.py": NEEDS_URL}.items():
        (folder / name).write_text(source)
    return folder


def asking(place: Path) -> tuple[str, ...]:
    return str(FORKED_PROGRAM), "serve", str(place / "asking.py")


@pytest.fixture(params=["modern", "handshake"])
def speak(request) -> list[str]:
    return ["--speak", request.param]


# At the terminal


def test_every_field_is_asked_by_its_schema_until_it_fits(place, speak):
    typed = b"Ann\nold\n31\n\nnone\n2\nperhaps\nn\ny\n"
    seen = run_on_terminal("call", *speak, *EVERYTHING, "test_elicitation_sep1034_defaults", cwd=place, typed=typed)

    assert "Please confirm" in seen.text
    assert 'is not of type "integer"' in seen.text
    assert "1 active" in seen.text
    assert "[95.5]" in seen.text
    last = seen.text.rpartition("Send this?")[2]
    assert "name='Ann' age=31 score=95.5 status='inactive' verified=False" in last


def test_choices_of_every_form_are_taken_by_number_title_or_value(place, speak):
    typed = b"2\nSecond Option\nopt1\n1,option3\n\ny\n"
    seen = run_on_terminal("call", *speak, *EVERYTHING, "test_elicitation_sep1330_enums", cwd=place, typed=typed)

    expected = {
        "untitledSingle": "option2",
        "titledSingle": "value2",
        "legacyEnum": "opt1",
        "untitledMulti": ["option1", "option3"],
    }
    assert f"content={expected}" in seen.text


def test_an_answer_can_be_edited_before_it_is_sent(place, speak):
    seen = run_on_terminal(
        "call",
        *speak,
        *EVERYTHING,
        "test_input_required_result_elicitation",
        cwd=place,
        typed=b"Anm\ne\nAnn\ny\n",
    )

    assert "Hello, Ann!" in seen.text


@pytest.mark.parametrize(("typed", "action"), [(b"y\ny\n", "accept"), (b"y\nn\n", "decline"), (b"\x04", "cancel")])
def test_a_question_can_be_accepted_declined_and_cancelled(place, speak, typed, action):
    seen = run_on_terminal(
        "call", *speak, *EVERYTHING, "test_input_required_result_request_state", cwd=place, typed=typed
    )

    assert seen.text.rstrip().endswith(f"state-ok: {action}")


@pytest.mark.parametrize(("typed", "action"), [(b"\ny\n", "accept"), (b"n\n", "decline"), (b"\x04", "cancel")])
@pytest.mark.parametrize("tool", ["visit", "confirm"])
def test_a_page_and_a_form_without_fields_want_a_clear_answer(place, speak, tool, typed, action):
    seen = run_on_terminal("call", *speak, *asking(place), tool, cwd=place, typed=typed)

    assert seen.text.rstrip().endswith(action)
    assert ("https://login.example.com/start?x=1" in seen.text) == (tool == "visit")


def test_questions_asked_at_once_are_asked_one_after_the_other(place, speak):
    seen = run_on_terminal("call", *speak, *asking(place), "both", cwd=place, typed=b"Ann\ny\nBob\ny\n")

    assert seen.text.rstrip().endswith("Ann Bob")


def test_the_questions_of_the_official_sdks_server_are_asked_too(place):
    target = ["--speak", "handshake", str(FORKED_PYTHON), "official.py"]
    seen = run_on_terminal("call", *target, "book", cwd=place, typed=b"4\nn\ny\n")

    assert "accept seats=4 inside=False" in seen.text


def test_a_prompt_does_not_go_into_a_redirected_result(place):
    """Only stdout is redirected; the terminal still asks."""
    ours, theirs = pty.openpty()
    command = [str(FORKED_PROGRAM), "call", *asking(place), "both"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"Ann\ny\nBob\ny\n")
        out, _ = process.communicate(timeout=HANG_SECONDS)
        os.close(ours)

    assert out == b"Ann Bob"


def test_an_interrupted_question_ends_with_130_and_no_traceback(place, speak):
    ours, theirs = pty.openpty()
    command = [str(PROGRAM), "call", *speak, *asking(place), "both"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        heard = b""
        while b"name (text)" not in heard:
            heard += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
        os.close(ours)

    assert b"Traceback" not in heard


# By --answer


def test_answers_are_given_in_the_order_of_the_questions(place, speak):
    answers = ["--answer", '{"name": "Ann"}', "--answer", '{"color": "red"}']
    done = run("call", *speak, *EVERYTHING, "test_input_required_result_multi_round", *answers, cwd=place)

    assert done == PipedRun(0, "Ann likes red", "")


@pytest.mark.parametrize("answer", ["accept", "decline", "cancel"])
@pytest.mark.parametrize("tool", ["visit", "confirm"])
def test_an_answer_can_be_an_action(place, speak, tool, answer):
    assert run("call", *speak, *asking(place), tool, "--answer", answer, cwd=place) == PipedRun(0, answer, "")


def test_accept_takes_the_defaults(place, speak):
    done = run("call", *speak, *EVERYTHING, "test_elicitation_sep1034_defaults", "--answer", "accept", cwd=place)

    assert "name='John Doe' age=30 score=95.5 status='active' verified=True" in done.out


@pytest.mark.parametrize("answer", ["{}", '{"name": 5}', '{"nmae": "Ann"}'])
def test_an_answer_that_does_not_fit_is_an_error_that_says_what_was_asked(place, speak, answer):
    done = run("call", *speak, *asking(place), "both", "--answer", answer, cwd=place)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("delta-mcp: --answer number 1 does not fit: ")
    assert done.err.endswith("the server asks 'First?' (name: text, required).\n")
    assert done.err.count("\n") == 1


def test_a_page_takes_no_fields(place, speak):
    done = run("call", *speak, *asking(place), "visit", "--answer", '{"a": 1}', cwd=place)

    assert done.code == 2
    assert "https://login.example.com/start?x=1" in done.err


def test_answers_that_nothing_asked_for_are_told(place, speak):
    done = run("call", *speak, *asking(place), "confirm", "--answer", "accept", "--answer", "accept", cwd=place)

    assert done == PipedRun(0, "accept", "delta-mcp: 1 --answer was not asked for.\n")


@pytest.mark.parametrize("answer", ["yes", "[1]", "{", "5"])
def test_what_is_no_answer_is_refused_before_anything_is_done(place, answer):
    done = run("call", "no-such-server", "tool", "--answer", answer, cwd=place)

    assert done.code == 2
    assert "--answer" in done.err


def test_answers_go_before_the_terminal(place, speak):
    seen = run_on_terminal(
        "call", *speak, *asking(place), "both", "--answer", '{"name": "Ann"}', cwd=place, typed=b"Bob\ny\n"
    )

    assert "First?" not in seen.text
    assert seen.text.rstrip().endswith("Ann Bob")


# Neither


def test_without_a_terminal_a_question_is_cancelled_and_told(place, speak):
    done = run("call", *speak, *EVERYTHING, "test_input_required_result_request_state", cwd=place)

    assert (done.code, done.out) == (0, "state-ok: cancel")
    assert "The server asks 'Please confirm' (ok: y or n, required)" in done.err
    assert "--answer" in done.err


# The error of MCP 2025-11-25 that asks for a URL


def test_a_call_that_needs_a_url_is_sent_again_when_the_user_has_opened_it(place):
    target = [sys.executable, "-S", "needs_url.py"]

    assert run("call", *target, "files", "--answer", "accept", cwd=place) == PipedRun(0, "a.txt", "")
    seen = run_on_terminal("call", *target, "files", cwd=place, typed=b"y\n")
    assert "https://example.com/grant" in seen.text
    assert seen.text.rstrip().endswith("a.txt")


def test_a_call_that_needs_a_url_fails_when_the_user_does_not_open_it(place):
    done = run("call", sys.executable, "-S", "needs_url.py", "files", "--answer", "decline", cwd=place)

    assert done == PipedRun(1, "", "delta-mcp: Authorization is needed.\n")
