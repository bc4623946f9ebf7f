"""What upstreams listed when they were last seen, on disk, so that the gateway can offer it before any has started.

There is one file for each upstream, named after a digest of what identifies it. A file that cannot be read, or that
another version wrote, is as good as none.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from deltamcp.gateway.api_server import is_api
from deltamcp.runtime.files import read_own_file, replace_own_file
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.wire.canonical import encode_canonical, sha256_digest

_FORMAT = 6
"""The number of this form of the files; a change of `CachedListing` or `UpstreamListing` needs another."""
_MAX_BYTES = 256 * 1024 * 1024
_MAX_LINES = 16
"""The content lines that are kept: gateways of several configurations may use one folder."""
_PLAIN_KEYS = ("type", "transport", "command", "args", "cwd", "url", "serverUrl", "httpUrl")
"""The members of an entry that identify an upstream; of `env` and `headers` only the names do."""
_SECRET_KEYS = ("headers", "credentials")
"""Those of an API's entry of which only the names do; its others say what it lists."""

logger: logging.Logger = logging.getLogger("deltamcp")


class StoredReview(Struct, frozen=True):
    """What came of the review of a catalog; it holds as long as nothing that it depends on has changed."""

    basis: str
    """Differs if the approvals on disk or the operator's policy were different."""
    withheld: dict[str, str] = {}
    """The verdicts about items that are kept out, by pointer."""


class CachedListing(Struct, frozen=True, array_like=True):
    """What a file has."""

    format: int
    written_at: float
    """In seconds since 1970."""
    listing: UpstreamListing | None = None
    """None if the upstream has never answered."""
    review: StoredReview | None = None

    @property
    def age(self) -> float:
        """The seconds since the upstream was seen; without end if the clock has gone back."""
        age = time.time() - self.written_at
        return age if age >= 0 else float("inf")


class ListingCache:
    """The files of a folder."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is None to keep nothing."""
        self._folder = folder

    def load(self, name: str, entry: Mapping[str, Any]) -> CachedListing | None:
        """Returns what is known of an upstream; None if nothing is."""
        if self._folder is None:
            return None
        content = read_own_file(self._path(self._folder, name, entry), _MAX_BYTES)
        try:
            cached = msgspec.json.decode(content or b"", type=CachedListing)
        except (ValueError, RecursionError):
            return None
        return cached if cached.format == _FORMAT else None

    def store(
        self,
        name: str,
        entry: Mapping[str, Any],
        listing: UpstreamListing | None,
        review: StoredReview | None = None,
    ) -> None:
        """Writes what is known of an upstream, whole or not at all; logs why where it cannot."""
        if self._folder is None:
            return
        try:
            encoded = msgspec.json.encode(CachedListing(_FORMAT, time.time(), listing, review))
            replace_own_file(self._path(self._folder, name, entry), encoded)
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("the list of %s is not kept: %s", name, getattr(error, "strerror", None) or error)

    @staticmethod
    def _path(folder: Path, name: str, entry: Mapping[str, Any]) -> Path:
        keys = entry.keys() - {*_SECRET_KEYS} if is_api(entry) else _PLAIN_KEYS
        identity = [
            name,
            {key: entry[key] for key in keys if key in entry},
            *(
                sorted(map(str, value)) if isinstance(value := entry.get(key), dict) else []
                for key in (_SECRET_KEYS if is_api(entry) else ("env", "headers"))
            ),
        ]
        digest = sha256_digest(encode_canonical(identity)).rpartition(":")[2]
        return folder / f"{digest[:32]}.catalog"


class StoredContentLines(dict[str, str]):
    """The content lines of earlier gateways, as `Directory` keeps them; a new one is written into the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "content-lines.json"
        with contextlib.suppress(ValueError):
            self.update(msgspec.json.decode(read_own_file(self._path, _MAX_BYTES) or b"", type=dict[str, str]))

    def __setitem__(self, key: str, line: str) -> None:
        super().__setitem__(key, line)
        while len(self) > _MAX_LINES:
            del self[next(iter(self))]
        try:
            replace_own_file(self._path, msgspec.json.encode(self))
        except OSError as error:
            logger.info("the summary of what the servers offer is not kept: %s", error.strerror)
