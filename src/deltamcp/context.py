"""`Context`: a function's access to its request and its client. A function gets one by a parameter of that type.

What functions keep of one conversation is in the store that replicas share (`ConversationState`).
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct
from typing_extensions import deprecated

from deltamcp.dialects import versions
from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.dialects.questions import form_schema, read_form
from deltamcp.dialects.tasks import with_related_task
from deltamcp.errors import InputDeclinedError, NoConversationError, ToolError
from deltamcp.limits import Limits
from deltamcp.runtime.deadline import Deadline
from deltamcp.runtime.seal import SessionContext
from deltamcp.stores.store import SharedStore, StoreError
from deltamcp.values import (
    JSON,
    BlobResource,
    Caller,
    Era,
    InputRequest,
    Kind,
    LogLevel,
    Principal,
    PromptResult,
    RequestId,
    ResultShape,
    Terms,
    TextResource,
)
from deltamcp.wire import jsonrpc

_STATE_NAME = "state"
_STATE_SECONDS = 7 * 86_400.0
_STATE_ATTEMPTS = 100
"""Of several calls that change the state at once one succeeds in each attempt, and the others try again."""
T = TypeVar("T")
CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The capability that a client must have declared, by the method of the server's question."""


class ProgressReport(Struct, frozen=True):
    """How far a call has come."""

    progress: float
    total: float | None = None
    message: str | None = None
    token: str | int | None = None
    """The progress token of the client's request; None if the client sent none."""
    task: str | None = None
    """The promise whose outcome a client of MCP 2025-11-25 waits for."""

    def fields(self) -> dict[str, JSON]:
        """Returns what MCP and MCP-lite both say of it."""
        fields: dict[str, JSON] = {"progress": self.progress}
        if self.total is not None:
            fields["total"] = self.total
        if self.message is not None:
            fields["message"] = self.message
        return fields

    def notification(self) -> bytes:
        """Returns `notifications/progress`."""
        params: dict[str, JSON] = {"progressToken": self.token, **self.fields()}
        if self.task is not None:
            params = with_related_task(params, self.task)
        return jsonrpc.encode_notification("notifications/progress", params)


class Channel:
    """Whom a running call talks to: sends messages to the client while the server performs one of its requests.

    A subclass defines what its client can be sent. The rest is not sent, and questions are declined.
    """

    __slots__ = ()

    fairness_key: Hashable
    """The key by which calls that wait for a thread take turns; calls with the same key share one turn."""
    headers: Mapping[bytes, bytes]
    """The HTTP headers of the request, by names in lower case; none if it did not come over HTTP."""
    takes_every_progress: bool = False
    """Whether progress is reported although the client sent no progress token."""
    unasked: ClassVar[str] = "This client cannot be asked during a call."
    """Why a question is declined."""

    async def notify(self, message: bytes) -> None:
        """Sends a notification that belongs to this request."""

    async def report(self, progress: ProgressReport) -> None:
        """Reports how far the call has come."""

    async def send_part(self, part: JSON) -> None:
        """Sends a part of the result as soon as the function has made it, where the client asked for parts."""

    async def request(self, method: str, params: dict[str, JSON]) -> JSON:
        """Sends a request to the client and returns its result; only in the handshake era.

        Raises:
            InputDeclinedError: the client cannot be asked, or does not answer.
        """
        raise InputDeclinedError(self.unasked)

    async def detach(self) -> None:
        """Closes the client's stream early, where its protocol version lets it reconnect for the response."""


class InputPending(BaseException):
    """Stops a function because the client has not answered its questions yet.

    It is not an `Exception`, so that an author's `except Exception` does not catch it.
    """

    def __init__(self, requests: dict[str, InputRequest], memo: JSON = None) -> None:
        """`memo` is what the function finds as `Context.memo` when it runs again with the answers."""
        super().__init__("input is pending")
        self.requests = requests
        self.memo = memo


class MissingCapabilityError(InputDeclinedError):
    """The client has not declared the capability that a question needs."""

    def __init__(self, capability: str, mode: str | None = None) -> None:
        super().__init__(f"The client does not support {capability}{f' by {mode}' if mode else ''}.")
        self.required: dict[str, JSON] = {capability: {mode: {}} if mode else {}}


class Elicited(Struct, frozen=True):
    """A user's answer to a question.

    `content` is set when `action` is "accept": the form that the user filled in, as an instance of the form's type; the
    value, for a plain type or a list of choices; or a dict, for a JSON Schema.
    """

    action: Literal["accept", "decline", "cancel"]
    """What the user did: "accept", "decline", or "cancel" without a decision."""
    content: Any = None
    """The answer; None unless the user accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the user accepted, so that there is `content`."""
        return self.action == "accept"


def conversation_digest(caller: Caller) -> str | None:
    """Returns what stands for a caller's conversation, and reveals no session id; None if there is none.

    That is the one that the request names, else its connection or session. Two principals never share one, also where
    they name it alike.
    """
    conversation = caller.conversation or caller.connection
    if conversation is None:
        return None
    text = f"{caller.principal.owner}\0{conversation}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class StateStore:
    """The states of all conversations of one server."""

    def __init__(self, store: SharedStore, server: str, limits: Limits) -> None:
        self._store, self._server, self._limits = store, server, limits

    async def read(self, conversation: str) -> bytes | None:
        return await self._store.get(self._owner(conversation), _STATE_NAME)

    async def write(self, conversation: str, expected: bytes | None, data: bytes, account: str) -> bool:
        """Stores a state in place of the one that was read; returns False if that has changed meanwhile.

        It counts towards an account of its own for each caller, so that results do not displace it.

        Raises:
            ToolError: the state is too large.
        """
        if len(data) > self._limits.state_bytes:
            raise ToolError(f"The state of a conversation may have {self._limits.state_bytes:,} bytes as JSON.")
        owner, idle_seconds, own_account = self._owner(conversation), self._limits.state_seconds, f"states, {account}"
        if expected is None:
            return await self._store.add(owner, _STATE_NAME, data, idle_seconds, _STATE_SECONDS, own_account)
        return await self._store.replace(owner, _STATE_NAME, expected, data, idle_seconds, _STATE_SECONDS, own_account)

    def _owner(self, conversation: str) -> str:
        return f"state of {conversation} at {self._server}"


class ConversationState:
    """A small mapping of one conversation, from texts to JSON. Every method may raise `StoreError`.

    Calls of the same conversation share it, at any replica; other conversations and principals have their own.
    """

    __slots__ = ("_account", "_conversation", "_states")

    def __init__(self, states: StateStore, conversation: str | None, account: str) -> None:
        self._states, self._conversation, self._account = states, conversation, account

    async def get(self, key: str, default: JSON = None) -> JSON:
        """Returns the value of a key, or `default`.

        Raises:
            NoConversationError: the request names no conversation.
        """
        return (await self.all()).get(key, default)

    async def all(self) -> dict[str, JSON]:
        """Returns a copy of the whole mapping.

        Raises:
            NoConversationError: as `get`.
        """
        return _decode(await self._states.read(self._conversation_or_error()))

    async def set(self, key: str, value: JSON) -> None:
        """Sets a key.

        Raises:
            NoConversationError: as `get`.
            ToolError: the mapping would be larger than `Limits.state_bytes`.
            ValueError: JSON cannot express the value.
        """
        jsonrpc.encode_finite(value)
        await self._change(lambda mapping: mapping.__setitem__(key, value))

    async def delete(self, key: str) -> None:
        """Removes a key, if it is there.

        Raises:
            NoConversationError: as `get`.
        """
        await self._change(lambda mapping: mapping.pop(key, None))

    async def update(self, key: str, change: Callable[[JSON], JSON], default: JSON = None) -> JSON:
        """Sets a key to what `change` returns for its value, and returns that: `update("calls", lambda n: n + 1, 0)`.

        No concurrent change is lost; `change` may therefore be called several times.

        Raises:
            NoConversationError, ToolError, ValueError: as `set`.
        """

        def change_key(mapping: dict[str, JSON]) -> JSON:
            mapping[key] = change(mapping.get(key, default))
            return mapping[key]

        return await self._change(change_key)

    async def _change(self, change: Callable[[dict[str, JSON]], JSON]) -> JSON:
        conversation = self._conversation_or_error()
        for _ in range(_STATE_ATTEMPTS):
            before = await self._states.read(conversation)
            mapping = _decode(before)
            changed = change(mapping)
            if await self._states.write(conversation, before, jsonrpc.encode_finite(mapping), self._account):
                return changed
        raise StoreError("The state of a conversation is changed by too many calls at once.")

    def _conversation_or_error(self) -> str:
        if self._conversation is None:
            raise NoConversationError
        return self._conversation


def _decode(data: bytes | None) -> dict[str, JSON]:
    found: dict[str, JSON] = {} if data is None else msgspec.json.decode(data)
    return found


class OwnServer(Protocol):
    """What a function may ask of the server that it is registered at, as the caller of the request may."""

    async def read_resource(self, uri: str) -> list[TextResource | BlobResource]:
        """Returns the contents of a resource, as `Context.read_resource` does."""
        ...

    def list_items(self, kind: Kind) -> list[dict[str, JSON]]:
        """Returns the definitions of the items of a kind."""
        ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> PromptResult:
        """Returns the messages of a prompt, as `Context.get_prompt` does."""
        ...

    def open_state(self) -> ConversationState:
        """Returns the state of the request's conversation."""
        ...


class RequestProgress(Struct):
    """What all contexts of one request share, so that a question or a progress is not counted twice."""

    question_count: int = 0
    has_asked: bool = False
    progress: float | None = None
    cancelled: bool = False


class Context:
    """The request that a function serves: who sent it, and ways to report to the client and to ask the user.

    A function gets one when it declares a parameter of this type. Plain functions call the async methods through
    `wait`.

    Clients of MCP 2026-07-28 answer questions by sending the request again: the server then runs the function again
    from its beginning, and questions that the client has answered return at once. So ask before you change anything;
    otherwise the change happens twice. The server matches answers to questions by their order; if a function asks some
    questions only under a condition, pass a `key` with each.
    """

    __slots__ = (
        "_answers",
        "_channel",
        "_deadline",
        "_loop",
        "_own_server",
        "_session",
        "_shared",
        "_state",
        "attempt",
        "lifespan",
        "memo",
        "promise_id",
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
        session: SessionContext,
        shared: RequestProgress,
        own_server: OwnServer,
        promise_id: str | None = None,
        attempt: int = 1,
        memo: JSON = None,
    ) -> None:
        self._deadline = deadline
        self.terms: Terms = terms
        self.request_id: RequestId = request_id
        self.lifespan: Any = lifespan
        """The value that the server's lifespan yielded."""
        self.promise_id: str | None = promise_id
        """Identifies the call if it runs behind a promise, also when it runs again; None if its client waits."""
        self.attempt: int = attempt
        """Which run of the call behind a promise this is: after answers to questions, and where a worker died, the
        function runs again."""
        self.memo: JSON = memo
        """What the function gave `InputPending` in the round before; None in the first round."""
        self._channel = channel
        self._answers = answers
        self._session = session
        self._shared = shared
        self._own_server = own_server
        self._state: ConversationState | None = None
        self._loop = asyncio.get_running_loop()

    def in_server(self, lifespan: Any, own_server: OwnServer) -> "Context":
        """Returns the context of the same request for functions of a mounted server, with its lifespan and names."""
        return Context(
            self.terms,
            self._channel,
            self.request_id,
            self._answers,
            lifespan,
            self._deadline,
            self._session,
            self._shared,
            own_server,
            self.promise_id,
            self.attempt,
            self.memo,
        )

    @property
    def state(self) -> ConversationState:
        """What the server's functions keep of the conversation that the request belongs to: a small mapping, in the
        store. Its methods raise `NoConversationError` where the request names none."""
        if self._state is None:  # most calls need none
            self._state = self._own_server.open_state()
        return self._state

    @property
    def cancelled(self) -> bool:
        """Whether the request was cancelled. A plain function cannot be interrupted and should check it in loops."""
        return self._shared.cancelled

    def mark_cancelled(self) -> None:
        """Sets `cancelled`; the server calls it."""
        self._shared.cancelled = True

    @property
    def principal(self) -> Principal:
        """The principal that the request is made for."""
        return self.terms.caller.principal

    @property
    def client(self) -> dict[str, JSON]:
        """The name and version that the client states, unverified: use them for display, not for decisions."""
        return self.terms.client

    @property
    def meta(self) -> dict[str, JSON]:
        """The request's `_meta`."""
        return self.terms.meta

    @property
    def resources(self) -> dict[str, float]:
        """How much of each kind of resource the caller grants, by `_meta.resources`: `{"tokens": 60000}`.

        A function that has not enough raises `NeedsResource`.
        """
        granted = self.terms.meta.get("resources")
        if not isinstance(granted, dict):
            return {}
        return {kind: amount for kind, amount in granted.items() if type(amount) in (int, float)}

    @property
    def session_context(self) -> dict[str, JSON]:
        """What the client carries for the application from one request to the next, such as the number of a cart.

        A function that sets it has the server send it, sealed for this principal, in the result's `_meta`; a client
        of MCP-lite sends it back in the next request. It is empty at first, and half an hour after it was last set
        (`Limits.session_idle_seconds`). The server stores nothing.
        """
        return self._session.value

    @session_context.setter
    def session_context(self, value: dict[str, JSON]) -> None:
        self._session.replace(value)

    def can(self, capability: Literal["elicitation", "sampling", "roots"]) -> bool:
        """Whether the client declared a capability, and so can be asked."""
        return capability in self.terms.capabilities

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine from a plain function and returns its result: `ctx.wait(ctx.report_progress(1))`.

        It blocks the function's thread. An async function uses `await` instead.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def takes_progress(self) -> bool:
        """Whether anybody hears of progress: the client asked for it, or a promise shows it."""
        return type(self.terms.meta.get("progressToken")) in (str, int) or self._channel.takes_every_progress

    @deprecated("Context.progress is called report_progress; the old name goes with 0.3.")
    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self.report_progress(progress, total, message)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Reports progress to the client, if the client requested it.

        `progress` must grow with every call; the server does not send a value that is not above the one before.
        """
        token = self.terms.meta.get("progressToken")
        if type(token) not in (str, int):
            if not self._channel.takes_every_progress:
                return
            token = None
        # "Progress": the value MUST increase with each notification.
        if self._shared.progress is not None and progress <= self._shared.progress:
            return
        self._shared.progress = progress
        await self._channel.report(ProgressReport(progress, total, message, token))

    async def log(self, level: LogLevel, data: JSON, logger: str | None = None) -> None:
        """Sends a log message to the client, if the client requested messages of this level. Never include secrets."""
        threshold = self.terms.log_level
        if threshold is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(threshold):
            return
        params: dict[str, JSON] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._channel.notify(jsonrpc.encode_notification("notifications/message", params))

    async def debug(self, data: JSON, logger: str | None = None) -> None:
        """Sends a log message of the level debug, as `log` does."""
        await self.log("debug", data, logger)

    async def info(self, data: JSON, logger: str | None = None) -> None:
        """Sends a log message of the level info, as `log` does."""
        await self.log("info", data, logger)

    async def warning(self, data: JSON, logger: str | None = None) -> None:
        """Sends a log message of the level warning, as `log` does."""
        await self.log("warning", data, logger)

    async def error(self, data: JSON, logger: str | None = None) -> None:
        """Sends a log message of the level error, as `log` does."""
        await self.log("error", data, logger)

    async def read_resource(self, uri: str) -> list[TextResource | BlobResource]:
        """Reads a resource of this server, as the caller may, and returns its contents.

        Raises:
            ResourceNotFoundError: there is none at this URI, or the caller may not see it.
            ToolError: it cannot be read.
        """
        return await self._own_server.read_resource(uri)

    async def list_resources(self) -> list[dict[str, JSON]]:
        """Returns the definitions of this server's resources that the caller may see, as `resources/list` has them."""
        return self._own_server.list_items(Kind.RESOURCES)

    async def list_resource_templates(self) -> list[dict[str, JSON]]:
        """Returns the definitions of this server's resource templates that the caller may see."""
        return self._own_server.list_items(Kind.TEMPLATES)

    async def list_prompts(self) -> list[dict[str, JSON]]:
        """Returns the definitions of this server's prompts that the caller may see, as `prompts/list` has them."""
        return self._own_server.list_items(Kind.PROMPTS)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PromptResult:
        """Fills in a prompt of this server, as the caller may, and returns its messages.

        Raises:
            ToolError: there is no such prompt, or it cannot be filled in with these arguments.
        """
        return await self._own_server.get_prompt(name, arguments or {})

    async def detach(self) -> None:
        """Closes the client's stream before a long wait, and the client reconnects for the result.

        It does nothing where the transport or the client's protocol version cannot reconnect.
        """
        await self._channel.detach()

    # Questions

    @property
    def runs_again_with_answers(self) -> bool:
        """Whether a question ends this run, and the function runs again once the client has answered."""
        return self.terms.era is Era.MODERN or self.promise_id is not None

    @property
    def has_asked(self) -> bool:
        """Whether this request has asked its client something, or has brought the answers."""
        return self._shared.has_asked or bool(self._answers)

    async def elicit(self, message: str, schema: Any, key: str | None = None) -> Elicited:
        """Asks the user to fill in a form.

        Args:
            message: The text that the client shows above the form.
            schema: A Pydantic model, dataclass or typed dict with fields of plain types; a plain type, such as `str`,
                `bool`, `Literal` or an enum, or a list of texts to choose from, for one value; or a JSON Schema.
            key: A name for the question, unique in this request; needed if not every run asks the same questions.

        Raises:
            InputDeclinedError: the client cannot ask its user, or its answer does not fit the form; a client of
                MCP-lite is asked again instead.
            ConfigurationError: there is no form for `schema`.
        """
        name = self._question_name(key, "elicitation/create")
        elicited = _read_elicited(await self._ask_one(name, elicitation(message, schema)))
        if not elicited.accepted:
            return elicited
        try:
            return Elicited("accept", read_form(schema, elicited.content))
        except InputDeclinedError as misfit:
            if self.terms.result_shape is not ResultShape.MCP_LITE and not self.terms.asks_through_model:
                raise
            # A model may have written the answer. MCP's clients answer a key of a task once, so they are not asked.
            raise InputPending({name: elicitation(f"{message} {misfit}", schema)}) from None

    async def elicit_url(self, message: str, url: str, key: str | None = None) -> Elicited:
        """Asks the user to open a URL, for input that the client must not see, such as a password.

        Raises:
            InputDeclinedError: the client cannot ask its user to open a URL.
        """
        params: dict[str, JSON] = {"mode": "url", "message": message, "url": url}
        if self.terms.era is Era.HANDSHAKE:
            params["elicitationId"] = f"{self.request_id}-{self._shared.question_count}"
        name = self._question_name(key, "elicitation/create")
        return _read_elicited(await self._ask_one(name, InputRequest("elicitation/create", params)))

    async def sample(
        self, messages: str | list[dict[str, JSON]], *, max_tokens: int, key: str | None = None, **options: JSON
    ) -> dict[str, JSON]:
        """Asks the client's model to answer, and returns the result of `sampling/createMessage`.

        `options` are further parameters of that method, such as `systemPrompt`.

        Raises:
            InputDeclinedError: the client has no sampling.
        """
        name = self._question_name(key, "sampling/createMessage")
        return await self._ask_one(name, sampling(messages, max_tokens, **options))

    async def roots(self, key: str | None = None) -> list[dict[str, JSON]]:
        """Asks the client for its roots, the directories that it lets the server work in.

        Raises:
            InputDeclinedError: the client has no roots, or sent none.
        """
        name = self._question_name(key, "roots/list")
        answer = await self._ask_one(name, InputRequest("roots/list", {}))
        roots = answer.get("roots")
        if not isinstance(roots, list):
            raise InputDeclinedError("The client's answer to roots/list has no roots.")
        return roots

    async def ask(self, **questions: InputRequest) -> dict[str, dict[str, JSON]]:
        """Asks several questions at once: `await ctx.ask(name=elicitation(...), dirs=roots())`.

        It returns the client's results as they came, by the keys of the questions.

        Raises:
            InputDeclinedError: the client cannot be asked one of the questions.
        """
        self._shared.has_asked = True
        questions = {key: adapt_question(question, self.terms) for key, question in questions.items()}
        if self.runs_again_with_answers or self._asks_model(questions):
            missing = {key: question for key, question in questions.items() if key not in self._answers}
            if missing:
                raise InputPending(missing)
            return {key: self._answers[key] for key in questions}
        with self._deadline.paused():  # the time that a user takes to answer is not the tool's
            answers = await asyncio.gather(
                *(self._channel.request(question.method, question.params) for question in questions.values())
            )
        return dict(zip(questions, answers, strict=True))

    def _asks_model(self, questions: Mapping[str, InputRequest]) -> bool:
        """Whether the model is asked to pass the questions on; the client itself is asked for what is its own."""
        if not self.terms.asks_through_model:
            return False
        methods = {question.method for question in questions.values()}
        if "elicitation/create" in methods and len(methods) > 1:
            raise MissingCapabilityError("elicitation")
        return "elicitation/create" in methods

    def _question_name(self, key: str | None, method: str) -> str:
        """Returns the key of the next question, by its number if the author gave it none."""
        self._shared.question_count += 1
        return key or f"{CAPABILITY[method]}-{self._shared.question_count}"

    async def _ask_one(self, name: str, question: InputRequest) -> dict[str, JSON]:
        answer = (await self.ask(**{name: question}))[name]
        if not isinstance(answer, dict):
            raise InputDeclinedError(f"The client's answer to {question.method} is not an object.")
        return answer


def adapt_question(question: InputRequest, terms: Terms) -> InputRequest:
    """Returns the question in the form that the client's protocol version has for it.

    Raises:
        InputDeclinedError: the client cannot be asked this question.
    """
    capability = CAPABILITY[question.method]
    declared = terms.capabilities.get(capability)
    if declared is None and terms.asks_through_model and question.params.get("mode") == "form":
        return question
    if declared is None:
        raise MissingCapabilityError(capability)
    mode = question.params.get("mode")
    if mode is None:
        return question
    # "Elicitation": an empty capability means forms, for clients older than the modes; so does one that is no object.
    forms_only = terms.version < versions.FORM_MODES_SINCE or not declared or not isinstance(declared, dict)
    if mode not in ({"form"} if forms_only else declared):
        raise MissingCapabilityError(capability, str(mode))
    if terms.version >= versions.FORM_MODES_SINCE:
        return question
    for name, field in question.params["requestedSchema"]["properties"].items():
        if field.get("type") == "array":
            raise InputDeclinedError(f"The client's protocol version has no form fields like {name!r}.")
    return InputRequest(question.method, {key: value for key, value in question.params.items() if key != "mode"})


def sampling(messages: str | list[dict[str, JSON]], max_tokens: int, **options: JSON) -> InputRequest:
    """Returns a question to the client's model, for `Context.ask`."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    return InputRequest("sampling/createMessage", {"messages": messages, "maxTokens": max_tokens, **options})


def elicitation(message: str, schema: Any) -> InputRequest:
    """Returns a form for the user to fill in, for `Context.ask`; `schema` is what `Context.elicit` takes."""
    return InputRequest(
        "elicitation/create", {"mode": "form", "message": message, "requestedSchema": form_schema(schema)}
    )


def roots() -> InputRequest:
    """Returns a question for the client's roots, for `Context.ask`."""
    return InputRequest("roots/list", {})


def _read_elicited(answer: dict[str, JSON]) -> Elicited:
    action = answer.get("action")
    if action not in ("accept", "decline", "cancel"):
        raise InputDeclinedError("The client's answer to elicitation/create has no valid action.")
    return Elicited(action, answer.get("content"))
