"""`delta-mcp gateway --check` starts every server of a configuration once, and tells how that went."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.cli.serving import monitoring_options
from deltamcp.cli.serving.monitoring_options import LogOptions
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.output import ProgressBar, waiting_label
from deltamcp.client.links.process_guard import ProcessGuard
from deltamcp.costs.cost import Cost, ServerListing, count_together
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.gateway.api_server import ApiServer
from deltamcp.gateway.config import GatewayConfig, GatewayFile, UpstreamConfig
from deltamcp.gateway.connections import cache_folder, make_target
from deltamcp.gateway.trust.approvals import Approvals, load
from deltamcp.gateway.trust.imitation import compare_tools, similar_upstreams
from deltamcp.gateway.trust.review import approve_command, review
from deltamcp.gateway.upstream_items import is_offered
from deltamcp.hosts.files import DISABLED
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.secrets import UpstreamSecrets
from deltamcp.upstreams.upstream import Upstream

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
    notice: str = ""
    """What its user should know of it, though it has one."""

    @property
    def listing(self) -> ServerListing:
        """The tools that the gateway offers of it."""
        found = self.upstream_listing or UpstreamListing({}, "")
        offered = [tool for tool in found.tools if is_offered(str(tool.get("name")), tool, self.config)]
        return ServerListing(self.config.name, offered, found.instructions, self.config.pinned)


def run_check(found: GatewayFile) -> None:
    """Prints a table of all servers; exits with 1 if one of them cannot be offered."""
    monitoring_options.configure_log(LogOptions(level="error"))  # the table has what upstreams would log
    checked = asyncio.run(_check_all(found.config))
    console = output.make_console(_COLUMNS, wraps=True)
    rows = [_row(one) for one in checked]
    rows += [[one.name, "left out", "", one.reason, "", ""] for one in found.skipped]
    output.print_table("", ("server", "state", "protocol", "problem"), ("tools", "seconds"), rows, console)
    if any(one.upstream_listing is not None for one in checked):
        disclosure = Disclosure("meta", query=found.config.query, destructive=found.config.destructive)
        cost = count_together([one.listing for one in checked], disclosure=disclosure)
        console.print()
        console.print(cost_sentence(found.config, cost))
    for sentence in _trust_sentences(checked):
        console.print(sentence)
    if any(one.upstream_listing is None for one in checked) or any(one.reason != DISABLED for one in found.skipped):
        raise SystemExit(1)


def cost_sentence(config: GatewayConfig, cost: Cost) -> str:
    """Says what the tools cost a model with the gateway and without."""
    tools = f"{cost.tools:,} tool{'s' * (cost.tools != 1)}"
    if config.disclosure == "full" or (config.disclosure == "auto" and cost.now <= cost.surface):
        return f"{tools} in one list: {cost.now:,} tokens before a conversation begins, with the gateway and without."
    return (
        f"{tools} behind the gateway: {cost.surface:,} tokens before a conversation begins, instead of {cost.now:,}; "
        f"{cost.one_tool:,} where it uses one tool."
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
    tools = f"{len(one.listing.tools):,}"
    problem = " ".join(f"Its {kind} are not listed: {fault}" for kind, fault in one.upstream_listing.faults.items())
    problem = " ".join(filter(None, (problem, one.notice)))
    return [one.config.name, "ready", one.upstream_listing.protocol, problem, tools, f"{one.seconds:.1f}"]


async def _check_all(config: GatewayConfig) -> list[CheckedUpstream]:
    turns = asyncio.Semaphore(MAX_CONCURRENT)
    guard = ProcessGuard()
    names = [one.name for one in config.upstreams]

    waiting = list(names)

    async def check(one: UpstreamConfig) -> CheckedUpstream:
        async with turns:
            checked = await _check(one, guard, UpstreamSecrets(one.secrets, names))
            progress_bar.advance()
            waiting.remove(one.name)
            progress_bar.set_label(waiting_label(waiting))
            return checked

    with ProgressBar(waiting_label(waiting), len(waiting)) as progress_bar:
        try:
            return await asyncio.gather(*map(check, config.upstreams))
        finally:
            guard.close()


async def _check(config: UpstreamConfig, guard: ProcessGuard, secrets: UpstreamSecrets) -> CheckedUpstream:
    began = time.monotonic()
    upstream: Upstream | None = None
    upstream_listing, problem, notice = None, "", ""
    try:
        target = make_target(config, cache_folder())
        upstream = Upstream(config.name, target, config.settings, guard=guard, secrets=secrets, speak=config.speak)
        async with asyncio.timeout(START_SECONDS):
            upstream_listing = await upstream.fetch_listing()
        notice = target.notice if isinstance(target, ApiServer) else ""
    except TimeoutError:
        problem = f"It did not list its tools within {START_SECONDS:g} seconds."
    except DeltaError as error:
        problem = secrets.redact(str(error))
    seconds = time.monotonic() - began
    if upstream is not None:
        await upstream.close()
    return CheckedUpstream(config, seconds, upstream_listing, problem, secrets.redact(notice))
