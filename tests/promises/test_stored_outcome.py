"""Outcomes in the store: what was written is read, whatever it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from deltamcp.errors import Fault
from deltamcp.promises.record import decode_outcome, encode_outcome
from deltamcp.values import (
    Annotations,
    Answer,
    Audio,
    BlobResource,
    EmbeddedResource,
    ErrorInfo,
    Failure,
    Image,
    NeededResource,
    RawResult,
    ResourceLink,
    ResourceRequired,
    Text,
    TextResource,
    ToolResult,
)

NOTES = st.none() | st.builds(Annotations, audience=st.just(["user"]), priority=st.just(0.5))
TEXTS = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=8,
)
META = st.none() | st.dictionaries(TEXTS, JSON, max_size=2)
BLOCKS = st.one_of(
    st.builds(Text, TEXTS, NOTES, META),
    st.builds(Image, st.binary(), st.just("image/png"), NOTES, META),
    st.builds(Audio, st.binary(), st.just("audio/wav"), NOTES, META),
    st.builds(ResourceLink, TEXTS, TEXTS, size=st.none() | st.integers(0, 9), annotations=NOTES, meta=META),
    st.builds(
        EmbeddedResource,
        st.builds(TextResource, TEXTS, TEXTS, st.none() | TEXTS, META)
        | st.builds(BlobResource, TEXTS, st.binary(), st.none() | TEXTS, META),
        NOTES,
        META,
    ),
)
ERRORS = st.none() | st.builds(ErrorInfo, TEXTS, st.booleans(), st.dictionaries(TEXTS, JSON, max_size=2))
RESULTS = st.builds(ToolResult, st.lists(BLOCKS, max_size=3), st.just(UNSET) | JSON, st.booleans(), META, ERRORS)
SPACES = st.none() | st.integers(0, 2)
SCOPES = st.frozensets(TEXTS, max_size=2)
FAILURES = st.builds(Failure, st.sampled_from(Fault), TEXTS, st.just(UNSET) | JSON, st.floats(0, 9), SCOPES, SCOPES)
NEEDS = st.builds(
    ResourceRequired, TEXTS, st.lists(st.builds(NeededResource, TEXTS, st.none() | st.floats(0, 9))), st.none() | TEXTS
)


RAW = st.builds(
    lambda fields, gap: RawResult(json.dumps(fields, indent=gap).encode(), fields), st.dictionaries(TEXTS, JSON), SPACES
)
"""Results of other servers, which write JSON as they like."""


@given(st.builds(Answer, RESULTS | RAW) | FAILURES | NEEDS)
def test_ml_37_what_is_stored_is_read_back_the_same(outcome):
    assert decode_outcome(encode_outcome(outcome)) == outcome


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"other"}', b'{"type":"failure","fault":"X","message":""}'])
def test_what_another_version_wrote_is_refused(data):
    with pytest.raises(ValueError):
        decode_outcome(data)


def test_what_json_cannot_express_is_refused():
    with pytest.raises(ValueError):
        encode_outcome(Answer(ToolResult([Text("\ud800")])))
