"""Arguments by reference: a part of an earlier result, with changes, in place of a value."""

import contextlib
import copy
from typing import Any

import pytest

from deltamcp import DeltaServer, Disclosure, ResultPolicy
from deltamcp.delivery import continuation
from deltamcp.errors import UsageError
from deltamcp.results import reference
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import StoredHeader
from deltamcp.results.stored_result import StoredResult, pack_result
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, unlimited_work
from tests.support.era_client import ERAS, EraClient, era_client, first_text, result_meta, texts
from tests.support.sample_values import LINES, USERS
from tests.support.steps import steps_of

WRAPPED = {"total": 60, "items": USERS[:60], "text": LINES}


@pytest.fixture(params=ERAS)
def era(request) -> str:
    return str(request.param)


def post(disclosure: Any = "full") -> Any:
    """`got` of it is what its tools were given."""
    server: Any = DeltaServer("post", results=ResultPolicy(max_tokens=200), disclosure=disclosure)
    server.got = []

    @server.tool(category="get", action="wrapped")
    async def wrapped() -> Any:
        return copy.deepcopy(WRAPPED)

    @server.tool(category="get", action="log")
    async def log() -> str:
        return LINES

    @server.tool(category="mail", action="send")
    async def send(body: str, number: int = 0) -> str:
        server.got.append((body, number))
        return "sent"

    @server.tool(category="mail", action="many")
    async def many(ids: list[int], options: dict[str, Any] | None = None) -> str:
        server.got.append((ids, options))
        return "sent"

    @server.tool(category="mail", action="any", input_schema={"type": "object"})
    async def anything(arguments: dict[str, Any]) -> str:
        server.got.append(arguments)
        return "sent"

    @server.tool(category="mail", action="risk", policy="confirm")
    async def risky(body: str) -> str:
        server.got.append(body)
        return "risked"

    return server


async def kept(peer: EraClient, tool: str = "wrapped") -> str:
    handle: str = result_meta(await peer.result_of(tool))["handle"]
    return handle


async def sent(server: Any, peer: EraClient, tool: str, **arguments: Any) -> Any:
    """What a tool was given."""
    server.got.clear()
    assert first_text(await peer.result_of(tool, **arguments)) == "sent"
    [given] = server.got
    return given


async def test_a_whole_text(era):
    server = post()
    async with era_client(server, era) as peer:
        assert await sent(server, peer, "send", body={"$result": await kept(peer, "log")}) == (LINES, 0)


@pytest.mark.parametrize("path", ["/items/3/email", "items.3.email", "items[3].email"])
async def test_a_part(path, era):
    server = post()
    async with era_client(server, era) as peer:
        part = {"$result": await kept(peer), "path": path}
        assert await sent(server, peer, "send", body=part) == (USERS[3]["email"], 0)


async def test_a_number_and_more_than_one(era):
    server = post()
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        given = await sent(
            server,
            peer,
            "send",
            body={"$result": handle, "path": "/items/0/username"},
            number={"$result": handle, "path": "/total"},
        )
        assert given == ("user_0001", 60)


async def test_inside_lists_and_objects(era):
    server = post()
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        ids = [{"$result": handle, "path": "/items/0/id"}, 7, {"$result": handle, "path": "/items/1/id"}]
        options = {"deep": [{"er": {"$result": handle, "path": "/items/2"}}], "flat": 1}
        given = await sent(server, peer, "many", ids=ids, options=options)
        assert given == ([1, 7, 2], {"deep": [{"er": USERS[2]}], "flat": 1})


async def test_through_execute(era):
    server = post("meta")
    async with era_client(server, era) as peer:
        handle = result_meta(await peer.result_of("execute", operation="get.wrapped"))["handle"]
        server.got.clear()
        params = {"body": {"$result": handle, "path": "/items/3/email", "patch": [{"find": "user", "replace": "boss"}]}}
        assert first_text(await peer.result_of("execute", operation="mail.send", params=params)) == "sent"
        assert server.got == [("boss_0004@example.com", 0)]
        missing = {"body": {"$result": "Rzzzz"}}
        assert "Rzzzz" in await peer.refusal_of("execute", operation="mail.send", params=missing)
        wrong = {"body": {"$result": handle, "path": "/total"}}
        assert "string" in await peer.refusal_of("execute", operation="mail.send", params=wrong)
        assert len(server.got) == 1


PATCHES: list[tuple[str, list[dict[str, Any]], Any]] = [
    ("/items/0", [{"op": "remove", "path": "/email"}], {k: v for k, v in USERS[0].items() if k != "email"}),
    ("/items/0", [{"op": "replace", "path": "/score", "value": 9}], {**USERS[0], "score": 9}),
    ("/items/0", [{"op": "add", "path": "/new", "value": [1]}], {**USERS[0], "new": [1]}),
    ("/items/0", [{"op": "test", "path": "/id", "value": 1}], USERS[0]),
    ("/items/0", [{"op": "copy", "from": "/id", "path": "/score"}], {**USERS[0], "score": 1}),
    (
        "/items/0",
        [{"op": "move", "from": "/email", "path": "/mail"}],
        {**{k: v for k, v in USERS[0].items() if k != "email"}, "mail": USERS[0]["email"]},
    ),
    ("/items/0", [{"op": "replace", "path": "", "value": {"a": 1}}], {"a": 1}),
    (
        "/items/0",
        [{"op": "replace", "path": "/id", "value": 5}, {"op": "test", "path": "/id", "value": 5}],
        {**USERS[0], "id": 5},
    ),
    ("/items/0/email", [{"find": "user_0001", "replace": "root"}], "root@example.com"),
    ("/items/0/email", [{"find": "0", "replace": "o", "all": True}], "user_ooo1@example.com"),
    ("/items/0/email", [{"find": "user", "replace": ""}, {"find": "_0001", "replace": "me"}], "me@example.com"),
    ("/items/0/email", [{"find": ".com", "replace": ".c(o)\\1m$"}], "user_0001@example.c(o)\\1m$"),
    ("/items/0", [], USERS[0]),
    ("", [{"op": "remove", "path": "/items"}, {"op": "remove", "path": "/text"}], {"total": 60}),
]


@pytest.mark.parametrize(("path", "patch", "expected"), PATCHES)
async def test_with_changes(path, patch, expected, era):
    server = post()
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        given = await sent(server, peer, "anything", value={"$result": handle, "path": path, "patch": patch})
        assert given == {"value": expected}
        again = await sent(server, peer, "anything", value={"$result": handle, "path": "/items/0"})
        assert again == {"value": USERS[0]}, "what is kept stays as it was"


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ([{"op": "test", "path": "/id", "value": 2}], "patch"),
        ([{"op": "remove", "path": "/nope"}], "nope"),
        ([{"op": "bogus", "path": "/id"}], "bogus"),
        ([{"op": "replace", "path": "/id"}], "value"),
        ([{"op": "add", "path": "id", "value": 1}], "patch"),
        ([{"op": "move", "path": "/id"}], "patch"),
        ([{"find": "x", "replace": "y"}], "text"),
        ([{"find": "x"}], "patch"),
        ([7], "patch"),
        ("text", "patch"),
        ({"find": "a", "replace": "b"}, "patch"),
    ],
)
async def test_changes_that_cannot_be_made_are_told_clearly(patch, said, era):
    server = post()
    async with era_client(server, era) as peer:
        value = {"$result": await kept(peer), "path": "/items/0", "patch": patch}
        refusal = await peer.refusal_of("anything", value=value)
        assert said in refusal and "log says why" not in refusal
        assert "<class" not in refusal and "Traceback" not in refusal and "object at 0x" not in refusal
    assert server.got == []


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ([{"find": "zebra", "replace": "x"}], "zebra"),
        ([{"find": "fox", "replace": "x"}], "60 times"),
        ([{"find": "", "replace": "x"}], "find"),
        ([{"find": "fox", "replace": 7}], "patch"),
    ],
)
async def test_changes_of_a_text_that_cannot_be_made_are_told_clearly(patch, said, era):
    server = post()
    async with era_client(server, era) as peer:
        refusal = await peer.refusal_of("send", body={"$result": await kept(peer, "log"), "patch": patch})
        assert said in refusal and "log says why" not in refusal
    assert server.got == []


@pytest.mark.parametrize("path", ["/items/3", "/total", "/items", ""])
async def test_where_the_schema_would_not_hold_it_is_refused(path, era):
    server = post()
    async with era_client(server, era) as peer:
        refusal = await peer.refusal_of("send", body={"$result": await kept(peer), "path": path})
        assert "body" in refusal and "string" in refusal and len(refusal) < 1000
    assert server.got == []


async def test_a_schema_of_others_holds_too(era):
    server = post()
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 50}}, "required": ["n"]}
    server.tool(name="strict", input_schema=schema)(lambda arguments: server.got.append(arguments) or "sent")
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        assert await sent(server, peer, "strict", n={"$result": handle, "path": "/items/0/id"}) == {"n": 1}
        server.got.clear()
        assert "50" in await peer.refusal_of("strict", n={"$result": handle, "path": "/total"})
    assert server.got == []


@pytest.mark.parametrize("reference", [{"$result": "Rzzzz"}, {"$result": ""}, {"$result": "R" * 5000, "path": "/a"}])
async def test_an_unknown_handle_is_refused(reference, era):
    server = post()
    async with era_client(server, era) as peer:
        refusal = await peer.refusal_of("send", body=reference)
        assert "again" in refusal and len(refusal) < 1000
    assert server.got == []


async def test_a_path_to_nothing_is_refused(era):
    server = post()
    async with era_client(server, era) as peer:
        assert "nope" in await peer.refusal_of("send", body={"$result": await kept(peer), "path": "/nope"})
    assert server.got == []


@pytest.mark.parametrize("other", [{"other": 1}, {"path": "/total", "more": None}])
async def test_what_references_do_not_have_is_refused(era, other):
    server = post()
    async with era_client(server, era) as peer:
        value = [{"$result": await kept(peer), **other}]
        refusal = await peer.refusal_of("anything", value=value)
        assert "$result, path, fields and patch" in refusal and [*other][-1] in refusal


async def test_objects_without_the_key_are_untouched(era):
    server = post()
    async with era_client(server, era) as peer:
        value = {"c": {"path": "/total", "patch": []}, "d": {"$results": await kept(peer)}, "e": "$result"}
        assert await sent(server, peer, "anything", value=value) == {"value": value}


async def test_the_arguments_themselves_are_no_reference(era):
    server = post()
    async with era_client(server, era) as peer:
        arguments = {"$result": await kept(peer), "path": "/items/0"}
        assert await sent(server, peer, "anything", **arguments) == arguments


async def test_what_a_reference_holds_is_no_reference(era):
    """A result is data: what looks like a reference in it stays as it is."""
    server = post()
    handles: list[str] = []
    server.tool(name="echo")(lambda: {"ref": {"$result": handles[0], "path": "/total"}, "pad": "word " * 900})
    async with era_client(server, era) as peer:
        handles.append(await kept(peer))
        given = await sent(server, peer, "anything", value={"$result": await kept(peer, "echo"), "path": "/ref"})
        assert given == {"value": {"$result": handles[0], "path": "/total"}}


async def test_what_a_patch_holds_is_no_reference(era):
    server = post()
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        patch = [{"op": "replace", "path": "", "value": {"$result": handle, "path": "/total"}}]
        given = await sent(server, peer, "anything", value={"$result": handle, "path": "/items/0", "patch": patch})
        assert given["value"] in (60, {"$result": handle, "path": "/total"})


async def test_where_nothing_is_kept_nothing_is_a_reference(era):
    """Without a budget there are no handles, and a tool's arguments are its own."""
    server: Any = DeltaServer("plain")
    server.got = []

    @server.tool(input_schema={"type": "object"})
    async def anything(arguments: dict[str, Any]) -> str:
        server.got.append(arguments)
        return "sent"

    async with era_client(server, era) as peer:
        value = {"$result": "total", "path": "x"}
        assert await sent(server, peer, "anything", value=value) == {"value": value}


async def confirmed(peer: EraClient, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What the user was asked, and the result after a yes."""
    answer = {"action": "accept", "content": {}}
    if peer.era == "handshake":
        peer.raw.send(id="asking", method="tools/call", params={"name": "risky", "arguments": arguments})
        question = await peer.raw.receive()
        peer.raw.send(id=question["id"], result=answer)
        return question["params"]["message"], (await peer.raw.receive())["result"]
    asked = (await peer.ask("tools/call", name="risky", arguments=arguments))["result"]
    assert asked["resultType"] == "input_required", asked
    [(key, request)] = asked["inputRequests"].items()
    done = await peer.ask(
        "tools/call",
        name="risky",
        arguments=arguments,
        inputResponses={key: answer},
        requestState=asked["requestState"],
    )
    return request["params"]["message"], done["result"]


async def test_who_confirms_sees_what_is_sent(era):
    server = post()
    async with era_client(server, era) as peer:
        arguments = {"body": {"$result": await kept(peer), "path": "/items/3/email"}}
        question, result = await confirmed(peer, arguments)
        assert first_text(result) == "risked" and server.got == [USERS[3]["email"]]
        assert USERS[3]["email"] in question


async def test_what_cannot_be_sent_is_refused_before_anyone_is_asked(era):
    server = post()
    async with era_client(server, era) as peer:
        handle = await kept(peer)
        assert "string" in await peer.refusal_of("risky", body={"$result": handle, "path": "/total"})
        assert "Rzzzz" in await peer.refusal_of("risky", body={"$result": "Rzzzz"})
        assert "nope" in await peer.refusal_of("risky", body={"$result": handle, "path": "/nope"})
    assert server.got == []


@pytest.mark.parametrize(("disclosure", "tool"), [("full", "continue"), ("meta", "execute")])
async def test_a_definition_says_how_to_pass_a_result_on(disclosure, tool):
    async with era_client(post(Disclosure(disclosure))) as peer:
        told = [
            name for name, each in (await peer.tools()).items() if '{"$result":handle' in each.get("description", "")
        ]
        assert told == [tool]


async def test_a_prefix_changes_nothing():
    server = post(Disclosure("meta", prefix="p"))
    async with era_client(server) as peer:
        result = await peer.result_of("p_execute", operation="get.wrapped")
        handle = result_meta(result)["handle"]
        assert "p_continue(" in texts(result)[1]
        await peer.result_of("p_continue", handle=handle)
        params = {"body": {"$result": handle, "path": "/items/0/email"}}
        await peer.result_of("p_execute", operation="mail.send", params=params)
        assert server.got == [(USERS[0]["email"], 0)]


# Bounds


STORED = {"items": [{"id": number, "text": f"text {number}"} for number in range(3_000)], "log": LINES * 50}


def resolve(arguments: Any, work: Work) -> Any:
    header = StoredHeader("json", None, ResolvedPolicy())
    results = {"R1": StoredResult(pack_result(header, jsonrpc.encode(STORED)))}
    return continuation._resolve(arguments, list(reference.find_references(arguments, work)), results, True, work)


def test_many_references_into_one_result_split_it_once() -> None:
    def steps(count: int) -> int:
        references = [{"$result": "R1", "path": f"/items/{place}/text"} for place in range(count)]
        return steps_of(lambda work: resolve({"a": references}, work))

    assert steps(3_000) < steps(1) + 3_000 * 20


def test_each_reference_counts_by_the_size_of_what_it_stands_for() -> None:
    for count, path in ((200, ""), (30, "/items"), (2_000, "/log")):
        with pytest.raises(UsageError, match="come to more than 8 MiB"):
            resolve({"a": [{"$result": "R1", "path": path}] * count}, unlimited_work())


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("/log", {"find": "a", "replace": "a", "all": True}),
        ("", {"op": "add", "path": "/items/0", "value": 1}),
        ("", {"op": "move", "from": "/items/0", "path": "/items/9"}),
        ("/items/0", {"op": "test", "path": "/" * 300, "value": 1}),
    ],
)
def test_each_change_of_a_patch_takes_steps(path: str, change: dict[str, Any]) -> None:
    def steps(times: int) -> int:
        def run(work: Work) -> None:
            with contextlib.suppress(UsageError):
                resolve({"a": {"$result": "R1", "path": path, "patch": [change] * times}}, work)

        return steps_of(run)

    assert steps(1_000) > 200 * (steps(2) - steps(1)) > 0


def test_large_arguments_without_references_are_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []
    monkeypatch.setattr(reference, "is_reference", walked.append)
    assert not reference.has_reference({"a": [[] for _ in range(50_000)]}) and len(walked) < 1_000
