"""What the servers behind a gateway are doing now: a resource for people, and figures for the page of metrics."""

import datetime
from collections.abc import Callable, Collection

from deltamcp.catalog.remote_items import RemoteResource
from deltamcp.context import Context
from deltamcp.runtime.figures import Key
from deltamcp.upstreams.upstream import Upstream
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.upstreams.upstream_state import Phase, UpstreamState
from deltamcp.values import JSON, LOCAL, Principal, RawResult
from deltamcp.wire import jsonrpc

STATUS_URI = "delta-mcp://gateway/upstreams"
_ERROR_FOR_OTHERS = "It was lost or did not start; the gateway's log says why."
_LIST_ITEM: dict[str, JSON] = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "description": "What the servers behind this gateway are doing now.",
    "mimeType": "application/json",
}


def status_resource(
    upstreams: Collection[Upstream],
    known: Callable[[str, Principal], UpstreamCatalogue | None],
    conflicts: Callable[[Upstream, Principal], list[str]],
) -> RemoteResource:
    """Returns the resource that tells the states of upstreams, as the caller may know them; to read it starts none.

    Args:
        known: Returns what an upstream of a name is known to list to a principal.
        conflicts: Returns the names of upstreams whose resources one claims.
    """

    def describe(upstream: Upstream, principal: Principal) -> dict[str, JSON]:
        described = _describe(upstream.state_for(principal), known(upstream.name, principal), principal is LOCAL)
        claimed = conflicts(upstream, principal)
        return {**described, "claimsResourcesOf": claimed} if claimed else described

    async def read(uri: str, context: Context) -> RawResult:
        text = jsonrpc.encode([describe(upstream, context.principal) for upstream in upstreams]).decode()
        result: dict[str, JSON] = {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
        return RawResult(jsonrpc.encode(result), result)

    return RemoteResource(read, _LIST_ITEM)


def _describe(state: UpstreamState, catalogue: UpstreamCatalogue | None, is_operator: bool) -> dict[str, JSON]:
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
    if catalogue is not None and catalogue.left_out:
        described["leftOut"] = {**catalogue.left_out}
    return described


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def upstream_figures(upstreams: Collection[Upstream]) -> dict[Key, float]:
    """Returns the figures of upstreams, as `Engine.own_figures` has them."""
    from deltamcp.transports import metrics  # which has shown the page that wants them

    found: dict[Key, float] = {}
    for state in (upstream.state for upstream in upstreams):
        for phase in Phase:
            found[metrics.UPSTREAM_STATE, state.name, phase.value] = float(phase is state.phase)
        found[metrics.UPSTREAM_RESTARTS, state.name] = state.restarts
        found[metrics.UPSTREAM_CALLS, state.name] = state.open_calls
    return found
