"""What a function may ask of the request it serves: declare a parameter of type `Context` to get one."""

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from deltamcp.dialects import versions
from deltamcp.dialects.elicitation import form_schema, read_form
from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.errors import InputDeclinedError
from deltamcp.runtime.deadline import Deadline, WaitHook
from deltamcp.values import JSON, Era, InputRequest, LogLevel, Principal, RequestId, Terms
from deltamcp.wire import jsonrpc

T = TypeVar("T")

CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""What a client must have declared to be asked."""


class Channel(WaitHook, Protocol):
    """The way back to the client while one of its requests is served.

    As a hook it starts when the request waits for something, and may look out for the client meanwhile.
    """

    @property
    def fairness_key(self) -> Hashable:
        """Calls with the same key take one turn together where calls have to wait for a thread."""
        ...

    async def notify(self, message: bytes) -> None:
        """Sends a notification that belongs to this request."""
        ...

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        """Asks the client, handshake era only."""
        ...

    async def detach(self) -> None:
        """Lets the client go; it comes back for the answer, where its revision can."""
        ...


class InputPending(BaseException):
    """Unwinds a function whose questions are not answered yet. Not an `Exception`: authors must not catch it."""

    def __init__(self, requests: dict[str, InputRequest]) -> None:
        super().__init__("input is pending")
        self.requests = requests


class MissingCapabilityError(InputDeclinedError):
    """The client has not declared that it can be asked this."""

    def __init__(self, capability: str, mode: str | None = None) -> None:
        super().__init__(f"The client does not support {capability}{f' by {mode}' if mode else ''}.")
        self.required: dict[str, JSON] = {capability: {mode: {}} if mode else {}}


class Elicited(Struct, frozen=True):
    """What a user made of a question. `content` is there when `action` is "accept"."""

    action: Literal["accept", "decline", "cancel"]
    content: Any = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class Context:
    """One request, seen from inside the function that serves it.

    In the modern era a question ends the request and the client sends it again with the answer: the
    function runs anew from its beginning, questions already answered return at once. So ask first and
    act afterwards, or the act is repeated. Give `key` where questions depend on a condition.
    """

    __slots__ = (
        "_answers",
        "_channel",
        "_deadline",
        "_loop",
        "_progress",
        "_question_count",
        "cancelled",
        "lifespan",
        "request_id",
        "terms",
    )

    def __init__(
        self,
        terms: Terms,
        channel: Channel,
        request_id: RequestId,
        answers: Mapping[str, JSON],
        lifespan: Any,
        deadline: Deadline,
    ) -> None:
        self._deadline = deadline
        self.terms = terms
        self.request_id = request_id
        self.lifespan = lifespan
        """What the server's lifespan yielded."""
        self.cancelled = False
        """For plain functions, which cannot be interrupted: look at it in long loops."""
        self._channel = channel
        self._answers = answers
        self._question_count = 0
        self._progress: float | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def principal(self) -> Principal:
        """On whose behalf the request is made."""
        return self.terms.caller.principal

    @property
    def client(self) -> dict[str, JSON]:
        """The client's own name and version: for display, never for decisions."""
        return self.terms.client

    @property
    def meta(self) -> dict[str, JSON]:
        """The request's `_meta`."""
        return self.terms.meta

    def can(self, capability: Literal["elicitation", "sampling", "roots"]) -> bool:
        """Whether the client declared that it can be asked this."""
        return capability in self.terms.capabilities

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For plain functions: `ctx.wait(ctx.progress(1))` blocks their thread until it is done."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tells how far the work is, where the client asked to know. What does not grow is not sent."""
        token = self.terms.meta.get("progressToken")
        # "Progress": the value MUST increase with each notification.
        if type(token) not in (str, int) or (self._progress is not None and progress <= self._progress):
            return
        self._progress = progress
        params: dict[str, JSON] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._channel.notify(jsonrpc.encode_notification("notifications/progress", params))

    async def log(self, level: LogLevel, data: JSON, logger: str | None = None) -> None:
        """Sends a log message to the client, where it asked for that level. Never put secrets in it."""
        threshold = self.terms.log_level
        if threshold is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(threshold):
            return
        params: dict[str, JSON] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._channel.notify(jsonrpc.encode_notification("notifications/message", params))

    async def detach(self) -> None:
        """Closes the client's stream before a long wait; where its revision can, it returns for the result."""
        await self._channel.detach()

    # Questions

    async def elicit(self, message: str, schema: type | dict[str, JSON], key: str | None = None) -> Elicited:
        """Asks the user to fill in a form: a model, dataclass or typed dict of plain fields, or a JSON Schema.

        Raises:
            InputDeclinedError: the client cannot ask its user, or sent an answer that does not fit.
        """
        answer = await self._ask_one(key, elicitation(message, schema))
        elicited = _read_elicited(answer)
        return Elicited("accept", read_form(schema, elicited.content)) if elicited.accepted else elicited

    async def elicit_url(self, message: str, url: str, key: str | None = None) -> Elicited:
        """Asks the user to open an address, for what must not pass through the client."""
        params: dict[str, JSON] = {"mode": "url", "message": message, "url": url}
        if self.terms.era is Era.HANDSHAKE:
            params["elicitationId"] = f"{self.request_id}-{self._question_count}"
        return _read_elicited(await self._ask_one(key, InputRequest("elicitation/create", params)))

    async def sample(
        self, messages: str | list[dict[str, JSON]], *, max_tokens: int, key: str | None = None, **options: JSON
    ) -> dict[str, JSON]:
        """Has the client's model answer. `options` are `sampling/createMessage`'s own, such as `systemPrompt`."""
        return await self._ask_one(key, sampling(messages, max_tokens, **options))

    async def roots(self, key: str | None = None) -> list[dict[str, JSON]]:
        """The directories the client lets the server work in."""
        answer = await self._ask_one(key, InputRequest("roots/list", {}))
        roots = answer.get("roots")
        if not isinstance(roots, list):
            raise InputDeclinedError("The client's answer to roots/list has no roots.")
        return roots

    async def ask(self, **questions: InputRequest) -> dict[str, dict[str, JSON]]:
        """Several questions in one round; the client's raw results by the same keys."""
        questions = {key: _adapt_question(question, self.terms) for key, question in questions.items()}
        if self.terms.era is Era.MODERN:
            missing = {key: question for key, question in questions.items() if key not in self._answers}
            if missing:
                raise InputPending(missing)
            return {key: self._answers[key] for key in questions}
        with self._deadline.paused():  # a user who thinks is not a tool that hangs
            answers = await asyncio.gather(
                *(self._channel.request(question.method, question.params) for question in questions.values())
            )
        return dict(zip(questions, answers, strict=True))

    async def _ask_one(self, key: str | None, question: InputRequest) -> dict[str, JSON]:
        self._question_count += 1
        name = key or f"{CAPABILITY[question.method]}-{self._question_count}"
        answer = (await self.ask(**{name: question}))[name]
        if not isinstance(answer, dict):
            raise InputDeclinedError(f"The client's answer to {question.method} is not an object.")
        return answer


def _adapt_question(question: InputRequest, terms: Terms) -> InputRequest:
    """A question as the client can be asked it.

    Raises:
        InputDeclinedError: it cannot be asked.
    """
    capability = CAPABILITY[question.method]
    declared = terms.capabilities.get(capability)
    if declared is None:
        raise MissingCapabilityError(capability)
    mode = question.params.get("mode")
    if mode is None:
        return question
    # "Elicitation": an empty capability means forms, for clients older than the modes.
    forms_only = terms.version < versions.FORM_MODES_SINCE or not declared
    if mode not in ({"form"} if forms_only else declared):
        raise MissingCapabilityError(capability, str(mode))
    if terms.version >= versions.FORM_MODES_SINCE:
        return question
    for name, field in question.params["requestedSchema"]["properties"].items():
        if field["type"] == "array":
            raise InputDeclinedError(f"The client's protocol version has no form fields like {name!r}.")
    return InputRequest(question.method, {key: value for key, value in question.params.items() if key != "mode"})


def sampling(messages: str | list[dict[str, JSON]], max_tokens: int, **options: JSON) -> InputRequest:
    """A question for the client's model, to go into `Context.ask`."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    return InputRequest("sampling/createMessage", {"messages": messages, "maxTokens": max_tokens, **options})


def elicitation(message: str, schema: type | dict[str, JSON]) -> InputRequest:
    """A form for the user, to go into `Context.ask`."""
    return InputRequest(
        "elicitation/create", {"mode": "form", "message": message, "requestedSchema": form_schema(schema)}
    )


def roots() -> InputRequest:
    """The question for the client's directories, to go into `Context.ask`."""
    return InputRequest("roots/list", {})


def _read_elicited(answer: dict[str, JSON]) -> Elicited:
    action = answer.get("action")
    if action not in ("accept", "decline", "cancel"):
        raise InputDeclinedError("The client's answer to elicitation/create has no valid action.")
    return Elicited(action, answer.get("content"))
