"""`delta-mcp call` with references to results that the server stores."""

import asyncio
import json

import pytest

from deltamcp import DeltaServer, ResultPolicy
from deltamcp.cli.terminal.arguments import convert_by_schema
from tests.support.conditions import HANG_SECONDS
from tests.support.http_server import serve_http
from tests.support.paths import FORKED_PROGRAM


def server() -> DeltaServer:
    server = DeltaServer("shelf", results=ResultPolicy(max_tokens=200))
    server.tool(name="books")(lambda: [{"id": n, "title": f"Volume {n}"} for n in range(300)])

    @server.tool
    def shout(text: str, times: int = 1) -> str:
        return text.upper() * times

    return server


async def said(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(FORKED_PROGRAM), "call", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(HANG_SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode().strip()


@pytest.mark.parametrize("form", ["{pairs}", "{json}", "{typed}"])
async def test_a_reference_is_passed_on(form):
    async with serve_http(server()) as url:
        handle = json.loads(await said("--json", url, "books"))["_meta"]["io.github.delta-mcp/result"]["handle"]
        text = json.dumps({"$result": handle, "path": "/7/title"})
        times = json.dumps({"$result": handle, "path": "/2/id"})
        words = {
            "{pairs}": [f"text={text}", f"times={times}"],
            "{typed}": [f"text:={text}", f"times:={times}"],
            "{json}": [f'{{"text": {text}, "times": {times}}}'],
        }[form]
        assert await said(url, "shout", *words) == "VOLUME 7VOLUME 7"


def test_a_text_that_looks_like_a_reference_stays_one_where_the_server_has_none():
    schema = {"properties": {"text": {"type": "string"}}}
    text = '{"$result": "R1"}'
    assert convert_by_schema({"text": text}, schema) == {"text": text}
    assert convert_by_schema({"text": text}, schema, True) == {"text": {"$result": "R1"}}
    for other in ('"$result"', "{", "[]"):
        assert convert_by_schema({"text": other}, schema, True) == {"text": other}


async def test_a_handle_is_named_to_be_told_only_what_changed():
    books = [{"id": number, "title": f"Volume {number}"} for number in range(300)]
    shelf = DeltaServer("shelf", results=ResultPolicy(max_tokens=20_000))
    shelf.tool(name="books")(lambda: books)
    async with serve_http(shelf) as url:
        first = json.loads(await said("--json", url, "books", "--since", ""))
        handle = first["_meta"]["io.github.delta-mcp/result"]["handle"]
        assert await said(url, "books", "--since", handle) == f"Executed now: same 300 rows as {handle}"
        books[7]["title"] = "The seventh"
        head, body, words = (await said(url, "books", "--since", handle)).split("\n")
        assert head.startswith(f"Changed since {handle}, now ") and body == "[id] 7 title=The seventh"
        assert words.startswith("[Changes: ")
        gone = await said(url, "books", "--since", "Rgone")
        assert 'Nothing is kept under "Rgone" any more, so this is all.' in gone and "The seventh" in gone
