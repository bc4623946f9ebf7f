"""`list` and the surface that it shows, `resources`, `read`, `prompts` and `prompt`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client

from tests.support.command_line import PipedRun, assert_one_sentence, run, run_bytes, run_on_terminal
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON, ROOT

EVERYTHING = str(ROOT / "examples" / "everything.py")
LIBRARY = (str(FORKED_PROGRAM), "serve", str(ROOT / "examples" / "library" / "operations.json"))

ODD = """
from deltamcp import DeltaServer, PromptMessage, Text

server = DeltaServer("odd", "1\\x1b[2J")
TEXT = "a\\r\\nb\\rc\\x1b[31m\\x00 \\u202e"


@server.resource("odd://text", name="n\\x1b[31m", mime_type="text/plain")
async def text() -> str:
    "About \\x1b[31mtext"
    return TEXT


@server.resource("odd://broken", name="broken")
async def broken() -> str:
    "Fails."
    raise RuntimeError("no")


@server.prompt
async def odd(word: str = "x") -> str:
    "About \\x1b[31mprompts"
    return TEXT + word


@server.prompt
async def talk() -> list[PromptMessage | str]:
    "Two messages."
    return ["How are you?", PromptMessage("assistant", Text("Fine."))]
"""
TEXT = "a\r\nb\rc\x1b[31m\x00 \u202e"

BARE = """
from deltamcp import DeltaServer

server = DeltaServer("bare", "1")


@server.tool
async def nothing() -> str:
    "Nothing."
    return ""
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("lists")
    (folder / "odd.py").write_text(ODD)
    (folder / "bare.py").write_text(BARE)
    return folder


# The surface


async def tools_of_the_official_client(command: tuple[str, ...]) -> list[dict[str, Any]]:
    program, *words = command
    async with stdio_client(StdioServerParameters(command=program, args=words)) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]


@pytest.mark.parametrize("disclosure", ["meta", "full"])
def test_as_host_shows_what_the_official_client_is_listed(place, disclosure):
    command = (*LIBRARY, "--disclosure", disclosure)
    shown = json.loads(run("list", "--as-host", "--json", *command, cwd=place).out)
    seen = asyncio.run(tools_of_the_official_client(command))

    def parts(tools: list[dict[str, Any]]) -> list[Any]:
        return [(tool["name"], tool.get("description"), tool["inputSchema"]) for tool in tools]

    assert parts(shown["tools"]) == parts(seen)
    assert shown["surface"] == {"shown": "host", "hostTools": len(seen), "hidden": 0}


def test_a_list_says_that_operations_are_behind_what_a_host_sees(place):
    done = run("list", *LIBRARY, "--disclosure", "meta", cwd=place)
    as_json = json.loads(run("list", "--json", *LIBRARY, "--disclosure", "meta", cwd=place).out)

    assert done.out.splitlines()[1] == "5 operations behind the 4 tools that a host sees (--as-host lists those):"
    assert as_json["surface"] == {"shown": "operations", "hostTools": 4, "hidden": 5}


def test_a_list_as_a_host_sees_it_has_the_whole_descriptions(place):
    lines = run("list", "--as-host", *LIBRARY, "--disclosure", "meta", cwd=place).out.splitlines()

    assert lines[1] == "What a host sees:"
    assert [line.split()[0] for line in lines[2:-1]] == ["discover", "get_schema", "execute", "continue"]
    assert "neither: overview." in lines[2]


def test_plain_tools_are_said_to_be_plain(place):
    for target in (["bare.py"], [*LIBRARY, "--disclosure", "full"]):
        assert run("list", *target, cwd=place).out.splitlines()[1] == "Plain tools, as a host sees them:"


# Resources


def test_resources_and_templates_are_listed(place):
    done = run("resources", EVERYTHING, cwd=place)
    listing = json.loads(run("resources", EVERYTHING, "--json", cwd=place).out)

    assert "test://static-binary       image/png" in done.out
    assert "test://template/{id}/data  application/json" in done.out
    assert done.out.endswith("4 resources, 1 template.\n")
    assert [len(listing["resources"]), len(listing["resourceTemplates"])] == [4, 1]
    assert listing["server"]["name"] == "everything"


def test_a_resource_goes_into_a_pipe_byte_for_byte(place):
    assert run_bytes("read", "odd.py", "odd://text", cwd=place) == TEXT.encode()
    assert run_bytes("read", EVERYTHING, "test://static-binary", cwd=place).startswith(b"\x89PNG\r\n\x1a\n")
    assert json.loads(run_bytes("read", EVERYTHING, "test://template/7/data", cwd=place))["id"] == "7"


def test_several_contents_are_lines(place):
    assert run("read", EVERYTHING, "test://parts", cwd=place).out.splitlines() == [
        "one",
        "[test://parts/2, unknown, 3 bytes; --json has it]",
    ]
    assert len(json.loads(run("read", EVERYTHING, "test://parts", "--json", cwd=place).out)["contents"]) == 2


@pytest.mark.parametrize("speak", ["modern", "handshake"])
def test_an_unknown_resource_is_told_with_the_nearest(place, speak):
    done = run("read", "--speak", speak, EVERYTHING, "test://statik-text", cwd=place)

    assert_one_sentence(done, 2)
    assert "did you mean test://static-text" in done.err


def test_a_resource_that_fails_is_not_said_to_be_missing(place):
    done = run("read", "odd.py", "odd://broken", cwd=place)

    assert_one_sentence(done, 1)
    assert "did you mean" not in done.err


# Prompts


def test_prompts_are_listed_with_their_arguments(place):
    done = run("prompts", EVERYTHING, cwd=place)
    listing = json.loads(run("prompts", EVERYTHING, "--json", cwd=place).out)

    assert " test_prompt_with_arguments(arg1, arg2) " in done.out
    assert done.out.endswith("5 prompts.\n")
    assert len(listing["prompts"]) == 5
    assert " odd(word?) " in run("prompts", "odd.py", cwd=place).out


@pytest.mark.parametrize("words", [["arg1=a", "arg2=5"], ['{"arg1": "a", "arg2": "5"}'], ["arg1=a", "arg2:=5"]])
def test_a_prompt_is_filled_in(place, words):
    done = run("prompt", EVERYTHING, "test_prompt_with_arguments", *words, cwd=place)

    assert done == PipedRun(0, "Prompt with arguments: arg1='a', arg2='5'", "")


@pytest.mark.parametrize("words", [["word:=null"], ['{"word": null}']])
def test_null_for_an_optional_argument_of_a_prompt_is_no_argument(place, words):
    assert run("prompt", "odd.py", "odd", *words, cwd=place) == run("prompt", "odd.py", "odd", cwd=place)


def test_a_prompt_of_one_message_goes_into_a_pipe_byte_for_byte(place):
    assert run_bytes("prompt", "odd.py", "odd", "word=y", cwd=place) == f"{TEXT}y".encode()


def test_of_several_messages_each_says_whose_it_is(place):
    done = run("prompt", "odd.py", "talk", cwd=place)

    assert done.out.splitlines() == ["[user]", "How are you?", "[assistant]", "Fine."]
    messages = json.loads(run("prompt", "odd.py", "talk", "--json", cwd=place).out)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]


def test_a_prompt_may_ask_too(place):
    words = ("prompt", EVERYTHING, "test_input_required_result_prompt")

    assert run(*words, "--answer", '{"context": "rain"}', cwd=place).out == "Use this context: rain"
    assert "Use this context: rain" in run_on_terminal(*words, cwd=place, typed=b"rain\ny\n").text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["test_simpel_prompt"], "did you mean test_simple_prompt"),
        (["test_prompt_with_arguments", "arg1=a"], "needs arg2=TEXT."),
        (["test_prompt_with_arguments", "arg1=a", "arg2:=null"], "needs arg2=TEXT."),
        (["test_prompt_with_arguments", "arg1=a", "arg2=b", "arg22=c"], "did you mean arg2"),
        ([], "Name a prompt of "),
    ],
)
def test_a_wrong_prompt_is_told_in_one_sentence(place, words, told):
    done = run("prompt", EVERYTHING, *words, cwd=place)

    assert_one_sentence(done, 2)
    assert told in done.err


# At a terminal


@pytest.mark.parametrize(
    "words",
    [["resources", "odd.py"], ["read", "odd.py", "odd://text"], ["prompts", "odd.py"], ["prompt", "odd.py", "odd"]],
    ids=" ".join,
)
def test_nothing_that_a_server_says_steers_the_terminal(place, words):
    seen = run_on_terminal(*words, cwd=place, TERM="dumb", NO_COLOR="1")

    shown = "\ufffd[" if words[0] in ("read", "prompt") else "\\u001b["  # a text that was asked for, or lines of ours
    assert shown in seen.text
    assert "\x1b[31m" not in seen.text
    assert "\x1b[2J" not in seen.text
    assert "\u202e" not in seen.text


def test_other_servers_are_read_too(place):
    (place / "official.py").write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('official')\n"
        "@server.resource('note://a', mime_type='text/plain')\n"
        "def note() -> str:\n    return 'a\\r\\nb'\n"
        "@server.prompt()\n"
        "def greet(name: str) -> str:\n    return f'Greet {name}'\n"
        "server.run()\n"
    )
    command = [str(FORKED_PYTHON), "official.py"]

    assert run_bytes("read", *command, "note://a", cwd=place) == b"a\r\nb"
    assert run("prompt", *command, "greet", "name=Ann", cwd=place) == PipedRun(0, "Greet Ann", "")
    assert "note://a" in run("resources", *command, cwd=place).out
