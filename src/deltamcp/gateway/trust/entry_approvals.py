"""What projects' files say of how servers are reached: a command, an address, an environment, which a user approves.

A file is trusted as it is when a user first has a gateway read it. What it says later, after a `git pull` for instance,
waits until the user approves it. Records have no secrets: where an entry has one, they have a digest of it.
"""

import hashlib
import hmac
import itertools
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import SkippedServer
from deltamcp.gateway.trust.approvals import Approvals, file_name
from deltamcp.gateway.trust.definition_hash import is_identical, pointer
from deltamcp.gateway.trust.review import ENTRY, ApprovalRecord, approve_command
from deltamcp.hosts.files import DISABLED, ConfiguredServer, is_reference
from deltamcp.runtime.secrets import is_secret_name
from deltamcp.values import JSON

_WAITS = "waits until the user approves it"
_DIGEST_CHARS = 8
_PATH_KEY = re.compile(r"(?<=/)(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[\w~%.-]{16,}(?=/|$)")
"""A part of an address's path that may be a key, as some services have it there."""
_OPTION = re.compile(r"-[^\s=]*")

logger: logging.Logger = logging.getLogger("deltamcp")


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
    if credentials := entry.get("credentials"):  # of an HTTP API
        shown["credentials"] = {name: _masked_texts(one, mask) for name, one in credentials.items()}
    if args := entry.get("args"):
        shown["args"] = [_shown_word(before, word, mask) for before, word in itertools.pairwise(["", *args])]
    for key in ("url", "openapi", "base_url"):
        if url := entry.get(key):
            shown[key] = _shown_address(url, mask)
    if credentials := entry.get("credentials"):
        shown["credentials"] = {name: _shown_credential(one, mask) for name, one in credentials.items()}
    return {key: value for key, value in shown.items() if value not in ({}, [])}


def _shown_credential(credential: JSON, mask: Callable[[str], str]) -> JSON:
    if not isinstance(credential, dict):
        return mask(str(credential))
    return {name: mask(str(text)) if name == "client_secret" else text for name, text in credential.items()}


def _masked_texts(value: Any, mask: Callable[[str], str]) -> JSON:
    return {key: mask(str(text)) for key, text in value.items()} if isinstance(value, Mapping) else mask(str(value))


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
