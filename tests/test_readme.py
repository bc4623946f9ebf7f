"""What the README shows works as it is printed."""

import re
import types
from pathlib import Path

from deltamcp import DeltaServer
from tests.raw import connected, text

README = Path(__file__).parent.parent / "README.md"


async def test_the_first_example_is_a_server():
    code = re.search(r"```python\n(from deltamcp.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    module = types.ModuleType("notes")
    exec(code.group(1), module.__dict__)
    server = module.server
    assert isinstance(server, DeltaServer)
    async with connected(server) as client:
        await client.handshake(elicitation={})
        assert text(await client.call("tools/call", name="write", arguments={"name": "a", "text": "b"})) == "1 notes"
        assert (await client.call("resources/read", uri="note://a"))["result"]["contents"][0]["text"] == "b"
        filled = await client.call("prompts/get", name="summarise", arguments={"name": "a"})
        assert filled["result"]["messages"][0]["content"]["text"].endswith(": b")
        client.send(id="clear", method="tools/call", params={"name": "clear"})
        question = await client.receive()
        client.send(id=question["id"], result={"action": "accept", "content": {"sure": True}})
        assert text(await client.receive()) == "All gone."
