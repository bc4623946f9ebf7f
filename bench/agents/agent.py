"""An agent that follows a script: it writes the requests of a model, with or without a mistake, and reads replies."""

import copy
import json
import re
from typing import Any, Literal, TypedDict

from mcp.client.client import Client

from bench.agents.setting import DOWN
from bench.agents.transcript import Transcript, names_in_fields
from deltamcp import apply_delta
from deltamcp.client.reply import Reply
from deltamcp.results.policy import DEFAULT_MAX_TOKENS
from deltamcp.results.queries import query as queries
from deltamcp.results.queries.query import run_query
from deltamcp.wire import jsonrpc
from deltamcp.work import unlimited_work

Mistake = Literal["name", "bare", "wide", "root", "pattern"]
"""The name of an operation without its service; neither fields nor a pattern; fields that select nearly all; fields
with a wrong root or wrong names; a pattern that is escaped wrongly."""
MISTAKES: tuple[Mistake, ...] = ("name", "bare", "wide", "root", "pattern")
_NEXT = re.compile(r"^\[.*\boffset=(\d+)", re.MULTILINE)
_HANDLE = re.compile(
    r"^\[(?:handle )?(\w{5,})[:.] |^\[handle (\w+)\.\]|^Changed since \w+, now (\w+):$|^Executed now: .* as (\w+)$",
    re.MULTILINE,
)
_SAME, _CHANGED = "Executed now: same ", "Changed since "


class Query(TypedDict, total=False):
    """What an agent asks of a result."""

    fields: str
    grep: str


class Answer:
    """A reply as an agent reads it: what it says, what it shows and the handle in its note."""

    def __init__(self, raw: dict[str, Any], last: "Answer | None" = None) -> None:
        """`last` is the answer whose handle the agent named, so that the reply may say only what changed since."""
        self._reply = Reply(raw)
        self._last = last
        self.text = "\n".join(self._reply.texts)
        found = _HANDLE.search(self.text)
        self.handle: str | None = next(filter(None, found.groups()), None) if found else None

    @property
    def is_same(self) -> bool:
        """Whether it says that nothing changed."""
        return self.text.startswith(_SAME)

    @property
    def changes(self) -> str | None:
        """What changed, where it says only that; nothing if nothing did."""
        if self.is_same:
            return ""
        return self._reply.text.partition("\n")[2] if self.text.startswith(_CHANGED) else None

    def read_off(self, query: Query) -> "Answer":
        """Return what a reader finds in a reply that shows all, who makes no mistake in it."""
        shown = self._reply.value
        data = shown if isinstance(shown, str) else jsonrpc.encode(shown)
        found = run_query(data, queries.Query(**query), None, DEFAULT_MAX_TOKENS, unlimited_work())
        text = found.data if isinstance(found.data, str) else found.data.decode()
        return Answer({"content": [{"type": "text", "text": text}]})

    @property
    def is_error(self) -> bool:
        return self._reply.is_error

    @property
    def value(self) -> Any:
        """What is shown, or known from the last answer and the changes: a value, which may be a table, or a text."""
        if self.changes is not None:
            assert self._last is not None, "the agent named what it had"
            lengths = self._reply.delta_meta.get("lengths", [None])
            changes = self._reply.text[: lengths[0]].partition("\n")[2]
            return self._last.value if self.is_same else apply_delta(copy.deepcopy(self._last.value), changes)
        value = self._reply.value
        try:
            return json.loads(value) if isinstance(value, str) else value
        except ValueError:
            return value


class Agent:
    """Makes requests through the tools that the gateway lists, and keeps what was said."""

    def __init__(
        self, client: Client, transcript: Transcript, mistake: Mistake | None = None, names_results: bool = True
    ) -> None:
        """`names_results` is whether it names the result that it has, where it makes a call again."""
        self._client = client
        self.transcript = transcript
        self._mistake = mistake
        self.names_results = names_results
        self.made_mistake = False

    async def discover(self, *queries: str) -> Answer:
        """Search with one query or several; with none, read the overview."""
        arguments = {} if not queries else {"query": queries[0] if len(queries) == 1 else [*queries]}
        return await self._request("discover", arguments)

    async def run(
        self,
        operation: str,
        params: dict[str, Any] | None = None,
        query: Query | None = None,
        wrong: dict[Mistake, Query] | None = None,
    ) -> Answer:
        """Run an operation, and ask the query of its result.

        An agent that makes a mistake asks one of the `wrong` queries first, or none, and then the right one of the
        result that it got.
        """
        self._check_query(query or {})
        if self._mistake == "name" and not self.made_mistake:
            self.made_mistake = True
            guess = await self._execute(operation.rpartition(".")[2], params or {}, query or {})
            if not guess.is_error:
                return guess
        if query and self._makes_mistake(wrong or {}):
            assert self._mistake is not None
            return await self.ask(
                await self._execute(operation, params or {}, (wrong or {}).get(self._mistake, {})), query
            )
        return await self._execute(operation, params or {}, query or {})

    async def run_again(
        self, last: Answer, operation: str, params: dict[str, Any] | None = None, query: Query | None = None
    ) -> Answer:
        """Make a call again, whose last answer the agent has."""
        self._check_query(query or {})
        return await self._execute(operation, params or {}, query or {}, last if self.names_results else None)

    async def ask(self, answer: Answer, query: Query, wrong: dict[Mistake, Query] | None = None) -> Answer:
        """Ask a query of a result; an agent that makes a mistake asks one of the `wrong` queries first.

        What is shown whole has no handle: the agent reads it, and asks nothing.
        """
        self._check_query(query)
        if answer.handle is None:
            return answer.read_off(query)
        if wrong and self._mistake in wrong and self._makes_mistake(wrong):
            await self.read_on(answer.handle, wrong[self._mistake])
        return await self.read_on(answer.handle, query)

    async def read_rows(self, answer: Answer, query: Query | None = None) -> list[Any]:
        """Read all rows of a result, of which a reply shows the first; the query is that of the reply, if it was asked
        of a stored result."""
        rows = [*answer.value]
        while found := _NEXT.search(answer.text):
            assert answer.handle is not None, "what goes on is stored"
            answer = await self.read_on(answer.handle, query, offset=int(found[1]))
            rows += answer.value
        return rows

    async def read_on(self, handle: str, query: Query | None = None, **place: Any) -> Answer:
        answer = await self._request("continue", {"handle": handle, **place, **(query or {})})
        answer.handle = handle
        return answer

    def _makes_mistake(self, wrong: dict[Mistake, Query]) -> bool:
        """Whether the mistake is made here: it is made once."""
        if (
            self.made_mistake
            or self._mistake in (None, "name")
            or (self._mistake != "bare" and self._mistake not in wrong)
        ):
            return False
        self.made_mistake = True
        return True

    async def _execute(
        self, operation: str, params: dict[str, Any], query: Query, last: Answer | None = None
    ) -> Answer:
        self.transcript.check_told(re.findall(r"\w+", operation))
        self.transcript.check_told(params)
        since = {} if last is None or last.handle is None else {"since": last.handle}
        arguments = {"operation": operation, **({"params": params} if params else {}), **query, **since}
        return await self._request("execute", arguments, last)

    def _check_query(self, query: Query) -> None:
        self.transcript.check_told(names_in_fields(query.get("fields", "")))

    async def _request(self, tool: str, arguments: dict[str, Any], last: Answer | None = None) -> Answer:
        found = await self._client.call_tool(tool, arguments)
        answer = Answer(found.model_dump(by_alias=True, exclude_none=True), last)
        shown = "\n".join(getattr(block, "text", "") for block in found.content)
        self.transcript.add(tool, arguments, shown)
        return answer


class PlainAgent(Agent):
    """An agent that has every tool before it, as without a gateway, and whose replies are whole.

    It finds a tool without asking, and what it looks for in a reply without a mistake; its host told it what is down.
    """

    async def discover(self, *queries: str) -> Answer:
        return Answer({"content": [{"type": "text", "text": f"{DOWN}: not running"}]})

    async def _execute(
        self, operation: str, params: dict[str, Any], query: Query, last: Answer | None = None
    ) -> Answer:
        answer = await self._request(operation.replace(".", "_"), params)
        return answer.read_off(query) if query else answer

    def _check_query(self, query: Query) -> None:
        """It asks nothing: a query is what it looks for."""
