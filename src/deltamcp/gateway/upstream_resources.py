"""Resources of upstreams: which upstream has the resource at a URI, listed or not.

What an upstream lists is its own before what it mentions in results, and that before what fits its templates. Among
equals the first upstream of the configuration has the resource. That another one claims it, too, is told.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.catalog.mount import Mount
from deltamcp.catalog.remote_items import RemoteResource
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, LOCAL, Principal, RawResult
from deltamcp.work import Work, WorkLimitError

_MAX_SEEN = 10_000
"""The URIs in results that are remembered of one owner; the ones not seen for longest are forgotten."""
_MAX_OWNERS = 256
"""The principals whose URIs are remembered; those who called least recently are forgotten."""
_MAX_URI_CHARS = 2_000
_MAX_CONFLICTS = 1_000
_MATCH_STEPS = 2_000
"""The steps of looking for other upstreams whose templates fit a URI."""

logger = logging.getLogger("deltamcp")


class SeenUris:
    """Remembers which upstreams mentioned a URI in a result, because servers need not list all that they have.

    Of an upstream where users have logins, each user's URIs are its own.
    """

    def __init__(self, order: Sequence[str] = ()) -> None:
        """`order` has the names of the upstreams as the configuration has them."""
        self._order = {name: place for place, name in enumerate(order)}
        self._seen: OrderedDict[str, OrderedDict[str, tuple[Upstream, ...]]] = OrderedDict()

    def learn(self, upstream: Upstream, principal: Principal, result: Mapping[str, JSON], asked: str = "") -> None:
        """Takes note of the links and resources in a result of any method; to be asked for a URI is no claim to it."""
        owner = upstream.login_of(principal).owner
        for key in ("content", "contents", "messages"):
            items = result.get(key)
            for item in items if isinstance(items, list) else ():
                self._learn_item(upstream, owner, item, asked)

    def _learn_item(self, upstream: Upstream, owner: str, item: Any, asked: str) -> None:
        if not isinstance(item, dict):
            return
        uri = item.get("uri")
        if isinstance(uri, str) and uri != asked and len(uri) <= _MAX_URI_CHARS:
            self._add(upstream, owner, uri)
        for key in ("resource", "content"):  # of an embedded resource, and of a prompt's message
            if key in item:
                self._learn_item(upstream, owner, item[key], asked)

    def _add(self, upstream: Upstream, owner: str, uri: str) -> None:
        seen = self._seen.setdefault(owner, OrderedDict())
        self._seen.move_to_end(owner)
        if len(self._seen) > _MAX_OWNERS:
            self._seen.popitem(last=False)
        known = seen.get(uri, ())
        if upstream not in known:
            seen[uri] = tuple(sorted((*known, upstream), key=self._place))
        seen.move_to_end(uri)
        if len(seen) > _MAX_SEEN:
            seen.popitem(last=False)

    def _place(self, upstream: Upstream) -> int:
        return self._order.get(upstream.name, len(self._order))

    def get(self, uri: str, principal: Principal) -> list[Upstream]:
        """Returns the upstreams that mentioned a URI to a principal, or to all, in the order of the configuration."""
        found: dict[Upstream, None] = {}
        for owner in {LOCAL.owner, principal.owner}:
            for upstream in self._seen.get(owner, OrderedDict()).get(uri, ()):
                if upstream.login_of(principal).owner == owner:
                    found[upstream] = None
        return sorted(found, key=self._place)


class ResourceConflict(NamedTuple):
    """Two upstreams that claim the same resource of an owner."""

    owner: str
    """Empty if it is one for all principals."""
    holder: str
    """The name of the upstream that serves it."""
    claimant: str


class ResourceClaims:
    """Knows which upstreams claim the resource at a URI, and remembers conflicts between them."""

    def __init__(self, order: Sequence[str], view: Callable[[Principal], View]) -> None:
        """`view` returns what a principal is offered."""
        self.seen = SeenUris(order)
        self._view = view
        self._conflicts: dict[ResourceConflict, None] = {}

    def find_mentioned(self, uri: str, principal: Principal) -> RemoteResource | None:
        """Returns the resource of the first upstream that mentioned a URI."""
        mentioned = self.seen.get(uri, principal)
        return UpstreamResource(mentioned[0], self, {"uri": uri}) if mentioned else None

    def check(self, uri: str, holder: Upstream, principal: Principal) -> None:
        """Tells which other upstreams claim a resource that is not listed."""
        others = {*self.seen.get(uri, principal), *self._fitting(uri, principal)} - {holder}
        for other in others:
            is_own = holder.has_logins or other.has_logins
            self.tell(uri, holder.name, other.name, principal.owner if is_own else "")

    def _fitting(self, uri: str, principal: Principal) -> list[Upstream]:
        work, found = Work(_MATCH_STEPS), list[Upstream]()
        try:
            for one in self._view(principal).templates.values():
                if isinstance(one, UpstreamResource) and one.fits(uri, work):
                    found.append(one.upstream)
        except WorkLimitError:
            pass
        return found

    def tell(self, uri: str, holder: str, claimant: str, owner: str = "") -> None:
        """Logs a conflict once."""
        conflict = ResourceConflict(owner, holder, claimant)
        if conflict not in self._conflicts and len(self._conflicts) < _MAX_CONFLICTS:
            self._conflicts[conflict] = None
            logger.warning("%s claims %s, which %s serves", claimant, uri[:200], holder)

    def conflicts(self, upstream: Upstream, principal: Principal) -> list[str]:
        """Returns the names of upstreams whose resources an upstream claims, as far as a principal may know it."""
        owners = ("", principal.owner)
        return sorted({one.holder for one in self._conflicts if one.claimant == upstream.name and one.owner in owners})


class UpstreamResource(RemoteResource):
    """A resource or a template of an upstream, listed where the upstream has it or under another URI."""

    def __init__(
        self,
        upstream: Upstream,
        claims: ResourceClaims,
        list_item: dict[str, JSON],
        *,
        segment: str = "",
        can_complete: bool = False,
        is_listed: bool = False,
    ) -> None:
        """
        Args:
            segment: What the URI here has after its scheme, as `Mount` puts it there; empty if the URI is the same.
            can_complete: Whether the upstream completes the arguments of a template.
            is_listed: Whether the upstream lists it.
        """
        self.upstream = upstream
        self.is_listed = is_listed
        self._claims = claims
        self._uri_there = str(list_item.get("uriTemplate", list_item.get("uri")))
        self._segment = segment
        shown = Mount(segment).uri(self._uri_there) if segment else None
        super().__init__(self._read, list_item, shown, self._complete if can_complete else None)

    def fits(self, uri: str, work: Work) -> bool:
        """Returns whether it is a template that a URI fits.

        Raises:
            WorkLimitError: that takes too many steps.
        """
        return self.template is not None and self.template.match(uri, work) is not None

    def uri_there(self, uri: str) -> str:
        """Returns the URI that the upstream has for one of here."""
        if not self._segment:
            return uri
        separator = "://" if "://" in self._uri_there else ":"
        scheme, _, rest = uri.partition(separator)
        return f"{scheme}{separator}{rest.removeprefix(f'{self._segment}/')}"

    async def _read(self, uri: str, context: Context) -> RawResult:
        there = self.uri_there(uri)
        result = await self.upstream.forward("resources/read", {"uri": there}, context, repeatable=True)
        self._claims.seen.learn(self.upstream, context.principal, result.fields, there)
        if self.template is not None or not self.is_listed:
            self._claims.check(uri, self.upstream, context.principal)
        return result

    async def _complete(self, argument: str, value: str, arguments: dict[str, str], context: Context) -> RawResult:
        reference: dict[str, JSON] = {"type": "ref/resource", "uri": self._uri_there}
        return await complete(self.upstream, reference, argument, value, arguments, context)


class UnlistedResources:
    """Finds the resource at a URI that is not listed, that nobody mentioned and that no template fits."""

    def __init__(self, claims: ResourceClaims, status: RemoteResource, upstreams: Sequence[Upstream] = ()) -> None:
        """
        Args:
            status: The gateway's own resource, which a gateway that is to look like its upstreams does not list.
            upstreams: Those that say they have resources.
        """
        self._claims = claims
        self._status = status
        self.upstreams = upstreams

    def find(self, uri: str, principal: Principal) -> RemoteResource | None:
        """Returns the gateway's own, or that of the only upstream with resources."""
        if uri == self._status.uri:
            return self._status
        return UpstreamResource(self.upstreams[0], self._claims, {"uri": uri}) if len(self.upstreams) == 1 else None


async def complete(
    upstream: Upstream,
    reference: dict[str, JSON],
    argument: str,
    value: str,
    arguments: dict[str, str],
    context: Context,
) -> RawResult:
    """Has an upstream suggest values for an argument."""
    params: dict[str, JSON] = {"ref": reference, "argument": {"name": argument, "value": value}}
    if arguments:
        params["context"] = {"arguments": arguments}
    return await upstream.forward("completion/complete", params, context, repeatable=True)
