"""Follows the files of a gateway's configuration: what changes in them holds without a restart, if it is right.

The files are few and known by name, so that their times are compared once a second. A change counts when two looks find
the same state: editors write files in steps.
"""

import asyncio
import contextlib
import datetime
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import HELD_KEYS, GatewayConfig, GatewayFile, SkippedServer, UpstreamConfig
from deltamcp.gateway.trust.approvals import log_line
from deltamcp.runtime.files import FileState, file_state
from deltamcp.runtime.process import hangups_taken
from deltamcp.values import JSON

POLL_SECONDS = 1.0
_READ_SHARE = 20
"""How many times as long as it took to read them the files are not read again: a host may keep much else in its file,
and write it all the time."""
_HIDDEN_FAULT = "The configuration has a fault; the gateway's log says which."

logger: logging.Logger = logging.getLogger("deltamcp")


class ConfigurationSource(Protocol):
    """Where a configuration is read from, again and again. Both methods are called in threads."""

    def files(self) -> Sequence[Path]:
        """Returns the files that may change it, also those that are not there."""
        ...

    def read(self, known: Mapping[str, UpstreamConfig] = ...) -> GatewayFile:
        """Returns what the files say; see `read_gateway_file`.

        Raises:
            ConfigurationError: it has faults; the text tells all of them, each with its line.
        """
        ...


class Follower(Protocol):
    """What follows a configuration: a gateway."""

    @property
    def config(self) -> GatewayConfig: ...

    async def apply(self, config: GatewayConfig) -> None:
        """
        Raises:
            ConfigurationError: it cannot follow that.
        """
        ...


class LiveConfiguration:
    """A configuration that is read again whenever its files change. `found` is what was read last, and was right."""

    def __init__(self, source: ConfigurationSource) -> None:
        """
        Raises:
            ConfigurationError: there is none, or it has faults.
        """
        self._source = source
        states = _look(source.files())
        self.found: GatewayFile = source.read()
        self._states = states | dict.fromkeys(self.found.records)
        """Those of the files when they were last read, and of what was approved of them, which also changes them."""
        self.fault: str = ""
        """Why what the files say now does not hold; empty if it does."""
        self.read_at: float = time.time()
        """When a right configuration was last read, in seconds since 1970."""
        self.after_restart: list[str] = []
        """The keys whose new values hold after a restart."""
        self._told = {str(one) for one in self.found.skipped}
        self._asked = asyncio.Event()

    def read_now(self) -> None:
        """Has the files read soon, whether they have changed or not."""
        self._asked.set()

    @contextlib.asynccontextmanager
    async def followed_by(self, gateway: Follower) -> AsyncIterator[None]:
        """Has a gateway follow the files; SIGHUP has them read at once, where nothing else takes that signal."""
        task = asyncio.get_running_loop().create_task(self._follow(gateway))
        try:
            with hangups_taken(self.read_now):
                yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, gateway: Follower) -> None:
        last, pause = self._states, POLL_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked.wait()
            pause, is_asked = POLL_SECONDS, self._asked.is_set()
            self._asked.clear()
            try:
                states = await asyncio.to_thread(_look, self._states)
                if is_asked or (states != self._states and states == last):
                    began = time.monotonic()
                    await self._read(gateway, is_asked)
                    pause = max(POLL_SECONDS, _READ_SHARE * (time.monotonic() - began))
                last = states
            except Exception:
                logger.exception("the configuration could not be read again")

    async def _read(self, gateway: Follower, is_asked: bool) -> None:
        try:
            self._states = await asyncio.to_thread(self._look_anew)
            before = gateway.config
            found = await asyncio.to_thread(self._source.read, {one.name: one for one in before.upstreams})
            self._states = dict.fromkeys(found.records) | self._states
            await gateway.apply(found.config)
        except ConfigurationError as error:
            if is_asked or self.fault != str(error):
                logger.error("the configuration is wrong, so the one before stays in use: %s", error)
            self.fault = str(error)
            return
        self.after_restart = [key for key in HELD_KEYS if getattr(found.config, key) != getattr(gateway.config, key)]
        changes = _differences(before, gateway.config)
        is_news = is_asked or bool(changes or self.fault)
        self.found, self.fault, self.read_at = found, "", time.time()
        if is_news:
            logger.info("the configuration was read again: %s", changes or "nothing changed")
        for key in self.after_restart:
            logger.warning("the new %s holds after a restart of the gateway", key)
        left_out = {str(one): one for one in found.skipped}
        for sentence, one in left_out.items():
            if sentence not in self._told and one.is_wanted:
                logger.warning("%s", log_line(one))
        self._told = {*left_out}

    def _look_anew(self) -> dict[Path, FileState]:
        return _look([*self._source.files(), *self.found.records])

    @property
    def waiting(self) -> Sequence[SkippedServer]:
        """The servers that would be there without a mistake, or an approval that is to come."""
        return [one for one in self.found.skipped if one.is_wanted]

    def describe(self, is_operator: bool) -> dict[str, JSON]:
        """Returns what the status says; only who started the gateway is told of its files."""
        read_at = datetime.datetime.fromtimestamp(self.read_at, datetime.UTC).isoformat(timespec="seconds")
        described: dict[str, JSON] = {"readAt": read_at}
        if self.fault:
            described["fault"] = self.fault if is_operator else _HIDDEN_FAULT
        if self.after_restart:
            described["afterRestart"] = [*self.after_restart]
        if is_operator:
            described["files"] = [str(path) for path in self._states if path not in self.found.records]
            described["leftOut"] = [str(one) for one in self.waiting]
        return described


def _look(paths: Iterable[Path]) -> dict[Path, FileState]:
    return {path: file_state(path) for path in paths}


def _differences(before: GatewayConfig, after: GatewayConfig) -> str:
    old, new = ({one.name: one for one in config.upstreams} for config in (before, after))
    parts = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [
            *(name for name in new if name in old and new[name] != old[name]),
            *(
                field
                for field in GatewayConfig.__struct_fields__
                if field != "upstreams" and getattr(before, field) != getattr(after, field)
            ),
        ],
    }
    return "; ".join(f"{', '.join(names)} {what}" for what, names in parts.items() if names)
