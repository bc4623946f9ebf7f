"""The tables of the library are complete: every fault has a row, every ask a method, every public name exists."""

import typing
from typing import Any

import pytest

import deltamcp
from deltamcp.catalog.catalog import Catalog
from deltamcp.dialects import methods, result_bodies, versions
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.mcp_lite import LiteOptions, McpLite
from deltamcp.dialects.modern import ModernMcp
from deltamcp.errors import FAULTS, Fault
from deltamcp.runtime.change_hub import LIST_CHANGED
from deltamcp.values import (
    About,
    Answer,
    Ask,
    Completion,
    Contents,
    Definitions,
    Done,
    Failure,
    InputRequired,
    Kind,
    Manifest,
    NeededResource,
    Page,
    Promise,
    PromiseStatus,
    PromptResult,
    RawResult,
    Request,
    ResourceRequired,
    SubscriptionEnd,
    Text,
    ToolResult,
)

MCP_LITE = McpLite({}, Catalog().view, 60, LiteOptions())
REQUEST = Request(1, "tools/call", {})
TABLES = (methods.HANDSHAKE, methods.HANDSHAKE_WITH_TASKS, methods.MODERN, methods.MODERN_WITH_TASKS)
PROMISE = Promise("prom_0", PromiseStatus.WORKING, 1.0, 2.0, 60.0, 0.5)
VALUES: list[Any] = [
    ToolResult([Text("x")]),
    Contents([]),
    PromptResult([]),
    Completion([]),
    RawResult(b'{"content":[]}', {"content": []}),
    Page(Kind.TOOLS, (), None, {}),
    Definitions(({"name": "x", "inputSchema": {}},), alone=True),
    Manifest([], None),
    About({}, {}, None),
    Done(),
    SubscriptionEnd(),
    PROMISE,
]


def test_every_fault_has_a_row_and_codes_its_era_allows():
    assert set(FAULTS) == set(Fault)
    for fault, row in FAULTS.items():
        # 2026-07-28: -32000...-32019 are closed, -32020...-32099 hold only these three.
        assert row.modern not in range(-32099, -31999) or row.modern in (-32020, -32021, -32022), fault
        assert 200 <= row.modern_http < 600 and 200 <= row.handshake_http < 600, fault


def test_every_answer_can_be_written_in_every_version():
    named = typing.get_args(typing.get_type_hints(Answer)["value"])
    assert {type(value) for value in VALUES} == set(named)
    for value in VALUES:
        for version in versions.HANDSHAKE:
            assert HandshakeMcp().write(REQUEST, Answer(value), version)
        assert ModernMcp({}, 1).write(REQUEST, Answer(value), versions.MODERN[0])
        assert isinstance(result_bodies.body(Answer(value), versions.MODERN[0], {}), dict)
        assert MCP_LITE.write(REQUEST, Answer(value))


def test_every_outcome_can_be_written_where_it_can_occur():
    for fault in Fault:
        assert HandshakeMcp().write(REQUEST, Failure(fault, "x"), versions.HANDSHAKE[0])
        assert ModernMcp({}, 1).write(REQUEST, Failure(fault, "x"), versions.MODERN[0])
        assert MCP_LITE.write(REQUEST, Failure(fault, "x"))
    assert MCP_LITE.write(REQUEST, InputRequired({}, "s"))
    for outcome in (PROMISE, ResourceRequired("x", [NeededResource("tokens")], None)):
        assert MCP_LITE.write(REQUEST, outcome)
        assert HandshakeMcp().write(REQUEST, outcome, versions.TASKS_IN)
        assert ModernMcp({}, 1).write(REQUEST, outcome, versions.MODERN[0])
    assert ModernMcp({}, 1).write(REQUEST, InputRequired({}, "s"), versions.MODERN[0])
    with pytest.raises(AssertionError):
        HandshakeMcp().write(REQUEST, InputRequired({}, "s"), versions.HANDSHAKE[0])


def test_every_ask_has_a_method():
    given = {
        "name": "n",
        "uri": "u",
        "level": "info",
        "notifications": {},
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": "v"},
        "taskId": "t",
    }
    reached = set()
    for table in TABLES:
        for method in table:
            ask = methods.read(Request(1, method, dict(given)), table)
            assert not isinstance(ask, Failure), method
            reached.add(type(ask))
    assert reached == set(typing.get_args(Ask))


@pytest.mark.parametrize("table", TABLES)
def test_a_parameter_of_the_wrong_type_is_named(table):
    for method in table:
        for name in ("name", "uri", "level", "notifications", "ref", "argument", "cursor", "arguments", "taskId"):
            ask = methods.read(Request(1, method, {name: 3}), table)
            if isinstance(ask, Failure):
                assert ask.fault is Fault.INVALID_PARAMS
                assert ask.message.startswith("params."), ask.message


def test_every_list_has_a_notification():
    assert set(LIST_CHANGED) == set(Kind)


def test_every_public_name_exists_and_has_a_docstring():
    assert sorted(deltamcp.__all__) == list(deltamcp.__all__)
    for name in deltamcp.__all__:
        assert getattr(deltamcp, name).__doc__, name
