"""The table of dialects: which dialect a first message selects, and the capabilities that each declares."""

import pytest

from deltamcp.catalog.catalog import Catalog
from deltamcp.dialects import versions
from deltamcp.dialects.delta_mcp import DeltaMcp
from deltamcp.dialects.handshake import HandshakeMcp
from deltamcp.dialects.modern import ModernMcp
from deltamcp.dialects.registry import SESSION, STATELESS, Dialects
from deltamcp.values import About, Answer, Caller, Failure, Principal, Request, ResultShape, Surface, ToolResult
from deltamcp.wire import jsonrpc

INFO = {"name": "x", "version": "1"}
ABOUT = About(INFO, {"tools": {"listChanged": True}}, None)
META = {
    "io.modelcontextprotocol/protocolVersion": versions.MODERN[0],
    "io.modelcontextprotocol/clientCapabilities": {},
}


def initialize(version: str) -> Request:
    return Request(1, "initialize", {"protocolVersion": version})


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover"])
def test_a_request_with_the_modern_meta_stands_alone(method):
    assert isinstance(
        Dialects(INFO, 1, Catalog().view, 60).find_stateless(Request(1, method, {"_meta": META})), ModernMcp
    )


@pytest.mark.parametrize("request_", [Request(1, "tools/list", {}), Request(1, "ping", {"_meta": 3}), initialize("x")])
def test_any_other_request_belongs_to_a_session(request_):
    assert Dialects(INFO, 1, Catalog().view, 60).find_stateless(request_) is None


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        *((version, HandshakeMcp) for version in versions.HANDSHAKE),
        ("1999-01-01", HandshakeMcp),
        (versions.DELTA_MCP, DeltaMcp),
        ("delta-mcp/0.9.3", DeltaMcp),
        ("delta-mcp/1.0.0", HandshakeMcp),
        ("delta-mcp", HandshakeMcp),
    ],
)
def test_initialize_selects_a_dialect_by_its_version(version, dialect):
    assert type(Dialects(INFO, 1, Catalog().view, 60).find_session(initialize(version))) is dialect


def test_every_dialect_writes_answers_and_failures_and_notifications():
    made = [make(INFO, 1) for make in STATELESS] + [make() for make in SESSION]
    for dialect in made:
        assert b'"content"' in dialect.write(Request(1, "tools/call", {}), Answer(ToolResult([])), versions.MODERN[0])
        assert jsonrpc.decode(dialect.notify("notifications/x", {"a": 1}))["params"]["a"] == 1
        assert "tools" in dialect.capabilities(ABOUT)


def test_what_a_session_agreed_on_is_in_the_terms_of_its_requests():
    dialect = DeltaMcp()
    offer = {"protocolVersion": "delta-mcp/0.2.0", "capabilities": {"tools": {"progressiveDisclosure": True}}}
    agreement = dialect.agree(offer, ())
    assert not isinstance(agreement, Failure)
    caller = Caller(Principal("someone"), "session 1")
    understood = dialect.read(Request(1, "tools/list", {}), caller, agreement)
    assert not isinstance(understood, Failure)
    terms, ask = understood
    assert (terms.caller, terms.surface, terms.result_shape) == (caller, Surface.PROGRESSIVE, ResultShape.DELTA_MCP)
    assert ask.whole  # type: ignore[union-attr]
