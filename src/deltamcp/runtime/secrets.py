"""Secrets of operations files and upstreams: keeps them in the user's keyring, and out of replies and of logs."""

import base64
import binascii
import functools
import html
import json
import logging
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import msgspec
from msgspec import Struct, structs

from deltamcp.errors import ConfigurationError
from deltamcp.values import Text, ToolResult
from deltamcp.work import Work, WorkLimitError

MIN_SECRET_CHARS = 6
"""Shorter secrets are not removed, as they would match in too many places."""
_MIN_PATH_SECRET_CHARS = 16
"""Shorter parts of an address's path are names, not keys."""
_MAX_LEARNED = 256
"""The secrets that are learnt while a program runs, such as tokens of logins; the oldest are forgotten."""
_SECRET_NAME = re.compile(
    r"auth|key|token|secret|pass(w|code|phrase|[_.-]|$)|pwd|cookie|credential|bearer|jwt|signature|private|webhook"
    r"|(^|[_.-])(pat|dsn|sig)($|[_.-])",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_JSON_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_MARK = "..."
_PART_BYTES = 256 * 1024
"""What is searched at once, some 0.1 ms."""
_FORMATTER = logging.Formatter()
_KEYRING_SERVICE = "delta-mcp secrets"
"""The service under which the keyring has what `delta-mcp secret set` puts there."""


class Secrets:
    """Replaces secrets by `...`, in every spelling in which a service may repeat what it was sent.

    These are the text itself, and the text as part of an address, a form, JSON, HTML or base64. This is no defence
    against a service that wants to reveal a secret, which can always spell it in another way.
    """

    def __init__(self, texts: Iterable[str], words: Iterable[str] = ()) -> None:
        """
        Args:
            words: Secrets that could be part of other words, and are removed only where they are none.
        """
        self._texts = {text for text in texts if len(text) >= MIN_SECRET_CHARS}
        self._words = {word for word in words if len(word) >= MIN_SECRET_CHARS} - self._texts
        self._learned: dict[str, set[str]] = {}

    @functools.cached_property
    def _spellings(self) -> list[str]:
        """All that is searched for, the longest first; of words in a text, their own spelling is the last."""
        found = {spelling for text in self._texts for spelling in _spellings(text)}
        found.update({spelling for word in self._words for spelling in _spellings(word)} - self._words)
        found.update(*self._learned.values())
        return [*sorted(found, key=len, reverse=True), *sorted(self._words, key=len, reverse=True)]

    @functools.cached_property
    def _spellings_in_json(self) -> list[bytes]:
        return [msgspec.json.encode(spelling)[1:-1] for spelling in self._spellings]

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self._spellings), default=0)

    def learn(self, text: str) -> None:
        """Adds a secret that was not known before, such as a token that was issued just now."""
        if len(text) < MIN_SECRET_CHARS or text in self._learned:
            return
        if len(self._learned) >= _MAX_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._learned[text] = _spellings(text)
        for name in ("_spellings", "_spellings_in_json", "_longest"):
            self.__dict__.pop(name, None)

    def redact(self, text: str) -> str:
        for spelling in self._spellings:
            if spelling not in text:
                continue
            if spelling in self._words:
                text = re.sub(rf"(?<![\w.-]){re.escape(spelling)}(?![\w-]|\.\w)", _MARK, text)
            else:
                text = text.replace(spelling, _MARK)
        return text

    def redact_excerpt(self, text: str, is_whole: bool, max_chars: int) -> str:
        """Redacts a text, or the beginning of one, which may end inside of a secret; returns at most `max_chars`.

        JSON may have any character as a code, which is read here, because the beginning of JSON cannot be decoded.
        """
        plain = _JSON_CODE.sub(lambda code: chr(int(code[1], 16)), text)
        redacted = self.redact(text if self.redact(plain) == plain else plain)
        return redacted[: len(redacted) if is_whole else max(0, len(redacted) - self._longest)][:max_chars]

    def redact_result(self, result: Any, work: Work) -> Any:
        """Returns a result without the secrets: JSON, bytes, content, or a `ToolResult`.

        Raises:
            WorkLimitError: the result is too large, or nested too deeply.
        """
        if not self._spellings:
            return result
        if isinstance(result, ToolResult):
            content: list[Any] = [self.redact_result(block, work) for block in result.content]
            structured = result.structured
            if structured is not msgspec.UNSET:
                structured = self.redact_result(structured, work)
            return ToolResult(content, structured, result.is_error, self.redact_result(result.meta, work))
        if isinstance(result, Text) and result.annotations is None and result.meta is None:
            return Text(self._redact_text(result.text, work))
        if isinstance(result, str):
            return self._redact_text(result, work)
        encoded = msgspec.json.encode(result)
        work.scan(len(encoded) * len(self._spellings))
        if not self._is_in(encoded):
            return result
        try:
            return self._redact_value(result, work)
        except RecursionError:
            raise WorkLimitError("This is nested too deeply to be searched for secrets.") from None

    def _is_in(self, encoded: bytes) -> bool:
        """Whether a secret is in JSON; in parts, because no other thread runs during one search."""
        longest = max(map(len, self._spellings_in_json))
        return any(
            spelling in part
            for start in range(0, len(encoded), _PART_BYTES)
            for part in (encoded[start : start + _PART_BYTES + longest],)
            for spelling in self._spellings_in_json
        )

    def _redact_text(self, text: str, work: Work) -> str:
        work.scan(len(text) * len(self._spellings))
        return self.redact(text)

    def _redact_value(self, value: Any, work: Work) -> Any:
        work.spend()
        match value:
            case str():
                return self._redact_text(value, work)
            case bytes():
                work.scan(len(value) * len(self._spellings))
                for spelling in self._spellings:
                    value = value.replace(spelling.encode(), _MARK.encode())
                return value
            case None | bool():
                return value
            case int() | float():  # a secret of digits may come as a number
                return value if self.redact(str(value)) == str(value) else _MARK
            case list():
                return [self._redact_value(item, work) for item in value]
            case dict():
                return self._redact_object(value, work)
            case Struct():
                names = value.__struct_fields__
                return structs.replace(
                    value, **{name: self._redact_value(getattr(value, name), work) for name in names}
                )
            case _:
                return value

    def _redact_object(self, value: dict[str, Any], work: Work) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        for name, member in value.items():
            shown = self._redact_text(name, work)
            while shown != name and (shown in redacted or shown in value):
                shown += _MARK
            redacted[shown] = self._redact_value(member, work)
        return redacted


def variable_secrets(values: Iterable[str]) -> Iterator[str]:
    """Yields the secrets among the values of variables, or in them.

    A value is a secret as a whole, except a path that exists here, and an address: of an address, its password, the
    values of its query and long parts of its path are secrets.
    """
    for given in values:
        value = given.strip()
        if _ADDRESS.match(value):
            yield from address_secrets(value)
            yield from (part for part in urlsplit(value).path.split("/") if len(part) >= _MIN_PATH_SECRET_CHARS)
            yield from (text for _, text in parse_qsl(urlsplit(value).query))
        elif not (value.startswith("/") and Path(value).exists()):
            yield value


def address_secrets(address: str) -> Iterator[str]:
    """Yields the secrets in an address: its password, and the values in its query whose names say so."""
    parts = urlsplit(address)
    if parts.password:
        yield unquote(parts.password)
        yield parts.password
    yield from named_secrets(dict(parse_qsl(parts.query)))


def named_secrets(texts: Mapping[str, str]) -> Iterator[str]:
    """Yields the secrets among texts by name, such as headers: those whose name says so, and what follows a scheme."""
    for name, text in texts.items():
        if is_secret_name(name):
            yield from header_secrets(name, text)


def is_secret_name(name: str) -> bool:
    """Whether the name of a variable, a header, an option or a parameter says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


_DOLLAR_QUOTE = re.compile(r"(?<![^\s=:,;&|(])\$(?=['\"])")
"""What bash writes before a quotation mark for escapes and translations: no part of the word, nor a variable."""


def shell_words(text: str) -> list[str]:
    """Splits a command line as a shell does, at operators too; at spaces alone if a quotation mark is unpaired."""
    lexer = shlex.shlex(_DOLLAR_QUOTE.sub("", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return text.split()


def header_secrets(name: str, text: str) -> Iterator[str]:
    """Yields the secrets in a header: its cookies, or its credentials without their scheme, and the password there."""
    if "cookie" in name.lower():
        yield from (cookie.partition("=")[2] for cookie in text.split(";"))
        return
    scheme, _, credentials = text.strip().partition(" ")
    yield credentials or scheme
    if scheme.lower() == "basic":
        yield from _basic_secrets(credentials)


def _basic_secrets(credentials: str) -> Iterator[str]:
    try:
        user_and_password = base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield user_and_password
    yield user_and_password.partition(":")[2]


def _spellings(secret: str) -> set[str]:
    data = secret.encode(errors="surrogatepass")  # JSON may have half of a surrogate pair
    in_json = json.dumps(secret)[1:-1]
    in_html = html.escape(secret)
    in_address = [quote(data), quote(data, safe=""), quote_plus(data)]
    return {
        secret,
        *in_address,
        *(re.sub("%..", lambda code: code[0].lower(), text) for text in in_address),
        in_json,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        in_json.replace("/", "\\/"),
        re.sub("[<>&]", lambda letter: f"\\u{ord(letter[0]):04x}", in_json),
        in_html,
        in_html.replace("&#x27;", "&#39;"),
        html.escape(secret, quote=False),
        *_base64_spellings(data),
    }


def _base64_spellings(secret: bytes) -> Iterator[str]:
    """Yields what base64 makes of a secret anywhere in longer data, without the characters it shares with others."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).decode()
        own = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        yield own
        yield own.translate(str.maketrans("+/", "-_"))


class SecretFilter(logging.Filter):
    """Redacts the text and the traceback of a record; one without secrets stays as it is."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        redacted = self._redact(text)
        if redacted != text:
            record.msg, record.args = redacted, None
        if record.exc_info:
            trace = _FORMATTER.formatException(record.exc_info)
            redacted = self._redact(trace)
            if redacted != trace:
                record.msg, record.args = f"{record.getMessage()}\n{redacted}", None
                record.exc_info = record.exc_text = None
        return True


@contextmanager
def secrets_left_out(redact: Callable[[str], str]) -> Iterator[None]:
    """Has a function take secrets out of the library's own log."""
    logger, filter_ = logging.getLogger("deltamcp"), SecretFilter(redact)
    logger.addFilter(filter_)
    try:
        yield
    finally:
        logger.removeFilter(filter_)


def ask_keyring(function: str, *arguments: str) -> object:
    """Calls a function of the package `keyring`; returns None if it is not installed, or its backend fails."""
    try:
        import keyring  # 100 ms to import

        return getattr(keyring, function)(*arguments)
    except Exception:  # backends raise what they like; none of it says more than that there is no keyring
        return None


def load_secret(name: str) -> str | None:
    """Returns a secret of the user; None if the keyring does not have it, or there is no keyring."""
    found = ask_keyring("get_password", _KEYRING_SERVICE, name)
    return found if isinstance(found, str) else None


def save_secret(name: str, secret: str) -> None:
    """
    Raises:
        ConfigurationError: there is no keyring that keeps it.
    """
    ask_keyring("set_password", _KEYRING_SERVICE, name, secret)
    if load_secret(name) != secret:  # a keyring may be switched off, locked, or too small
        raise ConfigurationError(
            "There is no keyring here that keeps secrets: pip install 'delta-mcp[keyring]', unlock yours, or set an "
            "environment variable and write ${NAME} in the configuration."
        )


def delete_secret(name: str) -> bool:
    """Removes a secret; returns whether there was one."""
    was_there = load_secret(name) is not None
    ask_keyring("delete_password", _KEYRING_SERVICE, name)
    return was_there
