"""An HTTP API behind a gateway: what its entry in the configuration says, and the server here that offers it.

Nothing of OpenAPI is imported before the document is needed: a gateway that knows what an API lists starts without it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from deltamcp.calls.engine import Engine
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.item_names import name_address, name_document
from deltamcp.hosts.files import VariableExpander
from deltamcp.runtime.files import read_own_file, replace_own_file
from deltamcp.runtime.process import collection_paused
from deltamcp.values import JSON, ResultShape
from deltamcp.wire.canonical import encode_canonical, sha256_digest

if TYPE_CHECKING:
    from deltamcp.server import DeltaServer
    from deltamcp.sources.openapi.api import Api
    from deltamcp.sources.openapi.document import OpenApiDocument
    from deltamcp.sources.openapi.operations import LockedName
    from deltamcp.sources.openapi.settings import ApiSettings

_TEXT_KEYS = (*("openapi", "base_url", "variables", "headers", "credentials", "file_folders", "references", "hosts"),)
"""The keys whose texts may have variables."""
_PATH_KEYS = ("file_folders", "references")
_MAX_NAMES_BYTES = 64 * 1024 * 1024
_MAX_ABOUT_CHARS = 300
"""Of what a document says of its API, which hosts put before every conversation."""

logger: logging.Logger = logging.getLogger("deltamcp")


def api_keys() -> dict[str, Any]:
    """Returns the types of the keys that an API has in a configuration, and other servers have not."""
    from deltamcp.sources.openapi.settings import ApiSettings

    return {"openapi": str, **{field.name: field.type for field in msgspec.structs.fields(ApiSettings)}}


def is_api(entry: Mapping[str, Any]) -> bool:
    return "openapi" in entry


def make_entry(given: Mapping[str, Any], expander: VariableExpander, folder: Path) -> dict[str, Any]:
    """Returns the entry of an API: its keys with their variables filled in, and paths as they are from a folder."""
    entry = {key: expander.expand(value) if key in _TEXT_KEYS else value for key, value in given.items()}
    for key in _PATH_KEYS:
        if key in entry:
            entry[key] = [_path(text, folder) for text in entry[key]]
    return {**entry, "openapi": _path(entry["openapi"], folder)}


def _path(text: str, folder: Path) -> str:
    return text if "://" in text else os.path.normpath(folder / Path(text).expanduser())


def name_api(entry: Mapping[str, Any]) -> str:
    """Returns a name for an API that has none: after the address or the file of its document."""
    document = str(entry["openapi"])
    return name_address(document) if "://" in document else name_document(document)


def api_fault(entry: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with an entry, whatever its document says, as the end of a sentence; None if nothing is."""
    from deltamcp.sources.openapi.settings import OperationPattern

    try:
        settings = api_settings(entry)
        for text in (*settings.allow, *settings.deny, *settings.annotations):
            OperationPattern(text)
    except (ConfigurationError, msgspec.ValidationError) as error:
        return str(error).rstrip(".")
    if settings.base_url is not None and not settings.base_url.startswith(("http://", "https://")):
        return "the base_url must begin with http:// or https://"
    return None


def api_settings(entry: Mapping[str, Any]) -> "ApiSettings":
    from deltamcp.sources.openapi.settings import ApiSettings

    return msgspec.convert({key: value for key, value in entry.items() if key != "openapi"}, ApiSettings)


class _AsWritten(Mapping[str, str]):
    """Variables that leave `${NAME}` as it is: those of an entry are filled in, and a secret may look like one."""

    def __getitem__(self, name: str) -> str:
        return f"${{{name}}}"

    def get(self, name: str, default: Any = None) -> Any:
        return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class ApiServer:
    """Makes the server of one API whenever a client connects: the document is then read again.

    It implements `UnmadeServer`.
    """

    def __init__(self, name: str, entry: Mapping[str, Any], folder: Path) -> None:
        """`folder` keeps documents that were fetched, and the names that operations have for good."""
        self._name, self._entry, self._folder = name, entry, folder
        self.requests: JSON = None
        self.notice: str = ""
        """What a user should know of the document that was read last."""

    @property
    def label(self) -> str:
        return f"The API {self._name}"

    @contextlib.asynccontextmanager
    async def make(self) -> AsyncIterator[Engine]:
        """
        Raises:
            ConfigurationError: the document cannot be read, or does not say where its API is.
        """
        from deltamcp.sources.openapi.location import DocumentCopies, load_document

        copies = DocumentCopies(self._folder / "documents")
        document = await load_document(self._entry["openapi"], self._settings, _AsWritten(), copies)
        server = await asyncio.to_thread(self._make_server, document)
        async with server.engine.lifespan.running():
            yield server.engine

    @cached_property
    def _settings(self) -> "ApiSettings":
        return api_settings(self._entry)

    def _make_server(self, document: "OpenApiDocument") -> "DeltaServer":
        """
        Raises:
            ConfigurationError: the document does not say where its API is.
        """
        from deltamcp.server import DeltaServer
        from deltamcp.sources.openapi.api import Api

        with collection_paused():
            locked = self._load_names()
            api = Api(document, self._settings, locked)
            name, version = api.title or self._name, api.version or "0"
            server = DeltaServer(name, version, instructions=_about(api), disclosure="full")
            server.add_openapi(api, environment=_AsWritten())
            for operation in server.engine.catalog.operations.values():
                operation.manifest_entry(ResultShape.MCP)  # of 60 large schemas it takes 130 ms, here in a thread
        self.requests = api.requests
        self.notice = _notice([str(fault) for fault in api.faults])
        if api.locked_names != locked:
            self._store_names(api.locked_names)
        return server

    # The names of its operations

    @property
    def _names_path(self) -> Path:
        identity = sha256_digest(encode_canonical([self._name, self._entry["openapi"]])).rpartition(":")[2]
        return self._folder / f"{identity[:32]}.names"

    def _load_names(self) -> "dict[str, LockedName]":
        from deltamcp.sources.openapi.operations import LockedName

        content = read_own_file(self._names_path, _MAX_NAMES_BYTES)
        try:
            return msgspec.json.decode(content or b"{}", type=dict[str, LockedName])
        except (ValueError, RecursionError):
            return {}

    def _store_names(self, names: "Mapping[str, LockedName]") -> None:
        try:
            replace_own_file(self._names_path, msgspec.json.encode(names))
        except (OSError, ValueError) as error:
            logger.warning("the names of %s are not kept: %s", self._name, getattr(error, "strerror", None) or error)


def _notice(faults: Sequence[str]) -> str:
    if not faults:
        return ""
    parts = "1 part of its document is" if len(faults) == 1 else f"{len(faults)} parts of its document are"
    return f"{parts} left out, which delta-mcp openapi lists, the first at {faults[0]}"


def _about(api: "Api") -> str | None:
    """Returns the title of an API, and the first paragraph of what its document says of it."""
    from deltamcp.catalog.text import prose

    first = " ".join(api.description.strip().split("\n\n")[0].split())
    text = ": ".join(filter(None, (" ".join(api.title.split()), first)))
    return prose.cut(text, _MAX_ABOUT_CHARS) or None
