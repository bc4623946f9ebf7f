"""The definitions that a user approved, in a file for each upstream that only the user reads."""

import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.review import ApprovalRecord, Review, Verdict, review, with_varying_numbers
from deltamcp.runtime.own_files import open_lock_file, read_own_file, replace_own_file, try_lock, user_folder
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.wire.canonical_json import encode_canonical

logger: logging.Logger = logging.getLogger("deltamcp")

_LOCK_ATTEMPTS, _LOCK_WAIT_SECONDS = 200, 0.05
_MAX_RECORD_BYTES = 256 * 1024 * 1024


class Approvals:
    """Reads and changes the records of approvals. Several gateways may use one folder at the same time."""

    def __init__(self, folder: Path | Literal[False] | None = None) -> None:
        """`folder` is by default in the user's folder for the state of programs; False to store nothing."""
        self._given_folder = folder
        self._unstored: dict[str, ApprovalRecord] = {}
        """By upstream, the records that cannot be stored: they hold until this process ends."""

    @property
    def folder(self) -> Path:
        """
        Raises:
            ConfigurationError: the user has no home, or nothing is stored.
        """
        if self._given_folder is False:
            raise ConfigurationError("Approvals are not stored.")
        return self._given_folder or user_folder("state") / "approvals"

    def path(self, config: UpstreamConfig) -> Path:
        """Returns the file of an upstream: another command or URL under the same name is another upstream.

        Raises:
            ConfigurationError: the user has no home.
        """
        identity = hashlib.sha256(encode_canonical([config.name, _identity(config.entry)])).hexdigest()
        return self.folder / f"{file_name(config.name)}-{identity[:16]}.json"

    def path_for_principals(self, config: UpstreamConfig) -> Path:
        """Returns the file of what an upstream lists to principals with logins of their own, and that waits.

        Raises:
            ConfigurationError: the user has no home.
        """
        path = self.path(config)
        return path.with_name(f"{path.stem}-principals.json")

    def stamp(self, config: UpstreamConfig) -> tuple[int, ...]:
        """Returns what differs after the record of an upstream was changed."""
        try:
            status = self.path(config).stat()
        except (OSError, ConfigurationError):
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def review(
        self, config: UpstreamConfig, listing: UpstreamListing, imitations: Mapping[str, str] = MappingProxyType({})
    ) -> Review:
        """Reviews what an upstream lists, as `review` does, and keeps what came of it.

        Raises:
            ConfigurationError: there is a record that cannot be read.
        """
        try:
            path = self.path(config)
        except ConfigurationError as error:
            reviewed = review(config, listing, self._unstored.get(config.name), imitations)
            return self._keep_unstored(config, reviewed, error)
        with _locked(path):
            record = load(path) or self._unstored.get(config.name)
            reviewed = review(config, listing, record, imitations)
            if reviewed.record is not record and not reviewed.record.is_blank:
                try:
                    save(path, reviewed.record)
                except ConfigurationError as error:
                    return self._keep_unstored(config, reviewed, error)
        return reviewed

    def compare(self, config: UpstreamConfig, listing: UpstreamListing) -> dict[str, Verdict]:
        """Returns what of a catalog would be kept out, and keeps nothing of it.

        Raises:
            ConfigurationError: there is a record that cannot be read.
        """
        record = self._unstored.get(config.name)
        return review(config, listing, record or load(self.path(config))).withheld

    def _keep_unstored(self, config: UpstreamConfig, reviewed: Review, error: ConfigurationError) -> Review:
        if config.name not in self._unstored and self._given_folder is not False:
            logger.warning("%s: changed definitions are noticed only until the gateway ends: %s", config.name, error)
        self._unstored[config.name] = reviewed.record
        return reviewed

    def learn_varying_numbers(self, config: UpstreamConfig, first: UpstreamListing, second: UpstreamListing) -> None:
        """Keeps what varied between two lists of one process.

        Raises:
            ConfigurationError: the record cannot be read or written.
        """
        if self._given_folder is False:
            self._unstored[config.name] = with_varying_numbers(self._unstored[config.name], first, second)
        else:
            self.change(self.path(config), lambda record: with_varying_numbers(record, first, second))

    def change(
        self, path: Path, decide: Callable[[ApprovalRecord], ApprovalRecord], absent: ApprovalRecord | None = None
    ) -> None:
        """Changes a record, as it is now, to what `decide` makes of it; `absent` is the record without a file.

        Raises:
            ConfigurationError: the record cannot be read or written.
        """
        with _locked(path):
            record = load(path) or absent
            if record is not None and (decided := decide(record)) != record:
                save(path, decided)

    def records(self) -> dict[Path, ApprovalRecord]:
        """Returns all records by their files.

        Raises:
            ConfigurationError: a record cannot be read.
        """
        found = ((path, load(path)) for path in sorted(self.folder.glob("*.json")))
        return {path: record for path, record in found if record is not None}


def load(path: Path) -> ApprovalRecord | None:
    """
    Raises:
        ConfigurationError: the file is no record.
    """
    content = read_own_file(path, _MAX_RECORD_BYTES)
    if content is None:
        with contextlib.suppress(OSError):  # the folder cannot be entered, so that nothing can be stored in it either
            path.stat()
            raise ConfigurationError(f"The approvals in {path} cannot be read, or belong to another user.")
        return None
    try:
        return msgspec.json.decode(content, type=ApprovalRecord)
    except (ValueError, RecursionError):
        raise ConfigurationError(
            f"The file {path} is no record of approvals; remove it to trust the upstream as it is now."
        ) from None


def save(path: Path, record: ApprovalRecord) -> None:
    """
    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        replace_own_file(path, msgspec.json.encode(record))
    except OSError as error:
        raise ConfigurationError(f"Approvals cannot be stored in {path.parent}: {error.strerror}.") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for other programs for a while; one that hangs does not stop this one for ever."""
    with open_lock_file(path.with_suffix(".lock")) as file:
        for _ in range(_LOCK_ATTEMPTS):
            if file is None or try_lock(file):
                break
            time.sleep(_LOCK_WAIT_SECONDS)
        yield


def _identity(entry: dict[str, Any]) -> Any:
    """Returns what says which server an entry of a configuration means; variables and headers do not."""
    return {key: entry[key] for key in ("command", "args", "url", "openapi") if key in entry}


def file_name(name: str) -> str:
    """Returns what a name looks like in the name of a record."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40]
