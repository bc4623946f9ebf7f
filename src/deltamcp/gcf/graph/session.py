"""Sessions: the ids under which a writer has sent symbols to a reader (SPEC 9)."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.graph.model import Symbol

REFERENCE = "# previously transmitted"

DEFAULT_MAX_SYMBOLS = 10_000

_SYMBOL_BYTES = 500
"""About how many bytes of memory a symbol takes beside the characters of its texts."""


@dataclass(frozen=True, slots=True)
class _SentSymbol:
    sid: int
    declaration: str
    distance: int


class Session:
    """The writer's side of a session, for one reader, one conversation and one dialect.

    Ids count up and are never used twice, even after a reset. Beyond `max_symbols` the session forgets the symbols
    written longest ago; they are declared again under a new id.
    """

    def __init__(self, max_symbols: int = DEFAULT_MAX_SYMBOLS) -> None:
        if max_symbols < 1:
            raise ValueError("a session remembers at least one symbol")
        self._max = max_symbols
        self._sent: OrderedDict[tuple[str, str], _SentSymbol] = OrderedDict()
        self._next = 0
        self._chars = 0

    def copy(self) -> "Session":
        """Return a session that knows the same symbols, for a text that may not be sent."""
        copied = Session(self._max)
        copied._sent, copied._next, copied._chars = OrderedDict(self._sent), self._next, self._chars
        return copied

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the symbols take."""
        return self._chars + _SYMBOL_BYTES * len(self._sent)

    def __len__(self) -> int:
        """Return how many symbols a later text can refer to."""
        return len(self._sent)

    def write(self, symbol: Symbol, *, same_distance: bool = False) -> tuple[int, bool]:
        """Record a symbol as written; return its id, and whether the reader knows it, so that a reference is enough.

        With `same_distance` the reader must know the symbol at its distance too, for texts without a group heading.
        """
        declaration = symbol.declaration
        sent = self._pop(symbol.identity)
        known = (
            sent is not None
            and sent.declaration == declaration
            and (sent.distance == symbol.distance or not same_distance)
        )
        if sent is None:
            sid, self._next = self._next, self._next + 1
        else:
            sid = sent.sid
        self._add(symbol.identity, _SentSymbol(sid, declaration, symbol.distance))
        if len(self._sent) > self._max:
            self._pop(next(iter(self._sent)))
        return sid, known

    def _add(self, identity: tuple[str, str], sent: _SentSymbol) -> None:
        self._sent[identity] = sent
        self._chars += len(identity[0]) + len(identity[1]) + len(sent.declaration)

    def _pop(self, identity: tuple[str, str]) -> _SentSymbol | None:
        sent = self._sent.pop(identity, None)
        if sent is not None:
            self._chars -= len(identity[0]) + len(identity[1]) + len(sent.declaration)
        return sent

    def refer(self, kind: str, qualified_name: str, distance: int) -> int:
        """Return the id of a symbol that the reader knows.

        Raises:
            GcfError: the symbol was never written, or the session has forgotten it.
        """
        identity = Symbol(qualified_name, kind).identity
        sent = self._pop(identity)
        if sent is None:
            raise GcfError("invalid_symbol_id", f"this session knows no {kind} {qualified_name!a:.80}")
        self._add(identity, replace(sent, distance=distance))
        return sent.sid

    def reset(self) -> None:
        """Forget all symbols, because the reader's context was compacted or a text did not arrive."""
        self._sent.clear()
        self._chars = 0


class ReaderSession:
    """The reader's side of a session: the symbol of each id. It need not know of resets of the `Session`."""

    def __init__(self) -> None:
        self._symbols: dict[int, Symbol] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._symbols)

    def resolve(self, sid: int) -> Symbol:
        """Return the symbol that was last declared under this id."""
        if sid not in self._symbols:
            raise GcfError("invalid_symbol_id", f"@{sid} has not been declared in this session")
        return self._symbols[sid]

    def check(self, sid: int, symbol: Symbol) -> None:
        """Refuse a declaration under the id of another symbol."""
        known = self._symbols.get(sid, symbol)
        if known.identity != symbol.identity:
            raise GcfError("invalid_symbol_id", f"@{sid} is {known.kind} {known.qualified_name} already")

    def learn(self, symbols: Mapping[int, Symbol]) -> None:
        """Record the symbols of a text that was read to its end."""
        for sid, symbol in symbols.items():
            former = self._ids.get(symbol.identity, sid)
            if former != sid:
                del self._symbols[former]
            self._ids[symbol.identity] = sid
            self._symbols[sid] = symbol
