"""The published cases of the graph profile, of sessions, deltas and roots, of both dialects."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamcp.gcf import (
    DeltaPayload,
    Edge,
    GcfError,
    GenericDelta,
    GenericDeltaSession,
    GenericSet,
    Payload,
    Session,
    StreamEncoder,
    Symbol,
    apply_delta,
    decode,
    decode_delta,
    decode_generic_delta,
    decode_generic_full,
    encode,
    encode_delta,
    encode_generic_delta,
    encode_generic_full,
    encode_with_session,
    fixed_n,
    generic_pack_root,
    kind_of,
    pack_root,
    size_guard,
    verify_generic_delta,
)
from deltamcp.gcf.graph_model import pack_records
from deltamcp.gcf.header import Dialect
from tests.support.gcf_vectors import graph_cases
from tests.support.paths import ROOT


def vectors() -> Path:
    shared = Path(os.environ.get("DELTA_MCP_SHARED", "../shared"))
    return (shared if shared.is_absolute() else ROOT / shared) / "fixtures" / "gcf" / "tests"


def symbol(data: dict[str, Any]) -> Symbol:
    names = {"qualifiedName": "qualified_name"}
    return Symbol(**{names.get(name, name): value for name, value in data.items()})


def edge(data: dict[str, Any]) -> Edge:
    return Edge(data["source"], data["target"], data["edgeType"], data.get("status", ""))


def payload(data: dict[str, Any]) -> Payload:
    return Payload(
        tool=data.get("tool", ""),
        token_budget=data.get("tokenBudget", 0),
        tokens_used=data.get("tokensUsed", 0),
        pack_root=data.get("packRoot", ""),
        symbols=[symbol(item) for item in data["symbols"]],
        edges=[edge(item) for item in data["edges"]],
    )


def delta(data: dict[str, Any]) -> DeltaPayload:
    return DeltaPayload(
        tool=data["tool"],
        base_root=data["baseRoot"],
        new_root=data["newRoot"],
        removed=[symbol(item) for item in data["removed"]],
        added=[symbol(item) for item in data["added"]],
        removed_edges=[edge(item) for item in data["removedEdges"]],
        added_edges=[edge(item) for item in data["addedEdges"]],
        delta_tokens=data["deltaTokens"],
        full_tokens=data["fullTokens"],
    )


def generic_delta(data: dict[str, Any]) -> GenericDelta:
    names = {"baseRoot": "base_root", "newRoot": "new_root", "deltaTokens": "delta_tokens", "fullTokens": "full_tokens"}
    return GenericDelta(**{"new_root": "unsaid", **{names.get(name, name): value for name, value in data.items()}})


def check_encode(case: dict[str, Any], dialect: Dialect) -> None:
    given = payload(case["input"])
    if "expected" not in case:
        text = encode_with_session(given, Session(), dialect=dialect)
        assert text.startswith("GCF tool=context_for_task budget=5000 tokens=100 symbols=1 session=true\n")
        return
    text = encode(given, dialect=dialect)
    assert text == case["expected"]
    assert kind_of(text) == "graph"
    assert encode(decode(text), dialect=dialect) == text or case["name"] == "skipped_edges_header_emitted"


def check_decode(case: dict[str, Any], dialect: Dialect) -> None:
    assert decode(case["input"]) == payload(case["expected"])


def check_error(case: dict[str, Any], dialect: Dialect) -> None:
    with pytest.raises(GcfError) as caught:
        decode_delta(case["input"]) if kind_of(case["input"]) == "graph-delta" else decode(case["input"])
    if isinstance(case["expectedError"], str):
        assert caught.value.category == case["expectedError"]


def check_session(case: dict[str, Any], dialect: Dialect) -> None:
    session = Session()
    for call in case["calls"]:
        assert encode_with_session(payload(call["input"]), session, dialect=dialect) == call["expected"]


def check_delta(case: dict[str, Any], dialect: Dialect) -> None:
    if isinstance(case["input"], str):
        found = apply_delta(payload(case["base_snapshot"]), decode_delta(case["input"]))
        expected = payload(case["expected_snapshot"])
        assert (set(found.symbols), set(found.edges)) == (set(expected.symbols), set(expected.edges))
        assert found.pack_root == case["new_root"]
        return
    given = delta(case["input"])
    assert encode_delta(given, dialect=dialect) == case["expected"]
    assert kind_of(case["expected"]) == "graph-delta"
    assert decode_delta(case["expected"]) == replace(given, full_tokens=0)


def check_delta_verify(case: dict[str, Any], dialect: Dialect) -> None:
    with pytest.raises(GcfError, match=case["expectedError"]):
        apply_delta(payload(case["base_snapshot"]), decode_delta(case["input"]))


def check_pack_root(case: dict[str, Any], dialect: Dialect) -> None:
    given = payload(case["input"])
    assert pack_records(given.symbols, given.edges).decode() == case["canonicalBytes"]
    assert pack_root(given.symbols, given.edges) == case["expected"]


def check_stream(case: dict[str, Any], dialect: Dialect) -> None:
    given, lines = payload(case["input"]), list[str]()
    labelled = case.get("options", {}).get("labeledTrailerCounts", False)
    stream = StreamEncoder(lines.append, given.tool, token_budget=given.token_budget, labelled_counts=labelled)
    for item in given.symbols:
        stream.write_symbol(item)
    for link in given.edges:
        stream.write_edge(link)
    stream.close()
    assert "".join(lines) == case["expected"]
    assert decode("".join(lines)) == given


def check_generic_pack_root(case: dict[str, Any], dialect: Dialect) -> None:
    given = GenericSet(**case["input"])
    assert generic_pack_root(given) == case["expected"]
    assert decode_generic_full(encode_generic_full(given)) == (given, case["expected"])


def check_generic_delta(case: dict[str, Any], dialect: Dialect) -> None:
    given = generic_delta(case["input"])
    text = encode_generic_delta(given)
    assert text == case["expected"]
    assert kind_of(text) == "generic-delta"
    fields = given.fields if given.added or given.changed else ()
    assert decode_generic_delta(text) == replace(given, fields=fields, delta_tokens=0, full_tokens=0)


def check_generic_verify(case: dict[str, Any], dialect: Dialect) -> None:
    given = case["input"]
    _apply_keyed(case, lambda: replace(generic_delta(given["delta"]), new_root=given["expectedNewRoot"]))


def check_generic_decode(case: dict[str, Any], dialect: Dialect) -> None:
    _apply_keyed(case, lambda: decode_generic_delta(case["input"]["wire"]))


def _apply_keyed(case: dict[str, Any], read: Any) -> None:
    base = GenericSet(**case["input"]["base"])
    if "expectedError" in case:
        with pytest.raises(GcfError, match=case["expectedError"]):
            verify_generic_delta(base, read())
    else:
        assert generic_pack_root(verify_generic_delta(base, read())) == case["expected"]


def check_generic_session(case: dict[str, Any], dialect: Dialect) -> None:
    given, expected = case["input"], case["expected"]
    policy = fixed_n(given["policy"]["n"]) if given["policy"]["mode"] == "fixedN" else size_guard()
    base = GenericSet(**given["base"])
    session = GenericDeltaSession(base, given.get("tool", ""), policy)
    assert session.current_full() == expected["initialFull"]
    held, root = decode_generic_full(session.current_full())
    assert generic_pack_root(held) == root
    for update, emission in zip(given["updates"], expected["emissions"], strict=True):
        new = GenericSet(**update)
        assert session.next(new) == (emission["wire"], emission["isFull"])
        if emission["isFull"]:
            held, _ = decode_generic_full(emission["wire"])
        else:
            held = verify_generic_delta(held, decode_generic_delta(emission["wire"]))
        assert generic_pack_root(held) == generic_pack_root(new)


CHECKS = {
    "encode": check_encode,
    "decode": check_decode,
    "error": check_error,
    "session": check_session,
    "delta": check_delta,
    "delta-verify": check_delta_verify,
    "pack-root": check_pack_root,
    "graph-stream-encode": check_stream,
    "generic-pack-root": check_generic_pack_root,
    "generic-delta": check_generic_delta,
    "generic-delta-verify": check_generic_verify,
    "generic-delta-decode": check_generic_decode,
    "generic-delta-session": check_generic_session,
}
V1_OPERATIONS = {"errors": "error", "streaming": "decode"}
"""The first suite's files say by their directory what they are."""


@pytest.mark.skipif(not vectors().is_dir(), reason="the published cases are not here; set DELTA_MCP_SHARED")
@pytest.mark.parametrize("path", [pytest.param(path, id="/".join(path.parts[-3:])) for path in graph_cases(vectors())])
def test_published_case(path: Path):
    case = json.loads(path.read_text())
    directory = path.parent.name
    operation = case.get("operation", V1_OPERATIONS.get(directory, directory))
    CHECKS[operation](case, "v1" if path.parts[-3] == "conformance-v1" else "v3")
