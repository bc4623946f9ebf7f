"""What a person sees of the servers behind a gateway: states, tokens, figures, stderr."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping

from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.catalog.items.operation import Operation
from deltamcp.dashboard.call_records import CallRecords, ServerFigures
from deltamcp.errors import UsageError
from deltamcp.gateway.api_server import is_api
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.gateway_upstream import GatewayUpstream
from deltamcp.gateway.item_names import distinct_segments
from deltamcp.upstreams.client import Phase
from deltamcp.values import JSON, LOCAL, Kind, Surface

_SHOWN_LINES = 8
"""The lines of stderr beside a server that failed."""


class TokenCounts:
    """The tokens of definitions, each counted once."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[Operation, int]] = {}

    def of(self, operation: Operation) -> int:
        known = self._counted.get(operation.id)
        if known is None or known[0] is not operation:
            known = self._counted[operation.id] = operation, definition_tokens(operation.tool)
        return known[1]

    def keep(self, operations: Iterable[Operation]) -> None:
        """Forgets operations that are no longer there."""
        ids = {operation.id for operation in operations}
        if len(self._counted) > len(ids):
            self._counted = {key: one for key, one in self._counted.items() if key in ids}


class Servers:
    """The servers behind one gateway."""

    def __init__(self, gateway: Gateway, records: CallRecords) -> None:
        self._gateway = gateway
        self._records = records
        self.counts: TokenCounts = TokenCounts()

    @property
    def segments(self) -> Mapping[str, str]:
        """The names of servers by the first part of their operations' ids, which the ledger has."""
        names = [*self._gateway.upstreams]
        return dict(zip(distinct_segments(names, ("index",)), names, strict=True))

    @property
    def configs(self) -> list[UpstreamConfig]:
        return [one.config for one in self._gateway.upstreams.values()]

    def find(self, name: str) -> GatewayUpstream:
        """
        Raises:
            UsageError: the gateway has no such server.
        """
        found = self._gateway.upstreams.get(name)
        if found is None:
            known = ", ".join(self._gateway.upstreams) or "none"
            raise UsageError(f"There is no server {name[:80]!r} behind this gateway; there are {known}.")
        return found

    def digest(self) -> str:
        """Returns a text that differs when the state of a server does, or what it lists."""
        states = [one.connection.state for one in self._gateway.upstreams.values()]
        version = self._gateway.server.engine.catalog.version
        shown = [(one.name, one.phase.value, one.starts, one.failures, one.open_calls) for one in states]
        return hashlib.sha256(repr((version, shown)).encode()).hexdigest()[:16]

    async def list_all(self) -> list[JSON]:
        """Returns a row for each server, in the order of the configuration."""
        view = self._gateway.server.engine.catalog.view(LOCAL)
        listed = {str(tool.get("name")) for tool in view.page(Kind.TOOLS, view.surface, None, whole=True).items}  # type: ignore[union-attr]
        operations = list(view.operations.values())
        plain, here = await asyncio.to_thread(self._count, operations, listed, view.surface)
        segments = {name: segment for segment, name in self.segments.items()}
        tools: dict[str, int] = {}
        for operation in operations:
            segment = operation.id.partition(".")[0]
            tools[segment] = tools.get(segment, 0) + 1
        return [self._row(one, segments[name], tools, plain, here) for name, one in self._gateway.upstreams.items()]

    def _count(
        self, operations: list[Operation], listed: set[str], surface: Surface
    ) -> tuple[dict[str, int], dict[str, int]]:
        plain: dict[str, int] = {}
        here: dict[str, int] = {}
        for operation in operations:
            segment, cost = operation.id.partition(".")[0], self.counts.of(operation)
            plain[segment] = plain.get(segment, 0) + cost
            if surface is not Surface.META or operation.name in listed:
                here[segment] = here.get(segment, 0) + cost
        self.counts.keep(operations)
        return plain, here

    def _row(
        self,
        behind: GatewayUpstream,
        segment: str,
        tools: Mapping[str, int],
        plain: Mapping[str, int],
        here: Mapping[str, int],
    ) -> dict[str, JSON]:
        upstream, config, listing = behind.connection, behind.config, behind.listing
        state, redact = upstream.state, self._gateway.redact
        figures = self._records.figures.get(segment) or ServerFigures()
        verdicts = self._gateway.quarantine.verdicts(upstream)
        fault = behind.fault or ("" if listing is None else listing.faults.get("tools", ""))
        is_down = state.phase is Phase.BACKING_OFF or (state.phase is Phase.STARTING and state.failures > 0)
        return {
            "name": config.name,
            "kind": "API" if is_api(config.entry) else "process" if "command" in config.entry else "url",
            "state": state.phase.value,
            "isDown": is_down,
            "since": state.since,
            "retryAt": state.retry_at,
            "protocol": state.protocol or (None if listing is None else listing.protocol or None),
            "restarts": state.restarts,
            "error": redact(state.last_reason or state.last_error or "") if is_down else "",
            "fault": redact(fault),
            "wantsLogin": state.wants_login or upstream.lacks_login(LOCAL),
            "tools": tools.get(segment, 0),
            "listed": None if listing is None else len(listing.tools),
            "withheld": None if verdicts is None else len(verdicts),
            "plain": plain.get(segment, 0),
            "here": here.get(segment, 0),
            "openCalls": state.open_calls,
            "waitingCalls": state.waiting_calls,
            "calls": figures.calls,
            "failed": figures.failed,
            "p50": figures.percentile(0.5),
            "p95": figures.percentile(0.95),
            "stderr": [line for _, line in upstream.stderr_lines[-_SHOWN_LINES:]] if is_down else [],
        }

    async def describe(self, name: str) -> JSON:
        """Returns the row of one server, with what it wrote to stderr.

        Raises:
            UsageError: the gateway has no such server.
        """
        upstream = self.find(name).connection
        rows = await self.list_all()
        row = next(one for one in rows if isinstance(one, dict) and one["name"] == name)
        assert isinstance(row, dict), "every server has a row"
        return {**row, "stderr": [{"at": at, "text": text} for at, text in upstream.stderr_lines]}
