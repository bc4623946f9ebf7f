"""Graphs of symbols as results: sent as GCF, compared by GCF's own roots and deltas."""

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from deltamcp import gcf
from deltamcp.deltas.root import ALGORITHM, SHORT_DIGITS, root_of
from deltamcp.results.outcome import Before, Telling
from deltamcp.results.policy import Shaping
from deltamcp.tokens import count
from deltamcp.values import JSON


class Graph(NamedTuple):
    """A pack of symbols, kept as its GCF. Its symbols have ids of the caller's session, where it has one."""

    pack: gcf.Payload
    root: str
    size: str
    rows: None = None

    def is_as(self, base: JSON, shaping: Shaping) -> bool:
        return False

    def since(
        self, base: JSON, roots: tuple[str, str], shaping: Shaping, before: Before | None, is_part: bool
    ) -> Telling | None:
        try:
            made = gcf.diff(gcf.decode(str(base)), self.pack)
        except gcf.GcfError:
            return None
        made = replace(made, base_root=roots[0][:SHORT_DIGITS], new_root=roots[1][:SHORT_DIGITS])
        # The header tells what the delta costs, so it is written twice.
        cost = count(gcf.encode_delta(made))
        made = replace(made, delta_tokens=cost, full_tokens=count(text(self.pack)))
        if before is None or before.session is None:
            return Telling(gcf.encode_delta(made).rstrip("\n"))
        session = deepcopy(before.session)
        return Telling(gcf.encode_delta(made, session=session, combine=before.in_deltas).rstrip("\n"), session=session)

    def brief(self, shaping: Shaping, before: Before) -> Telling | None:
        if before.session is None:
            return None
        session = deepcopy(before.session)
        return Telling(gcf.encode_with_session(_rooted(self.pack), session).rstrip("\n"), session=session)

    def places(self) -> dict[str, str]:
        return {self.root: ""}


def known(pack: gcf.Payload) -> Graph:
    return Graph(pack, _root(pack), f"{len(pack.symbols)} symbol{'s' * (len(pack.symbols) != 1)}")


def text(pack: gcf.Payload) -> str:
    """As it is sent whole, with the root to send back for what changed.

    Raises:
        GcfError: it is not one that GCF can carry.
    """
    return gcf.encode(_rooted(pack)).rstrip("\n")


def _rooted(pack: gcf.Payload) -> gcf.Payload:
    return replace(pack, pack_root=_root(pack)[:SHORT_DIGITS])


def _root(pack: gcf.Payload) -> str:
    if any(edge.printed_status for edge in pack.edges):
        # GCF has the status of an edge in no root and no delta: such a pack is known by its text, and sent whole.
        return root_of(gcf.encode(replace(pack, pack_root=""))).removeprefix(ALGORITHM)
    return gcf.pack_root(pack.symbols, pack.edges).removeprefix(ALGORITHM)
