"""What in an upstream's entry is secret: every value of it, unless it is known to be none.

A credential is what its name, its place or its shape shows to be one: a password, a token, a key. All other values are
settings. Credentials are taken out of all texts about an upstream, settings only out of those that tell of failures,
because definitions and questions may well be about them: `GITHUB_TOOLSETS=issues`.
"""

import base64
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from deltamcp.runtime.secrets import MIN_SECRET_CHARS, Secrets, header_secrets, is_secret_name, shell_words

_PLAIN_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|COLORTERM|LANG|LANGUAGE|LC_\w+|TZ|PWD|OLDPWD|TMP|TEMP|TMPDIR|HOST|HOSTNAME|PORT|"
    r"EDITOR|PAGER|DISPLAY|XDG_\w+|CI|DEBUG|\w*LOG_?LEVEL|\w*LOG_FORMAT|RUST_LOG|RUST_BACKTRACE|NO_COLOR|FORCE_COLOR|"
    r"NODE_ENV|NODE_PATH|PYTHON\w+|VIRTUAL_ENV|JAVA_HOME|GOPATH|"
    r"APPDATA|COMSPEC|LOCALAPPDATA|PATHEXT|SYSTEMDRIVE|SYSTEMROOT|USERPROFILE",
    re.IGNORECASE,
)
"""The variables whose values every program may tell."""
_PLAIN_HEADERS = re.compile(
    r"Accept(-Language|-Encoding|-Charset)?|Cache-Control|Connection|Content-Type|Host|MCP-Protocol-Version|User-Agent",
    re.IGNORECASE,
)
_PLAIN_VALUES = frozenset(
    {
        *("production", "development", "staging", "testing", "default", "enabled", "disabled", "verbose", "warning"),
        *("critical", "localhost", "127.0.0.1", "0.0.0.0", "delta-mcp", "deltamcp"),  # noqa: S104 - nothing is bound
    }
)
"""Values that tell nothing, whatever has them."""
_WORDS = re.compile(r"[A-Za-z]+(?:[ _.,:/-]+[A-Za-z]+)*")
"""A setting that could be a part of other texts."""
_TOKEN = re.compile(
    r"(?=[A-Za-z0-9]{0,15}\d)(?=[A-Za-z0-9]{0,15}[A-Za-z])[A-Za-z0-9]{16}"
    r"|(?=[\w-]{0,19}[a-z])(?=[\w-]{0,19}[A-Z])(?=[\w-]{0,19}\d)[\w-]{20}"
    r"|(?=\S*\d)(?=\S*[A-Za-z])(?=\S*[^\w\s.,:/@-])\S{8,}"
)
"""Nothing but a token has so many letters and digits in a row, or mixes them with other characters."""
_PASSWORD_NAME = re.compile(r"pass|pwd|secret|token|credential", re.IGNORECASE)
_CHOICE_NAME = re.compile(
    r"(type|mode|method|name|provider|scopes?|format|alg|algorithm|backend|store)$", re.IGNORECASE
)
"""The name of a choice between words: `AUTH_MODE=browser`."""
_SCHEMES = frozenset({"bearer", "basic", "token", "apikey", "api-key"})
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PAIR = re.compile(r"(?:^|[;,&\s])([\w.-]+(?: [\w.-]+)?)=([^;,&\s]+)")
"""A part of a text such as `Server=db;User ID=me;Password=...`."""
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
"""An argument that is a variable for a program that the upstream starts, as `docker run -e NAME=VALUE` has it."""
_HEADER = re.compile(r"([\w-]+):\s*(\S.*)", re.DOTALL)
_MIN_PART_CHARS = 16
"""Shorter parts of an address's path, and shorter lines of a longer text, are names."""
_MAX_DEPTH = 8
_KEYRING = ("keyring:", "input:")


class EntryValues(NamedTuple):
    """The secrets of an entry."""

    credentials: frozenset[str]
    settings: frozenset[str]


def entry_values(
    entry: Mapping[str, Any], filled: Mapping[str, str] | None = None, not_secret: Collection[str] = ()
) -> EntryValues:
    """Returns the secrets of an entry of an `mcpServers` file, whose variables are filled in.

    Args:
        filled: The values of its variables, by their names.
        not_secret: Globs of the names of variables, headers, options and parameters whose values are no secrets.
    """
    found = _Collector(not_secret)
    for name, value in _texts(entry.get("env")):
        found.add_variable(name, value)
    for name, value in _texts(entry.get("headers")):
        if not _PLAIN_HEADERS.fullmatch(name):
            found.add(name, value)
    for name, value in (filled or {}).items():
        found.add_variable(name, value)
    for name, value in _texts(entry.get("variables")):
        found.add_variable(name, value)
    for name, credential in _credentials(entry.get("credentials")):
        found.add_credential(name, credential)
    args = entry.get("args")
    for url in (entry.get(key) for key in ("url", "openapi", "base_url")):
        if isinstance(url, str):
            found.add_address(url)
    found.add_arguments([str(word) for word in args] if isinstance(args, list) else [])
    return found.values()


def _credentials(table: Any) -> Iterator[tuple[str, str]]:
    """Yields the credentials of an API, by the names of its security schemes."""
    for name, value in table.items() if isinstance(table, Mapping) else ():
        secret = value.get("client_secret") if isinstance(value, Mapping) else value
        if isinstance(secret, str):
            yield str(name), secret


def _texts(table: Any) -> Iterator[tuple[str, str]]:
    return ((str(name), str(value)) for name, value in table.items()) if isinstance(table, Mapping) else iter(())


class _Collector:
    def __init__(self, not_secret: Collection[str]) -> None:
        self._globs = [glob.casefold() for glob in not_secret]
        self._credentials: set[str] = set()
        self._settings: set[str] = set()
        self._plain: set[str] = set()

    def values(self) -> EntryValues:
        credentials = frozenset(self._credentials - self._plain)
        return EntryValues(credentials, frozenset(self._settings - self._plain - credentials))

    def add_variable(self, name: str, text: str) -> None:
        if not _PLAIN_VARIABLES.fullmatch(name):
            self.add(name, text)

    def add_credential(self, name: str, text: str) -> None:
        """Adds a key, a token, or `user:password`, whatever its name is."""
        if any(fnmatchcase(name.casefold(), glob) for glob in self._globs):
            return
        self._note(text.strip(), True)
        user, colon, password = text.strip().partition(":")
        if user and colon:
            self._note(password, True)
            self._note(base64.b64encode(text.encode()).decode(), True)

    def add(self, name: str, text: str, depth: int = 0) -> None:
        """Adds a value and what it is made of: the parts of an address, of a header, of JSON, of pairs."""
        text = text.strip()
        if any(fnmatchcase(name.casefold(), glob) for glob in self._globs):
            self._plain.add(text)
            return
        if len(text) < MIN_SECRET_CHARS or text.casefold() in _PLAIN_VALUES or _is_path(text):
            return
        is_credential = name.startswith(_KEYRING) or _is_credential(name, text)
        self._note(text, is_credential)
        if _ADDRESS.fullmatch(text):
            self.add_address(text)
        elif text[0] in "{[" and depth < _MAX_DEPTH:
            self._add_json(name, text, depth)
        else:
            for part_name, part in _PAIR.findall(text):
                if is_secret_name(part_name):
                    self.add(part_name, part, depth + 1)
            is_header = is_credential or text.partition(" ")[0].casefold() in _SCHEMES
            for part in (*(header_secrets(name, text) if is_header else ()), *_list_parts(text)):
                self._note(part.strip(), is_header)

    def _note(self, text: str, is_credential: bool) -> None:
        if len(text) < MIN_SECRET_CHARS or _is_origin(text):
            return
        if not _ADDRESS.fullmatch(text) and (is_credential or _TOKEN.search(text)):
            self._credentials.add(text)
        else:
            self._settings.add(text)

    def _add_json(self, name: str, text: str, depth: int) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        for member, item in value.items() if isinstance(value, dict) else ((name, item) for item in value):
            if isinstance(item, str | int | float) and not isinstance(item, bool):
                self.add(member, str(item), depth + 1)
            elif isinstance(item, dict | list):
                self.add(member, json.dumps(item), depth + 1)

    def add_address(self, address: str) -> None:
        """Adds what an address has beside its host and the short parts of its path."""
        try:
            parts = urlsplit(address)
        except ValueError:
            return
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        self._note(password, True)
        self._note(unquote(password), True)
        for text in (user, unquote(user), *(part for part in parts.path.split("/") if len(part) >= _MIN_PART_CHARS)):
            self._note(text, False)
        for query in (parts.query, parts.fragment):
            for name, text in parse_qsl(query):
                self.add(name, text, _MAX_DEPTH)

    def add_arguments(self, words: list[str], depth: int = 0) -> None:
        """Adds what options show to be secret, variables and headers for other programs, and addresses.

        A word may be the command line of a shell, which has words again.
        """
        option = ""
        for word in words:
            name, mark, value = word.partition("=")
            if not word.startswith("-"):
                self._add_argument(option, word)
                option = ""
            elif mark:
                self._add_argument(name, value)
                option = ""
            else:
                option = word
            if depth < _MAX_DEPTH and re.search(r"\s", word):
                self.add_arguments(shell_words(word), depth + 1)

    def _add_argument(self, option: str, text: str) -> None:
        header, variable = _HEADER.fullmatch(text), _VARIABLE.fullmatch(text)
        if is_secret_name(option):
            self.add(option.lstrip("-"), text)
        elif header and option.casefold() in ("-h", "--header", "--headers"):
            self.add(header[1], header[2])
        elif variable and (option in ("-e", "--env") or is_secret_name(variable[1])):
            self.add_variable(variable[1], variable[2])
        for address in _ADDRESS.findall(text):
            self.add_address(address)


def _is_credential(name: str, text: str) -> bool:
    """Whether a name says that the text is a credential; a word is one only of a name that has no other meaning."""
    if not is_secret_name(name):
        return False
    return not _WORDS.fullmatch(text) or (_PASSWORD_NAME.search(name) is not None and not _CHOICE_NAME.search(name))


def _is_path(text: str) -> bool:
    """Whether a text is the path of a file or folder here."""
    if not text.startswith(("/", "~", ".")) and text[1:3] not in (":\\", ":/"):
        return False
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _is_origin(address: str) -> bool:
    """Whether a text is an address that has a scheme, a host and a port, and nothing more."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return (
        _ADDRESS.fullmatch(address) is not None
        and "@" not in parts.netloc
        and parts.path in ("", "/")
        and not parts.query
        and not parts.fragment
    )


def _list_parts(text: str) -> list[str]:
    """Returns the lines of a key in PEM, and the items of a list that are long enough to be keys."""
    return [part for part in re.split(r"[\n,;]", text) if len(part.strip()) >= _MIN_PART_CHARS]


class UpstreamSecrets:
    """What texts about one upstream must not show."""

    def __init__(self, values: EntryValues, names: Collection[str] = ()) -> None:
        """`names` are those of upstreams: what is part of one is no secret."""
        known = [name.casefold() for name in names]

        def is_kept(text: str) -> bool:
            return not any(text.casefold() in name for name in known)

        credentials = [*filter(is_kept, values.credentials)]
        settings = [*filter(is_kept, values.settings)]
        words = {text for text in settings if _WORDS.fullmatch(text)}
        self.credentials: Secrets = Secrets(credentials)
        """For definitions, questions, progress and log messages of the upstream."""
        self.all: Secrets = Secrets([*credentials, *(text for text in settings if text not in words)], words)
        """For errors and our own texts."""

    @property
    def redact(self) -> Callable[[str], str]:
        return self.all.redact

    def learn(self, *texts: str | None) -> None:
        """Adds credentials that were issued just now."""
        for text in texts:
            if text:
                self.credentials.learn(text)
                self.all.learn(text)
