"""What a user approved, in files that only the user reads: definitions of upstreams, entries of projects' files.

An entry says how a server is reached: a command, an address, an environment. A file is trusted as it is when a user
first has a gateway read it. What it says later, after a `git pull` for instance, waits until the user approves it.
Records have no secrets: where an entry has one, they have a digest of it.
"""

import contextlib
import hashlib
import hmac
import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import SkippedServer, UpstreamConfig
from deltamcp.gateway.trust.definition import is_identical, pointer
from deltamcp.gateway.trust.review import (
    ENTRY,
    ApprovalRecord,
    Review,
    Verdict,
    approve_command,
    review,
    with_varying_numbers,
)
from deltamcp.hosts.files import DISABLED, ConfiguredServer, is_reference
from deltamcp.runtime.files import open_lock_file, read_own_file, replace_own_file, try_lock, user_folder
from deltamcp.runtime.secrets import is_secret_name
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.values import JSON
from deltamcp.wire.canonical import encode_canonical

logger: logging.Logger = logging.getLogger("deltamcp")

_LOCK_ATTEMPTS, _LOCK_WAIT_SECONDS = 200, 0.05
_MAX_RECORD_BYTES = 256 * 1024 * 1024
_WAITS = "waits until the user approves it"
_DIGEST_CHARS = 8
_PATH_KEY = re.compile(r"(?<=/)(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[\w~%.-]{16,}(?=/|$)")
"""A part of an address's path that may be a key, as some services have it there."""
_OPTION = re.compile(r"-[^\s=]*")


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


class EntryApprovals:
    """Reviews entries. It implements `EntryReview`."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._unstored: dict[Path, ApprovalRecord] = {}
        """The records that cannot be stored: they hold until this process ends."""

    def path(self, file: Path) -> Path:
        resolved = file.resolve()
        identity = hashlib.sha256(str(resolved).encode()).hexdigest()
        return self._approvals.folder / f"{file_name(resolved.parent.name)}-{identity[:16]}-entries.json"

    def review(self, file: Path, servers: Sequence[ConfiguredServer]) -> list[ConfiguredServer]:
        absent = self._unstored.get(file) or ApprovalRecord(str(file.resolve()), {}, salt=secrets.token_hex(16))
        decided = absent

        def decide(record: ApprovalRecord) -> ApprovalRecord:
            nonlocal decided
            decided = _review_entries(record, _entries(servers, record.salt))
            return decided

        try:
            self._approvals.change(self.path(file), decide, absent)
        except ConfigurationError as error:
            if decided is absent:
                raise
            if file not in self._unstored:
                logger.warning("%s: changed entries are noticed only until the gateway ends: %s", file, error)
            self._unstored[file] = decided
        places = _places(servers)
        return [
            replace(server, skip_reason=_fault(decided, places[index]) or server.skip_reason)
            if index in places
            else server
            for index, server in enumerate(servers)
        ]


def _places(servers: Sequence[ConfiguredServer]) -> Mapping[int, str]:
    """Returns the place in the record of each server that could be started, by its index."""
    places: dict[int, str] = {}
    for index, server in enumerate(servers):
        if server.written and not (server.skip_reason or "").startswith(DISABLED):
            name, count = server.name, 1
            while pointer(ENTRY, name) in places.values():
                count += 1
                name = f"{server.name} ({count})"
            places[index] = pointer(ENTRY, name)
    return places


def _entries(servers: Sequence[ConfiguredServer], salt: str) -> Mapping[str, JSON]:
    return {place: shown_entry(servers[index].written, salt) for index, place in _places(servers).items()}


def _review_entries(record: ApprovalRecord, entries: Mapping[str, JSON]) -> ApprovalRecord:
    """Returns the record of a file in which new and changed entries wait, if it was seen before."""
    if record.kinds != (ENTRY,):
        return replace(record, approved={**entries}, kinds=(ENTRY,))
    waiting = {
        place: entry
        for place, entry in entries.items()
        if not (_is_in(record.approved, place, entry) or _is_in(record.rejected, place, entry))
    }
    rejected = {place: entry for place, entry in record.rejected.items() if _is_in(entries, place, entry)}
    return replace(record, waiting=waiting, rejected=rejected)


def _is_in(known: Mapping[str, JSON], place: str, entry: JSON) -> bool:
    return place in known and is_identical(known[place], entry)


def _fault(record: ApprovalRecord, place: str) -> str:
    """Returns why a server must not be reached as its entry says, as the end of a sentence; empty if it may be."""
    if place in record.waiting:
        what = "has changed" if place in record.approved else "is new"
        return f"its entry {what} in a project's file, and {_WAITS}"
    return "the user rejected its entry in a project's file" if place in record.rejected else ""


def log_line(server: SkippedServer) -> str:
    """Returns what the log says of a server that is left out: the command that approves it, too, which models are not
    told, because they may run commands."""
    return f"{server}{approval_hint(server.name, server.reason)}"


def approval_hint(name: str, reason: str) -> str:
    """Returns the sentence with the command that approves a server, after a space; empty if it does not wait for that.

    Args:
        reason: why the server is left out.
    """
    return f" {approve_command(name)} shows it." if reason.endswith(_WAITS) else ""


def shown_entry(entry: Mapping[str, Any], salt: str) -> dict[str, JSON]:
    """Returns an entry as a person may see it: of what its name shows to be a secret there is a digest, and all else is
    whole, since it may be code."""

    def mask(text: str) -> str:
        if is_reference(text):
            return text
        return f"•••{hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()[:_DIGEST_CHARS]}"

    shown: dict[str, JSON] = {**entry}
    for key in ("env", "headers"):
        if table := entry.get(key):
            shown[key] = {name: mask(text) if is_secret_name(name) else text for name, text in table.items()}
    if args := entry.get("args"):
        shown["args"] = [_shown_word(before, word, mask) for before, word in itertools.pairwise(["", *args])]
    for key in ("url", "openapi", "base_url"):
        if url := entry.get(key):
            shown[key] = _shown_address(url, mask)
    if credentials := entry.get("credentials"):  # of an HTTP API
        shown["credentials"] = {name: _shown_credential(one, mask) for name, one in credentials.items()}
    return {key: value for key, value in shown.items() if value not in ({}, [])}


def _shown_credential(credential: JSON, mask: Callable[[str], str]) -> JSON:
    if not isinstance(credential, dict):
        return mask(str(credential))
    return {name: mask(str(text)) if name == "client_secret" else text for name, text in credential.items()}


def _shown_word(before: str, word: str, mask: Callable[[str], str]) -> str:
    if _OPTION.fullmatch(before) and is_secret_name(before) and not word.startswith("-"):
        return mask(word)
    option, mark, value = word.partition("=")
    return f"{option}={mask(value)}" if mark and _OPTION.fullmatch(option) and is_secret_name(option) else word


def _shown_address(url: str, mask: Callable[[str], str]) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    user, at, host = parts.netloc.rpartition("@")
    query = [
        f"{name}{mark}{mask(text) if mark and is_secret_name(name) else text}"
        for name, mark, text in (pair.partition("=") for pair in parts.query.split("&"))
    ]
    return parts._replace(
        netloc=f"{mask(user)}@{host}" if at else host,
        path=_PATH_KEY.sub(lambda key: mask(key[0]), parts.path),
        query="&".join(query),
    ).geturl()
