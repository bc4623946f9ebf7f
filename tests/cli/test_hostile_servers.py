"""The command line against a server that attacks it: what reaches the terminal, and that it can be ended."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import BAR_AT_ONCE, assert_one_sentence, run, run_on_terminal
from tests.support.conditions import HANG_SECONDS
from tests.support.hostile_server import NASTY, command, requests, serve_over_http
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import running_program

STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
DRAWN = re.compile(r"\x1b\[[0-9;]*[mAKJ]|\x1b\[\?25[lh]")
"""What our own tables and progress bars draw with."""
COMMANDS: list[Any] = [
    ["list"],
    ["list", "--as-host"],
    ["describe", "go"],
    ["describe", "0;pwned"],
    ["call", "go"],
    ["call", "fail"],
    ["call", "refuse"],
    ["call", "0;pwned"],
    ["call", "go", "x=1"],
    ["resources"],
    ["read", "x://go"],
    ["prompts"],
    ["prompt", "go"],
    ["prompt", "0;pwned"],
    ["bench"],
    ["call", "--debug", "refuse"],
    ["list", "--json"],
    ["describe", "--json", "go"],
    ["call", "--json", "go"],
    ["resources", "--json"],
    ["prompts", "--json"],
]


def _words(words: list[str], attack: str) -> list[str]:
    options = [word for word in words[1:] if word.startswith("--")]
    return [words[0], *options, *command(attack), *[word for word in words[1:] if not word.startswith("--")]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_control_character_of_a_server_is_printed(words, tmp_path):
    done = run(*_words(words, "nasty_strings"), cwd=tmp_path)

    assert not STEERING.search(done.err), done.err
    # Into a pipe, the text of a tool, a resource or a prompt is written as it is; it is what the user asked for.
    if words[0] not in ("call", "read", "prompt") or "--json" in words:
        assert not STEERING.search(done.out), done.out
    assert "pwned" in done.out + done.err, "the server's text was to be seen"


@pytest.mark.parametrize("words", [["list"], ["call", "go"], ["call", "--debug", "refuse"]], ids=" ".join)
def test_no_control_character_of_a_server_reaches_a_terminal(words, tmp_path):
    seen = run_on_terminal(*_words(words, "nasty_strings"), cwd=tmp_path, typed=b"\x04\x04", bar=BAR_AT_ONCE)

    assert "pwned" in seen.text
    assert not STEERING.search(DRAWN.sub("", seen.text)), repr(seen.text)


@pytest.mark.parametrize("attack", ["refusal", "odd_version"])
def test_no_control_character_of_an_introduction_is_printed(attack, tmp_path):
    done = run("list", *command(attack), cwd=tmp_path)

    assert not STEERING.search(done.out + done.err), done
    assert done.err or NASTY not in done.out


def test_audit_prints_no_control_character_of_a_server(tmp_path):
    _write_config(tmp_path, command("nasty_strings"))
    done = run("audit", "mcp.json", "--html", "page.html", cwd=tmp_path)

    assert "pwned" in done.out
    assert not STEERING.search(done.out + done.err + (tmp_path / "page.html").read_text())


def _write_config(folder: Path, words: list[str]) -> None:
    entry = {"command": words[0], "args": words[1:]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"hostile": entry}}))


def test_a_list_without_end_is_one_sentence(tmp_path):
    log = tmp_path / "requests.txt"
    done = run("list", "--max-bytes", "1000000", *command("big_pages", log), cwd=tmp_path)

    assert_one_sentence(done, 1)
    assert requests(log, "tools/list") == 1


def test_audit_gives_up_a_list_without_end(tmp_path):
    log = tmp_path / "requests.txt"
    _write_config(tmp_path, command("big_pages", log))
    done = run("audit", "mcp.json", cwd=tmp_path)

    assert "larger than 16,777,216 bytes" in done.out
    assert requests(log, "tools/list") == 2


@pytest.mark.parametrize("attack", ["silence", "mute", "pings", "log_messages"])
def test_a_timeout_ends_the_command_and_a_server_that_ignores_everything(attack, tmp_path):
    with running_program(
        [str(FORKED_PROGRAM), "call", "--timeout", "0.5", *command(attack), "go"], tmp_path
    ) as program:
        assert program.process.wait(HANG_SECONDS) == 3
        assert "0.5 s" in program.text()


@pytest.mark.parametrize("attack", ["silence", "pings", "many_pages"])
def test_an_interrupt_ends_the_command_and_its_server(attack, tmp_path):
    log = tmp_path / "requests.txt"
    method = "tools/list" if attack == "many_pages" else "tools/call"
    with running_program([str(FORKED_PROGRAM), "call", *command(attack, log), "go"], tmp_path) as program:
        _wait_for_request(program.process, log, method)
        assert program.end(signal.SIGINT) == 130


def test_a_second_interrupt_does_not_wait_for_a_server_that_ignores_its_end(tmp_path):
    log = tmp_path / "requests.txt"
    with running_program([str(FORKED_PROGRAM), "call", *command("silence", log), "go"], tmp_path) as program:
        _wait_for_request(program.process, log, "tools/call")
        program.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(0.5)
        assert program.end(signal.SIGINT) == 130


def _wait_for_request(process: "subprocess.Popen[bytes]", log: Any, method: str) -> None:
    until = time.monotonic() + HANG_SECONDS
    while not (log.exists() and requests(log, method)):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_schema_that_takes_for_ever_to_check_holds_nobody_up(tmp_path):
    with serve_over_http("schema") as url:
        assert run("call", url, "go", "a:=1", cwd=tmp_path).out == "done"
