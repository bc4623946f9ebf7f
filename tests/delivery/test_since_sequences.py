"""Property tests: who reads only the texts of replies, in one conversation, always has the server's last value.

Several conversations share a server or a connection. Calls name handles, right, old and wrong ones, or none; they fail,
are cut, are cancelled before and after their replies, and run at once.
"""

import asyncio
import contextlib
import copy
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import DeltaServer, ResultPolicy, ToolError
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.deltas.delta import apply_delta
from deltamcp.dialects.methods import CONVERSATION_KEY
from deltamcp.results.encode import decode
from deltamcp.tokens import count
from tests.support.conditions import HANG_SECONDS
from tests.support.equality import is_same
from tests.support.era_client import ERAS, EraClient, Result, compact_json, era_client, texts, token_cost
from tests.support.properties import examples
from tests.support.raw_client import META
from tests.support.result_readers import ProgramReader

CUT_TOKENS = 160
SAME = re.compile(r"Executed now: same [\d,]+ \w+(?:; (?:full: )?(?:continue (\S+)|since=\"\")| as (\S+))?")
CHANGED_SINCE = re.compile(r"Changed since (\S+), now (\S+):")
CHANGED = re.compile(r"Changed; full: (?:continue (\S+)|since=\"\")")
WORDS_WHY = re.compile(r"so this is all\.")
HANDLE = re.compile(r"\[(?:handle )?([\w-]+)[.:]")

Operation = Literal["rows", "log", "cut"]
OPERATIONS: tuple[Operation, ...] = ("rows", "log", "cut")


class Shop:
    """A server of three changing values behind meta-tools; one of them is too large for its budget."""

    def __init__(self, conversation: Literal["process"] | None) -> None:
        policy = ResultPolicy(max_tokens=20_000)
        disclosure = Disclosure("meta", query=True)
        self.server = DeltaServer("shop", disclosure=disclosure, results=policy, conversation=conversation)
        rows = [{"id": n, "name": f"thing {n * 37 % 101}", "stock": n * 7 % 23} for n in range(40)]
        self.values: dict[str, Any] = {
            "rows": rows,
            "log": "".join(f"{n:03} part {n * 31 % 89} was mended by {n * 17 % 41}\n" for n in range(60)),
            "cut": {"total": 200, "items": [{**row, "id": n} for n, row in enumerate(rows * 5)]},
        }
        self.fails = False
        self.entered, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        for name in OPERATIONS:
            own = ResultPolicy(max_tokens=CUT_TOKENS) if name == "cut" else ResultPolicy()
            self.server.tool(name, results=own, annotations={"readOnlyHint": True})(self._reader_of(name))

    def _reader_of(self, name: str) -> Any:
        async def read() -> Any:
            if self.fails:
                raise ToolError("out of order")
            value = copy.deepcopy(self.values[name])
            self.entered.set()
            await self.gate.wait()
            return value

        return read

    def edit(self, name: Operation, at: int, to: int) -> None:
        """Changes, adds or removes something."""
        if name == "log":
            lines = self.values[name].splitlines(keepends=True)
            lines[at % len(lines)] = f"{at:03} part {to} is lost\n"
            self.values[name] = "".join([*lines, f"later {to}\n"] if to % 2 else lines)
            return
        rows = self.values[name] if name == "rows" else self.values[name]["items"]
        if to % 5 == 0 and len(rows) > 20:
            del rows[at % len(rows)]
        elif to % 5 == 1:
            rows.insert(at % len(rows), {"id": 1_000 + to * 50 + at, "name": f"new {to}", "stock": to})
        else:
            rows[at % len(rows)]["stock"] = to


@dataclass
class Model:
    """What a model of one conversation has read."""

    peer: EraClient
    name: str | None
    by_handle: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    """The last result of each operation that it has read."""
    handles: dict[str, list[str]] = field(default_factory=dict)

    @property
    def meta(self) -> dict[str, Any]:
        about = META if self.peer.era == "modern" else {}
        return {**about, **({CONVERSATION_KEY: self.name} if self.name else {})}

    def params(self, operation: str, since: str | None) -> dict[str, Any]:
        arguments = {"operation": operation, **({} if since is None else {"since": since})}
        return {"name": "query", "arguments": arguments, **({"_meta": self.meta} if self.meta else {})}

    async def read(self, operation: str, result: Result, since: str | None, current: Any) -> None:
        """Makes the value from a reply and what the model has, and compares it with the server's."""
        text, *notes = texts(result)
        value, handle = await self._value(operation, text, notes, since)
        assert is_same(value, current), (operation, since, text[:200])
        self.last[operation] = value
        if handle:
            self.by_handle[handle] = value
            self.handles.setdefault(operation, []).append(handle)

    async def _value(self, operation: str, text: str, notes: list[str], since: str | None) -> tuple[Any, str | None]:
        head, _, body = text.partition("\n")
        if same := SAME.fullmatch(text):
            if same[2] is not None:
                assert since is not None and same[2] == since.strip()
                return self.by_handle[same[2]], same[2]
            assert not since, "who names a handle is told that it is that"
            return self.last[operation], same[1]
        if changed := CHANGED_SINCE.fullmatch(head):
            assert changed[1] == since
            return apply_delta(copy.deepcopy(self.by_handle[changed[1]]), body), changed[2]
        if changed := CHANGED.fullmatch(head):
            assert since is None
            return apply_delta(copy.deepcopy(self.last[operation]), body), changed[1]
        told = next((found[1] for note in notes if (found := HANDLE.match(note))), None)
        if operation == "cut":
            assert told is not None
            return await ProgramReader(self.peer, told, CUT_TOKENS).value(), told
        return (text if operation == "log" else decode(text)), told


step = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from(OPERATIONS), st.integers(0, 50), st.integers(0, 200)),
    *[
        st.tuples(
            st.just("call"),
            st.sampled_from(OPERATIONS),
            st.integers(0, 2),
            st.sampled_from(["none", "none", "last", "last", "older", "foreign", "other", "wrong", "empty", "reset"]),
        )
    ]
    * 3,
    st.tuples(
        st.sampled_from(["fail", "cancel", "late cancel", "at once"]),
        st.sampled_from(OPERATIONS),
        st.integers(0, 2),
        st.just("none"),
    ),
)


@contextlib.asynccontextmanager
async def models_of(shop: Shop, era: str, mode: str) -> AsyncIterator[list[Model]]:
    """Three models: with connections of their own, each one conversation; or on one, two named and one unknown."""
    async with contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(era_client(shop.server, era)) for _ in range(3 if mode == "process" else 1)
        ]
        names = ["one of them", "the other one", None]
        yield [Model(peer, None) for peer in peers] if mode == "process" else [Model(peers[0], name) for name in names]


def since_of(way: str, model: Model, models: list[Model], operation: str) -> str | None:
    own = model.handles.get(operation, [])
    others = [one for other in models if other is not model for one in other.handles.get(operation, [])]
    elsewhere = [one for name, some in model.handles.items() if name != operation for one in some]
    return {
        "last": own[-1] if own else None,
        "older": own[len(own) // 2] if own else None,
        "foreign": next((one for one in reversed(others) if one not in model.by_handle), None),
        "other": elsewhere[-1] if elsewhere else None,
        "wrong": "R9zzz",
        "empty": "",
        "reset": "reset",
    }.get(way)


@given(
    st.lists(step, min_size=4, max_size=25),
    st.sampled_from(ERAS),
    st.sampled_from(["process", "named"]),
)
@settings(max_examples=examples(150))
def test_who_reads_only_the_texts_always_has_the_servers_value(steps, era, mode):
    async def run() -> None:
        shop = Shop("process" if mode == "process" else None)
        async with models_of(shop, era, mode) as models:
            for number, (kind, operation, place, extra) in enumerate(steps):
                if kind == "edit":
                    shop.edit(operation, place, extra)
                    continue
                model = models[place]
                await perform(shop, models, model, kind, operation, extra, f"step {number}")

    asyncio.run(run())


async def perform(
    shop: Shop, models: list[Model], model: Model, kind: str, operation: Operation, way: str, id_: str
) -> None:
    raw = model.peer.raw
    since = since_of(way, model, models, operation) if kind == "call" else None
    if way == "foreign" and since is not None:
        # Whoever names a result has it: here the model was told of it by somebody else.
        model.by_handle |= {since: next(one.by_handle[since] for one in models if since in one.by_handle)}
    params = model.params(operation, since)
    match kind:
        case "cancel":
            shop.gate.clear()
            shop.entered.clear()
            raw.send(id=id_, method="tools/call", params=params)
            async with asyncio.timeout(HANG_SECONDS):
                await shop.entered.wait()
            raw.send(method="notifications/cancelled", params={"requestId": id_})
            shop.gate.set()
            await model.peer.ask("tools/list")
        case "late cancel":
            raw.send(id=id_, method="tools/call", params=params)
            await raw.receive()  # it crosses the cancellation, so the host drops it
            raw.send(method="notifications/cancelled", params={"requestId": id_})
        case "at once":
            await perform_at_once(shop, model, operation, id_)
        case _:
            shop.fails = kind == "fail"
            result = (await raw.call("tools/call", **params))["result"]
            shop.fails = False
            if kind == "fail":
                assert result["isError"]
                return
            await model.read(operation, result, since, shop.values[operation])
            check_cost(result, shop.values[operation], operation)
            if way in ("other", "wrong") and since is not None:
                assert WORDS_WHY.search("\n".join(texts(result)))


async def perform_at_once(shop: Shop, model: Model, operation: Operation, id_: str) -> None:
    """Two calls, between which the value changes; the model reads their replies in the order of its calls."""
    raw, values, replies = model.peer.raw, [], {}
    shop.gate.clear()
    for name in ("first", "second"):
        shop.entered.clear()
        raw.send(id=f"{id_} {name}", method="tools/call", params=model.params(operation, None))
        async with asyncio.timeout(HANG_SECONDS):
            await shop.entered.wait()
        values.append(copy.deepcopy(shop.values[operation]))
        shop.edit(operation, 3, 7)
    shop.gate.set()
    for _ in range(2):
        answer = await raw.receive()
        replies[answer["id"]] = answer["result"]
    before = copy.deepcopy(model.last)
    for name, value in zip(("first", "second"), values, strict=True):
        model.last = copy.deepcopy(before)  # each of them is about what the model had before it made them
        await model.read(operation, replies[f"{id_} {name}"], None, value)
    model.last.pop(operation)  # nothing may refer to "the last one" after that


def check_cost(result: Result, value: Any, operation: Operation) -> None:
    """Changes cost less than the whole, and so does the news that there are none."""
    text = texts(result)[0]
    if SAME.fullmatch(text) or text.startswith("Changed"):
        assert token_cost(result) <= count(value if isinstance(value, str) else compact_json(value))
