"""The figures of the ledger: what calls and lists would have cost a model, and what they did; and their file."""

import contextlib
import datetime
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from deltamcp.errors import ConfigurationError
from deltamcp.runtime.files import user_folder
from deltamcp.values import JSON

GATEWAY = ""
"""Stands in place of an upstream for what the gateway itself has models read: its meta-tools and their replies."""
LISTED = "tools/list"
"""Stands in place of a tool for the definitions in a list."""
UNKNOWN = "(unknown)"
"""Stands in place of a tool that does not exist, because its name is what a model wrote."""
OTHERS = "(others)"
"""Stands in place of tools for which the ledger has no more room that day."""
KEPT_DAYS = 400
_BUSY_SECONDS = 5.0
_APPLICATION = 0x444D4C47
_VERSION = 1
_SCHEMA = (
    "CREATE TABLE usage (day TEXT, upstream TEXT, tool TEXT, calls INTEGER, failed INTEGER, uncounted INTEGER,"
    " before INTEGER, after INTEGER, PRIMARY KEY (day, upstream, tool)) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_ADD = (
    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day, upstream, tool) DO UPDATE SET"
    " calls = calls + excluded.calls, failed = failed + excluded.failed, uncounted = uncounted + excluded.uncounted,"
    " before = before + excluded.before, after = after + excluded.after"
)


class LedgerKey(NamedTuple):
    """What figures are about."""

    day: str
    """The day at the gateway's place, such as 2026-11-16."""
    upstream: str
    tool: str


class Usage(Struct):
    """Sums of tokens and calls."""

    calls: int = 0
    """For a list: the conversations that it was sent to."""
    failed: int = 0
    uncounted: int = 0
    """The calls whose tokens were not counted, because too many results waited for it."""
    before: int = 0
    """The tokens that a model would have read from the upstream itself."""
    after: int = 0
    """The tokens that it was sent."""

    @property
    def saved(self) -> int:
        """Less than zero where the gateway cost more than it saved."""
        return self.before - self.after

    def add(self, other: "Usage") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_json(self) -> dict[str, JSON]:
        return {**{name: getattr(self, name) for name in self.__struct_fields__}, "saved": self.saved}


LedgerRows = Mapping[LedgerKey, Usage]

GROUPS: Mapping[str, Callable[[LedgerKey], tuple[str, ...]]] = {
    "day": lambda key: (key.day,),
    "upstream": lambda key: (key.upstream,),
    "tool": lambda key: (key.upstream, key.tool),
}
"""What figures can be summed by."""


class LedgerTotals(Struct, frozen=True):
    """The sums of some days, and of the three things that they consist of."""

    days: int
    """The days that have figures."""
    losing_days: list[str]
    """The days on which the gateway cost more tokens than it saved."""
    definitions: Usage
    """Lists: all definitions of the upstreams, against what the gateway listed."""
    meta_tools: Usage
    """Replies of `discover`, `get_schema` and `continue`, and refusals of `execute`; they have no tokens before."""
    results: Usage
    """Results of the upstreams' tools."""

    @property
    def total(self) -> Usage:
        summed = Usage()
        for part in (self.definitions, self.meta_tools, self.results):
            summed.add(part)
        return summed

    def as_json(self) -> dict[str, JSON]:
        return {
            "days": self.days,
            "losingDays": self.losing_days,
            "definitions": self.definitions.as_json(),
            "metaTools": self.meta_tools.as_json(),
            "results": self.results.as_json(),
            "tokens": {name: self.total.as_json()[name] for name in ("before", "after", "saved")},
        }


def group(rows: LedgerRows, by: str) -> dict[tuple[str, ...], Usage]:
    """Sums figures by one of `GROUPS`."""
    return _sum(rows, GROUPS[by])


def days_until(rows: LedgerRows, last: datetime.date, least: int) -> list[tuple[str, Usage]]:
    """Sums figures by every day until the last, also days without any, from the first that has some on.

    Args:
        least: How many days there are at least.
    """
    by_day = group(rows, "day")
    counted = [datetime.date.fromisoformat(day) for (day,) in by_day]
    last = max([last, *counted])  # a clock may have been put back
    first = min([last - datetime.timedelta(days=least - 1), *counted])
    days = [str(first + datetime.timedelta(days=number)) for number in range((last - first).days + 1)]
    return [(day, by_day.get((day,), Usage())) for day in days]


def own_rows(rows: LedgerRows) -> LedgerRows:
    """Returns the figures of what the gateway itself has models read: its lists, and the replies of its meta-tools."""
    return {key: usage for key, usage in rows.items() if key.tool == LISTED or key.upstream == GATEWAY}


def total(rows: LedgerRows) -> LedgerTotals:
    """Sums all figures."""
    parts = {part: Usage() for part in ("definitions", "meta_tools", "results")}
    for key, usage in rows.items():
        part = "definitions" if key.tool == LISTED else "meta_tools" if key.upstream == GATEWAY else "results"
        if key.tool == LISTED and key.upstream != GATEWAY:
            # Each upstream has a row for the same list; the gateway's own has the number of lists.
            usage = Usage(before=usage.before, after=usage.after)
        parts[part].add(usage)
    by_day = group(rows, "day")
    return LedgerTotals(len(by_day), sorted(day for (day,), usage in by_day.items() if usage.saved < 0), **parts)


class PaysFrom(Struct, frozen=True):
    """From how many turns on the gateway pays, in tokens for each conversation, as the ledger has them on average.

    In every turn a model reads all definitions anew, and the replies of meta-tools that it has called; each such call
    is a turn of its own. What users and models say in a conversation is in no ledger, and does not count here.
    """

    conversations: int
    plain: float
    """The definitions that it would read in every turn without the gateway."""
    here: float
    """Those that it reads."""
    replies: float
    """What `discover`, `get_schema` and `continue` add, taken to be read from the first turn on."""
    more_turns: float
    """The calls of these."""
    turns: int | None
    """None if the gateway reads more in every turn than it saves."""

    def as_json(self) -> dict[str, JSON]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def pays_from(totals: LedgerTotals) -> PaysFrom | None:
    """Returns from how many turns on the gateway pays; None if no list was counted."""
    lists, meta = totals.definitions, totals.meta_tools
    if not lists.calls:
        return None
    plain, here = lists.before / lists.calls, lists.after / lists.calls
    replies, more_turns = meta.after / lists.calls, meta.calls / lists.calls
    read = here + replies
    # It pays where the turns without it cost more than those with it, of which there are more.
    turns = math.floor(more_turns * read / (plain - read)) + 1 if plain > read else None
    return PaysFrom(lists.calls, plain, here, replies, more_turns, turns)


def sentences(totals: LedgerTotals) -> list[str]:
    """Says what the figures come to, with the days that cost more than they saved."""
    whole, definitions, results = totals.total, totals.definitions, totals.results
    said = [
        f"{_number(results.calls, 'call')} and {_number(definitions.calls, 'list')} on {_number(totals.days, 'day')}. "
        f"Definitions cost {definitions.after:,} tokens instead of {definitions.before:,}, results {results.after:,} "
        f"instead of {results.before:,}; discover, get_schema and continue cost {totals.meta_tools.after:,}."
    ]
    if whole.saved < 0:
        said.append(f"Together the gateway cost {-whole.saved:,} tokens more than it saved.")
    else:
        share = f", {whole.saved / whole.before:.0%} of {whole.before:,}" if whole.before else ""
        said.append(f"Together {whole.saved:,} tokens were saved{share}.")
    if totals.losing_days and totals.days > 1:
        said.append(
            f"On {_number(len(totals.losing_days), 'day')} it cost more than it saved: {', '.join(totals.losing_days)}."
        )
    if whole.uncounted:
        said.append(f"The tokens of {_number(whole.uncounted, 'call')} were not counted: too many came at once.")
    return said


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _sum(rows: LedgerRows, key_of: Callable[[LedgerKey], tuple[str, ...]]) -> dict[tuple[str, ...], Usage]:
    summed: dict[tuple[str, ...], Usage] = {}
    for key, usage in rows.items():
        summed.setdefault(key_of(key), Usage()).add(usage)
    return summed


def add_rows(rows: dict[LedgerKey, Usage], more: Iterable[tuple[LedgerKey, Usage]], limit: int) -> None:
    """Adds figures to sums of at most `limit` keys; beyond, tools of an upstream are summed together."""
    for key, usage in more:
        if key not in rows and len(rows) >= limit:
            key = key._replace(tool=OTHERS)
        rows.setdefault(key, Usage()).add(usage)


class LedgerFile:
    """Stores figures by day, upstream and tool, and no content. Its methods block.

    Several gateways of a user may add to it at once.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path` is `ledger.sqlite` in the user's folder for state by default.

        Raises:
            ConfigurationError: the user has no home.
        """
        self.path: Path = user_folder("state") / "ledger.sqlite" if path is None else path

    def add(self, rows: LedgerRows) -> None:
        """Adds figures to those of their days, all or none of them.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
            ConfigurationError: it is no ledger.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        values = [(*key, *(getattr(usage, name) for name in Usage.__struct_fields__)) for key, usage in rows.items()]
        with self._open() as connection:
            self._make_tables(connection)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_ADD, values)
            connection.execute("DELETE FROM usage WHERE day < ?", (_days_ago(KEPT_DAYS),))
            connection.execute("COMMIT")

    def read(self, days: int | None = None) -> dict[LedgerKey, Usage]:
        """Returns the figures of the last days, today included; of all by default.

        Raises:
            ConfigurationError: the file is no ledger, or is damaged.
        """
        if not self.path.exists():
            return {}
        since = "" if days is None else _days_ago(days - 1)
        try:
            with self._open() as connection:
                if _is_empty(connection):  # a gateway has just made it
                    return {}
                if _version(connection) != (_APPLICATION, _VERSION):
                    raise self._foreign()
                found = connection.execute("SELECT * FROM usage WHERE day >= ? ORDER BY 1, 2, 3", (since,)).fetchall()
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"The ledger at {self.path} cannot be read ({error}); delta-mcp stats --reset starts a new one."
            ) from None
        return {LedgerKey(*values[:3]): Usage(*values[3:]) for values in found}

    def reset(self) -> None:
        """Forgets all figures, also those of a file that cannot be read."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if _version(connection) == (_APPLICATION, _VERSION):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
        if _version(connection) != (_APPLICATION, _VERSION):
            raise self._foreign()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            # What is written survives the death of this process; only a crash of the system may lose the last of it.
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection
        finally:
            connection.close()

    def _foreign(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.path} is no ledger of this version; delta-mcp stats --reset deletes it and starts a new one."
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    return (
        connection.execute("PRAGMA application_id").fetchone()[0],
        connection.execute("PRAGMA user_version").fetchone()[0],
    )


def _days_ago(days: int) -> str:
    return (datetime.date.today() - datetime.timedelta(days=days)).isoformat()
