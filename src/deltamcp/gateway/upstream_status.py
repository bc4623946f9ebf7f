"""What the servers behind a gateway are doing now: a resource for people, and what the page of metrics has of them."""

import datetime
import re
from collections.abc import Callable, Iterable

from deltamcp.catalog.items.remote_items import RemoteResource
from deltamcp.context import Context
from deltamcp.runtime.metric_values import Key
from deltamcp.upstreams.client import Phase, UpstreamState
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Principal, RawResult
from deltamcp.wire import jsonrpc

STATUS_URI = "delta-mcp://gateway/upstreams"
CONFIGURATION_URI = "delta-mcp://gateway/configuration"
_ERROR_FOR_OTHERS = "It was lost or did not start; the gateway's log says why."
_ASK_LOG = "; the gateway's log says why"
_END = re.compile(r"ended (?:with|by) (exit code \d+|signal \d+)(?:: |[.]?$)")
STARTING = "still starting; a call waits for it"
_LIST_ITEM: dict[str, JSON] = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "description": "What the servers behind this gateway are doing now, and whether its configuration is right.",
    "mimeType": "application/json",
}


def status_resource(
    upstreams: Callable[[], Iterable[Upstream]],
    known: Callable[[Upstream, Principal], UpstreamListing | None],
    conflicts: Callable[[Upstream, Principal], list[str]],
    configuration: Callable[[bool], dict[str, JSON]] | None = None,
) -> RemoteResource:
    """Returns the resource that tells the states of upstreams, as the caller may know them; to read it starts none.

    Args:
        upstreams: Returns those that are there now.
        known: Returns what an upstream is known to list to a principal.
        conflicts: Returns the names of upstreams whose resources one claims.
        configuration: Returns what is known of the files of the gateway; its argument is whether the caller is who
            started it. It is a second content of the resource.
    """

    def describe(upstream: Upstream, principal: Principal) -> dict[str, JSON]:
        described = _describe(upstream.state_for(principal), known(upstream, principal), principal is LOCAL)
        claimed = conflicts(upstream, principal)
        return {**described, "claimsResourcesOf": claimed} if claimed else described

    async def read(uri: str, context: Context) -> RawResult:
        described: dict[str, JSON] = {uri: [describe(upstream, context.principal) for upstream in upstreams()]}
        if configuration is not None:
            described[CONFIGURATION_URI] = configuration(context.principal is LOCAL)
        contents: list[JSON] = [
            {"uri": place, "mimeType": "application/json", "text": jsonrpc.encode(value).decode()}
            for place, value in described.items()
        ]
        result: dict[str, JSON] = {"contents": contents}
        return RawResult(jsonrpc.encode(result), result)

    return RemoteResource(read, _LIST_ITEM)


def usability_notice(
    upstream: Upstream, listing: UpstreamListing | None, fault: str, principal: Principal, log_in: str
) -> str:
    """Says in a few words why an upstream cannot be used by a principal now; empty if it can, as far as is known.

    Only the local user is told what a server wrote or where it is.

    Args:
        catalog: What it is known to list to the principal.
        fault: Why it could not be asked for that.
        log_in: The name of the tool by which users log in there.
    """
    state, is_operator = upstream.state_for(principal), principal is LOCAL
    if upstream.lacks_login(principal):
        if upstream.login_of(principal) is ANONYMOUS:
            return "needs a login, and this gateway does not know who calls"
        return f"not logged in: call {log_in}" if principal is not ANONYMOUS else "its operator is not logged in"
    has_failed = state.phase is Phase.BACKING_OFF or (state.phase is Phase.STARTING and state.failures > 0)
    if has_failed:
        what = "needs a login" if state.wants_login else "not running"
        return f"{what}: {_short(state.last_reason)}" if is_operator and state.last_reason else f"{what}{_ASK_LOG}"
    fault = fault or ("" if listing is None else listing.faults.get("tools", ""))
    if fault:
        return (
            f"does not list its tools: {upstream.secrets.redact(fault)}"
            if is_operator
            else f"does not list its tools{_ASK_LOG}"
        )
    return STARTING if listing is None and state.phase is not Phase.CLOSED else ""


def _short(reason: str) -> str:
    """Returns `exit code 1, ImportError: ...` for `ended with exit code 1: ImportError: ...`, without advice."""
    found = _END.match(reason)
    if found is None:
        return reason.partition("; give one")[0]
    return f"{found[1]}{', ' if reason[found.end() :] else ''}{reason[found.end() :]}"


def _describe(state: UpstreamState, listing: UpstreamListing | None, is_operator: bool) -> dict[str, JSON]:
    """Returns a state for whoever may read resources: without the number of the process.

    What a server wrote to its stderr, or an address, is for the user who started the gateway.
    """
    described: dict[str, JSON] = {
        "name": state.name,
        "state": state.phase.value,
        "since": _time(state.since),
        "protocol": state.protocol,
        "restarts": state.restarts,
        "openCalls": state.open_calls,
        "waitingCalls": state.waiting_calls,
        "subscriptions": state.subscriptions,
        "principals": state.principals,
    }
    if state.retry_at is not None:
        described["retryAt"] = _time(state.retry_at)
    if state.last_error is not None:
        described["lastError"] = state.last_error if is_operator else _ERROR_FOR_OTHERS
    if listing is not None and listing.left_out:
        described["leftOut"] = {**listing.left_out}
    if listing is not None and listing.faults:
        described["notListed"] = {**listing.faults} if is_operator else [*listing.faults]
    return described


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def upstream_metrics(upstreams: Iterable[Upstream]) -> dict[Key, float]:
    """Returns the metrics of upstreams, as `Engine.own_metrics` has them."""
    from deltamcp.transports import metrics  # which has shown the page that wants them

    found: dict[Key, float] = {}
    for state in (upstream.state for upstream in upstreams):
        for phase in Phase:
            found[metrics.UPSTREAM_STATE, state.name, phase.value] = float(phase is state.phase)
        found[metrics.UPSTREAM_RESTARTS, state.name] = state.restarts
        found[metrics.UPSTREAM_CALLS, state.name] = state.open_calls
    return found
