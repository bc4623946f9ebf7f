"""Where documents are read from, files and addresses; where requests may go; and the files that arguments name."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import msgspec
from msgspec import Struct

from deltamcp.auth.safe_url import Address, AddressRange, is_loopback, range_of, read_address
from deltamcp.client.links.http1 import (
    BrokenExchangeError,
    HttpConnectionPool,
    HttpResponse,
    OversizedResponseError,
    resolve_host,
)
from deltamcp.errors import ConfigurationError, ToolError, UpstreamError
from deltamcp.runtime.files import missing_file_error, read_own_file, replace_own_file
from deltamcp.sources.http import fill_variables
from deltamcp.sources.openapi.document import MAX_BYTES, OpenApiDocument, external_addresses, parse_document
from deltamcp.sources.openapi.settings import ApiSettings
from deltamcp.values import JSON
from deltamcp.wire.canonical import sha256_digest

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream


MAX_UPLOAD_BYTES = 32 * 1024 * 1024
"""The largest file that an argument may name."""
_MAX_DOCUMENTS = 500
_MAX_REDIRECTS = 3
_SECONDS = 60.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ACCEPTED = "application/vnd.oai.openapi+json, application/json;q=0.9, application/yaml;q=0.8, */*;q=0.5"
_FORMAT = 1
Parse: TypeAlias = Callable[[bytes], JSON]
logger: logging.Logger = logging.getLogger("deltamcp")


class _Copy(Struct, frozen=True, array_like=True):
    """A document on disk as an address gave it."""

    format: int
    url: str
    read_at: float
    """In seconds since 1970."""
    digest: str
    etag: str
    last_modified: str
    data: bytes


class DocumentCopies:
    """Copies of documents that were fetched, in a folder: each is asked for again by its ETag."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, url: str) -> _Copy | None:
        content = read_own_file(self._path(url), 2 * MAX_BYTES)
        try:
            copy = msgspec.msgpack.decode(content or b"", type=_Copy)
        except (ValueError, RecursionError):
            return None
        is_whole = copy.format == _FORMAT and copy.url == url and sha256_digest(copy.data) == copy.digest
        return copy if is_whole else None

    def store(self, url: str, data: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Writes a copy, whole or not at all; logs why where it cannot."""
        etag, modified = (headers.get(name, b"").decode("latin-1") for name in (b"etag", b"last-modified"))
        copy = _Copy(_FORMAT, url, time.time(), sha256_digest(data), etag, modified, data)
        try:
            replace_own_file(self._path(url), msgspec.msgpack.encode(copy))
        except OSError as error:
            logger.warning("the document of %s is not kept: %s", _show(url), error.strerror)

    def _path(self, url: str) -> Path:
        return self._folder / f"{sha256_digest(url.encode()).rpartition(':')[2][:32]}.openapi"


async def load_document(
    source: str | Path,
    settings: ApiSettings,
    environment: Mapping[str, str],
    copies: DocumentCopies | None = None,
) -> OpenApiDocument:
    """Reads a document from a file or an address, with the documents that it may refer to.

    These are files in the document's own folder, and what `ApiSettings.references` names. A document of an address that
    cannot be reached is the copy on disk.

    Raises:
        ConfigurationError: it cannot be read, or is no OpenAPI document.
    """
    text = str(source)
    if isinstance(source, str) and is_url(text):
        url = fill_variables(text, environment)
        headers = _document_headers(url, settings, environment)
        data = await _fetch(url, headers, copies)
        content = await asyncio.to_thread(parse_document, data)
        others = await _load_named(settings, environment, copies)
        return OpenApiDocument(content, urldefrag(url).url, others)
    path = Path(text).expanduser()
    data = await asyncio.to_thread(_read_file, path)
    content = await asyncio.to_thread(parse_document, data)
    others = await _load_named(settings, environment, copies)
    address = _file_address(path)
    others |= await asyncio.to_thread(_read_beside, data, content, address, path.resolve().parent)
    return OpenApiDocument(content, address, others)


def is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _document_headers(url: str, settings: ApiSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of the API for a document that is at the API's own origin."""
    base = fill_variables(settings.base_url, environment) if settings.base_url else url
    if urlsplit(base)[:2] != urlsplit(url)[:2]:
        return {}
    return {name.lower(): fill_variables(text, environment) for name, text in settings.headers.items()}


async def _load_named(
    settings: ApiSettings, environment: Mapping[str, str], copies: DocumentCopies | None
) -> dict[str, JSON]:
    """Returns the documents that references may lead to because the user named them, by their addresses."""
    found: dict[str, JSON] = {}
    for reference in settings.references[:_MAX_DOCUMENTS]:
        if is_url(reference):
            data = await _fetch(reference, {}, copies)
            address = urldefrag(reference).url
        else:
            path = Path(reference).expanduser()
            data = await asyncio.to_thread(_read_file, path)
            address = _file_address(path)
        found[address] = await asyncio.to_thread(parse_document, data)
    return found


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise missing_file_error(path)
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path} has more than {MAX_BYTES >> 20} MiB; cut it into several.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    if not data.strip():
        raise ConfigurationError(f"{path} is empty.")
    return data


def _file_address(path: Path) -> str:
    return f"file://{quote(str(path.resolve()))}"


def _read_beside(data: bytes, content: JSON, address: str, folder: Path) -> dict[str, JSON]:
    """Returns the documents in a document's own folder, or below it, that it refers to, and those that these refer to.

    What cannot be read is left out; the operations that refer to it are then reported.
    """
    found: dict[str, JSON] = {}
    pending = [(address, _references(data, content))]
    while pending and len(found) < _MAX_DOCUMENTS:
        base, references = pending.pop()
        for reference in references:
            target = urldefrag(urljoin(base, reference)).url
            if not target.startswith("file://") or target in found or target == address:
                continue
            path = Path(unquote(urlsplit(target).path)).resolve()
            if not path.is_relative_to(folder):
                continue
            try:
                other = _read_file(path)
                found[target] = parse_document(other)
            except ConfigurationError as error:
                logger.warning("%s is left out: %s", path.name, error)
                continue
            pending.append((target, _references(other, found[target])))
    return found


def _references(data: bytes, content: JSON) -> list[str]:
    """Returns the references of a document that lead out of it."""
    if data.lstrip()[:1] == b"{":
        return external_addresses(data)
    return external_addresses(msgspec.json.encode(content))


async def _fetch(url: str, headers: dict[str, str], copies: DocumentCopies | None) -> bytes:
    """Fetches a document; follows redirects within its origin.

    Raises:
        ConfigurationError: it cannot be fetched, and there is no copy of it.
    """
    copy = None if copies is None else await asyncio.to_thread(copies.load, url)
    asked = {"accept": _ACCEPTED, "accept-encoding": "identity", "user-agent": "delta-mcp", **headers}
    if copy is not None and copy.etag:
        asked["if-none-match"] = copy.etag
    elif copy is not None and copy.last_modified:
        asked["if-modified-since"] = copy.last_modified
    try:
        response = await _get(url, asked)
    except ConfigurationError as error:
        if copy is None:
            raise
        logger.warning("%s The copy on disk is used.", error)
        return copy.data
    if response.status == 304 and copy is not None:
        return copy.data
    if response.status != 200:
        if copy is not None and response.status >= 500:
            logger.warning("%s answered HTTP %d; the copy on disk is used.", _show(url), response.status)
            return copy.data
        raise ConfigurationError(f"{_show(url)} answered HTTP {response.status}; check the address of the document.")
    if copies is not None:
        await asyncio.to_thread(copies.store, url, response.body, response.headers)
    return response.body


async def _get(url: str, headers: dict[str, str]) -> HttpResponse:
    origin = urlsplit(url)[:2]
    for _ in range(1 + _MAX_REDIRECTS):
        pool = HttpConnectionPool(url, MAX_BYTES)
        try:
            async with asyncio.timeout(_SECONDS):
                response = await pool.exchange(pool.head("GET", url, headers), b"")
                if response.events is not None:
                    raise ConfigurationError(f"{_show(url)} is a stream of events, not a document.")
        except TimeoutError:
            raise ConfigurationError(f"{_show(url)} did not answer within {_SECONDS:g} s.") from None
        except OversizedResponseError:
            raise ConfigurationError(f"{_show(url)} has more than {MAX_BYTES >> 20} MiB.") from None
        except BrokenExchangeError as error:
            raise ConfigurationError(f"{_show(url)} cannot be reached: {error}.") from None
        except ValueError:
            raise ConfigurationError("A header for the document has a line break; correct its variable.") from None
        finally:
            pool.close()
        if response.status not in _REDIRECTS:
            return response
        target = urljoin(url, response.headers.get(b"location", b"").decode("latin-1"))
        if urlsplit(target)[:2] != origin:
            raise ConfigurationError(
                f"{_show(url)} redirects to {_show(target)}, which is not followed; give that address if it is right."
            )
        url = target
    raise ConfigurationError(f"{_show(url)} redirects more than {_MAX_REDIRECTS} times.")


def _show(url: str) -> str:
    """Returns an address without what may be secret in it: a password and the query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path[:200]}"


class AddressRule:
    """Says to which hosts requests may go. A document may name public ones; private ones only its user may."""

    def __init__(self, named: Collection[str]) -> None:
        """
        Args:
            named: The hosts that the user named, in lower case.
        """
        self._named = frozenset(named)

    def is_free(self, url: str) -> bool:
        """Whether requests to a URL may go to any address, because the user named its host."""
        return (urlsplit(url).hostname or "").lower() in self._named

    def refusal(self, url: str) -> str | None:
        """Returns why no request may go to a URL, as far as its text tells, as the end of a sentence."""
        host = (urlsplit(url).hostname or "").lower()
        address = read_address(host)
        is_public = not is_loopback(host) and (address is None or range_of(address) is AddressRange.PUBLIC)
        return None if host in self._named or is_public else f"{host} is no public address, and nobody named it"

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Returns the addresses that a host's name stands for.

        Raises:
            UpstreamError: one of them is not public, although the user did not name the host.
            OSError: the name stands for none.
        """
        found = await resolve_host(host, port)
        self.check(host, found)
        return found

    def check(self, host: str, found: Iterable[Address]) -> None:
        """
        Raises:
            UpstreamError: one of a host's addresses is not public, although the user did not name the host.
        """
        if host.lower() not in self._named and any(range_of(address) is not AddressRange.PUBLIC for address in found):
            raise UpstreamError(
                f"{host} is at an address that is not public; who runs this server may name it, in base_url or hosts."
            )

    async def connect(self, host: str, port: int, timeout: float | None) -> "AsyncNetworkStream":
        """Connects to a host at an address that was checked, so that its name cannot stand for another one by then.

        Raises:
            UpstreamError: as `addresses`.
            httpcore2.ConnectError: none of them can be connected to.
        """
        import httpcore2  # with the HTTP client, which most servers do not need

        try:
            found = await self.addresses(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception = httpcore2.ConnectError("the name stands for no address")
        for address in found:
            try:
                return await httpcore2.AnyIOBackend().connect_tcp(str(address), port, timeout)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure


def read_upload(path: str, folders: Sequence[Path]) -> bytes:
    """Returns the content of a file that an argument names.

    Raises:
        ToolError: it is in none of the folders, cannot be read, or is too large.
    """
    found = Path(path)
    candidates = [found] if found.is_absolute() else [folder / found for folder in folders]
    for candidate in candidates:
        try:
            resolved = candidate.resolve()
            if not any(resolved.is_relative_to(folder) for folder in folders) or not resolved.is_file():
                continue
            with resolved.open("rb") as file:
                content = file.read(MAX_UPLOAD_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its path cannot be used"
            raise ToolError(f"The file {path[:200]!r} cannot be read: {reason}.") from None
        if len(content) > MAX_UPLOAD_BYTES:
            raise ToolError(f"The file {path[:200]!r} is larger than {MAX_UPLOAD_BYTES >> 20} MiB.")
        return content
    raise ToolError(f"The file {path[:200]!r} is in no folder that files may be sent from.")
