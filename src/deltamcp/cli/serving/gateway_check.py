"""`delta-mcp gateway --check` starts every server of a configuration once, and tells how that went."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from deltamcp.cli.serving import monitoring_options
from deltamcp.cli.serving.monitoring_options import LogOptions
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.output import WaitingBar
from deltamcp.client.links.process import ProcessGuard
from deltamcp.costs.cost import GatewayCost, ServerListing, count_gateway
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.gateway.api_server import ApiServer
from deltamcp.gateway.config import GatewayConfig, GatewayFile, UpstreamConfig
from deltamcp.gateway.connections import cache_folder, make_target
from deltamcp.gateway.trust.approvals import Approvals, approval_hint, load
from deltamcp.gateway.trust.imitation import compare_tools, similar_upstreams
from deltamcp.gateway.trust.review import approve_command, review
from deltamcp.gateway.upstream_items import is_offered
from deltamcp.hosts.files import DISABLED
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.secrets import UpstreamSecrets
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON

MAX_CONCURRENT = 8
_COLUMNS = 100
"""How wide the report is in a pipe or a file."""
START_SECONDS = 60.0
"""How long a server may take to start and to list what it has."""


class CheckedUpstream(Struct, frozen=True):
    """How the start of one server went."""

    config: UpstreamConfig
    seconds: float
    upstream_listing: UpstreamListing | None = None
    problem: str = ""
    """Why it has no catalog."""
    host_tools: list[dict[str, JSON]] | None = None
    """What a host is told of without the gateway, where that differs: see `ServerListing`."""
    notice: str = ""
    """What its user should know of it, though it has one."""

    @property
    def listing(self) -> ServerListing:
        """The tools that the gateway offers of it."""
        found = self.upstream_listing or UpstreamListing({}, "")
        offered = self._select_offered(found.tools)
        if self.host_tools is None:
            return ServerListing(self.config.name, offered, found.instructions, pinned=self.config.pinned)
        seen = self._select_offered(self.host_tools)
        return ServerListing(self.config.name, seen, found.instructions, offered, self.config.pinned)

    def _select_offered(self, tools: Sequence[dict[str, JSON]]) -> list[dict[str, JSON]]:
        return [tool for tool in tools if is_offered(str(tool.get("name")), tool, self.config)]


def run_check(found: GatewayFile) -> None:
    """Prints a table of all servers; exits with 1 if one of them cannot be offered."""
    if not check(found):
        raise SystemExit(1)


def check(found: GatewayFile) -> bool:
    """Prints a table of all servers, and returns whether each of them can be offered that is not switched off."""
    monitoring_options.configure_log(LogOptions(level="error"))  # the table has what upstreams would log
    checked = asyncio.run(_check_all(found.config))
    console = output.make_console(_COLUMNS, wraps=True)
    rows = [_row(one) for one in checked]
    rows += [[one.name, "left out", "", one.reason, "", ""] for one in found.skipped]
    output.print_table("", ("server", "state", "protocol", "problem"), ("tools", "seconds"), rows, console)
    if any(one.upstream_listing is not None for one in checked):
        listings = [one.listing for one in checked]
        console.print()
        console.print(cost_sentence(count_gateway(found.config, listings), sum(map(_count_offered, listings))))
    for one in found.skipped:
        if hint := approval_hint(one.name, one.reason):
            console.print(f"{one.name} waits for your approval.{hint}")
    for sentence in _trust_sentences(checked):
        console.print(sentence)
    return all(one.upstream_listing is not None for one in checked) and all(
        one.reason == DISABLED for one in found.skipped
    )


def _count_offered(listing: ServerListing) -> int:
    return len(listing.tools if listing.operations is None else listing.operations)


def cost_sentence(cost: GatewayCost, count: int) -> str:
    """Says what the tools cost a model with the gateway and without.

    Args:
        count: how many the gateway offers.
    """
    tools, without = f"{count:,} tool{'s' * (count != 1)}", cost.together.now
    if cost.shows_all:
        return f"{tools} in one list: {without:,} tokens before a conversation begins, with the gateway and without."
    return (
        f"{tools} behind the gateway: {cost.now:,} tokens before a conversation begins, instead of {without:,}; "
        f"{cost.together.one_tool:,} where it uses one tool."
    )


def _trust_sentences(checked: Sequence[CheckedUpstream]) -> Iterator[str]:
    """Yields what waits to be approved, and what could be taken for another server's; approves nothing."""
    approvals = Approvals()
    for one in checked:
        if one.upstream_listing is None:
            continue
        try:
            record = load(approvals.path(one.config))
        except ConfigurationError as error:
            yield f"{one.config.name} is kept out: {error}"
            continue
        withheld = review(one.config, one.upstream_listing, record).withheld
        if withheld:
            command = approve_command(one.config.name)
            yield f"{one.config.name}: the gateway keeps out {len(withheld)} of what it lists, which changed: {command}"
    yield from similar_upstreams([one.config.name for one in checked])
    listed = {one.config.name: one.upstream_listing.tools for one in checked if one.upstream_listing is not None}
    yield from compare_tools(listed).sentences()


def _row(one: CheckedUpstream) -> Sequence[str]:
    if one.upstream_listing is None:
        return [one.config.name, "failed", "", one.problem, "", f"{one.seconds:.1f}"]
    tools = f"{_count_offered(one.listing):,}"
    problem = " ".join(f"Its {kind} are not listed: {fault}" for kind, fault in one.upstream_listing.faults.items())
    problem = " ".join(filter(None, (problem, one.notice)))
    return [one.config.name, "ready", one.upstream_listing.protocol, problem, tools, f"{one.seconds:.1f}"]


async def _check_all(config: GatewayConfig) -> list[CheckedUpstream]:
    turns = asyncio.Semaphore(MAX_CONCURRENT)
    guard = ProcessGuard()
    names = [one.name for one in config.upstreams]

    async def check(one: UpstreamConfig) -> CheckedUpstream:
        async with turns:
            checked = await _check(one, guard, UpstreamSecrets(one.secrets, names))
            waiting_bar.note_answer(one.name)
            return checked

    with WaitingBar(names) as waiting_bar:
        try:
            return await asyncio.gather(*map(check, config.upstreams))
        finally:
            guard.close()


async def _check(config: UpstreamConfig, guard: ProcessGuard, secrets: UpstreamSecrets) -> CheckedUpstream:
    began = time.monotonic()
    upstream: Upstream | None = None
    upstream_listing, problem, notice, host_tools = None, "", "", None
    try:
        target = make_target(config, cache_folder())
        upstream = Upstream(config.name, target, config.settings, guard=guard, secrets=secrets, speak=config.speak)
        async with asyncio.timeout(START_SECONDS):
            upstream_listing = await upstream.fetch_listing()
            notice = target.notice if isinstance(target, ApiServer) else ""
            if upstream_listing.is_ours and not isinstance(target, ApiServer):
                host_tools = await _fetch_host_tools(config)
    except TimeoutError:
        problem = f"It did not list its tools within {START_SECONDS:g} seconds."
    except DeltaError as error:
        problem = secrets.redact(str(error))
    seconds = time.monotonic() - began
    if upstream is not None:
        await upstream.close()
    return CheckedUpstream(config, seconds, upstream_listing, problem, host_tools, secrets.redact(notice))


async def _fetch_host_tools(config: UpstreamConfig) -> list[dict[str, JSON]] | None:
    """Asks a server of this library once more, as a host does; returns None if it cannot be asked so."""
    from deltamcp.client.client import connect
    from deltamcp.client.oauth.oauth import OAuth

    try:
        async with connect(
            config.entry, progressive=False, listen=False, quiet=True, auth=OAuth(asks_user=False)
        ) as client:
            return await client.describe()
    except DeltaError:
        return None
