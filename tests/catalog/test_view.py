"""Views of the catalog: scopes hide tools, categories and pages from a caller."""

import json
import re
from typing import Any

import pytest

from deltamcp import ConfigurationError, Principal
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.dialects.modern import VERSION_KEY, check_headers
from deltamcp.errors import Fault
from deltamcp.values import (
    ANONYMOUS,
    LOCAL,
    Answer,
    Caller,
    CallTool,
    Era,
    Failure,
    Kind,
    ListItems,
    Page,
    ReadResource,
    Request,
    Surface,
    Terms,
)
from tests.support.meta_tools import meta_tool_client, paging_server, scoped_server
from tests.support.operations import make_operation
from tests.support.raw_client import raw_client


def test_a_header_of_a_hidden_tool_is_not_asked_for():
    catalog = Catalog("x")
    schema = {"type": "object", "properties": {"tenant": {"type": "string", "x-mcp-header": "tenant"}}}
    catalog.add(make_operation("secret", scopes=["admin"], input_schema=schema))
    params = {"name": "secret", "arguments": {"tenant": "a"}, "_meta": {VERSION_KEY: "2026-07-28"}}
    headers = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"secret"}
    understood = Terms(Era.MODERN, "2026-07-28", {}, {}, {}), CallTool("secret", {"tenant": "a"})
    for principal, is_refused in ((LOCAL, False), (Principal("ada", frozenset({"admin"})), True)):
        operations = catalog.view(principal).operations
        found = check_headers(Request(1, "tools/call", params), understood, headers, (), operations)
        assert isinstance(found, Failure) is is_refused


def test_a_replacement_that_fails_leaves_no_trace():
    catalog = Catalog("x", disclosure=Disclosure("meta"))
    for name in ("a", "b", "mine"):
        catalog.add(make_operation(name))
    before = list(catalog.operations), catalog.version
    with pytest.raises(ConfigurationError):
        catalog.replace(["a", "b"], [make_operation("c"), make_operation("mine")])
    assert (list(catalog.operations), catalog.version) == before
    catalog.remove(catalog.add(make_operation("d")), "d")
    catalog.replace(["a", "gone"], [make_operation("c")])
    assert list(catalog.operations) == ["b", "mine", "c"]


def test_scopes_that_nobody_needs_any_more_hide_nothing():
    catalog = Catalog("x")
    catalog.add(make_operation("a"))
    kind = catalog.add(make_operation("b", scopes=["s"]))
    assert list(catalog.view().operations) == ["a"]
    catalog.remove(kind, "b")
    assert catalog.view(Principal("ada", frozenset({"s"}))) is catalog.view()


# Scopes


CALLERS = {
    "anonymous": (ANONYMOUS, {"doors.open"}),
    "half": (Principal("half", frozenset({"a"})), {"doors.open", "doors.lock"}),
    "other": (Principal("other", frozenset({"b", "c"})), {"doors.open"}),
    "all": (Principal("all", frozenset({"a", "b", "c"})), {"doors.open", "doors.lock", "vault.open"}),
}
NEEDS_SCOPES = Fault.INSUFFICIENT_SCOPE
SCOPES = {"doors.lock": {"a"}, "vault.open": {"a", "b"}}
FLAT = {"doors.open": "open_door", "doors.lock": "lock_door", "vault.open": "open_vault"}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("era_of", [Era.HANDSHAKE, Era.MODERN])
async def test_what_a_caller_may_not_use_is_hidden_and_its_scopes_are_told_only_to_principals(caller, era_of):
    principal, allowed = CALLERS[caller]
    hidden = set(FLAT) - allowed
    server = scoped_server()
    version = "2026-07-28" if era_of is Era.MODERN else "2025-11-25"
    terms = Terms(era_of, version, {}, {}, {}, caller=Caller(principal, shares_handles=principal is ANONYMOUS))

    async def perform(ask: Any) -> Any:
        outcome = await server.engine.perform(ask, terms, None, 1)  # type: ignore[arg-type]
        return outcome.value if isinstance(outcome, Answer) else outcome

    async def said(name: str, **arguments: Any) -> str:
        return str((await perform(CallTool(name, arguments))).content[0].text)

    async with raw_client(server):
        page = await perform(ListItems(Kind.TOOLS))
        assert isinstance(page, Page) and page.public is False
        assert ("open_vault" in [item["name"] for item in page.items]) == ("vault.open" in allowed)
        assert ("vault" in page.items[0]["description"]) == ("vault.open" in allowed)
        listed = await perform(ListItems(Kind.RESOURCES))
        shown = [str(listed.items), (await perform(ReadResource("sec://operations/index"))).items[0].text]
        shown += [await said("discover"), await said("discover", detail="names"), await said("discover", detail="full")]
        shown += [await said("discover", query="open lock vault doors"), await said("discover", query="vault")]
        shown += [await said("execute", operation="vault.opne"), await said("get_schema", operation="vault.opne")]
        shown += [await said("execute", operation="doors.lokc"), await said("discover", category="vualt")]
        shown += [
            str(await perform(ReadResource("sec://operations/vualt"))),
            str(await perform(CallTool("open_valt", {}))),
        ]
        for operation in hidden:
            category, action = operation.split(".")
            assert not any(FLAT[operation] in text.replace("open_valt", "") for text in shown)
            assert not any(operation in text for text in shown)
            for used in (operation, FLAT[operation], f"{category}/{action}"):
                for tool in ("execute", "query", "get_schema"):
                    refused = await perform(CallTool(tool, {"operation": used}))
                    missing = await perform(CallTool(tool, {"operation": "zz.zz"}))
                    assert missing.is_error
                    if principal is ANONYMOUS:
                        assert refused.is_error
                        assert refused.content[0].text.startswith(f"There is no operation '{used}'")
                    else:
                        assert refused.fault is Fault.INSUFFICIENT_SCOPE
                        assert refused.missing_scopes == SCOPES[operation] - principal.scopes
                        assert refused.granted_scopes == principal.scopes
            called = await perform(CallTool(FLAT[operation], {}))
            read = await perform(ReadResource(f"sec://operations/{category}/{action}"))
            faults = (Fault.NOT_FOUND, Fault.RESOURCE_NOT_FOUND) if principal is ANONYMOUS else 2 * (NEEDS_SCOPES,)
            assert (called.fault, read.fault) == faults
        for operation in allowed:
            assert not (await perform(CallTool("execute", {"operation": operation}))).is_error
            assert not (await perform(CallTool("get_schema", {"operation": operation}))).is_error
            assert not (await perform(CallTool(FLAT[operation], {}))).is_error
            assert operation in shown[3]
            read = await perform(ReadResource(f"sec://operations/{operation.replace('.', '/')}"))
            assert json.loads(read.items[0].text)["id"] == operation
        assert isinstance(await perform(ReadResource("sec://operations/vault")), Failure) == ("vault.open" in hidden)


async def test_lists_that_depend_on_the_caller_are_not_for_shared_caches():
    async with meta_tool_client(scoped_server()) as peer:
        for method in ("tools/list", "resources/list"):
            assert (await peer.ask(method))["result"]["cacheScope"] == "private"
        read = await peer.ask("resources/read", uri="sec://operations/index")
        assert read["result"]["cacheScope"] == "private"


async def test_pages_of_one_caller_are_not_for_another():
    server = paging_server(max_tokens=60)
    owner, thief = (
        Terms(Era.MODERN, "2026-07-28", {}, {}, {}, caller=Caller(Principal(name))) for name in ("owner", "thief")
    )
    call = CallTool("execute", {"operation": "texts.make", "params": {"text": "secret word ", "times": 60}})
    async with raw_client(server):
        outcome: Any = await server.engine.perform(call, owner, None, 1)  # type: ignore[arg-type]
        match = re.search(r'handle="([^"]+)"', outcome.value.content[0].text)
        assert match
        read = CallTool("continue", {"handle": match[1], "page": 2})
        theirs: Any = await server.engine.perform(read, thief, None, 2)  # type: ignore[arg-type]
        assert theirs.value.is_error and "secret" not in theirs.value.content[0].text
        own: Any = await server.engine.perform(read, owner, None, 3)  # type: ignore[arg-type]
        assert not own.value.is_error and "secret" in own.value.content[0].text


def test_only_pages_that_follow_each_other_are_made_and_kept():
    catalog = Catalog("x", page_size=10)
    for number in range(100):
        catalog.add(make_operation(f"t{number}"))
    view = catalog.view()
    pages = [view.page(Kind.TOOLS, Surface.FULL, str(start)) for start in range(101)]
    assert [start for start, page in enumerate(pages) if page is not None] == list(range(0, 101, 10))
    assert len(view._pages) == 11
