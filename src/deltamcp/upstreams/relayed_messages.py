"""What an upstream asks, logs and reports, within a request and outside, in the form that the caller is told.

A question of ours is one line, which begins with a word. One of an upstream begins with `[server NAME asks]`, and each
further line of it with `|`, so that nothing an upstream sends can look like ours.
"""

import re
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from deltamcp.catalog.text.clean_text import clean, visible_line
from deltamcp.context import CAPABILITY, Context, adapt_question
from deltamcp.dialects import versions
from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.errors import FAULTS, Fault, InputDeclinedError, PeerError
from deltamcp.runtime.local_sessions import LocalSessions
from deltamcp.runtime.secrets import Secrets
from deltamcp.values import JSON, Era, InputRequest, Terms
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

_INVALID_PARAMS = FAULTS[Fault.INVALID_PARAMS].handshake
_MAX_STEPS = 100_000
"""The work of a search for secrets in what an upstream sends, and the characters that people are shown of a question;
what takes more is not passed on."""
_MAX_LOG_CHARS, _MAX_LOG_BYTES = 32_000, 1_000_000
"""What is passed on of a log message that is a text; and of any other, which is left out if it is larger."""
_MAX_PROGRESS_CHARS = 4_000
_MAX_NAME_CHARS = 80
_GAP = re.compile(r"(?:[^\S\n]|\u2800){5,}")
"""Blanks, that of Braille among them, that would move what follows them to where a line seems to begin."""
_SHOWN_KEYS = frozenset({"title", "description"})
"""The members of a form's schema that are for people to read."""
_CHOICE_KEYS = ("const", "enum")
"""Those that people read, and that a client sends back as they are."""


def request_owner(context: Context) -> Hashable:
    """Returns whom a request is of; a request of somebody who cannot be told from others is its own owner."""
    caller = context.terms.caller
    if caller.connection is None and caller.is_anonymous:
        return object()
    return caller.principal.key, caller.connection


class RelayedMessages:
    """Passes on what one upstream sends for people to read: with its name, without credentials, nothing hidden."""

    def __init__(
        self, name: str, credentials: Secrets, *, redacts_data: bool = False, roots: Sequence[str] = ()
    ) -> None:
        """
        Args:
            roots: The folders that the operator names, as URIs, where no client can be asked for them.
            credentials: What of the upstream's entry nobody is told.
            redacts_data: Whether that holds for addresses to open and for what models are asked, too.
        """
        shown = visible_line(name)[:_MAX_NAME_CHARS].translate({ord("["): "(", ord("]"): ")"})
        self._name, self._credentials, self._redacts_data = shown, credentials, redacts_data
        self._roots = roots

    def own_roots(self) -> dict[str, JSON]:
        """Returns the answer to `roots/list` for a client that has none: the upstream was told that it may ask."""
        return {"roots": [{"uri": root} for root in self._roots]}

    def own_answer(self, method: str, terms: Terms) -> dict[str, JSON] | None:
        """Returns the answer to what an upstream of the handshake era asks, where its caller cannot be asked that."""
        return self.own_roots() if method == "roots/list" and "roots" not in terms.capabilities else None

    def question(self, method: str, params: Mapping[str, JSON], terms: Terms) -> InputRequest:
        """Returns a question of the upstream for a client, with all that the upstream wrote.

        Raises:
            PeerError: the client cannot be asked this; the upstream can be told so.
        """
        if method not in CAPABILITY:
            raise PeerError(FAULTS[Fault.UNKNOWN_METHOD].handshake, "Requests of this method are not passed on.")
        try:
            if method == "elicitation/create":
                return _elicitation(InputRequest(method, self._shown_elicitation(params)), terms)
            declared = terms.capabilities.get("sampling")
            takes_tools = isinstance(declared, dict) and "tools" in declared
            if method == "sampling/createMessage" and "tools" in params and not takes_tools:
                raise PeerError(_INVALID_PARAMS, "The client does not support sampling with tools.")
            return adapt_question(InputRequest(method, self._shown_params(method, params)), terms)
        except InputDeclinedError as error:
            raise PeerError(_INVALID_PARAMS, str(error)) from None
        except (WorkLimitError, RecursionError):
            raise PeerError(_INVALID_PARAMS, "The request is too large to be passed on.") from None

    def visit(self, params: Mapping[str, JSON]) -> dict[str, JSON]:
        """Returns an address that the upstream wants visited, from the data of its error, for a client to show.

        Raises:
            PeerError: it cannot be shown.
        """
        try:
            return self._shown_elicitation(params)
        except (WorkLimitError, RecursionError):
            raise PeerError(_INVALID_PARAMS, "The request is too large to be passed on.") from None

    def _shown_elicitation(self, params: Mapping[str, JSON]) -> dict[str, JSON]:
        shown: dict[str, JSON] = self._credentials.redact_result(dict(params), Work(_MAX_STEPS))
        message, url = shown.get("message", ""), params.get("url")
        if not isinstance(message, str):
            raise PeerError(_INVALID_PARAMS, "message must be a text.")
        work = Work(_MAX_STEPS)
        shown["message"] = self._question_text(message, work)
        if isinstance(url, str):
            work.spend(len(url))
            if clean(url) != url or any(map(str.isspace, url)):
                raise PeerError(_INVALID_PARAMS, "The URL has characters that no URL has.")
            if not self._redacts_data:  # else the user could not open it
                shown["url"] = url
        if "requestedSchema" in shown:
            shown["requestedSchema"] = _shown_schema(shown["requestedSchema"], work)
        return shown

    def _shown_params(self, method: str, params: Mapping[str, JSON]) -> dict[str, JSON]:
        shown = dict(params)
        if method != "sampling/createMessage":
            return shown
        if self._redacts_data:
            shown = self._credentials.redact_result(shown, Work(4 * _MAX_STEPS))
        prompt = shown.get("systemPrompt")
        text = prompt if isinstance(prompt, str) else ""
        Work(_MAX_STEPS).spend(len(text))
        return {
            **shown,
            "systemPrompt": f"[server {self._name} asks] {clean(self._credentials.redact(text))}".rstrip(),
        }

    def _question_text(self, text: str, work: Work) -> str:
        return f"[server {self._name} asks] {_counted_text(text, work)}".rstrip()

    def progress(self, message: str | None) -> str | None:
        """Returns what the upstream says of its progress, with its name."""
        if message is None:
            return None
        return f"{self._name}: {_marked_text(self._excerpt(message, _MAX_PROGRESS_CHARS))}"

    def _excerpt(self, text: str, max_chars: int) -> str:
        return self._credentials.redact_excerpt(text[:max_chars], len(text) <= max_chars, max_chars)

    def log(self, params: Mapping[str, JSON]) -> dict[str, JSON] | None:
        """Returns a log message of the upstream with its name before that of the logger; None if it is too large."""
        logger, data = params.get("logger"), params.get("data")
        if isinstance(data, str):
            params = {**params, "data": self._excerpt(data, _MAX_LOG_CHARS)}
        if len(jsonrpc.encode(params)) > _MAX_LOG_BYTES:
            return None
        try:
            shown: dict[str, JSON] = self._credentials.redact_result(dict(params), Work(_MAX_STEPS))
        except WorkLimitError:
            return None
        name = visible_line(shown["logger"][:_MAX_NAME_CHARS]) if isinstance(logger, str) and logger else ""
        shown["logger"] = f"{self._name}/{name}" if name and name != self._name else self._name
        if isinstance(shown.get("data"), str):
            shown["data"] = _marked_text(shown["data"])
        return shown

    async def relay_log(self, params: Mapping[str, JSON], context: Context) -> None:
        """Sends a log message of the upstream to the caller, if it wants messages of this level."""
        shown = self.log(params) if params.get("level") in LOG_LEVELS else None
        if shown is not None:
            await context.log(shown["level"], shown.get("data"), shown["logger"])


def _marked_text(text: str) -> str:
    """Returns a text without hidden characters, whose further lines begin with a mark that no text of ours has."""
    return _GAP.sub("    ", clean(text)).replace("\n", "\n| ")


def _counted_text(text: str, work: Work) -> str:
    """
    Raises:
        WorkLimitError: the text is too long.
    """
    work.spend(len(text))  # each may be a character that is looked at by itself
    return _marked_text(text)


def _shown_schema(schema: Any, work: Work) -> Any:
    """Returns the schema of a form with all texts as people can be shown them.

    Raises:
        WorkLimitError: it is too large.
        PeerError: a name or a choice, which clients send back as they are, has hidden characters or several lines.
    """
    work.spend()
    match schema:
        case dict():
            for text in (*schema, *_choices(schema)):
                if isinstance(text, str) and _counted_text(text, work) != text:
                    raise PeerError(_INVALID_PARAMS, "requestedSchema has names or choices with hidden characters.")
            return {
                key: _counted_text(value, work)
                if key in _SHOWN_KEYS and isinstance(value, str)
                else _shown_schema(value, work)
                for key, value in schema.items()
            }
        case list():
            return [
                _counted_text(value, work) if isinstance(value, str) else _shown_schema(value, work) for value in schema
            ]
        case _:
            return schema


def _choices(schema: dict[str, Any]) -> Iterator[Any]:
    for key in _CHOICE_KEYS:
        value = schema.get(key)
        yield from value if isinstance(value, list) else (value,)


def _elicitation(question: InputRequest, terms: Terms) -> InputRequest:
    params = question.params
    mode = params.get("mode", "form")
    if mode == "form" and not _is_form(params.get("requestedSchema")):
        raise PeerError(_INVALID_PARAMS, "requestedSchema must be the schema of an object with properties.")
    # Servers older than the modes leave `mode` out of a form.
    adapted = adapt_question(InputRequest(question.method, {**params, "mode": mode}), terms).params
    if "mode" not in params:
        adapted = {key: value for key, value in adapted.items() if key != "mode"}
    if mode == "url" and terms.era is Era.HANDSHAKE and terms.version in versions.HANDSHAKE:
        adapted.setdefault("elicitationId", str(uuid.uuid4()))  # 2026-07-28 has none
    return InputRequest(question.method, adapted)


def _is_form(schema: Any) -> bool:
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(schema.get("required", []), list):
        return False
    return all(isinstance(field, dict) for field in properties.values())


class OutsideRequest:
    """The sender of no request: only the local user can be told, because it might be another user's business."""

    owner: Hashable = None

    def __init__(
        self,
        messages: RelayedMessages,
        sessions: Callable[[], LocalSessions] = LocalSessions,
    ) -> None:
        """
        Args:
            messages: Passes on what the upstream sends for people to read.
            sessions: Returns the sessions of the local user.
        """
        self._messages, self._sessions = messages, sessions

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        session = self._sessions().only
        if method != "roots/list":
            raise PeerError(FAULTS[Fault.INVALID_PARAMS].handshake, "No request is open, so there is nobody to ask.")
        if session is not None and "roots" in session.capabilities:
            try:
                answer = await session.request(method, params)
            except InputDeclinedError as error:
                raise PeerError(0, str(error)) from None
            return answer if isinstance(answer, dict) else {"roots": []}
        return self._messages.own_roots()

    def log(self, params: dict[str, JSON]) -> None:
        shown = self._messages.log(params)
        if shown is not None:
            self._sessions().log(shown)

    async def detach(self) -> None:
        """Does nothing: no request has a stream."""
