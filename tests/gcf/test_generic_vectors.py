"""The published vectors of the generic profile, in both dialects."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltamcp.gcf.generic_decoder import decode_generic
from deltamcp.gcf.generic_encoder import encode_generic
from deltamcp.gcf.scalars import GcfError
from tests.support.equality import is_same
from tests.support.gcf_numbers import with_whole_integers
from tests.support.gcf_vectors import GENERIC_CLAIMS, generic_cases, generic_claim

SORTED_BY_GO = {"primitive_array_inline"}
"""Vectors whose keys were sorted by the encoder that made them, unlike those of all the others."""


def _encode(case: dict[str, Any]) -> None:
    text = encode_generic(case["input"])
    assert text == case["expected"]
    assert is_same(decode_generic(text), with_whole_integers(case["input"]))
    assert encode_generic(decode_generic(text)) == text


def _encode_error(case: dict[str, Any]) -> None:
    with pytest.raises(GcfError, match=case["expectedError"]):
        encode_generic(case["input"])


def _decode(case: dict[str, Any]) -> None:
    assert is_same(decode_generic(case["input"]), case["expected"])


def _error(case: dict[str, Any]) -> None:
    text = base64.b64decode(case["inputBase64"]) if "inputBase64" in case else case["input"]
    with pytest.raises(GcfError, match=case["expectedError"]):
        decode_generic(text)


def _wire(case: dict[str, Any]) -> None:
    assert encode_generic(decode_generic(case["input"])) == case["expected"]


def _v1(case: dict[str, Any]) -> None:
    value = dict(sorted(case["input"].items())) if case["name"] in SORTED_BY_GO else case["input"]
    assert encode_generic(value, dialect="v1") == case["expected"]
    assert is_same(decode_generic(case["expected"], dialect="v1"), with_whole_integers(case["input"]))


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


def test_every_vector_of_the_generic_profile(shared: Path) -> None:
    root = shared / "fixtures" / "gcf" / "tests"
    if not root.is_dir():
        pytest.skip(f"there is no {root}")
    cases = generic_cases(root)
    assert len(cases) >= 290
    assert CLAIMED.keys() == GENERIC_CLAIMS
    failures = []
    for path in cases:
        case = json.loads(path.read_bytes())
        claim = generic_claim(root, path, case)
        assert claim
        try:
            CLAIMED[claim](case)
        except (AssertionError, GcfError, pytest.fail.Exception) as fault:
            failures.append(f"{path.relative_to(root)}: {fault}")
    assert not failures, "\n".join(failures)
