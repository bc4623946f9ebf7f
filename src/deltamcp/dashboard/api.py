"""The table of what can be asked of a gateway that runs: reads, and changes. Arguments and answers are JSON.

Pages and commands ask nothing else of a gateway. What they read has no secrets of the servers' entries in it; other
texts of servers are as those wrote them, so that whoever shows them escapes them.
"""

import asyncio
import datetime
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from deltamcp import tokens
from deltamcp.dashboard import attention
from deltamcp.dashboard.call_records import CallRecords
from deltamcp.dashboard.playground import Playground
from deltamcp.dashboard.reviews import Reviews
from deltamcp.dashboard.servers import Servers
from deltamcp.errors import UsageError
from deltamcp.gateway import ledger_figures
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger_figures import LedgerFile, LedgerRows
from deltamcp.values import JSON
from deltamcp.version import VERSION

MAX_WAIT_SECONDS = 25.0
_LOOK_SECONDS = 1.0
"""How often the states of servers are compared while somebody waits for changes."""
_CHART_DAYS, _LEAST_DAYS = 90, 14
"""The days that a chart has, and those that it has at least."""


class AskedGateway(Protocol):
    """A gateway that can be asked, in this process or in another."""

    id: str

    async def ask(self, name: str, arguments: Mapping[str, JSON] = ...) -> Any:
        """Returns an answer of the table.

        Raises:
            UsageError: there is no such ask, its arguments are wrong, or it cannot be done now.
            UnreachableError: the gateway has ended.
        """
        ...


class NothingAsked(Struct, forbid_unknown_fields=True):
    """The arguments of an ask that takes none."""


class NamedServer(Struct, forbid_unknown_fields=True):
    """A server behind the gateway."""

    server: str


class CallFilter(Struct, forbid_unknown_fields=True):
    """Which calls to list, the newest first."""

    before: int = 0
    """Lists calls with a lower number; 0 lists the newest."""
    limit: int = 100
    text: str = ""
    """What the server, the tool or the client has in its name."""
    outcome: str = ""
    """"failed" lists only calls that failed, "cut" those whose results were cut."""
    content: bool = False
    """Whether to list arguments and results, as far as they were kept, and to keep those of the next calls."""


class ToolFilter(Struct, forbid_unknown_fields=True):
    """Which tools to list, in the order of the catalog."""

    after: int = 0
    limit: int = 100
    text: str = ""
    server: str = ""


class NamedTool(Struct, forbid_unknown_fields=True):
    """A tool, by its id or its name."""

    name: str


class ModelQuery(Struct, forbid_unknown_fields=True):
    """What a model would type to find a tool."""

    query: str


class TriedCall(Struct, forbid_unknown_fields=True):
    """A call of a person who tries a tool."""

    name: str
    arguments: dict[str, Any] = {}


class ReviewedDefinition(Struct, forbid_unknown_fields=True):
    """A definition that waits to be approved; `seen` is that of the difference that somebody has read."""

    server: str
    place: str
    seen: str = ""


class CancelledCall(Struct, forbid_unknown_fields=True):
    """A call that runs, or one behind a promise, by the id that `pending` lists."""

    id: str


class SeenChanges(Struct, forbid_unknown_fields=True):
    """What somebody knows already, to be told when there is more."""

    seq: int = 0
    state: str = ""
    calls: bool = True
    """Whether to list the new calls, and not only to say that there are some."""
    seconds: float = MAX_WAIT_SECONDS


class Ask(NamedTuple):
    """One row of the table."""

    perform: Callable[["GatewayApi", Any], Awaitable[JSON]]
    arguments: type[Struct] = NothingAsked
    is_change: bool = False


class GatewayApi:
    """Answers asks about one gateway of this process. It implements `AskedGateway`."""

    def __init__(self, gateway: Gateway, label: str, began: float, page: str = "") -> None:
        """
        Args:
            label: Says what the gateway serves, such as the name of its configuration.
            began: When it was started, in seconds since 1970.
            page: The address of the gateway's own pages; empty if it has none.
        """
        self.id: str = str(os.getpid())
        self._page = page
        self._gateway = gateway
        self._label = label
        self._began = began
        self.records: CallRecords = CallRecords(gateway)
        self.servers: Servers = Servers(gateway, self.records)
        self.playground: Playground = Playground(gateway, self.servers, self.records)
        self.reviews: Reviews = Reviews(gateway.approvals, lambda: self.servers.configs, self._entry_records)

    async def ask(self, name: str, arguments: Mapping[str, JSON] = MappingProxyType({})) -> JSON:
        ask = ASKS.get(name)
        if ask is None:
            raise UsageError(f"A gateway of {VERSION} is not asked for {name[:40]!r}; is another version running?")
        try:
            converted = msgspec.convert(dict(arguments), ask.arguments)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: {error}.") from None
        self.records.begin()
        return await ask.perform(self, converted)

    async def answer_about(self, _: NothingAsked) -> JSON:
        gateway = self._gateway
        return {
            "id": self.id,
            "pid": os.getpid(),
            "version": VERSION,
            "name": gateway.config.name,
            "label": self._label,
            "folder": _folder(),
            "began": self._began,
            "page": self._page,
            "disclosure": gateway.server.engine.catalog.view().surface.value,
            "servers": len(gateway.upstreams),
            "tokenizer": tokens.describe(),
            "watchedSince": self.records.began,
            "counts": gateway.ledger is not None,
        }

    def _entry_records(self) -> Sequence[Path]:
        return () if self._gateway.live is None else self._gateway.live.found.records

    def _ledger_rows(self, days: int) -> LedgerRows:
        ledger = self._gateway.ledger
        return LedgerFile().read(days) if ledger is None else ledger.rows(days)

    async def answer_home(self, _: NothingAsked) -> JSON:
        rows = await asyncio.to_thread(self._ledger_rows, _CHART_DAYS)
        servers = await self.servers.list_all()
        waiting = await asyncio.to_thread(self.reviews.list_waiting)
        live = self._gateway.live
        configuration = {} if live is None else live.describe(is_operator=True)
        needs = attention.rank(servers, waiting, self.records.cut_tools(), rows, self.servers.segments, configuration)
        by_day = ledger_figures.days_until(rows, datetime.date.today(), _LEAST_DAYS) if rows else []
        own = ledger_figures.group(ledger_figures.own_rows(rows), "day")
        totals = ledger_figures.total(rows)
        pays = ledger_figures.pays_from(totals)
        return {
            "attention": [msgspec.to_builtins(need) for need in needs],
            "days": [
                {"day": day, **usage.as_json(), "own": own[(day,)].after if (day,) in own else 0}
                for day, usage in by_day
            ],
            "totals": totals.as_json(),
            "sentences": ledger_figures.sentences(totals) if rows else [],
            "pays": None if pays is None else pays.as_json(),
        }

    async def answer_restart(self, asked: NamedServer) -> JSON:
        self.servers.find(asked.server).connection.restart()
        return {"restarted": asked.server}

    async def answer_calls(self, asked: CallFilter) -> JSON:
        if asked.content:
            self.records.keep_content()
        calls = self.records.list_calls(asked.before, min(asked.limit, 1000), asked.text, asked.outcome, asked.content)
        return {"calls": calls, "seq": self.records.seq, "total": len(self.records)}

    async def answer_pending(self, _: NothingAsked) -> JSON:
        return self.records.pending()

    async def answer_cancel(self, asked: CancelledCall) -> JSON:
        await self.records.cancel(asked.id)
        return {"cancelled": asked.id}

    async def answer_approve(self, asked: ReviewedDefinition) -> JSON:
        await asyncio.to_thread(self.reviews.decide, asked.server, asked.place, asked.seen, True)
        return {"approved": asked.place}

    async def answer_reject(self, asked: ReviewedDefinition) -> JSON:
        await asyncio.to_thread(self.reviews.decide, asked.server, asked.place, asked.seen, False)
        return {"rejected": asked.place}

    async def answer_changes(self, asked: SeenChanges) -> JSON:
        """Waits until there are calls after a number, or states of servers that somebody has not seen."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + min(max(asked.seconds, 0.0), MAX_WAIT_SECONDS)
        while True:
            state = self.servers.digest()
            left = ends - loop.time()
            if state != asked.state or self.records.seq > asked.seq or left <= 0:
                calls = self.records.calls_after(asked.seq) if asked.calls else []
                return {"seq": self.records.seq, "state": state, "calls": calls}
            await self.records.wait(min(left, _LOOK_SECONDS))


def _folder() -> str:
    """Returns the folder in which the gateway runs, as a shell shows it."""
    folder, home = Path.cwd(), Path("~").expanduser()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


ASKS: Mapping[str, Ask] = MappingProxyType(
    {
        "about": Ask(GatewayApi.answer_about),
        "home": Ask(GatewayApi.answer_home),
        "servers": Ask(lambda api, _: api.servers.list_all()),
        "server": Ask(lambda api, asked: api.servers.describe(asked.server), NamedServer),
        "surface": Ask(lambda api, _: api.playground.surface()),
        "tools": Ask(
            lambda api, asked: api.playground.list_tools(asked.text, asked.server, asked.after, asked.limit), ToolFilter
        ),
        "tool": Ask(lambda api, asked: api.playground.describe(asked.name), NamedTool),
        "search": Ask(lambda api, asked: api.playground.search(asked.query), ModelQuery),
        "calls": Ask(GatewayApi.answer_calls, CallFilter),
        "pending": Ask(GatewayApi.answer_pending),
        "reviews": Ask(lambda api, _: asyncio.to_thread(api.reviews.list_waiting)),
        "diff": Ask(
            lambda api, asked: asyncio.to_thread(api.reviews.show, asked.server, asked.place), ReviewedDefinition
        ),
        "changes": Ask(GatewayApi.answer_changes, SeenChanges),
        "call": Ask(lambda api, asked: api.playground.call(asked.name, asked.arguments), TriedCall, is_change=True),
        "approve": Ask(GatewayApi.answer_approve, ReviewedDefinition, is_change=True),
        "reject": Ask(GatewayApi.answer_reject, ReviewedDefinition, is_change=True),
        "restart": Ask(GatewayApi.answer_restart, NamedServer, is_change=True),
        "cancel": Ask(GatewayApi.answer_cancel, CancelledCall, is_change=True),
    }
)
"""What can be asked, by name."""
