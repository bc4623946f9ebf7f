"""The published vectors of the generic profile, in both dialects."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic_decode import decode_generic
from deltamcp.gcf.generic_encode import encode_generic
from tests.strategies import same

SORTED_BY_GO = {"primitive_array_inline"}
"""Vectors whose keys were sorted by the encoder that made them, unlike those of all the others."""


def plain(value: Any) -> Any:
    """`value` as the format gives it back: whole numbers are integers, whatever they were."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return list(map(plain, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _encode(case: dict[str, Any]) -> None:
    text = encode_generic(case["input"])
    assert text == case["expected"]
    assert same(decode_generic(text), plain(case["input"]))
    assert encode_generic(decode_generic(text)) == text


def _encode_error(case: dict[str, Any]) -> None:
    with pytest.raises(GcfError, match=case["expectedError"]):
        encode_generic(case["input"])


def _decode(case: dict[str, Any]) -> None:
    assert same(decode_generic(case["input"]), case["expected"])


def _error(case: dict[str, Any]) -> None:
    text = base64.b64decode(case["inputBase64"]) if "inputBase64" in case else case["input"]
    with pytest.raises(GcfError, match=case["expectedError"]):
        decode_generic(text)


def _wire(case: dict[str, Any]) -> None:
    assert encode_generic(decode_generic(case["input"])) == case["expected"]


def _v1(case: dict[str, Any]) -> None:
    value = dict(sorted(case["input"].items())) if case["name"] in SORTED_BY_GO else case["input"]
    assert encode_generic(value, dialect="v1") == case["expected"]
    assert same(decode_generic(case["expected"], dialect="v1"), plain(case["input"]))


def _v1_error(case: dict[str, Any]) -> None:
    with pytest.raises(GcfError):
        decode_generic(case["input"])


CLAIMED: dict[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    ("conformance", "encode"): _encode,
    ("conformance", "roundtrip"): _encode,
    ("conformance", "roundtrip-wire"): _wire,
    ("conformance", "encode-error"): _encode_error,
    ("conformance", "decode"): _decode,
    ("conformance", "error"): _error,
    ("conformance-v1/generic", ""): _v1,
    ("conformance-v1/errors", ""): _v1_error,
}
"""What is done with a case, by its directory and operation."""

_OTHERS = ("generic-delta", "generic-delta-session", "generic-pack-root")


def _claim(root: Path, path: Path, case: dict[str, Any]) -> tuple[str, str] | None:
    top, folder = path.relative_to(root).parts[:2]
    where = f"{top}/{folder}" if top == "conformance-v1" else top
    claim = (where, case.get("operation", ""))
    texts = [text for text in (case.get("input"), case.get("expected")) if isinstance(text, str)]
    headed = "GCF" if where == "conformance-v1/errors" else "GCF profile=graph"
    graph = folder.startswith("graph") or any(text.startswith(headed) for text in texts)
    return claim if claim in CLAIMED and not graph and folder not in _OTHERS else None


def generic_cases(root: Path) -> list[Path]:
    """The cases under `root`, the directory of both suites, that are tested here."""
    return [path for path in sorted(root.rglob("*.json")) if _claim(root, path, json.loads(path.read_bytes()))]


def test_every_vector_of_the_generic_profile(shared: Path) -> None:
    root = shared / "fixtures" / "gcf" / "tests"
    if not root.is_dir():
        pytest.skip(f"there is no {root}")
    cases = generic_cases(root)
    assert len(cases) >= 290
    failures = []
    for path in cases:
        case = json.loads(path.read_bytes())
        claim = _claim(root, path, case)
        assert claim
        try:
            CLAIMED[claim](case)
        except (AssertionError, GcfError, pytest.fail.Exception) as fault:
            failures.append(f"{path.relative_to(root)}: {fault}")
    assert not failures, "\n".join(failures)
