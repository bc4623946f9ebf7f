"""A process that runs a server is set up so that callers wait less for each other."""

import json
import subprocess
import sys

import pytest

from deltamcp import tokens
from deltamcp.runtime import process
from tests.support.conditions import HANG_SECONDS
from tests.support.raw_client import META

SCRIPT = """
import gc
import sys
from deltamcp import DeltaServer

server = DeltaServer("configured")

@server.tool
async def is_configured() -> bool:
    return gc.get_freeze_count() > 10_000 and sys.getswitchinterval() < 0.002

assert gc.get_freeze_count() == 0
server.run()
"""


def test_startup_objects_are_frozen_and_threads_switch_often() -> None:
    params = {"name": "is_configured", "arguments": {}, "_meta": META}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=f"{request}\n", capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert json.loads(ran.stdout)["result"]["content"] == [{"type": "text", "text": "true"}], ran.stderr


def test_the_tokenizer_is_loaded_with_a_word_that_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    count = tokens.count
    monkeypatch.setattr(tokens, "count", lambda text: counts.append(count(text)))
    process._load_modules(())
    assert max(counts) > 1, "else the first such word of a caller makes the tables of pairs"
