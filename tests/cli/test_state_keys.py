"""State keys of an operator: what a file and the environment may hold, and that no error shows a key."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.serving.network_options import parse_keys, read_keys
from deltamcp.errors import ConfigurationError
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM

KEY_TEXTS = [
    bytes.hex,
    lambda key: base64.b64encode(key).decode(),
    lambda key: base64.urlsafe_b64encode(key).decode().rstrip("="),
]


@given(
    st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from(KEY_TEXTS)), min_size=1),
    st.sampled_from(["\n", "\r\n", ",", " , "]),
)
def test_keys_are_read_in_every_form_and_in_their_order(keys, separator):
    text = separator.join(form(key) for key, form in keys)
    assert parse_keys(text, "here") == tuple(key for key, _ in keys)


@given(st.text())
def test_any_other_text_is_refused_without_showing_it(text):
    try:
        keys = parse_keys(text, "here")
    except ConfigurationError as refusal:
        assert str(refusal).startswith(("here has no key; a key is", "Key "))
        assert str(refusal).endswith("`openssl rand -hex 32` makes one.")
    else:
        assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "keys.txt has no key; "),
        ("# only this\n\n", "keys.txt has no key; "),
        ("SECRET", "Key 1 of keys.txt cannot be used; "),
        (f"{'ab' * 32}\n{'SECRET' * 7}\n", "Key 2 of keys.txt cannot be used; "),
    ],
)
def test_a_file_without_keys_is_told_in_one_sentence(tmp_path, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    Path("keys.txt").write_text(text)
    with pytest.raises(ConfigurationError) as refusal:
        read_keys(Path("keys.txt"), {})
    assert str(refusal.value).startswith(sentence) and "SECRET" not in str(refusal.value)


def test_the_file_comes_before_the_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# of May\n{'01' * 32}\n\n  # of April\n{'02' * 32}\n")
    environment = {"DELTA_MCP_STATE_KEYS": "03" * 32}
    assert read_keys(file, environment) == (b"\x01" * 32, b"\x02" * 32)
    assert read_keys(None, environment) == (b"\x03" * 32,)
    assert read_keys(None, {}) == read_keys(None, {"DELTA_MCP_STATE_KEYS": ""}) == ()


# Rotation, with a new process for each step

ASKING = """
from deltamcp import Context, DeltaServer

server = DeltaServer("asking")

@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", str)
    return f"Hello {answer.content}"
"""


def serve(folder: Path, keys: str, **params: Any) -> dict[str, Any]:
    """What a server with these keys answers to one call of `greet`."""
    (folder / "asking.py").write_text(ASKING)
    (folder / "keys").write_text(keys)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    }
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "greet", "arguments": {}, "_meta": meta, **params},
    }
    done = subprocess.run(
        [str(FORKED_PROGRAM), "serve", "asking.py", "--state-key-file", "keys"],
        input=f"{json.dumps(request)}\n",
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "DELTA_MCP_STATE_KEYS": "no key"},
        timeout=HANG_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_key_is_replaced_while_clients_hold_what_it_sealed(tmp_path):
    old, new = "01" * 32, "02" * 32
    asked = serve(tmp_path, old)["result"]
    [question] = asked["inputRequests"]
    answers = {question: {"action": "accept", "content": {"value": "Ada"}}}

    def answer(keys: str, state: str) -> Any:
        reply = serve(tmp_path, keys, inputResponses=answers, requestState=state)
        return reply["result"]["content"][0]["text"] if "result" in reply else reply["error"]["code"]

    assert answer(f"{old}\n{new}", asked["requestState"]) == "Hello Ada", "the new key is known, the old one seals"
    assert answer(f"{new}\n{old}", asked["requestState"]) == "Hello Ada", "the new one seals, the old one opens"
    assert answer(new, serve(tmp_path, f"{new}\n{old}")["result"]["requestState"]) == "Hello Ada"
    assert answer(new, asked["requestState"]) == -32602, "the old one is gone"
