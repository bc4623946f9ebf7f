"""What the README shows works as it is printed."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

from deltamcp import DeltaServer
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.raw_client import answer_text, raw_client

README = ROOT / "README.md"


def test_the_first_five_minutes_go_as_printed(tmp_path):
    chapter = README.read_text().partition("## Five minutes\n")[2].partition("\n## ")[0]
    server, typed, program, printed, _ = re.findall(r"```(?:python)?\n(.*?)```", chapter, re.DOTALL)
    (tmp_path / "shelf.py").write_text(server)
    (tmp_path / "use.py").write_text(program)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def said(command: str) -> str:
        ran = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
        )
        return "\n".join(line.rstrip() for line in (ran.stdout + ran.stderr).strip("\n").splitlines())

    for block in typed.strip().split("\n\n$ "):
        command, _, shown = block.removeprefix("$ ").partition("\n")
        assert said(command) == shown.strip("\n"), command
    assert said("python use.py") == printed.strip()


async def test_the_first_example_is_a_server():
    code = re.search(r"```python\n(from deltamcp import Context.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    module = types.ModuleType("notes")
    exec(code.group(1), module.__dict__)
    server = module.server
    assert isinstance(server, DeltaServer)
    async with raw_client(server) as client:
        await client.handshake(elicitation={})
        assert (
            answer_text(await client.call("tools/call", name="write", arguments={"name": "a", "text": "b"}))
            == "1 notes"
        )
        assert (await client.call("resources/read", uri="note://a"))["result"]["contents"][0]["text"] == "b"
        filled = await client.call("prompts/get", name="summarise", arguments={"name": "a"})
        assert filled["result"]["messages"][0]["content"]["text"].endswith(": b")
        client.send(id="clear", method="tools/call", params={"name": "clear"})
        question = await client.receive()
        client.send(id=question["id"], result={"action": "accept", "content": {"sure": True}})
        assert answer_text(await client.receive()) == "All gone."


async def test_the_faces_of_a_catalogue_are_as_shown():
    code = re.search(r"```python\n(from deltamcp import DeltaServer\n.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    module = types.ModuleType("circle")
    exec(code.group(1), module.__dict__)
    async with raw_client(module.server) as client:
        await client.handshake()
        listed = (await client.call("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed][:2] == ["discover", "get_schema"]
        shown = await client.call("tools/call", name="discover", arguments={"query": "read what was posted"})
        assert answer_text(shown).startswith("posts.list_posts(space:int, page?:int=1): List the posts of a space\n")
        arguments = {"operation": "posts.list_posts", "params": {"space": 7}}
        ran = await client.call("tools/call", name="execute", arguments=arguments)
        assert answer_text(ran) == '[{"id":1,"space":7,"page":1}]'
        read = await client.call("resources/read", uri="circle://operations/posts/list_posts")
        assert '"inputSchema"' in read["result"]["contents"][0]["text"]


async def test_the_operations_file_of_the_manual_is_right(tmp_path, monkeypatch):
    manual = README.parent / "docs" / "operations.md"
    code = re.search(r"```json\n(.*?)```", manual.read_text(), re.DOTALL)
    assert code is not None
    file = tmp_path / "operations.json"
    file.write_text(code.group(1))
    monkeypatch.setenv("BLOG_TOKEN", "t0ken-of-a-blog")
    server = DeltaServer("blog", disclosure="meta")
    server.operations(file)
    async with raw_client(server) as client:
        await client.handshake()
        overview = await client.call("tools/call", name="discover", arguments={})
        assert answer_text(overview) == "posts: list\nissues: list"


async def test_a_result_is_as_shown():
    blocks = re.findall(r"```(?:python)?\n(.*?)```", README.read_text(), re.DOTALL)
    code = next(block for block in blocks if "ResultPolicy(max_tokens=500, page_size=50)" in block)
    shown = blocks[blocks.index(code) + 1]
    module = types.ModuleType("tracker")
    exec(code, module.__dict__)
    async with raw_client(module.server) as client:
        await client.handshake()
        answer = await client.call("tools/call", name="list_issues", arguments={"project": "docs"})
    table, note = answer["result"]["content"][0]["text"], answer["result"]["content"][1]["text"]
    assert table.startswith(shown.split("...")[0])
    printed = re.search(r"\[(.*?) continue\(handle=", shown)
    assert printed is not None and printed[1] in note
    whole = [block for block in answer["result"]["content"] if block["type"] == "resource_link"]
    assert whole[0]["uri"].startswith("tracker://results/R")


async def test_the_second_time_is_as_shown():
    chapter = README.read_text().partition("## The second time, only what changed\n")[2].partition("\n## ")[0]
    code, unchanged, changed, graphs = (
        found[1] for found in re.finditer(r"```(?:python)?\n(.*?)```", chapter, re.DOTALL)
    )
    module = types.ModuleType("tracker")
    exec(code, module.__dict__)
    async with raw_client(module.server) as client:
        await client.handshake()

        async def said() -> str:
            return answer_text(await client.call("tools/call", name="list_issues", arguments={}))

        assert len(await said()) > 1_000
        assert await said() == unchanged.strip()
        module.issues[17]["open"] = False
        module.issues.append({"id": 400, "title": "Issue 400 of the old tracker", "open": True})
        del module.issues[5]
        assert await said() == changed.rstrip("\n")
    printed: list[str] = []
    exec(graphs, {"print": printed.append})
    assert printed[0].startswith("GCF profile=generic\n## [2]{id,name}\n")
    assert printed[1].startswith("GCF tool=context_for_task delta=true base_root=a1b2c3 new_root=d4e5f6 ")
