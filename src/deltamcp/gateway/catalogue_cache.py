"""What upstreams listed when they were last seen, on disk, so that the gateway can offer it before any has started.

There is one file for each upstream, named after a digest of what identifies it. A file that cannot be read, or that
another version wrote, is as good as none.
"""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.wire.canonical_json import encode_canonical
from deltamcp.wire.digest import sha256_digest

_FORMAT = 1
"""The number of this form of the files; a change of `CachedCatalogue` or `UpstreamCatalogue` needs another."""
_MAX_BYTES = 256 * 1024 * 1024
_PLAIN_KEYS = ("type", "transport", "command", "args", "cwd", "url", "serverUrl", "httpUrl")
"""The members of an entry that identify an upstream; of `env` and `headers` only the names do."""

logger = logging.getLogger("deltamcp")


class CachedCatalogue(Struct, frozen=True, array_like=True):
    """What a file has."""

    format: int
    written_at: float
    """In seconds since 1970."""
    digest: str = ""
    """That of the catalogue."""
    catalogue: UpstreamCatalogue | None = None
    """None if the upstream has never answered."""

    @property
    def age(self) -> float:
        """The seconds since the upstream was seen; without end if the clock has gone back."""
        age = time.time() - self.written_at
        return age if age >= 0 else float("inf")


class CatalogueCache:
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, entry: Mapping[str, Any]) -> CachedCatalogue | None:
        """Returns what is known of an upstream; None if nothing is."""
        path = self._path(name, entry)
        try:
            if path.stat().st_size > _MAX_BYTES:
                return None
            cached = msgspec.json.decode(path.read_bytes(), type=CachedCatalogue)
        except (OSError, ValueError, RecursionError):
            return None
        return cached if cached.format == _FORMAT else None

    def store(self, name: str, entry: Mapping[str, Any], catalogue: UpstreamCatalogue | None) -> None:
        """Writes what is known of an upstream, whole or not at all; logs why where it cannot."""
        digest = "" if catalogue is None else catalogue.digest
        encoded = msgspec.json.encode(CachedCatalogue(_FORMAT, time.time(), digest, catalogue))
        path = self._path(name, entry)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".catalogue-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(encoded)
                Path(temporary).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            logger.warning("the list of %s is not kept: %s", name, error.strerror or type(error).__name__)

    def _path(self, name: str, entry: Mapping[str, Any]) -> Path:
        identity = [
            name,
            {key: entry[key] for key in _PLAIN_KEYS if key in entry},
            *(
                sorted(map(str, value)) if isinstance(value := entry.get(key), dict) else []
                for key in ("env", "headers")
            ),
        ]
        digest = sha256_digest(encode_canonical(identity)).rpartition(":")[2]
        return self._folder / f"{digest[:32]}.catalogue"
