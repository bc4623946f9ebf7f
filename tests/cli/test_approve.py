"""`delta-mcp approve`, and a gateway that runs meanwhile."""

import json

import pytest

from deltamcp import connect
from deltamcp.cli.main import main
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import wait_until
from tests.support.listing_upstream import ListingUpstream, gateway, tool


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))


def approve(folder, *words):
    return run("approve", *words, cwd=folder)


async def changed_upstream(folder):
    """An upstream that was seen, and whose tools then changed."""
    upstream = ListingUpstream(folder, "books", tools=[tool("find"), tool("list"), tool("buy")])
    async with connect(gateway(folder, upstream.config()).server):
        pass
    upstream.write(tools=[tool("find", description="Finds\x1b[2J\u202e."), tool("list", title="New"), tool("buy")])
    return upstream


def tool_names(running):
    return [item.name for item in running._items]


async def test_what_waits_is_listed_shown_and_approved_and_a_running_gateway_notices(tmp_path):
    upstream = await changed_upstream(tmp_path)
    running = gateway(tmp_path, upstream.config())
    async with connect(running.server, progressive=False):
        running._known.refresh("books")
        await wait_until(lambda: tool_names(running) == ["buy"])
        listed = approve(tmp_path)
        assert listed.out.startswith("books: tool find: changed\nbooks: tool list: changed\n") and not listed.err
        shown = approve(tmp_path, "books", "find")
        assert '+ description: "Finds\\u001b[2J\\u202e."' in shown.out and '- description: "Does find"' in shown.out
        assert "list" not in shown.out and tool_names(running) == ["buy"]
        done = approve(tmp_path, "books", "find", "--yes")
        assert "Approved 1" in done.out and done.code == 0
        await wait_until(lambda: tool_names(running) == ["find", "buy"])
        assert "Rejected 1" in approve(tmp_path, "books", "--reject").out
        assert approve(tmp_path).out == "Nothing waits to be approved.\n"
        assert "Approved 1" in approve(tmp_path, "books", "list", "--yes").out
        await wait_until(lambda: tool_names(running) == ["find", "list", "buy"])


async def test_what_was_rejected_stays_out_until_it_changes_again(tmp_path):
    upstream = await changed_upstream(tmp_path)

    async def offered():
        running = gateway(tmp_path, upstream.config())
        async with connect(running.server, progressive=False) as client:
            running._known.refresh("books")
            await wait_until(lambda: "find" not in tool_names(running))
            with pytest.raises(Exception, match="rejected by the user"):
                await client.call("find")

    running = gateway(tmp_path, upstream.config())
    async with connect(running.server):
        running._known.refresh("books")
        await wait_until(lambda: "find" not in tool_names(running))
    approve(tmp_path, "books", "--reject")
    await offered()
    assert approve(tmp_path).out == "Nothing waits to be approved.\n"


def test_names_that_nobody_knows_are_told(tmp_path):
    assert_one_sentence(approve(tmp_path, "books"), 2)
    assert approve(tmp_path).out == "Nothing waits to be approved.\n"


def test_a_record_that_is_none_is_told(tmp_path):
    folder = Approvals().folder
    folder.mkdir(parents=True)
    (folder / "books-1.json").write_text("[]")
    assert_one_sentence(approve(tmp_path), 2)


def test_only_what_was_shown_is_approved(tmp_path, monkeypatch, capsys):
    config = UpstreamConfig(name="books", entry={"command": "books"})

    def list_tools(**members):
        Approvals().review(config, UpstreamCatalogue({}, "2025-11-25", [tool("find", **members), tool("list")]))

    list_tools()
    list_tools(title="Shown")
    shown = Approvals().records()
    monkeypatch.setattr(Approvals, "records", lambda approvals: shown)
    list_tools(title="Came later")
    main(["approve", "books", "--yes"])
    assert "Shown" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    [record] = Approvals().records().values()
    assert record.approved["/tools/find"] == tool("find") and record.waiting["/tools/find"]["title"] == "Came later"


def test_the_check_of_a_gateway_tells_what_waits_and_what_imitates(tmp_path):
    books = ListingUpstream(tmp_path, "books", tools=[tool("create_issue"), tool("find")]).config()
    evil = ListingUpstream(tmp_path, "evil", tools=[tool("create_isue")]).config()
    Approvals().review(books, UpstreamCatalogue({}, "2025-11-25", [tool("find", title="Before"), tool("create_issue")]))
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {one.name: one.entry for one in (books, evil)}}))
    checked = run("gateway", "--check", str(file), cwd=tmp_path)
    assert "books: the gateway keeps out 1 of what it lists, which changed: delta-mcp approve books" in checked.out
    assert "'create_isue' of evil is one letter apart from 'create_issue' of books" in checked.out
    assert len(Approvals().records()) == 1
