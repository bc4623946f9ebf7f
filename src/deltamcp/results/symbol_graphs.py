"""Writes graphs of symbols as GCF text, and compares them by GCF's own roots and deltas."""

from dataclasses import replace
from typing import NamedTuple

from deltamcp import gcf
from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, root_digits, root_of
from deltamcp.results.changes import ChangeText, PathToWhole, SentBefore
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.tokens import count
from deltamcp.values import JSON
from deltamcp.work import Work

_STEPS_PER_SYMBOL = 20
"""Steps that encoding, comparing and counting a symbol or an edge takes, about."""
_CHARS_PER_SYMBOL = 10


class ComparableGraph(NamedTuple):
    """A pack of symbols that the server compares with an earlier one; it stores the base as GCF text."""

    payload: gcf.Payload
    root: str
    rows: None = None

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy, work: Work) -> bool:
        return False

    def root_of_base(self, base: JSON, work: Work) -> str:
        try:
            return _graph_root(gcf.decode(str(base)))
        except gcf.GcfError:
            return ""

    def unchanged_text(
        self, path_to_whole: PathToWhole, root: str, policy: ResolvedPolicy, elsewhere: bool = False
    ) -> str:
        answer = gcf.Unchanged(_written_root(root, policy), len(self.payload.symbols), self.payload.tool)
        return gcf.encode_unchanged(answer).rstrip("\n")

    def changes_since(
        self,
        base: JSON,
        roots: tuple[str, str],
        policy: ResolvedPolicy,
        before: SentBefore | None,
        is_part: bool,
        work: Work,
    ) -> ChangeText | None:
        self._count_pass(work, len(str(base)) // _CHARS_PER_SYMBOL)
        try:
            delta = gcf.diff(gcf.decode(str(base)), self.payload)
        except gcf.GcfError:
            return None
        base_root, new_root = (_written_root(root, policy) for root in roots)
        delta = replace(delta, base_root=base_root, new_root=new_root)
        # The header contains the delta's own tokens, so the delta is encoded twice.
        cost = count(gcf.encode_delta(delta))
        delta = replace(delta, delta_tokens=cost, full_tokens=count(graph_text(self.payload)))
        if before is None or before.session is None:
            return ChangeText(gcf.encode_delta(delta).rstrip("\n"))
        session = before.session.copy()
        return ChangeText(
            gcf.encode_delta(delta, session=session, combine=before.used_in_deltas).rstrip("\n"), session=session
        )

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore, work: Work) -> ChangeText | None:
        self._count_pass(work)
        if before.session is None:
            return None
        session = before.session.copy()
        return ChangeText(gcf.encode_with_session(_with_root(self.payload), session).rstrip("\n"), session=session)

    def pointers_by_digest(self, work: Work) -> dict[str, str]:
        return {self.root: ""}

    def _count_pass(self, work: Work, others: int = 0) -> None:
        work.spend(_STEPS_PER_SYMBOL * (len(self.payload.symbols) + len(self.payload.edges) + others))


def comparable_graph(payload: gcf.Payload) -> ComparableGraph:
    """Returns a graph for comparison."""
    return ComparableGraph(payload, _graph_root(payload))


def graph_text(payload: gcf.Payload) -> str:
    """Writes a whole graph as GCF, with the root that the caller sends back to get only changes.

    Raises:
        GcfError: GCF cannot represent the graph.
    """
    return gcf.encode(_with_root(payload)).rstrip("\n")


def _written_root(root: str, policy: ResolvedPolicy) -> str:
    """Returns a root as GCF text has it: in full for a caller that sent a full one, as others need it."""
    given = root_digits(policy.since or "")
    return ALGORITHM + root if given is not None and len(given) == len(root) else root[:SHORT_DIGITS]


def _with_root(payload: gcf.Payload) -> gcf.Payload:
    return replace(payload, pack_root=_graph_root(payload)[:SHORT_DIGITS])


def _graph_root(payload: gcf.Payload) -> str:
    if any(edge.printed_status for edge in payload.edges):
        # GCF's roots and deltas ignore the status of an edge, so the root is that of the text, and deltas do not apply.
        return root_of(gcf.encode(replace(payload, pack_root=""))).removeprefix(ALGORITHM)
    return gcf.pack_root(payload.symbols, payload.edges).removeprefix(ALGORITHM)
