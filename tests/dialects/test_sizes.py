"""What dialects keep of a client's messages and repeat in errors, which is little whatever the client sends."""

from typing import Any

import pytest

from deltamcp.dialects import methods, versions
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp
from deltamcp.errors import Fault
from deltamcp.values import ANONYMOUS_CALLER, Failure, Listen, Request
from deltamcp.wire import jsonrpc

HUGE = "x" * 1_000_000
META = {
    "io.modelcontextprotocol/protocolVersion": versions.MODERN[0],
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN = ModernMcp({"name": "x", "version": "1"}, 1)


def agreed(dialect: Any, **params: Any) -> Agreement:
    """The agreement that a client's `initialize` leads to."""
    agreement = dialect.agree(initialize(**params), ())
    assert isinstance(agreement, Agreement)
    return agreement


def initialize(**params: Any) -> dict[str, Any]:
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}, **params}


@pytest.mark.parametrize("dialect", [HandshakeMcp(), DeltaMcp()], ids=["MCP", "Delta-MCP"])
@pytest.mark.parametrize(
    "params",
    [
        initialize(protocolVersion=HUGE),
        initialize(clientInfo={"name": HUGE, "version": HUGE, "title": HUGE, "description": HUGE, "websiteUrl": HUGE}),
        initialize(clientInfo={"name": [[]] * 10_000, "icons": [{"src": HUGE}], HUGE: 1}),
        initialize(capabilities={"elicitation": {"form": HUGE, "url": [[]] * 10_000, HUGE: {}}, HUGE: {}}),
        initialize(capabilities={"experimental": {HUGE: {}}, "roots": [[]] * 10_000, "sampling": HUGE}),
        initialize(capabilities={f"capability {number}": {} for number in range(10_000)}),
        initialize(capabilities={"tools": {"progressiveDisclosure": HUGE}, "encoding": {"cbor": HUGE}}),
    ],
)
def test_a_session_keeps_little_of_what_its_client_claims(dialect, params):
    agreement = dialect.agree(params, ())
    assert len(jsonrpc.encode(agreement)) < 2_000


def test_a_session_keeps_what_is_read_of_its_clients_claims():
    info = {"name": "n", "title": "t", "version": "1"}
    declared = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
    agreement = agreed(HandshakeMcp(), capabilities=declared | {"other": {}}, clientInfo=info)
    assert (agreement.capabilities, agreement.client) == (declared, info)
    agreement = agreed(HandshakeMcp(), capabilities={"elicitation": True, "roots": None})
    assert agreement.capabilities == {"elicitation": {}}


# Errors

BAD_PARAMS: list[dict[str, Any]] = [
    {"name": HUGE},
    {"name": [HUGE]},
    {"names": [HUGE]},
    {"uri": HUGE},
    {"level": HUGE},
    {"cursor": [HUGE]},
    {"name": "x", "arguments": {HUGE: 1}},
    {"name": "x", "inputResponses": {HUGE: 1}},
    {"name": "x", "requestState": [HUGE]},
    {"notifications": {"resourceSubscriptions": [HUGE]}},
    {"notifications": {"toolsListChanged": HUGE}},
    {"ref": {"type": HUGE}},
    {"ref": {"type": "ref/prompt", "name": "x"}, "context": {"arguments": {HUGE: 1}}},
    {"_meta": {**META, "progressToken": HUGE}},
    {"_meta": {**META, "io.modelcontextprotocol/logLevel": HUGE}},
    {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": HUGE}},
]


@pytest.mark.parametrize("params", BAD_PARAMS)
@pytest.mark.parametrize("dialect", [HandshakeMcp(), DeltaMcp(), MODERN], ids=["handshake", "Delta-MCP", "modern"])
def test_a_failure_does_not_repeat_what_was_sent(dialect, params):
    agreement = None if dialect is MODERN else agreed(dialect)
    failures = 0
    for method in [*methods.HANDSHAKE, *methods.MODERN, HUGE]:
        request = Request(1, method, {"_meta": META, **params})
        read = dialect.read(request, ANONYMOUS_CALLER, agreement)
        if isinstance(read, Failure):
            failures += 1
            assert len(dialect.write(request, read, versions.MODERN[0])) < 3_000
    assert failures


def test_an_unknown_tool_is_not_repeated_whole_in_the_errors_of_delta_mcp():
    for name in (HUGE, [HUGE]):
        request = Request(1, "tools/call", {"name": name})
        read = DeltaMcp().read(request, ANONYMOUS_CALLER, agreed(DeltaMcp()))
        outcome = read if isinstance(read, Failure) else Failure(Fault.NOT_FOUND, "x")
        assert len(DeltaMcp().write(request, outcome, versions.DELTA_MCP_BASELINE)) < 2_000


# Bounds of what is held


@pytest.mark.parametrize("token", ["x" * 257, 10**300])
def test_a_progress_token_is_as_long_as_an_id_at_most(token):
    request = Request(1, "tools/list", {"_meta": {**META, "progressToken": token}})
    for dialect in (MODERN, HandshakeMcp()):
        agreement = None if dialect is MODERN else agreed(HandshakeMcp())
        refused = dialect.read(request, ANONYMOUS_CALLER, agreement)
        assert isinstance(refused, Failure) and "progressToken" in refused.message
    fits = {**META, "progressToken": "x" * 256}
    assert not isinstance(MODERN.read(Request(1, "tools/list", {"_meta": fits}), ANONYMOUS_CALLER), Failure)


@pytest.mark.parametrize(
    ("uris", "fits"),
    [
        ([f"x://{number}" for number in range(1000)], True),
        ([f"x://{number}" for number in range(1001)], False),
        (["x" * 65_536], True),
        (["x" * 65_536, "y"], False),
    ],
)
def test_a_subscription_has_a_limit_of_uris(uris, fits):
    params = {"_meta": META, "notifications": {"resourceSubscriptions": uris}}
    read = MODERN.read(Request(1, "subscriptions/listen", params), ANONYMOUS_CALLER)
    assert isinstance(read, Failure) != fits
    if not isinstance(read, Failure):
        assert isinstance(read[1], Listen) and len(read[1].filter.uris) == len(uris)
