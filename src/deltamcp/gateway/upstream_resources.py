"""Resources of upstreams: which upstream has the resource at a URI, and who is told of its changes.

What an upstream lists is its own before what it mentions in results, and that before what fits its templates. Among
equals the first upstream of the configuration has the resource. That another one claims it, too, is told.

What a message of a client or of an upstream causes here takes as many steps as it has URIs; nothing is searched.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.catalog.catalog import Mount
from deltamcp.catalog.items.remote_items import RemoteResource
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.errors import DeltaError, PeerError
from deltamcp.runtime.change_hub import Change, ChangeHub, OwnChange
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

logger: logging.Logger = logging.getLogger("deltamcp")


class SeenUris:
    """Remembers which upstreams mentioned a URI in a result, because servers need not list all that they have.

    Of an upstream where users have logins, each user's URIs are its own.
    """

    def __init__(self, upstreams: Callable[[], Sequence[Upstream]]) -> None:
        """`upstreams` returns those that are there now, in the order of the configuration; others have no say."""
        self._upstreams = upstreams
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
            seen[uri] = tuple(one for one in self._upstreams() if one in known or one is upstream)
        seen.move_to_end(uri)
        if len(seen) > _MAX_SEEN:
            seen.popitem(last=False)

    def get(self, uri: str, principal: Principal) -> list[Upstream]:
        """Returns the upstreams that mentioned a URI to a principal, or to all, in the order of the configuration."""
        found: set[Upstream] = set()
        for owner in {LOCAL.owner, principal.owner}:
            for upstream in self._seen.get(owner, OrderedDict()).get(uri, ()):
                if upstream.login_of(principal).owner == owner:
                    found.add(upstream)
        return [one for one in self._upstreams() if one in found] if found else []


class ResourceConflict(NamedTuple):
    """Two upstreams that claim the same resource of an owner."""

    owner: str
    """Empty if it is one for all principals."""
    holder: str
    """The name of the upstream that serves it."""
    claimant: str


class ResourceClaims:
    """Knows which upstreams claim the resource at a URI, and remembers conflicts between them."""

    def __init__(self, upstreams: Callable[[], Sequence[Upstream]], view: Callable[[Principal], View]) -> None:
        """
        Args:
            upstreams: As of `SeenUris`.
            view: Returns what a principal is offered.
        """
        self.seen: SeenUris = SeenUris(upstreams)
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

    def forget(self, name: str) -> None:
        """Forgets the conflicts with an upstream that is no longer there, or is another one now."""
        self._conflicts = {one: None for one in self._conflicts if name not in (one.holder, one.claimant)}

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

    def __init__(self, claims: ResourceClaims, status: RemoteResource) -> None:
        """`status` is the gateway's own, which a gateway that is to look like its upstreams does not list."""
        self._claims = claims
        self._status = status
        self._upstreams: Sequence[Upstream] = ()

    def ask(self, upstreams: Sequence[Upstream]) -> None:
        """Asks these, which say that they have resources, from now on."""
        self._upstreams = upstreams

    def find(self, uri: str, principal: Principal) -> RemoteResource | None:
        """Returns the gateway's own, or that of the only upstream with resources."""
        if uri == self._status.uri:
            return self._status
        having = self._upstreams
        return UpstreamResource(having[0], self._claims, {"uri": uri}) if len(having) == 1 else None


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


_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0
"""Between attempts to subscribe at an upstream that cannot be reached."""
_WATCH_STEPS, _STEPS_PER_URI = 20_000, 200
"""The steps of looking for templates that fit the URIs of one request: so many, and so many more for each URI."""
_URI_STEPS = 10_000
"""The steps for one URI, some 5 ms; the event loop serves others after each."""
_REQUESTS_AT_ONCE = 4
"""The subscriptions that an upstream is asked for, or asked to end, at the same time."""


Find = Callable[[str, Principal, Work], UpstreamResource | None]


class _Watch(NamedTuple):
    """A resource that a principal watches, by its URI here."""

    owner: str
    uri: str


class _Place(NamedTuple):
    """Where a resource is: at an upstream, for whoever's login it is there."""

    upstream: Upstream
    owner: str
    uri: str
    """The URI that the upstream has."""


class _Watched:
    """The clients of a principal that watch a resource, and the place of that."""

    __slots__ = ("count", "place", "principal")

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.count = 0
        self.place: _Place | None = None


class ResourceSubscriptions:
    """Subscribes at upstreams to what clients watch, and passes their notices to those clients."""

    def __init__(
        self, hub: ChangeHub, find: Find, publish: Callable[[Change], None], *, tells_principals_apart: bool = False
    ) -> None:
        """
        Args:
            find: Returns the resource of an upstream that a principal sees at a URI.
            publish: Notifies the clients that watch a URI.
            tells_principals_apart: Whether the same URI may be another resource for another principal; else all watch
                as the local user does.
        """
        self._hub = hub
        self._find = find
        self._publish = publish
        self._tells_principals_apart = tells_principals_apart
        self._watched: dict[_Watch, _Watched] = {}
        self._watches: dict[_Place, dict[_Watch, None]] = {}
        """What is watched at each place."""
        self._unplaced: dict[str, dict[_Watch, None]] = {}
        """By owner, what is watched and is nowhere."""
        self._due: dict[_Watch, Work] = {}
        """What may have to be subscribed to or given up, with the steps that are left of what was asked at once."""
        self._received: deque[tuple[Principal, Collection[str], bool]] = deque()
        """What clients began or ceased to watch, and that was not counted yet."""
        self._is_due = asyncio.Event()
        self._subscribers: dict[Upstream, _Subscriber] = {}
        self._follower: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows what clients watch."""
        self._hub.follow_watches(self._receive_watches)
        self._follower = asyncio.get_running_loop().create_task(self._follow())
        try:
            yield
        finally:
            self._follower.cancel()
            await asyncio.gather(
                self._follower, *(one.close() for one in self._subscribers.values()), return_exceptions=True
            )

    def receive(self, upstream: Upstream, principal: Principal, uri: str) -> None:
        """Passes on that a resource has changed that an upstream has for the login of a principal."""
        for watch in self._watches.get(_Place(upstream, principal.owner, uri), ()):
            self._publish(OwnChange(*watch) if self._tells_principals_apart else watch.uri)

    def look_again(self, owner: str | None = None) -> None:
        """Looks for what is watched and was nowhere, because the lists of an owner have changed, or those of all."""
        owners = list(self._unplaced) if owner is None else [owner]
        for one in owners:
            watches = self._unplaced.get(one, {})
            work = Work(_WATCH_STEPS + _STEPS_PER_URI * len(watches))
            for watch in watches:
                self._due.setdefault(watch, work)
        self._is_due.set()

    def leave(self, upstream: Upstream) -> None:
        """Looks elsewhere for what is watched at an upstream that is no longer there, or is another one now."""
        work = Work(_WATCH_STEPS)
        for place in [place for place in self._watches if place.upstream is upstream]:
            for watch in self._watches.pop(place):
                self._watched[watch].place = None
                self._due.setdefault(watch, work)
        subscriber = self._subscribers.pop(upstream, None)
        if subscriber is not None:
            subscriber.stop()
        self._is_due.set()

    def tell_principals_apart(self) -> None:
        """Counts anew what clients watch, because from now on a URI may be another resource for another principal."""
        self._tells_principals_apart = True
        self._received.clear()
        work = Work(_WATCH_STEPS)
        for watch, watched in self._watched.items():
            watched.count = 0
            self._due.setdefault(watch, work)
        self._received.extend((principal, [uri], True) for principal, uri in self._hub.watches())
        self._is_due.set()

    def _receive_watches(self, principal: Principal, uris: Collection[str], is_watched: bool) -> None:
        self._received.append((principal if self._tells_principals_apart else LOCAL, uris, is_watched))
        self._is_due.set()

    async def _count_received(self) -> None:
        """Counts what clients watch, before anything is done about it: many come and leave at once."""
        while self._received:
            principal, uris, is_watched = self._received.popleft()
            self._count(principal, uris, is_watched)
            await asyncio.sleep(0)

    def _count(self, principal: Principal, uris: Collection[str], is_watched: bool) -> None:
        owner, work = principal.owner, Work(_WATCH_STEPS + _STEPS_PER_URI * len(uris))
        for uri in uris:
            watch = _Watch(owner, uri)
            watched = self._watched.get(watch)
            if watched is None:
                watched = self._watched[watch] = _Watched(principal)
            watched.count += 1 if is_watched else -1
            if watched.count == is_watched:  # the first one, or none any more
                self._due[watch] = work

    async def _follow(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            while self._received or self._due:
                await self._count_received()
                if self._due:
                    watch = next(iter(self._due))
                    self._settle(watch, self._due.pop(watch))
                    await asyncio.sleep(0)

    def _settle(self, watch: _Watch, work: Work) -> None:
        watched = self._watched[watch]
        if not watched.count:
            del self._watched[watch]
            self._give_up(watch, watched)
        elif watched.place is None:
            resource = self._look(watch, watched.principal, work)
            if resource is None:
                self._unplaced.setdefault(watch.owner, {})[watch] = None
                return
            self._forget_unplaced(watch)
            upstream = resource.upstream
            login = upstream.login_of(watched.principal)
            place = watched.place = _Place(upstream, login.owner, resource.uri_there(watch.uri))
            watches = self._watches.setdefault(place, {})
            watches[watch] = None
            if len(watches) == 1:
                self._subscriber(upstream).want(place, login)

    def _look(self, watch: _Watch, principal: Principal, work: Work) -> UpstreamResource | None:
        own = Work(min(_URI_STEPS, work.left))
        try:
            return self._find(watch.uri, principal, own)
        except WorkLimitError:
            logger.info("changes of %s are not noticed: too many templates fit it", watch.uri[:200])
            return None
        finally:
            with contextlib.suppress(WorkLimitError):
                work.spend(min(_URI_STEPS, work.left) - own.left)

    def _give_up(self, watch: _Watch, watched: _Watched) -> None:
        self._forget_unplaced(watch)
        place = watched.place
        if place is None:
            return
        watches = self._watches[place]
        del watches[watch]
        if not watches:
            del self._watches[place]
            self._subscriber(place.upstream).give_up(place)

    def _forget_unplaced(self, watch: _Watch) -> None:
        watches = self._unplaced.get(watch.owner)
        if watches is not None:
            watches.pop(watch, None)
            if not watches:
                del self._unplaced[watch.owner]

    def _subscriber(self, upstream: Upstream) -> "_Subscriber":
        subscriber = self._subscribers.get(upstream)
        if subscriber is None:
            subscriber = self._subscribers[upstream] = _Subscriber(upstream)
        return subscriber


class _Subscriber:
    """Has an upstream notify of what is wanted, and of nothing else, with few requests at once."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._logins: dict[_Place, Principal] = {}
        """Whose login subscribes to what is wanted."""
        self._held: dict[_Place, Principal] = {}
        """What the upstream was asked to notify of."""
        self._due: dict[_Place, None] = {}
        self._asked: set[_Place] = set()
        """What the upstream is asked about at the moment."""
        self._failed: dict[_Place, None] = {}
        """What the upstream could not be asked for, and is asked for again."""
        self._pause = _FIRST_PAUSE
        self._retry: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, place: _Place, login: Principal) -> None:
        self._logins[place] = login
        self._put(place)

    def give_up(self, place: _Place) -> None:
        del self._logins[place]
        self._put(place)

    def stop(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _put(self, place: _Place) -> None:
        self._failed.pop(place, None)
        self._due[place] = None
        if len(self._tasks) < _REQUESTS_AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        while self._due:
            place = next(iter(self._due))
            del self._due[place]
            if place not in self._asked:
                self._asked.add(place)
                await self._settle(place)
                self._asked.discard(place)
                if (place in self._logins) != (place in self._held) and place not in self._failed:
                    self._due[place] = None  # clients have changed their minds meanwhile
            await asyncio.sleep(0)

    async def _settle(self, place: _Place) -> None:
        """Subscribes, or ends a subscription; again and again if the upstream cannot be reached: clients rely on it."""
        login, holder = self._logins.get(place), self._held.get(place)
        try:
            if login is not None and holder is None:
                self._held[place] = login
                await self._upstream.subscribe(place.uri, login)
                self._pause = _FIRST_PAUSE
            elif login is None and holder is not None:
                del self._held[place]
                await self._upstream.unsubscribe(place.uri, holder)
        except DeltaError as error:
            word = "does not notify" if holder is None else "still notifies"
            logger.info("%s %s of changes of %s: %s", self._upstream.name, word, place.uri[:200], error)
            if holder is None and not isinstance(error, PeerError):  # else it refuses
                self._held.pop(place, None)
                self._fail(place)

    def _fail(self, place: _Place) -> None:
        if place in self._logins:
            self._failed[place] = None
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(self._pause, self._try_again)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _try_again(self) -> None:
        self._retry = None
        for place in list(self._failed):
            self._put(place)
