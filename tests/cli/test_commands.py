"""Every verb of the command line, against this library's server, foreign servers and hostile servers."""

import base64
import contextlib
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.cli import main
from deltamcp.cli.terminal import arguments, output
from deltamcp.cli.verbs import tools
from tests.support.command_line import BAR_AT_ONCE, PipedRun, assert_one_sentence, run, run_bytes, run_on_terminal
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON, PROGRAM, ROOT
from tests.support.processes import free_port, wait_until_it_answers
from tests.support.properties import examples

ESCAPES = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x08\x7f \u202eback"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

EXACT = "a\r\nb\rc\x1b[31m\x00\x9b \u202e\u200d\U0001f469 e\u0301"
"""A text with every character that a terminal would not show as it is."""

STANDARD = """
import base64, json, os, sys, time
from pathlib import Path

HERE = Path(__file__).parent
ESCAPES = "\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\x9b2J \\x08\\x7f \\u202eback"
EXACT = "a\\r\\nb\\rc\\x1b[31m\\x00\\x9b \\u202e\\u200d\\U0001f469 e\\u0301"
ROWS = [{"id": n, "name": f"row {n}", "deep": {"x": n}} for n in range(1, 201)]


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def coded(many):
    return base64.b64encode((b"x\\r\\x00" * many)[:many]).decode()


ANY = {"type": "object"}
KINDS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"}, "whole": {"type": "integer"}, "number": {"type": "number"},
        "flag": {"type": "boolean"}, "names": {"type": "array", "items": {"type": "string"}},
        "box": {"type": "object"}, "colour": {"enum": ["red", "green"]}, "digit": {"enum": ["1", "2"]},
        "kind": {"type": "string", "enum": ["1", "true"]}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "either": {"type": ["string", "integer"]},
        "listed": {"type": ["integer", "null"]}, "free": {}, "constant": {"const": 7}, "nil": {"type": "null"},
        "referred": {"$ref": "#/$defs/code"}, "joined": {"allOf": [{"type": "string"}]},
    },
    "$defs": {"code": {"type": "string"}},
}
STRICT = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
          "additionalProperties": False}
HOSTILE = {"type": "object", "properties": {"a": {"type": [{}], "anyOf": 5, "enum": 7}}}
RESULTS = {
    "search": text("found"),
    "fail": text("it did not work", isError=True),
    "silent_failure": {"content": [], "isError": True},
    "empty": {"content": []},
    "structured": {"content": [], "structuredContent": {"answer": 42}},
    "rows": text(json.dumps(ROWS)),
    "prose": text("word " * 5000),
    "texts": {"content": [{"type": "text", "text": "word " * 800}] * 3},
    "inside": {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "word " * 3000}}]},
    "binary": {"content": [{"type": "resource", "resource": {
        "uri": "file:///c.pdf", "blob": coded(3000), "mimeType": "application/pdf"}}]},
    "image": {"content": [{"type": "image", "data": coded(3000), "mimeType": "image/png"}]},
    "exact": text(EXACT),
    "exact_inside": {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": EXACT}}]},
    "two": {"content": [{"type": "text", "text": "a\\r\\nb\\x00"},
                        {"type": "image", "data": coded(3000), "mimeType": "image/png"}]},
    "media": {"content": [
        {"type": "image", "data": coded(10), "mimeType": "image/png"},
        {"type": "audio", "data": coded(20), "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside b"}}]},
    "escapes": text(ESCAPES),
    "escaped_failure": text(ESCAPES, isError=True),
    "escaped_link": {"content": [{"type": "resource_link", "uri": ESCAPES, "name": ESCAPES}]},
    "lone": text("a\\ud800b"),
    "nan": {"content": [], "structuredContent": {"mean": float("nan")}},
    "deep": {"content": [], "structuredContent": {"a": "DEEP"}},
    "latin": text("caf LATIN"),
    "wide": text("\\u65e5\\u672c\\u8a9e"),
    "big": text("\\n".join(["x" * 79] * 65536)),
}
SCHEMAS = {"echo": KINDS, "strict": STRICT, "hostile": HOSTILE}
TOOLS = ["echo", "strict", "hostile", *RESULTS, "argv", "once", "wait", "slow", "telling", "asking", "die", "trouble",
         "escaped_trouble", "escaped_death", "repeat", "quick\\x1b[2Jly"]
ABOUT = {"escapes": ESCAPES, "wide": "\\u65e5\\u672c\\u8a9e \\U0001f469\\u200d\\U0001f467 e\\u0301"}


def answer(method, params, say):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "standard" + ESCAPES * ("--evil" in sys.argv), "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": ABOUT.get(name, f"About {name}."),
                           "inputSchema": SCHEMAS.get(name, ANY),
                           "annotations": {"readOnlyHint": name == "search"}} for name in TOOLS]}
    if method != "tools/call":
        raise LookupError("Method not found")
    name, arguments = params["name"], params.get("arguments", {})
    if name in SCHEMAS:
        return text(json.dumps(arguments))
    if name == "argv":
        return text(json.dumps(sys.argv[1:]))
    if name == "repeat":
        return text(arguments["text"])
    if name == "once":
        (HERE / "done").write_text("done")
    if name == "wait":
        (HERE / "waiting").write_text(str(os.getpid()))
        time.sleep(60)
    if name == "slow":
        time.sleep(1.7)
    if name == "telling":
        say({"method": "notifications/progress", "params": {
            "progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 2, "message": ESCAPES}})
        time.sleep(1.7)
    if name == "asking":
        form = {"type": "object", "properties": {"whose": {"type": "string", "description": ESCAPES}}}
        say({"id": "q", "method": "elicitation/create", "params": {"message": ESCAPES, "requestedSchema": form}})
        return text(json.dumps(json.loads(sys.stdin.readline()).get("result")))
    if name == "die":
        sys.exit(3)
    if name == "escaped_death":
        print(ESCAPES, file=sys.stderr, flush=True)
        sys.exit(3)
    if name == "trouble":
        raise RuntimeError("internal trouble")
    if name == "escaped_trouble":
        raise RuntimeError(ESCAPES)
    if name not in TOOLS:
        raise ValueError(f"Unknown tool: {name}")
    return RESULTS.get(name, text(f"{name} done"))


def say(message):
    line = json.dumps({"jsonrpc": "2.0", **message}).replace('"DEEP"', "[" * 5000 + "]" * 5000)
    sys.stdout.buffer.write(line.encode().replace(b"LATIN", b"\\xe9") + b"\\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    try:
        say({"id": message["id"], "result": answer(message["method"], message.get("params", {}), say)})
    except Exception as error:
        codes = {LookupError: -32601, ValueError: -32602}
        say({"id": message["id"], "error": {"code": codes.get(type(error), -32603), "message": str(error)}})
"""
"""An MCP server of the handshake era that uses only the standard library, so that it starts fast."""

OFFICIAL = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("official")


@server.tool()
def squares(count: int = 100) -> list[dict[str, int]]:
    "Squares."
    return [{"id": n, "square": n * n} for n in range(count)]


@server.tool()
def prose(words: int) -> str:
    "Words."
    return "word " * words


server.run()
"""

OURS = """
from deltamcp import DeltaServer, ResultPolicy

server = DeltaServer("ours", "1.0", results=ResultPolicy(max_tokens=500, page_size=20))


@server.tool(annotations={"readOnlyHint": True})
async def users(active: bool = False) -> list[dict[str, object]]:
    "List the users."
    return [{"id": n, "name": f"user {n}", "mail": f"u{n}@example.com"} for n in range(1, 301)]


@server.tool
async def prose(words: int) -> str:
    "Write words."
    return "word " * words
"""


Say = Callable[..., PipedRun]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    found: Path = tmp_path_factory.mktemp("verbs")
    for name, source in {"standard.py": STANDARD, "official.py": OFFICIAL, "ours.py": OURS}.items():
        (found / name).write_text(source)
    servers = {
        "standard": {"command": sys.executable, "args": ["-S", str(found / "standard.py")]},
        "nothing": {},
    }
    (found / "hosts.json").write_text(json.dumps({"mcpServers": servers}))
    return found


@pytest.fixture(scope="module")
def standard(place) -> list[str]:
    return [sys.executable, "-S", str(place / "standard.py")]


@pytest.fixture(scope="module")
def official(place) -> list[str]:
    return [str(FORKED_PYTHON), str(place / "official.py")]


@pytest.fixture(scope="module")
def ours(place) -> Iterator[str]:
    """The URL of a `DeltaServer`."""
    address = f"127.0.0.1:{free_port()}"
    command = [FORKED_PROGRAM, "serve", place / "ours.py", "--http", address]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            wait_until_it_answers(process, f"http://{address}/mcp")
            yield f"http://{address}/mcp"
        finally:
            process.terminate()


@pytest.fixture
def say(place, monkeypatch, capsys) -> Say:
    """Runs the command line in this process."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("DELTA_MCP_TOKEN", raising=False)

    def said(*words: str, stdin: str = "") -> PipedRun:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code: Any = 0
        try:
            main.main(list(words))
        except SystemExit as ended:
            code = ended.code or 0
        return PipedRun(code, *capsys.readouterr())

    return said


# Words of the command line


def test_a_call_is_written_in_the_seeds_own_order_of_words(say, standard):
    assert say("call", *standard, "search", '{"query":"x"}') == PipedRun(0, "found", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--json"], []),
        ([], ["--json"]),
        (["--timeout", "9"], ["--json"]),
        (["--timeout=9", "--json"], []),
        ([], ["--timeout", "9", "--json"]),
        ([], ["--json", "--timeout=9"]),
        (["--json", "--"], []),
    ],
)
def test_options_stand_before_the_target_or_at_the_very_end(say, standard, before, after):
    done = say("call", *before, *standard, "echo", "text=x", *after)

    assert (done.code, done.err) == (0, "")
    assert json.loads(json.loads(done.out)["content"][0]["text"]) == {"text": "x"}


def test_what_stands_between_is_the_servers_own(say, standard):
    done = say("call", *standard, "--json", "--page", "7", "argv")

    assert done == PipedRun(0, '["--json", "--page", "7"]', "")


def test_after_two_dashes_every_word_is_the_targets_or_the_verbs(say, standard):
    listed = say("list", "--", *standard, "--json")
    called = say("call", "--", *standard, "--json", "argv", "{}")

    assert listed.out.startswith("standard 1 speaks MCP ")
    assert called == PipedRun(0, '["--json"]', "")


def test_an_address_a_command_line_and_an_entry_of_a_file_are_targets(say, standard, ours):
    named = [say("list", *target, "--json") for target in (standard, ["hosts.json#standard"], [ours])]

    assert [json.loads(done.out)["server"]["name"] for done in named] == ["standard", "standard", "ours"]


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["describe"],
        ["describe", "python"],
        ["call"],
        ["call", "python"],
        ["call", "{}"],
        ["call", "python", "a=1", "b=2"],
        ["list", "hosts.json#nobody"],
        ["list", "hosts.json#nothing"],
        ["list", "nowhere.json#a"],
        ["list", "ftp://example.com"],
        ["list", "http://"],
        ["list", "http://127.0.0.1:1/mcp", "more"],
        ["list", "--header", "nonsense", "http://127.0.0.1:1/mcp"],
        ["call", "x", "y", "--all", "--page", "2"],
        ["call", "x", "y", "{'a': 1}"],
        ["call", "x", "y", "a:={"],
        ["audit", "nowhere.json"],
        ["audit", "hosts.json", "--only", "nobody"],
        ["validate", "nowhere.json"],
        ["serve", "nowhere.py"],
    ],
)
def test_a_wrong_command_is_told_in_one_sentence_and_ends_with_2(say, words):
    assert_one_sentence(say(*words), 2)


@pytest.mark.parametrize(
    "words",
    [["list", "http://127.0.0.1:1/mcp"], ["list", "no-such-command"], ["call", sys.executable, "-c", "", "tool"]],
)
def test_a_server_that_is_not_there_is_told_in_one_sentence_and_ends_with_3(say, words):
    assert_one_sentence(say(*words), 3)


def test_the_nearest_server_of_a_file_is_named(say):
    assert "standard" in say("list", "hosts.json#standrad").err


# Arguments


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=5", "5"),
        ("text=true", "true"),
        ("text=null", "null"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ('text={"a":1}', '{"a":1}'),
        ("text=a\nb", "a\nb"),
        ("text=日本", "日本"),
        ("whole=5", 5),
        ("number=5.5", 5.5),
        ("number=-3", -3),
        ("flag=true", True),
        ("flag=false", False),
        ('names=["a","b"]', ["a", "b"]),
        ("names=a", ["a"]),
        ('box={"a":[1]}', {"a": [1]}),
        ("colour=red", "red"),
        ("digit=1", "1"),
        ("kind=true", "true"),
        ("maybe=5", "5"),
        ("maybe=word", "word"),
        ("maybe=null", None),
        ("perhaps=5", 5),
        ("perhaps=null", None),
        ("listed=null", None),
        ("either=5", 5),
        ("either=five", "five"),
        ("either=true", "true"),
        ("constant=7", 7),
        ("nil=null", None),
        ("joined=word", "word"),
        ("free=word", "word"),
        ("free=5", 5),
        ("unheard=word", "word"),
        ("unheard=007", "007"),
        ('text:="5"', "5"),
        ("free:=[1,null]", [1, None]),
        ("unheard:=5", 5),
        ("referred=5", "5"),
        ("joined=5", "5"),
    ],
)
def test_a_pair_is_read_by_the_tools_schema(say, standard, pair, value):
    done = say("call", *standard, "echo", pair)

    assert (done.code, done.err) == (0, "")
    assert list(json.loads(done.out).values()) == [value]
    assert [type(one) for one in json.loads(done.out).values()] == [type(value)]


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        ("whole=five", "integer"),
        ("whole=5.5", "integer"),
        ("flag=yes", "boolean"),
        ("flag=1", "boolean"),
        ("box=a", "object"),
        ("colour=blue", "green"),
        ("text:=5", "string"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused_in_words_that_say_what_would(say, standard, pair, word):
    done = say("call", *standard, "echo", pair)

    assert_one_sentence(done, 2)
    assert word in done.err


def test_names_the_tool_does_not_have_or_misses_are_told(say, standard):
    unknown, missing = say("call", *standard, "strict", "path=a", "pth=b"), say("call", *standard, "strict")

    assert_one_sentence(unknown, 2)
    assert "pth" in unknown.err
    assert_one_sentence(missing, 2)
    assert "path" in missing.err


def test_pairs_of_both_kinds_go_together(say, standard):
    done = say("call", *standard, "echo", "text=1", "free:=2", "flag=true")

    assert json.loads(done.out) == {"text": "1", "free": 2, "flag": True}


def test_of_two_values_for_one_name_the_last_counts_or_neither(say, standard):
    done = say("call", *standard, "echo", "text=first", "text=last")

    assert done.code == 2 or json.loads(done.out) == {"text": "last"}


def test_a_dash_reads_standard_input(say, standard):
    assert say("call", *standard, "echo", "-", stdin='{"text": "in"}\n').out == '{"text": "in"}'


@pytest.mark.parametrize("stdin", ["", "{", "[1]", "5", '{"a":1} {"b":2}'])
def test_standard_input_that_is_no_object_is_refused(say, standard, stdin):
    assert_one_sentence(say("call", *standard, "echo", "-", stdin=stdin), 2)


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("free:=NaN", id="nan"),
        pytest.param("free:=-Infinity", id="infinity"),
        pytest.param('{"free": 1e999}', id="out of range"),
        pytest.param('{"free": "\\ud800"}', id="half a character, escaped"),
        pytest.param("text=a\udcff", id="bytes that are not UTF-8"),
        pytest.param("free:=" + "[" * 5000, id="deep JSON"),
    ],
)
def test_what_json_cannot_say_is_refused_in_one_sentence(say, standard, word):
    done = say("call", *standard, "echo", word)

    assert_one_sentence(done, 2)


@pytest.mark.parametrize("text", ["number=NaN", "number:=1e999"])
def test_a_number_that_is_none_is_not_told_as_null(say, standard, text):
    done = say("call", *standard, "echo", text)

    assert_one_sentence(done, 2)
    assert "null" not in done.err


def test_a_schema_that_is_none_does_not_break_the_reading_of_pairs(say, standard):
    done = say("call", *standard, "hostile", "a=1")

    assert done.code in (0, 1, 2)


@pytest.mark.parametrize("word", ["[1]", '"x"', ' {"text":"x"}'])
def test_json_that_is_no_object_is_told_to_be_none(say, standard, word):
    done = say("call", *standard, "echo", word)

    assert done == PipedRun(0, '{"text": "x"}', "") or (done.code == 2 and "JSON" in done.err)


@pytest.mark.parametrize("words", [['{"free":2}', "text=1"], ["text=1", '{"free":2}'], ["free:=2", "-", "text=1"]])
def test_json_and_pairs_go_together(say, standard, words):
    done = say("call", *standard, "echo", *words, stdin="{}")

    assert done.code == 0
    assert json.loads(done.out) == {"text": "1", "free": 2}


@pytest.mark.parametrize("words", [["{}", "{}"], ['{"text":"1"}', "text=2"]])
def test_arguments_given_twice_are_refused(say, standard, words):
    assert_one_sentence(say("call", *standard, "echo", *words), 2)


@pytest.mark.parametrize("word", ["--timeout", "--page", "--fields"])
def test_an_option_at_the_end_without_its_value_is_told(say, standard, word):
    done = say("call", *standard, "search", word)

    assert done.code == 2
    assert "needs a value" in done.err


# Unknown tools, and tools that fail


@pytest.mark.parametrize("words", [["describe"], ["call", "text=1"]])
def test_an_unknown_tool_is_told_with_the_nearest_names(say, standard, words):
    verb, *pairs = words
    done = say(verb, *standard, "ecko", *pairs)

    assert_one_sentence(done, 2)
    assert "did you mean echo" in done.err


def test_an_unknown_tool_without_pairs_is_told_alike(say, standard):
    done = say("call", *standard, "ecko")

    assert_one_sentence(done, 2)
    assert "did you mean echo" in done.err


@pytest.mark.parametrize("words", [["describe"], ["call", "active=true"]])
def test_an_unknown_tool_of_our_own_server_is_told_with_the_nearest_names(say, ours, words):
    verb, *pairs = words
    done = say(verb, ours, "user", *pairs)

    assert_one_sentence(done, 2)
    assert "users" in done.err


def test_an_unknown_tool_is_a_wrong_command_on_our_own_server_too(say, ours):
    done = say("call", ours, "user")

    assert "users" in done.err
    assert done.code == 2


def test_a_tool_that_fails_is_told_on_stderr_and_ends_with_1(say, standard):
    assert say("call", *standard, "fail") == PipedRun(1, "", "it did not work\n")


def test_a_tool_that_fails_without_a_word_is_told_to_have_failed(say, standard):
    done = say("call", *standard, "silent_failure")

    assert (done.code, done.out) == (1, "")
    assert "failed" in done.err


def test_a_failure_as_json_is_the_whole_result(say, standard):
    done = say("call", *standard, "fail", "--json")

    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out) == {"content": [{"type": "text", "text": "it did not work"}], "isError": True}


def test_an_error_of_the_server_ends_with_1(say, standard):
    done = say("call", *standard, "trouble")

    assert_one_sentence(done, 1)
    assert "internal trouble" in done.err


def test_a_server_that_goes_away_or_does_not_answer_ends_with_3(say, standard):
    assert_one_sentence(say("call", *standard, "die"), 3)
    assert_one_sentence(say("call", *standard, "wait", "--timeout", "0.3"), 3)


@pytest.mark.parametrize("words", [["--debug", "call"], ["call", "--debug"]])
@pytest.mark.parametrize(("tool", "code"), [("die", 3), ("trouble", 1), ("ecko", 2)])
def test_debug_shows_the_traceback_once_and_ends_alike(say, standard, words, tool, code):
    done = say(*words, *standard, tool)

    assert (done.code, say("call", *standard, tool).code) == (code, code)
    assert done.err.count("Traceback") == 1
    assert "in describe" in done.err or "in call_tool" in done.err, "where it was found, not where it was told"


def test_debug_at_the_end_shows_what_the_server_says_beside(standard, place):
    done = run("call", *standard, "escaped_death", "--debug", cwd=place)

    assert "title" in done.err
    assert "Traceback" in done.err


# Output


def test_what_is_no_text_is_named(say, standard):
    shown = say("call", *standard, "media").out.splitlines()

    assert [line.rpartition(",")[0] for line in shown[:2]] == ["[image, image/png", "[audio, audio/wav"]
    assert shown[2:] == ["[a.txt: file:///a.txt]", "inside b"]


def test_the_size_of_an_image_is_its_own(say, standard):
    shown = say("call", *standard, "media").out

    assert " 10 bytes" in shown
    assert " 20 bytes" in shown


@pytest.mark.parametrize("tool", ["binary", "image"])
def test_bytes_are_named_on_a_terminal_and_written_into_a_pipe(standard, place, tool):
    seen = run_on_terminal("call", *standard, tool, cwd=place)

    assert "3,000 bytes; > FILE saves it]" in seen.text
    assert len(seen.text) < 200
    assert run_bytes("call", *standard, tool, cwd=place) == b"x\r\x00" * 1000
    assert run_bytes("call", *standard, tool, "--all", cwd=place) == b"x\r\x00" * 1000


@pytest.mark.parametrize("tool", ["exact", "exact_inside"])
def test_a_text_goes_into_a_pipe_byte_for_byte(standard, place, tool):
    for more in ([], ["--all"]):
        assert run_bytes("call", *standard, tool, *more, cwd=place) == EXACT.encode()


def test_bytes_do_not_depend_on_the_encoding_of_the_locale(standard, place):
    for more in ([], ["--json"]):
        plain = run_bytes("call", *standard, "exact", *more, cwd=place)
        assert run_bytes("call", *standard, "exact", *more, cwd=place, PYTHONIOENCODING="latin-1") == plain


def test_several_blocks_are_lines(standard, place):
    assert (
        run_bytes("call", *standard, "two", cwd=place)
        == b"a\r\nb\x00\n[image, image/png, 3,000 bytes; --json has it]\n"
    )


def test_only_dangerous_and_hidden_characters_are_replaced_on_a_terminal(standard, place):
    safe = "\u65e5 \U0001f469\u200d\U0001f467 e\u0301\ue000\t"
    dangerous = "\x00\x07\x08\x0b\x1b\x7f\x9b\u00ad\u061c\u200e\u2028\u202e\u2066"
    sent = json.dumps(f"{safe}|a\r\nb|{dangerous}|c\rd")
    seen = run_on_terminal("call", *standard, "repeat", f"text:={sent}", cwd=place)

    replaced = "\ufffd" * len(dangerous)
    assert seen.text == f"{safe}|a\r\r\nb|{replaced}|c\ufffdd\r\n"


def test_a_line_is_ended_on_a_terminal_once(standard, place):
    assert run_on_terminal("call", *standard, "repeat", "text=a\n", cwd=place).text == "a\r\n"


def test_a_result_of_nothing_is_nothing_and_one_of_structure_alone_is_json(say, standard):
    assert say("call", *standard, "empty").out.strip() == ""
    assert json.loads(say("call", *standard, "structured").out) == {"answer": 42}


def test_five_megabytes_come_through_whole(standard, place):
    done = run("call", *standard, "big", cwd=place)

    assert (done.code, len(done.out), done.err) == (0, 80 * 65536 - 1, "")


def test_a_reader_that_has_seen_enough_is_no_error(standard, place):
    line = '"$0" "$@" | head -1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", line, str(PROGRAM), "call", *standard, "big"],
        capture_output=True,
        text=True,
        cwd=place,
        check=True,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "x" * 79
    assert done.stdout.splitlines()[1] in ("0", "141")


@pytest.mark.parametrize("tool", ["lone", "nan", "deep", "latin"])
def test_an_answer_that_cannot_be_read_is_told_and_not_waited_for(say, standard, tool):
    done = say("call", *standard, tool, "--timeout", str(HANG_SECONDS))

    assert "not answered" not in done.err
    assert done.code in (0, 1)


@pytest.mark.parametrize("verb", [["list"], ["call", "wide"]])
def test_an_output_that_cannot_write_everything_is_written_what_it_can(standard, place, verb):
    done = run(verb[0], *standard, *verb[1:], cwd=place, PYTHONIOENCODING="ascii")

    assert "Traceback" not in done.err
    assert done.code == 0


# Servers' texts at a terminal


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["describe", "escapes"],
        ["call", "escaped_failure"],
        ["call", "strict", f"{ESCAPES[1:4]}=1"],
        ["describe", "quickly"],
        ["call", "escaped_trouble"],
        ["call", "escaped_death"],
        ["bench", "--rounds", "1"],
    ],
    ids=" ".join,
)
def test_nothing_in_others_words_steers_a_terminal(say, standard, words):
    verb, *more = words
    done = say(verb, *standard, "--evil", *more)

    assert done.out + done.err
    assert not STEERING.search(done.out + done.err), repr(done.out + done.err)


@pytest.mark.parametrize("tool", ["escapes", "escaped_link", "escaped_failure", "escaped_trouble"])
def test_nothing_in_a_result_steers_a_terminal(standard, place, tool):
    seen = run_on_terminal("call", *standard, tool, cwd=place)

    assert "red" in seen.text
    assert not STEERING.search(seen.text.replace("\r\n", "\n")), repr(seen.text)


def test_the_columns_of_a_list_stand_under_each_other_whatever_is_in_them(say, standard):
    from rich.cells import cell_len

    lines = say("list", *standard).out.splitlines()[2:-1]

    assert len({cell_len(line.rstrip("\n")) for line in lines}) == 1


def test_there_is_no_colour_in_a_pipe(standard, place):
    for words in (["list", *standard], ["describe", *standard, "echo"], ["call", *standard, "ecko", "a=1"]):
        done = run(*words, cwd=place)
        assert "\x1b" not in done.out + done.err


def test_there_is_colour_on_a_terminal_unless_it_is_not_wanted(standard, place):
    assert "\x1b[" in run_on_terminal("list", *standard, cwd=place).text
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", run_on_terminal("list", *standard, cwd=place, NO_COLOR="1").text)


def test_a_bar_is_shown_after_a_second():
    assert output._DELAY_SECONDS == 1


def test_a_quick_call_shows_no_bar(standard, place):
    assert run_on_terminal("call", *standard, "search", cwd=place).text == "found\r\n"


def test_a_slow_call_shows_a_bar_and_clears_it(standard, place):
    seen = run_on_terminal("call", *standard, "slow", cwd=place, bar=BAR_AT_ONCE)

    assert seen.code == 0
    assert "Calling slow" in seen.text
    last = seen.text.rpartition("\x1b[2K")[2]
    assert "slow done" in last
    assert "Calling" not in last
    assert seen.text.count("\x1b[?25l") == seen.text.count("\x1b[?25h")


def test_json_does_not_steer_a_terminal_either(standard, place):
    assert not STEERING.search(
        run_on_terminal("call", *standard, "escapes", "--json", cwd=place).text.replace("\r\n", "\n")
    )


def test_what_a_server_says_of_its_progress_does_not_steer_the_terminal(standard, place):
    seen = run_on_terminal("call", *standard, "telling", cwd=place, bar=BAR_AT_ONCE)

    assert "red" in seen.text
    assert "\x1b]0;" not in seen.text
    assert "\x9b" not in seen.text


def test_a_servers_question_is_asked_at_the_terminal_in_words_that_do_not_steer_it(standard, place):
    seen = run_on_terminal("call", *standard, "asking", cwd=place, typed=b"mine\ny\n")

    assert '"action": "accept", "content": {"whose": "mine"}' in seen.text
    assert not STEERING.search(seen.text.replace("\r\n", "\n"))


def test_a_question_can_be_interrupted(standard, place):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(PROGRAM), "call", *standard, "asking"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        until(lambda: b"whose" in os.read(ours, 65536))
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# Interrupted


@pytest.mark.parametrize("everybody", [True, False], ids=["the terminal's whole group", "the command alone"])
def test_an_interrupted_call_ends_with_130_and_leaves_no_server_behind(standard, place, everybody):
    mark = place / "waiting"
    mark.unlink(missing_ok=True)
    process = subprocess.Popen(
        [str(PROGRAM), "call", *standard, "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    server = int(until(lambda: mark.exists() and mark.read_text()))
    if everybody:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    until(lambda: not is_alive(server))


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        if what := found():
            return what
        time.sleep(0.02)
    return pytest.fail("it does not come")


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else True
    return False


# Pages, fields, tokens


def test_a_page_of_somebody_elses_rows(say, standard):
    done = say("call", *standard, "rows", "--page", "2", "--page-size", "2")

    first, told = done.out.splitlines()
    assert [row["id"] for row in json.loads(first)] == [3, 4]
    assert "3-4 of 200 rows" in told


def test_pages_are_of_fifty_unless_told(say, standard):
    assert "[151-200 of 200 rows]" in say("call", *standard, "rows", "--page", "4").out


@pytest.mark.parametrize("page", ["5", "77", "999999"])
def test_a_page_beyond_the_end_is_told_with_how_many_there_are(say, standard, page):
    done = say("call", *standard, "rows", "--page", page)

    assert_one_sentence(done, 2)
    if page == "5":
        assert "has 4 pages" in done.err


def test_a_page_of_our_own_server_beyond_the_end_is_told(say, ours):
    done = say("call", ours, "users", "--page", "16")

    assert_one_sentence(done, 2)
    assert "has 15 pages" in done.err


def test_a_page_far_beyond_the_end_is_told_alike(say, ours):
    assert "has 15 pages" in say("call", ours, "users", "--page", "999").err


def test_there_are_pages_in_the_words_of_the_original_delta_mcp_too(say, ours):
    done = say("call", ours, "users", "--speak", "delta-mcp", "--page", "2", "--page-size", "2")

    assert (done.code, done.err) == (0, "")
    assert "user 3" in done.out


@pytest.mark.parametrize("words", [["--page", "0"], ["--page", "-1"], ["--page-size", "0"], ["--max-tokens", "0"]])
def test_pages_and_tokens_count_from_one(say, standard, words):
    assert_one_sentence(say("call", *standard, "rows", *words), 2)


@pytest.mark.parametrize(
    "option",
    [
        "--page",
        "--page-size",
        "--max-tokens",
    ],
)
def test_a_wrong_option_is_told_before_anything_is_done(say, standard, place, option):
    (place / "done").unlink(missing_ok=True)
    assert say("call", *standard, "once", option, "0").code == 2

    assert not (place / "done").exists()


@pytest.mark.parametrize("option", ["--page-size", "--max-tokens"])
def test_a_wrong_option_is_told_by_its_own_name(say, standard, option):
    assert option in say("call", *standard, "rows", option, "0").err


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("[0].name", "row 1"),
        ("[?id > `198`].name", ["row 199", "row 200"]),
        ("length(@)", 200),
        ("[:2].{n: name}", [{"n": "row 1"}, {"n": "row 2"}]),
    ],
)
def test_jmespath_selects(say, standard, select, value):
    shown = say("call", *standard, "rows", "--fields", select).out

    assert json.loads(shown.splitlines()[0]) == value


def test_fields_select(say, standard):
    shown = say("call", *standard, "rows", "--fields", "name,deep.x", "--page-size", "1").out

    assert json.loads(shown.splitlines()[0]) == [{"name": "row 1", "deep": {"x": 1}}]


@pytest.mark.parametrize(
    "select",
    [
        "",
        "[?",
    ],
)
def test_what_is_no_selection_is_told_in_one_sentence(say, standard, select):
    assert_one_sentence(say("call", *standard, "rows", "--fields", select), 2)


def test_grep_selects_what_matches(say, ours, standard):
    found = say("call", *standard, "rows", "--grep", "row 19[89]")
    assert [row["name"] for row in json.loads(found.out).values()] == ["row 198", "row 199"]
    assert (found.code, found.err) == (0, ""), "it is all that was asked for"
    assert json.loads(say("call", ours, "users", "--grep", ".", "--fields", "length(@)").out) == 300


@pytest.mark.parametrize("query", [("--fields", "nope"), ("--grep", "nowhere"), ("--fields", "[?id > `999`]")])
@pytest.mark.parametrize("more", [(), ("--all",)])
def test_a_query_that_selects_nothing_fails_and_prints_no_value(say, ours, standard, query, more):
    for target, tool in ((standard, "rows"), ([ours], "users")):
        done = say("call", *target, tool, *query, *more)
        assert (done.code, done.out) == (1, "") and "Shape: " in done.err


def test_a_pattern_that_cannot_be_read_is_told_in_one_sentence(say, standard):
    assert_one_sentence(say("call", *standard, "rows", "--grep", "("), 2)


@pytest.mark.parametrize("most", [50, 75, 200, 1000])
@pytest.mark.parametrize(
    "tool",
    [
        "rows",
        "prose",
        "media",
        "texts",
        "inside",
        "binary",
    ],
)
def test_a_reply_of_somebody_elses_server_has_at_most_so_many_tokens(say, standard, tool, most):
    done = say("call", *standard, tool, "--max-tokens", str(most))

    assert done.code == 0
    assert tokens.count(done.out) <= most


@pytest.mark.parametrize("words", [["squares", "count=400"], ["prose", "words=4000"]])
def test_a_reply_of_the_official_sdks_server_has_at_most_so_many_tokens(say, official, words):
    done = say("call", *official, *words, "--max-tokens", "120")

    assert done.code == 0
    assert 60 < tokens.count(done.out) <= 120


@pytest.mark.parametrize("most", [50, 120, 1000])
@pytest.mark.parametrize(
    "words", [["users"], ["users", "--page", "2"], ["users", "--fields", "id"], ["prose", "words=4000"]]
)
def test_a_reply_of_our_own_server_has_at_most_so_many_tokens(say, ours, words, most):
    done = say("call", ours, *words, "--max-tokens", str(most))

    assert done.code == 0
    assert tokens.count(done.out) <= most


def test_all_is_the_whole_value_of_what_is_shown_in_pages(say, ours, standard):
    assert "1-20 of 300 rows" in say("call", ours, "users").out

    assert [row["id"] for row in json.loads(say("call", ours, "users", "--all").out)] == list(range(1, 301))
    assert len(json.loads(say("call", ours, "users", "--all", "--json").out)) == 300
    assert len(json.loads(say("call", *standard, "rows", "--all").out)) == 200


def test_all_of_some_fields(say, ours, standard):
    for target, tool in ((standard, "rows"), ([ours], "users")):
        rows = json.loads(say("call", *target, tool, "--all", "--fields", "id").out)
        assert rows[-1] == {"id": len(rows)}
        assert len(rows) in (200, 300)


def test_all_of_a_text_is_the_text(say, ours):
    assert say("call", ours, "prose", "words=4000", "--all").out == "word " * 4000


# JSON


def test_a_list_as_json(say, standard, ours):
    for target in (standard, [ours]):
        listed = json.loads(say("list", *target, "--json").out)
        assert list(listed) == ["server", "surface", "tools", "tokens"]
        assert {"name", "version", "protocol"} <= listed["server"].keys()
        assert all({"name", "summary"} <= tool.keys() for tool in listed["tools"])
        assert 0 < listed["tokens"]["index"] < listed["tokens"]["full"]


def test_a_description_as_json_is_the_definition_as_it_came(say, standard):
    assert json.loads(say("describe", *standard, "strict", "--json").out) == {
        "name": "strict",
        "description": "About strict.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False},
    }


def test_a_result_as_json_is_the_result_as_it_came(say, standard):
    shown = json.loads(say("call", *standard, "media", "--json").out)

    assert [block["type"] for block in shown["content"]] == ["image", "audio", "resource_link", "resource"]
    assert base64.b64decode(shown["content"][0]["data"]) == b"x\r\x00" * 3 + b"x"


def test_a_description_for_people_has_names_types_and_what_it_costs(say, ours):
    shown = say("describe", ours, "users").out

    assert shown.startswith("users(active?:bool=false, fields?, grep?)\nList the users.")
    assert re.search(r"\d+ tokens so, \d+ in full\.\n$", shown)


# bench


def test_a_bench_of_a_server_as_json(say, standard):
    done = say("bench", *standard, "--json", "--rounds", "2")
    report = json.loads(done.out)

    assert (done.code, done.err) == (0, "")
    assert report["server"]["name"] == "standard"
    assert report["called"] == "search"
    assert {"start and introduction", "tools/list", "tools/call search"} <= report["latency_ms"].keys()
    assert all(0 < one["least"] <= one["median"] <= one["most"] for one in report["latency_ms"].values())
    assert {"all definitions", "names and summaries", "meta-tools"} <= report["tokens"].keys()
    assert all({"up front", "one tool used"} <= one.keys() for one in report["tokens"].values() if one)
    assert set(report["bytes"]) == {"json", "compact-json", "cbor"}
    assert all(one["plain"] > 0 and one["gzip"] > 0 for one in report["bytes"].values())


def test_a_bench_of_our_own_server_describes_too(say, ours):
    report = json.loads(say("bench", "--json", "--rounds", "2", ours).out)

    assert "tools/describe" in report["latency_ms"]
    assert report["called"] == "users"


def test_a_list_and_a_bench_count_the_same_definitions_alike(say, ours):
    listed = json.loads(say("list", ours, "--json").out)
    benched = json.loads(say("bench", ours, "--json", "--rounds", "1").out)

    assert listed["tokens"]["full"] == benched["tokens"]["all definitions"]["up front"]


def test_a_bench_of_an_unknown_tool_is_told(say, standard):
    done = say("bench", *standard, "--tool", "ecko", "--rounds", "1")

    assert done.code in (1, 2)
    assert re.fullmatch(r"delta-mcp: [^\n]+\n", done.err)


def test_the_options_of_a_bench_of_a_server_are_told(say):
    done = say("bench", "--help")

    assert done.code == 0
    assert "--tool" in done.out


# The other verbs


def test_a_right_and_a_wrong_operations_file(say, place):
    (place / "wrong.json").write_text('{"operations": 5}')
    right, wrong = say("validate", str(ROOT / "examples/library/operations.json")), say("validate", "wrong.json")

    assert (right.code, right.err) == (0, "")
    assert (wrong.code, wrong.out) == (2, "")
    assert "wrong.json has 1 fault" in wrong.err


def test_a_validation_as_json(say):
    done = say("validate", str(ROOT / "examples/library/operations.json"), "--json")

    assert json.loads(done.out)


def test_an_audit_of_a_file_as_table_and_as_json(say):
    shown, report = say("audit", "hosts.json"), say("audit", "hosts.json", "--json")

    assert (shown.code, report.code) == (0, 0)
    assert "standard" in shown.out
    assert not STEERING.search(shown.out + shown.err)
    assert [one["name"] for one in json.loads(report.out)["servers"]] == ["standard"]


def test_help_and_version(say):
    assert say("--version").out.strip()
    top = say("--help").out
    for verb in ("list", "describe", "call", "bench", "audit", "serve", "validate", "completion"):
        assert verb in top
        done = say(verb, "--help")
        assert (done.code, done.err) == (0, "")
        assert f"delta-mcp {verb}" in done.out
    for code in ("0", "1", "2", "3", "130"):
        assert re.search(rf"\b{code}\b", top.partition("exit codes")[2])


@pytest.mark.parametrize("words", [["lst"], ["list", "--nonsense", "x"], ["call", "x", "y", "--page", "two"]])
def test_what_the_parser_refuses_ends_with_2(say, words):
    done = say(*words)

    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh", "powershell"])
def test_a_completion_script_names_every_verb_and_parses(say, place, shell):
    done = say("completion", shell)
    script = place / f"completion.{shell}"
    script.write_text(done.out)

    assert (done.code, done.err) == (0, "")
    for verb in ("list", "describe", "call", "bench", "audit", "serve", "validate"):
        assert verb in done.out
    if shell in ("bash", "zsh", "fish") and (found := shutil.which(shell)):
        subprocess.run([found, "-n", str(script)], check=True)


def completed(script: str, *words: str) -> list[str]:
    """Returns bash's completions of the last word."""
    line = f"""{script}
    COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
    function=$(complete -p delta-mcp); function=${{function##*-F }}; function=${{function%% *}}
    "$function" delta-mcp "{words[-1]}" "{words[-2]}"; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_verbs_and_options(say):
    script = say("completion", "bash").out

    assert completed(script, "delta-mcp", "de") == ["describe", "dev"]
    assert completed(script, "delta-mcp", "call", "--max-t") == ["--max-tokens"]
    assert completed(script, "delta-mcp", "bench", "--ro") == ["--rounds"]


# Any words at all

_WORDS = st.one_of(
    st.sampled_from(
        ["--", "-", "--json", "--page", "--all", "--timeout", "--fields", "--header", "-h", "--help", "{}", "{"]
    ),
    st.sampled_from(["a=1", "a:=1", "a:=[", "a:={}", '{"a":1}', "[1]", "--page=2", "--timeout=x", "python", "#", "="]),
    st.text(max_size=8),
)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=examples(400))
@example(["x", "y", "--page=2", "a=b", "--json"])
@example(["--", "x", "--json"])
@example(["x", "--page"])
@given(words=st.lists(_WORDS, max_size=7))
def test_any_words_are_a_call_that_can_be_written_again_or_one_sentence(say, monkeypatch, words):
    found: list[arguments.CallCommand] = []

    def instead(given: Any, words: list[str]) -> None:
        found.append(arguments.parse_call(words, "call", "tool", "list"))

    monkeypatch.setattr(tools, "run_call", instead)
    done = say("call", *words, stdin='{"from": "stdin"}')

    if found:
        target, tool, given, texts = found[0]
        named, many = [*target, tool], len(target) + 1
        assert target
        assert any(words[at : at + many] == named for at in range(len(words)))
        pairs = [f"{name}={text}" for name, text in texts.items()]
        pairs += [f"{name}:={json.dumps(value)}" for name, value in given.items()]
        say("call", "--", *named, *(pairs if texts else [json.dumps(given)]))
        assert found[1] == found[0]
    elif done.code:
        assert done.code == 2
        assert done.err.startswith("delta-mcp: ")
        assert "Traceback" not in done.err
    else:
        assert done.out.startswith("usage: ")
