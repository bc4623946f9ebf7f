"""GCF, the Graph Compact Format: encodes symbol graphs, any JSON value, and deltas of both, as text for a model.

`kind_of` returns the kind of a text, which tells the caller which function decodes it. All functions raise `GcfError`
for a text or a value that is wrong.
"""

from deltamcp.gcf.generic_decoder import decode_generic
from deltamcp.gcf.generic_encoder import GenericStreamEncoder, encode_generic
from deltamcp.gcf.generic_table import encode_generic_grouped
from deltamcp.gcf.graph_delta import apply_delta, decode_delta, diff, encode_delta
from deltamcp.gcf.graph_model import DeltaPayload, Edge, Payload, ReaderSession, Session, Symbol, pack_root
from deltamcp.gcf.graph_text import StreamEncoder, decode, encode, encode_with_session
from deltamcp.gcf.header import (
    Dialect,
    Kind,
    Unchanged,
    decode_unchanged,
    encode_unchanged,
    kind_of,
    root_matches,
    short_root,
)
from deltamcp.gcf.keyed_sets import (
    DEFAULT_REANCHOR_N,
    GenericDelta,
    GenericDeltaSession,
    GenericSet,
    Reanchor,
    decode_generic_delta,
    decode_generic_full,
    diff_generic_sets,
    encode_generic_delta,
    encode_generic_full,
    fixed_n,
    generic_pack_root,
    size_guard,
    verify_generic_delta,
)
from deltamcp.gcf.scalars import GcfError

__all__ = [
    "DEFAULT_REANCHOR_N",
    "DeltaPayload",
    "Dialect",
    "Edge",
    "GcfError",
    "GenericDelta",
    "GenericDeltaSession",
    "GenericSet",
    "GenericStreamEncoder",
    "Kind",
    "Payload",
    "ReaderSession",
    "Reanchor",
    "Session",
    "StreamEncoder",
    "Symbol",
    "Unchanged",
    "apply_delta",
    "decode",
    "decode_delta",
    "decode_generic",
    "decode_generic_delta",
    "decode_generic_full",
    "decode_unchanged",
    "diff",
    "diff_generic_sets",
    "encode",
    "encode_delta",
    "encode_generic",
    "encode_generic_delta",
    "encode_generic_full",
    "encode_generic_grouped",
    "encode_unchanged",
    "encode_with_session",
    "fixed_n",
    "generic_pack_root",
    "kind_of",
    "pack_root",
    "root_matches",
    "short_root",
    "size_guard",
    "verify_generic_delta",
]
