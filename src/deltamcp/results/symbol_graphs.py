"""Graphs of symbols as results: sent as GCF, compared by GCF's own roots and deltas."""

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from deltamcp import gcf
from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, root_of
from deltamcp.results.changes import ChangeText, SentBefore
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.tokens import count
from deltamcp.values import JSON


class ComparableGraph(NamedTuple):
    """A pack of symbols, kept as its GCF. Its symbols have ids of the caller's session, where it has one."""

    payload: gcf.Payload
    root: str
    size_text: str
    rows: None = None

    def is_equivalent(self, base: JSON, policy: ResolvedPolicy) -> bool:
        return False

    def changes_since(
        self, base: JSON, roots: tuple[str, str], policy: ResolvedPolicy, before: SentBefore | None, is_part: bool
    ) -> ChangeText | None:
        try:
            made = gcf.diff(gcf.decode(str(base)), self.payload)
        except gcf.GcfError:
            return None
        made = replace(made, base_root=roots[0][:SHORT_DIGITS], new_root=roots[1][:SHORT_DIGITS])
        # The header tells what the delta costs, so it is written twice.
        cost = count(gcf.encode_delta(made))
        made = replace(made, delta_tokens=cost, full_tokens=count(graph_text(self.payload)))
        if before is None or before.session is None:
            return ChangeText(gcf.encode_delta(made).rstrip("\n"))
        session = deepcopy(before.session)
        return ChangeText(
            gcf.encode_delta(made, session=session, combine=before.used_in_deltas).rstrip("\n"), session=session
        )

    def text_with_references(self, policy: ResolvedPolicy, before: SentBefore) -> ChangeText | None:
        if before.session is None:
            return None
        session = deepcopy(before.session)
        return ChangeText(gcf.encode_with_session(_with_root(self.payload), session).rstrip("\n"), session=session)

    def pointers_by_digest(self) -> dict[str, str]:
        return {self.root: ""}


def comparable_graph(payload: gcf.Payload) -> ComparableGraph:
    return ComparableGraph(
        payload, _graph_root(payload), f"{len(payload.symbols)} symbol{'s' * (len(payload.symbols) != 1)}"
    )


def graph_text(payload: gcf.Payload) -> str:
    """As it is sent whole, with the root to send back for what changed.

    Raises:
        GcfError: it is not one that GCF can carry.
    """
    return gcf.encode(_with_root(payload)).rstrip("\n")


def _with_root(payload: gcf.Payload) -> gcf.Payload:
    return replace(payload, pack_root=_graph_root(payload)[:SHORT_DIGITS])


def _graph_root(payload: gcf.Payload) -> str:
    if any(edge.printed_status for edge in payload.edges):
        # GCF has the status of an edge in no root and no delta: such a pack is known by its text, and sent whole.
        return root_of(gcf.encode(replace(payload, pack_root=""))).removeprefix(ALGORITHM)
    return gcf.pack_root(payload.symbols, payload.edges).removeprefix(ALGORITHM)
