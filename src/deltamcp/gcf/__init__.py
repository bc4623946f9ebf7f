"""GCF, the Graph Compact Format: encodes symbol graphs, any JSON value, and deltas of both, as text for a model.

`kind_of` returns the kind of a text, which tells the caller which function decodes it. All functions raise `GcfError`
for a text or a value that is wrong.
"""

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.generic.decoder import decode_generic
from deltamcp.gcf.generic.encoder import encode_generic
from deltamcp.gcf.generic.groups import encode_generic_grouped
from deltamcp.gcf.generic.stream import GenericStreamEncoder
from deltamcp.gcf.graph.decoder import decode
from deltamcp.gcf.graph.delta import apply_delta, diff
from deltamcp.gcf.graph.delta_codec import decode_delta, encode_delta
from deltamcp.gcf.graph.encoder import encode, encode_with_session
from deltamcp.gcf.graph.model import DeltaPayload, Edge, Payload, Symbol
from deltamcp.gcf.graph.session import ReaderSession, Session
from deltamcp.gcf.graph.stream import StreamEncoder
from deltamcp.gcf.header import Dialect, Kind, kind_of
from deltamcp.gcf.keyed.codec import (
    decode_generic_delta,
    decode_generic_full,
    encode_generic_delta,
    encode_generic_full,
)
from deltamcp.gcf.keyed.delta import diff_generic_sets, verify_generic_delta
from deltamcp.gcf.keyed.model import GenericDelta, GenericSet
from deltamcp.gcf.keyed.session import DEFAULT_REANCHOR_N, GenericDeltaSession, Reanchor, fixed_n, size_guard
from deltamcp.gcf.roots import generic_pack_root, pack_root, root_matches, short_root
from deltamcp.gcf.unchanged import Unchanged, decode_unchanged, encode_unchanged

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
