"""A server with an `operations.json`: its operations, reloads of the file, and the command line."""

import asyncio
import contextlib
import http.server
import json
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import ConfigurationError, DeltaServer, Disclosure, Limits
from deltamcp.sources.operations_loader import OperationsFile
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM
from tests.support.raw_client import META, RawClient, answer_text, raw_client

ATTEMPTS = 2_400
PAUSE_SECONDS = 0.05

ANYTHING = {"type": "object"}
SPACE = {"type": "object", "properties": {"space_id": {"type": "integer"}}, "required": ["space_id"]}

PUBLISHED: dict[str, Any] = {
    "operations": {
        "_comment": "as the pattern's guide has it",
        "posts": {
            "list": {"name": "circle_list_posts", "description": "List posts in Circle", "inputSchema": SPACE},
            "create": {"name": "circle_create_post", "description": "Create a new post", "inputSchema": ANYTHING},
        },
        "batch": {
            "posts": {"delete": {"name": "circle_batch", "description": "Delete many", "inputSchema": ANYTHING}},
        },
    }
}
COMPANION: dict[str, Any] = {
    "categories": {
        "posts": {
            "description": "What people wrote",
            "operations": {
                "list": {
                    "name": "circle_list_posts",
                    "description": "List posts in Circle",
                    "parameters": {"space_id": {"type": "integer"}},
                    "required": ["space_id"],
                },
                "create": {"name": "circle_create_post", "description": "Create a new post", "parameters": {}},
            },
        },
        "batch": {
            "categories": {
                "posts": {
                    "operations": {"delete": {"name": "circle_batch", "description": "Delete many", "parameters": {}}}
                }
            }
        },
    }
}


async def echo(**params: Any) -> str:
    return json.dumps(params)


def plain(**params: Any) -> str:
    return "plain"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "circle_list_posts": echo,
    "circle_create_post": plain,
    "circle_batch": echo,
}


def one(**leaf: Any) -> dict[str, Any]:
    """A file of one operation, posts.list."""
    return {"operations": {"posts": {"list": {"name": "lister", "inputSchema": ANYTHING, **leaf}}}}


@pytest.fixture
def file(tmp_path) -> Path:
    return Path(tmp_path) / "operations.json"


def served(file: Path, content: Any, functions: Any = None, **options: Any) -> DeltaServer:
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    server = DeltaServer("circle", disclosure=options.pop("disclosure", "meta"), **options)
    server.operations(file, functions=FUNCTIONS if functions is None else functions)
    return server


async def use(raw: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await raw.modern("tools/call", name=tool, arguments=arguments)
    assert "result" in answer, answer
    found: dict[str, Any] = answer["result"]
    return found


async def overview(raw: RawClient) -> str:
    return str((await use(raw, "discover"))["content"][0]["text"])


async def until(true: Callable[[], Any]) -> None:
    """Waits until a plain or asynchronous function returns a true value."""
    for _ in range(ATTEMPTS):
        found = true()
        if await found if asyncio.iscoroutine(found) else found:
            return
        await asyncio.sleep(PAUSE_SECONDS)
    pytest.fail("it did not come to hold")


# What a file offers


@pytest.mark.parametrize("form", [PUBLISHED, COMPANION], ids=["published", "companion"])
async def test_both_published_forms_are_served_alike(form, file):
    async with raw_client(served(file, form)) as raw:
        assert await overview(raw) == "posts: list create\nbatch.posts: delete"
        read = await raw.modern("resources/read", uri="circle://operations/posts/list")
        schema = json.loads(read["result"]["contents"][0]["text"])
        assert schema["name"] == "circle_list_posts" and schema["description"] == "List posts in Circle"
        assert schema["inputSchema"]["properties"] == {"space_id": {"type": "integer"}}
        assert schema["inputSchema"]["required"] == ["space_id"]
        done = await use(raw, "execute", operation="posts.list", params={"space_id": 3})
        assert json.loads(done["content"][0]["text"]) == {"space_id": 3}
        flat = await use(raw, "circle_list_posts", space_id=3)
        assert flat["content"] == done["content"]
        assert (await use(raw, "execute", operation="posts.create"))["content"][0]["text"] == "plain"
        wrong = await use(raw, "execute", operation="posts.list", params={"space_id": "x"})
        assert wrong["isError"] is True and "space_id:int" in wrong["content"][0]["text"]
        assert "Create a new post" in (await use(raw, "discover", category="posts"))["content"][0]["text"]


async def test_a_file_serves_the_handshake_too(file):
    async with raw_client(served(file, PUBLISHED)) as raw:
        await raw.handshake()
        arguments = {"operation": "batch/posts/delete", "params": {"ids": [1]}}
        answer = await raw.call("tools/call", name="execute", arguments=arguments)
        assert json.loads(answer_text(answer)) == {"ids": [1]}


def test_every_function_that_is_missing_is_told(file):
    with pytest.raises(ConfigurationError) as caught:
        served(file, PUBLISHED, {"circle_create_post": plain})
    assert all(word in str(caught.value) for word in ("circle_list_posts", "circle_batch", "posts.list"))
    assert "circle_create_post" not in str(caught.value)


FAULTY: dict[str, tuple[Any, list[str]]] = {
    "not JSON": ("{", ["line 1"]),
    "empty": ("", ["JSON"]),
    "a list": ([], []),
    "nothing in it": ({}, ["operations"]),
    "index": ({"operations": {"index": {"x": {"name": "lister", "inputSchema": ANYTHING}}}}, ["index"]),
    "a segment": ({"operations": {"a b": {"x": {"name": "lister", "inputSchema": ANYTHING}}}}, ["a b"]),
    "a policy": (one(policy="ask"), ["policy"]),
    "a schema": (one(inputSchema={"type": "bogus"}), ["bogus"]),
    "a misspelt key": (one(desciption="x"), ["desciption"]),
    "a handler": (one(handler={"kind": "ftp"}), ["handler"]),
    "a module": (one(handler={"kind": "python", "ref": "no_such_module:f"}), ["no_such_module"]),
    "an attribute": (one(handler={"kind": "python", "ref": "json:no_such_thing"}), ["no_such_thing"]),
    "no callable": (one(handler={"kind": "python", "ref": "json:__doc__"}), ["__doc__"]),
    "an mcp server": (one(handler={"kind": "mcp", "server": "nowhere", "tool": "x"}), ["nowhere"]),
    "no base_url": (one(handler={"kind": "http", "method": "GET", "path": "/x"}), ["base_url"]),
    "two of a name": (
        {
            "operations": {
                "a": {
                    "x": {"name": "lister", "inputSchema": ANYTHING},
                    "y": {"name": "lister", "inputSchema": ANYTHING},
                }
            }
        },
        ["lister"],
    ),
    "too deep": (
        {"operations": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"inputSchema": ANYTHING}}}}}}}}}}},
        [],
    ),
    "a meta-tool's name": (
        {"operations": {"a": {"x": {"name": "execute", "inputSchema": ANYTHING}}}},
        ["execute"],
    ),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_file_is_refused_at_the_start(fault, file):
    content, words = FAULTY[fault]
    with pytest.raises(ConfigurationError) as caught:
        served(file, content, {"lister": echo, "execute": echo, "i": echo})
    assert all(word in str(caught.value) for word in words)
    assert "operations.json" in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere"):
        DeltaServer("x").operations(tmp_path / "nowhere.json")


SEVERAL: dict[str, Any] = {
    "operations": {
        "a b": {},
        "posts": {
            "one": {"inputSchema": {"type": "bogus"}},
            "two": {"inputSchema": ANYTHING, "policy": "ask"},
            "three": {"name": "missing_function", "inputSchema": ANYTHING},
            "four": {"inputSchema": ANYTHING, "handler": {"kind": "python", "ref": "no_such_module:f"}},
        },
    }
}


@pytest.mark.parametrize("word", ["a b", "bogus", "policy", "missing_function", "no_such_module"])
def test_every_fault_is_told_at_once(word, file):
    with pytest.raises(ConfigurationError) as caught:
        served(file, SEVERAL, {})
    assert word in str(caught.value)


def test_a_file_may_not_take_the_name_of_a_tool_in_code(file):
    file.write_text(json.dumps(one()))
    server = DeltaServer("circle", disclosure="meta")
    server.tool(name="lister")(lambda: None)
    with pytest.raises(ConfigurationError, match="lister"):
        server.operations(file, functions={"lister": echo})


def test_a_tool_in_code_may_not_take_the_name_of_one_in_the_file(file):
    server = served(file, one(), {"lister": echo})
    with pytest.raises(ConfigurationError, match="lister"):
        server.tool(name="lister")(lambda: None)


async def test_what_is_denied_is_not_there(file):
    content = {
        "operations": {
            "posts": {
                "list": {"name": "lister", "inputSchema": ANYTHING},
                "purge": {"name": "purger", "description": "Purge", "inputSchema": ANYTHING, "policy": "deny"},
            }
        }
    }
    async with raw_client(served(file, content, {"lister": echo, "purger": echo})) as raw:
        assert await overview(raw) == "posts: list"
        assert "purge" not in str(await use(raw, "discover", query="Purge"))
        for operation in ("posts.purge", "purger"):
            assert (await use(raw, "execute", operation=operation))["isError"] is True
            assert (await use(raw, "get_schema", operation=operation))["isError"] is True
        assert "error" in await raw.modern("tools/call", name="purger", arguments={})
        assert "error" in await raw.modern("resources/read", uri="circle://operations/posts/purge")
        assert "purge" not in str(await raw.modern("resources/list"))


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_what_is_to_be_confirmed_asks_first(action, file):
    ran: list[Any] = []
    async with raw_client(served(file, one(policy="confirm"), {"lister": lambda **given: ran.append(given)})) as raw:
        arguments = {"operation": "posts.list", "params": {"a": 1}}
        asked = (await raw.modern("tools/call", name="execute", arguments=arguments))["result"]
        assert asked["resultType"] == "input_required" and ran == []
        answer = {"action": action} | ({"content": {}} if action == "accept" else {})
        done = await raw.modern(
            "tools/call",
            name="execute",
            arguments=arguments,
            inputResponses=dict.fromkeys(asked["inputRequests"], answer),
            requestState=asked["requestState"],
        )
    assert ran == ([{"a": 1}] if action == "accept" else [])
    assert bool(done["result"].get("isError")) == (action == "decline")


GIVEN = {
    "data": [{"id": 1, "by": {"name": "Ada", "mail": "x"}}, {"id": 2, "by": {"name": "Bob"}}],
    "total": 2,
    "k": None,
}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (["total"], {"total": 2}),
        (["data.id"], {"data": [{"id": 1}, {"id": 2}]}),
        (["data.by.name", "total"], {"data": [{"by": {"name": "Ada"}}, {"by": {"name": "Bob"}}], "total": 2}),
        (["data", "data.id"], {"data": GIVEN["data"]}),
        (["k"], {"k": None}),
        (["no.such.path"], {}),
    ],
    ids=str,
)
async def test_fields_are_what_is_kept_of_a_result(fields, kept, file):
    async with raw_client(served(file, one(fields=fields), {"lister": lambda: GIVEN})) as raw:
        for tool, arguments in (("execute", {"operation": "posts.list"}), ("lister", {})):
            done = await use(raw, tool, **arguments)
            found = json.loads(done["content"][0]["text"])
            assert {key: value for key, value in found.items() if value != []} == kept or fields == ["no.such.path"]
            assert "mail" not in str(found) or "data" in fields


async def test_a_files_options_reach_the_catalog(file):
    leaf = {
        "title": "All posts",
        "description": "List posts",
        "annotations": {"readOnlyHint": True},
        "examples": [{"a": 1}],
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "pinned": True,
        "tags": ["blog"],
    }
    functions = {"lister": lambda **given: {"n": 1}}
    async with raw_client(served(file, one(**leaf), functions, disclosure=Disclosure("meta", query=True))) as raw:
        tools = {tool["name"]: tool for tool in (await raw.modern("tools/list"))["result"]["tools"]}
        assert tools["lister"]["title"] == "All posts" and tools["lister"]["annotations"] == {"readOnlyHint": True}
        told = await use(raw, "get_schema", operation="posts.list", detail="schema")
        schema = json.loads(told["content"][0]["text"])
        assert schema["examples"] == [{"a": 1}] and schema["outputSchema"]["properties"] == {"n": {"type": "integer"}}
        assert (await use(raw, "query", operation="posts.list"))["structuredContent"] == {"n": 1}
        assert "posts.list(" in (await use(raw, "discover", query="blog"))["content"][0]["text"]


async def test_scopes_in_a_file_hide_what_needs_them(file):
    content = one(scopes=["admin"])
    content["operations"]["posts"]["open"] = {"name": "opener", "inputSchema": ANYTHING}
    async with raw_client(served(file, content, {"lister": echo, "opener": echo})) as raw:
        assert await overview(raw) == "posts: open"
        assert (await use(raw, "execute", operation="posts.list"))["isError"] is True
        assert "error" in await raw.modern("tools/call", name="lister", arguments={})
        assert "lister" not in str(await raw.modern("resources/list"))


async def test_hostile_descriptions_are_cleaned(file):
    hostile = "Fine\u202e words\x1b[31m\u200b\r\nposts.fake: a line of its own. " + "More words. " * 400
    async with raw_client(served(file, one(description=hostile), {"lister": echo})) as raw:
        told = (await use(raw, "discover", category="posts"))["content"][0]["text"]
        assert "\u202e" not in told and "\x1b" not in told and len(told.splitlines()) == 1 and len(told) < 120
        shown = (await use(raw, "get_schema", operation="posts.list", detail="schema"))["content"][0]["text"]
        assert "\u202e" not in json.loads(shown)["description"] and "\x1b" not in json.loads(shown)["description"]


# Handlers


async def test_a_python_handler_is_a_function_by_its_reference(file):
    leaf = {
        "handler": {"kind": "python", "ref": "json:dumps"},
        "inputSchema": {
            "type": "object",
            "properties": {"obj": {}, "indent": {"type": "integer"}},
            "required": ["obj"],
        },
    }
    async with raw_client(served(file, one(**leaf), {})) as raw:
        done = await use(raw, "execute", operation="posts.list", params={"obj": {"a": 1}})
        assert json.loads(done["content"][0]["text"]) == {"a": 1}


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers each request with its method, path and body."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        said = json.dumps(
            {
                "method": self.command,
                "path": self.path,
                "key": self.headers.get("x-key"),
                "trace": self.headers.get("x-trace"),
                "body": json.loads(body) if body else None,
            }
        ).encode()
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/v1"
        listening.shutdown()
        thread.join()


def web(upstream: str) -> dict[str, Any]:
    identified = {"id": {"type": "string"}}
    return {
        "http": {"base_url": upstream, "headers": {"x-key": "k"}},
        "operations": {
            "posts": {
                "get": {
                    "inputSchema": {"type": "object", "properties": {**identified, "page": {"type": "integer"}}},
                    "handler": {
                        "kind": "http",
                        "method": "GET",
                        "path": "/posts/{id}",
                        "param_map": {"id": "path", "page": "query"},
                    },
                },
                "create": {
                    "inputSchema": {"type": "object", "properties": {"title": {}, "trace": {"type": "string"}}},
                    "handler": {
                        "kind": "http",
                        "method": "POST",
                        "path": "/posts",
                        "param_map": {"title": "body", "trace": {"in": "header", "name": "x-trace"}},
                    },
                    "fields": ["body", "trace"],
                },
            }
        },
    }


async def test_an_http_handler_asks_its_service(file, upstream):
    async with raw_client(served(file, web(upstream), {})) as raw:
        done = await use(raw, "execute", operation="posts.get", params={"id": "a/../b?c", "page": 2})
        said = json.loads(done["content"][0]["text"])
        assert (said["method"], said["key"]) == ("GET", "k")
        assert said["path"] == "/v1/posts/a%2F..%2Fb%3Fc?page=2"
        done = await use(raw, "execute", operation="posts.create", params={"title": "T", "trace": "t"})
        assert json.loads(done["content"][0]["text"]) == {"body": {"title": "T"}, "trace": "t"}
        assert (await use(raw, "execute", operation="posts.get", params={"id": "missing"}))["isError"] is True


@pytest.mark.parametrize("params", [{"id": "1", "pgae": 2}, {"id": "1", "x-key": "other"}, {"id": "1", "admin": True}])
async def test_a_service_gets_only_arguments_that_are_declared(params, file, upstream):
    async with raw_client(served(file, web(upstream), {})) as raw:
        done = await use(raw, "execute", operation="posts.get", params=params)
        assert done["isError"] is True
        assert f"{list(params)[1]}: no such argument; known arguments: id, page." in done["content"][0]["text"]


async def test_a_service_gets_other_arguments_if_the_schema_admits_them(file, upstream):
    document = web(upstream)
    document["operations"]["posts"]["get"]["inputSchema"]["additionalProperties"] = {"type": "integer"}
    async with raw_client(served(file, document, {})) as raw:
        done = await use(raw, "execute", operation="posts.get", params={"id": "1", "limit": 3})
        assert json.loads(done["content"][0]["text"])["path"] == "/v1/posts/1?limit=3"


async def test_a_service_that_is_down_is_told_as_an_error(file):
    async with raw_client(served(file, web("http://127.0.0.1:9/v1"), {})) as raw:
        done = await use(raw, "execute", operation="posts.get", params={"id": "1"})
        assert done["isError"] is True and "Traceback" not in str(done)


PEER = """
from deltamcp import DeltaServer, ToolError

server = DeltaServer("peer")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def fail() -> str:
    raise ToolError("No luck.")
"""


async def test_an_mcp_handler_asks_its_server(file):
    (file.parent / "peer.py").write_text(PEER)
    command = {"command": str(FORKED_PROGRAM), "args": ["serve", str(file.parent / "peer.py")]}
    content = {
        "mcpServers": {"peer": command},
        "operations": {
            "sums": {
                "add": {
                    "inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}},
                    "handler": {"kind": "mcp", "server": "peer", "tool": "add"},
                },
                "fail": {"inputSchema": ANYTHING, "handler": {"kind": "mcp", "server": "peer", "tool": "fail"}},
                "none": {"inputSchema": ANYTHING, "handler": {"kind": "mcp", "server": "peer", "tool": "none"}},
            }
        },
    }
    async with raw_client(served(file, content, {})) as raw:
        sent = {"name": "execute", "arguments": {"operation": "sums.add", "params": {"a": 1, "b": 2}}, "_meta": META}
        raw.send(id="slow", method="tools/call", params=sent)
        for _ in range(12):
            with contextlib.suppress(TimeoutError):
                assert answer_text(await raw.receive()) == "3"
                break
        else:
            pytest.fail("the peer did not answer")
        failed = await use(raw, "execute", operation="sums.fail")
        assert failed["isError"] is True and "No luck." in str(failed)
        assert (await use(raw, "execute", operation="sums.none"))["isError"] is True


# Reload

GROWN: dict[str, Any] = {
    "operations": {
        **PUBLISHED["operations"],
        "members": {"list": {"name": "circle_members", "description": "List members", "inputSchema": ANYTHING}},
    }
}
MORE = {**FUNCTIONS, "circle_members": echo}


def write(file: Path, content: str) -> None:
    file.write_text(content)


def replace(file: Path, content: str) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(content)
    beside.replace(file)


@pytest.mark.parametrize("put", [write, replace])
async def test_a_good_edit_shows_and_is_announced(put, file):
    async with raw_client(served(file, PUBLISHED, MORE)) as raw:
        await raw.handshake()
        await raw.call("ping")
        put(file, json.dumps(GROWN))

        async def shown() -> bool:
            return "members: list" in await overview(raw)

        await until(shown)
        await until(lambda: _heard(raw, "notifications/tools/list_changed"))
        await until(lambda: _heard(raw, "notifications/resources/list_changed"))
        done = await use(raw, "execute", operation="members.list", params={"a": 1})
        assert json.loads(done["content"][0]["text"]) == {"a": 1}
        assert (await raw.call("resources/read", uri="circle://operations/members/list"))["result"]

        put(file, json.dumps(PUBLISHED))

        async def gone() -> bool:
            return "members" not in await overview(raw)

        await until(gone)
        assert (await use(raw, "execute", operation="members.list"))["isError"] is True
        assert "members" not in str(await use(raw, "discover", query="members"))


async def _heard(raw: RawClient, method: str) -> bool:
    await raw.call("ping")
    return method in [message.get("method") for message in raw.heard]


async def test_a_subscription_of_the_modern_era_hears_of_an_edit(file):
    async with raw_client(served(file, PUBLISHED, MORE)) as raw:
        wanted = {"notifications": {"toolsListChanged": True}}
        raw.send(id="sub", method="subscriptions/listen", params={"_meta": META, **wanted})
        write(file, json.dumps(GROWN))

        async def heard() -> bool:
            await raw.modern("server/discover")
            return "notifications/tools/list_changed" in [message.get("method") for message in raw.heard]

        await until(heard)


@pytest.mark.parametrize("fault", [name for name in FAULTY if name != "a meta-tool's name"])
async def test_a_bad_edit_keeps_what_was_there_and_a_good_one_mends_it(fault, file, caplog):
    content, words = FAULTY[fault]
    with caplog.at_level(logging.WARNING, "deltamcp"):
        async with raw_client(served(file, PUBLISHED, {**MORE, "lister": echo, "i": echo})) as raw:
            await raw.handshake()
            write(file, content if isinstance(content, str) else json.dumps(content))
            await until(lambda: "deltamcp" in [record.name for record in caplog.records])
            assert await overview(raw) == "posts: list create\nbatch.posts: delete"
            done = await use(raw, "execute", operation="posts.list", params={"space_id": 3})
            assert not done.get("isError")
            told = "\n".join(record.getMessage() for record in caplog.records if record.name == "deltamcp")
            assert all(word in told for word in words)
            assert not await _heard(raw, "notifications/tools/list_changed")
            write(file, json.dumps(GROWN))

            async def mended() -> bool:
                return "members: list" in await overview(raw)

            await until(mended)


async def test_the_log_names_every_fault_of_a_bad_edit(file, caplog):
    with caplog.at_level(logging.WARNING, "deltamcp"):
        async with raw_client(served(file, PUBLISHED)):
            write(file, json.dumps(SEVERAL))
            await until(lambda: "deltamcp" in [record.name for record in caplog.records])
    told = "\n".join(record.getMessage() for record in caplog.records if record.name == "deltamcp")
    missing = [word for word in ("a b", "bogus", "policy", "missing_function", "no_such_module") if word not in told]
    assert missing == []


async def test_a_bad_edit_is_told_once(file, caplog):
    with caplog.at_level(logging.WARNING, "deltamcp"):
        async with raw_client(served(file, PUBLISHED, MORE)) as raw:
            write(file, "{")
            await until(lambda: "deltamcp" in [record.name for record in caplog.records])
            write(file, json.dumps(GROWN))

            async def mended() -> bool:
                return "members: list" in await overview(raw)

            await until(mended)
    assert len([record for record in caplog.records if record.name == "deltamcp"]) == 1


async def test_an_edit_that_takes_a_tools_name_is_refused(file, caplog):
    server = served(file, PUBLISHED, MORE)

    @server.tool(name="circle_members", category="mine", action="own")
    async def own() -> str:
        return "own"

    with caplog.at_level(logging.WARNING, "deltamcp"):
        async with raw_client(server) as raw:
            write(file, json.dumps(GROWN))
            await until(lambda: "circle_members" in caplog.text)
            assert (await use(raw, "circle_members"))["content"][0]["text"] == "own"
            assert "mine: own" in await overview(raw) and "members: list" not in await overview(raw)


async def test_tools_in_code_survive_a_reload(file):
    server = served(file, PUBLISHED, MORE)

    @server.tool(category="mine", action="own")
    async def own() -> str:
        return "own"

    async with raw_client(server) as raw:
        write(file, json.dumps(GROWN))

        async def shown() -> bool:
            return "members: list" in await overview(raw)

        await until(shown)
        assert "mine: own" in await overview(raw)
        assert (await use(raw, "execute", operation="mine.own"))["content"][0]["text"] == "own"


async def test_a_call_in_flight_outlives_the_operation(file):
    started, gate = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        started.set()
        await gate.wait()
        return "finished"

    content = {"operations": {**PUBLISHED["operations"], "slow": {"go": {"name": "slow", "inputSchema": ANYTHING}}}}
    async with raw_client(served(file, content, {**MORE, "slow": slow})) as raw:
        raw.send(id="slow", method="tools/call", params={"_meta": META, "name": "slow", "arguments": {}})
        await started.wait()
        write(file, json.dumps(PUBLISHED))

        async def gone() -> bool:
            return "slow" not in await overview(raw)

        await until(gone)
        gate.set()
        answer = next((message for message in raw.heard if message.get("id") == "slow"), None) or await raw.receive()
        assert answer["id"] == "slow" and answer_text(answer) == "finished"


async def test_an_edit_made_before_the_start_is_served(file):
    server = served(file, PUBLISHED, MORE)
    write(file, json.dumps(GROWN))
    async with raw_client(server) as raw:

        async def shown() -> bool:
            return "members: list" in await overview(raw)

        await until(shown)


# The command line


def run(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(FORKED_PROGRAM), *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


@pytest.mark.parametrize(
    "form", [PUBLISHED, COMPANION, web("http://127.0.0.1:9")], ids=["published", "companion", "http"]
)
def test_validate_passes_a_right_file(form, file):
    file.write_text(json.dumps(form))
    done = run("validate", str(file))
    assert (done.returncode, done.stderr) == (0, "")


def test_validate_tells_every_fault(file):
    file.write_text(json.dumps(SEVERAL))
    done = run("validate", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert all(word in done.stderr for word in ("a b", "bogus", "policy"))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "\x00", '{"operations": 1}', '{"operations":{},"operations":{}}']
)
def test_validate_refuses_what_is_no_operations_file(content, file):
    if content is not None:
        file.write_text(content)
    done = run("validate", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("delta-mcp: ") and "Traceback" not in done.stderr


def lines(*requests: dict[str, Any]) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", "id": number, **each}) + "\n" for number, each in enumerate(requests))


def test_serve_serves_a_file(file, upstream):
    file.write_text(json.dumps(web(upstream)))
    arguments = {"operation": "posts.get", "params": {"id": "7"}}
    said = lines(
        {"method": "tools/list", "params": {"_meta": META}},
        {"method": "tools/call", "params": {"_meta": META, "name": "execute", "arguments": arguments}},
    )
    command = [str(FORKED_PROGRAM), "serve", str(file), "--disclosure", "meta"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write(said)
        process.stdin.flush()
        heard = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.wait(60) == 0
    answers = {answer["id"]: answer["result"] for answer in heard}
    assert [tool["name"] for tool in answers[0]["tools"]] == ["discover", "get_schema", "execute", "continue"]
    assert json.loads(answers[1]["content"][0]["text"])["path"] == "/v1/posts/7"


def test_serve_shows_a_small_file_whole_unless_told(file):
    file.write_text(json.dumps(web("http://127.0.0.1:9")))
    said = lines({"method": "tools/list", "params": {"_meta": META}})
    done = run("serve", str(file), said=said)
    assert done.returncode == 0, done.stderr
    names = [tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]]
    assert names == ["posts.get", "posts.create", "continue"], "fields are left out of one's results"


@pytest.mark.parametrize(
    "content", ["{", json.dumps(SEVERAL), json.dumps(PUBLISHED)], ids=["broken", "faulty", "named"]
)
def test_serve_refuses_a_file_it_cannot_serve(content, file):
    file.write_text(content)
    done = run("serve", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("delta-mcp: ") and "Traceback" not in done.stderr


async def test_an_edit_after_a_tool_was_taken_out_is_still_followed(tmp_path):
    file = tmp_path / "operations.json"
    leaf = '{"inputSchema": {"type": "object"}, "handler": {"kind": "python", "ref": "os:getcwd"}}'
    file.write_text(f'{{"operations": {{"c": {{"a": {leaf}, "b": {leaf}}}}}}}')
    server = DeltaServer("x")
    server.operations(file)
    server.remove_tool("c.a")
    file.write_text(f'{{"operations": {{"c": {{"b": {leaf}, "d": {leaf}}}}}}}')
    followed = OperationsFile(file, {}, {}, Limits())
    followed.activate(followed.load(), lambda old, new: None)
    server._replace_operations(["c.a", "c.b"], followed.load().operations)
    assert list(server.engine.catalog.operations) == ["c.b", "c.d"]
