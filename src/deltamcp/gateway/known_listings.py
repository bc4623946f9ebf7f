"""What the gateway knows of its upstreams' lists: read from disk at its start, then fetched where they may differ."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

from deltamcp.errors import DeltaError, UnreachableError, UpstreamError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.listing_cache import ListingCache
from deltamcp.gateway.trust.quarantine import Quarantine, not_comparable
from deltamcp.runtime.log import RepeatedWarnings
from deltamcp.upstreams.client import NotReadyError
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.login_upstream import MissingLoginError
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import Kind

_FETCH_SECONDS = 120.0
"""How long an upstream may take to start and to list what it has."""
_START_SECONDS = 1.0
"""How long a start leaves servers alone that were asked before: each process takes some ms of the first replies."""
_BURST_SECONDS, _LONGEST_BURST_SECONDS = 0.05, 60.0
"""How long a refresh waits for further notices, as many servers announce each of their items. The wait doubles for one
that announces changes without end."""
_IDLE_SHARE = 10
"""How many times as long as a refresh took nothing must be announced for the next to wait as short as the first."""
_QUICK_SECONDS = 0.2
"""What is reviewed and offered so fast is not spaced; what takes longer, as 10,000 tools do, has a tenth of time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0
"""Between attempts to see an upstream that was never seen."""

logger = logging.getLogger("deltamcp")


class KnownListings:
    """The catalogs of all upstreams. Each has a task of its own, so that none delays another."""

    def __init__(
        self,
        configs: Sequence[UpstreamConfig],
        upstreams: Mapping[str, Upstream],
        cache: ListingCache,
        quarantine: Quarantine,
        on_update: Callable[[], Awaitable[None]],
        on_announcement: Callable[[Collection[Kind]], None],
        max_age_seconds: float,
    ) -> None:
        """
        Args:
            quarantine: Reviews a catalog that was fetched, before anything else uses it.
            on_update: Called when a catalog has changed; offers it.
            on_announcement: Called with the kinds of lists that an upstream said had changed, and that are the same.
            max_age_seconds: After how long an upstream is asked again although nothing else needs it.
        """
        self._configs = configs
        self._upstreams = upstreams
        self._cache = cache
        self._quarantine = quarantine
        self._on_update = on_update
        self._on_announcement = on_announcement
        self._max_age_seconds = max_age_seconds
        self._listings: dict[str, UpstreamListing] = {}
        self._faults: dict[str, str] = {}
        """Why upstreams could not be asked for their lists when that was last tried."""
        self._warnings = {config.name: RepeatedWarnings() for config in configs}
        self._unseen: set[str] = set()
        self._untried = {config.name for config in configs}
        """The upstreams of which nothing is known, nor why."""
        self._announced: dict[str, set[Kind]] = {config.name: set() for config in configs}
        self._due = {config.name: asyncio.Event() for config in configs}
        self._fetched = {config.name: asyncio.Event() for config in configs}
        self._refreshes = {config.name: asyncio.Lock() for config in configs}
        self._updating = asyncio.Lock()
        self._seconds = {config.name: 0.0 for config in configs}
        """How long it last took to review and to offer what an upstream lists."""

    def get(self, name: str) -> UpstreamListing | None:
        """Returns what an upstream lists, as far as is known."""
        return self._listings.get(name)

    def fault(self, name: str) -> str:
        """Returns why the lists of an upstream could not be had when that was last tried; empty if they could."""
        return self._faults.get(name, "")

    def is_untried(self, name: str) -> bool:
        """Returns whether it is still to come whether an upstream lists what it has."""
        return name in self._untried

    async def wait_for(self, name: str) -> None:
        """Waits until an upstream that is untried has listed what it has, or failed."""
        if name in self._untried:
            await self._fetched[name].wait()

    def load(self) -> None:
        """Reads what is known from disk. An upstream that is to be asked soon is marked as due."""
        for config in self._configs:
            self._load(config)

    def _load(self, config: UpstreamConfig) -> None:
        cached = self._cache.load(config.name, config.entry)
        if cached is None:
            self._unseen.add(config.name)
        elif cached.listing is not None:
            self._listings[config.name] = cached.listing
            self._untried.discard(config.name)
            self._upstreams[config.name].remember_protocol(cached.listing.protocol)
            if cached.review is not None:
                self._quarantine.recall(config, cached.listing, cached.review)
        is_old = cached is None or cached.listing is None or cached.age > self._max_age_seconds
        if is_old or config.start == "ahead":
            self._due[config.name].set()

    def refresh(self, name: str) -> None:
        """Has the lists of an upstream fetched, soon and in the background."""
        self._due[name].set()

    async def compare(self, name: str) -> None:
        """Fetches, reviews and offers the lists of an upstream now, unless that was done since it was started.

        Raises:
            UpstreamError: it does not list what it has.
        """
        async with self._refreshes[name]:
            if self._upstreams[name].is_compared:
                return
            self._due[name].clear()
            if not await self._refresh(self._config(name)):
                raise UpstreamError(not_comparable(name), retryable=True)

    def note_announcement(self, name: str, kind: Kind) -> None:
        """Has `on_announcement` called after the next fetch if an upstream announced a change that changed nothing."""
        self._announced[name].add(kind)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the catalogs up to date."""
        tasks = [asyncio.create_task(self._keep(config)) for config in self._configs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_unseen(self, seconds: float) -> None:
        """Waits until upstreams of which nothing is known have answered or failed, but no longer than some seconds."""
        waits = [asyncio.create_task(self._fetched[name].wait()) for name in self._unseen]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for task in late:
                task.cancel()
        for name in self._unseen - self._listings.keys():
            # The next start does not wait for it again.
            self._cache.store(name, self._config(name).entry, None)

    def _config(self, name: str) -> UpstreamConfig:
        return next(config for config in self._configs if config.name == name)

    async def _keep(self, config: UpstreamConfig) -> None:
        due, now = self._due[config.name], asyncio.get_running_loop().time
        pause, burst, quiet_at = _FIRST_PAUSE, _BURST_SECONDS, 0.0
        if due.is_set() and config.name not in self._unseen:
            await asyncio.sleep(_START_SECONDS)
        while True:
            await due.wait()
            burst = min(2 * burst, _LONGEST_BURST_SECONDS) if now() < quiet_at else _BURST_SECONDS
            await asyncio.sleep(self._pause(config.name, burst))
            if not due.is_set():  # a call could not wait, and had it done
                continue
            began = now()
            async with self._refreshes[config.name]:
                due.clear()
                is_known = await self._refresh(config)
            if is_known:
                pause = _FIRST_PAUSE
            elif config.name not in self._listings:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await due.wait()
                due.set()
                pause = min(2 * pause, _LONGEST_PAUSE)
            quiet_at = now() + max(2 * burst, _IDLE_SHARE * (now() - began))

    def _pause(self, name: str, burst: float) -> float:
        """Returns how long a refresh waits: so long that large lists take no more than their share of the time."""
        if name not in self._listings:
            return 0.0
        seconds = self._seconds[name]
        share = _IDLE_SHARE * seconds if seconds > _QUICK_SECONDS else 0.0
        return min(max(burst, share), _LONGEST_BURST_SECONDS)

    async def _refresh(self, config: UpstreamConfig) -> bool:
        """Fetches and offers the lists of an upstream; returns whether that succeeded. Others are not affected."""
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                fetched = await self._upstreams[config.name].fetch_listing()
                known = self._listings.get(config.name)
                listing = fetched if known is None else fetched.with_lists_of(known)
                began = asyncio.get_running_loop().time()
                await self._quarantine.review(config, listing)
            await self._replace(config, listing)
            self._seconds[config.name] = asyncio.get_running_loop().time() - began
        except (DeltaError, TimeoutError) as error:
            text = str(error) or "it took too long."
            self._faults[config.name] = text
            if isinstance(error, MissingLoginError) or not isinstance(error, UnreachableError | NotReadyError):
                self._warn(config.name, f"{config.name} does not list what it has: {text}")
            return False
        except Exception:
            logger.exception("%s: what it lists cannot be offered", config.name)
            self._faults[config.name] = "what it lists cannot be offered"
            return False
        finally:
            self._fetched[config.name].set()
            self._untried.discard(config.name)
        self._faults.pop(config.name, None)
        if not listing.faults:
            self._warnings[config.name].clear()
        for kind, fault in listing.faults.items():
            self._warn(config.name, f"{config.name} does not list its {kind}: {fault}")
        return True

    def _warn(self, name: str, text: str) -> None:
        warning = self._warnings[name].add(text)
        if warning is not None:
            logger.warning("%s", warning)

    async def _replace(self, config: UpstreamConfig, listing: UpstreamListing) -> None:
        announced, self._announced[config.name] = self._announced[config.name], set()
        async with self._updating:  # what cannot be offered must not be in the way of what another one lists
            known = self._listings.get(config.name)
            self._listings[config.name] = listing
            if listing != known:
                try:
                    await self._on_update()
                except BaseException:
                    del self._listings[config.name]
                    if known is not None:
                        self._listings[config.name] = known
                    raise
            elif announced:
                self._on_announcement(announced)
        if "tools" not in listing.faults:  # else a call of a tool is not compared with anything
            self._upstreams[config.name].note_comparison()
        review = self._quarantine.last_review(config)
        await asyncio.to_thread(self._cache.store, config.name, config.entry, listing, review)
