"""Conversations with a server of recorded data: what a model asked, and each reply as it is sent or as compact JSON."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.readers.questions import Question, Row, change_questions, has_key, key_of, table_questions
from deltamcp import DeltaServer, ResultPolicy, connect, tokens
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.client.reply import Reply
from deltamcp.wire import jsonrpc

MAX_TOKENS = 2_400
"""The most of one result as compact JSON, so that a model can read many of them."""
TABLE_QUESTIONS, TABLES = 3, 20
CHANGE_QUESTIONS, SERIES = 2, 20
_STEPS = 3
_MANY, _FEW = 9, 6
_LONG_CHARS = 150


@dataclass(frozen=True)
class Exchange:
    """A call and its reply, in both forms."""

    tool: str
    arguments: dict[str, Any]
    sent: str
    """The text that the server sends to a model."""
    json: str
    """The same result as compact JSON, which a server without tables and changes sends."""


@dataclass
class Conversation:
    """What was said on one result and its later states, and what is asked about it."""

    name: str
    states: list[Any]
    questions: list[Question]
    exchanges: list[Exchange] = field(default_factory=list)


async def definitions_and_conversations(corpus: Path, seed: int) -> tuple[str, list[Conversation], list[Conversation]]:
    """Return the tools' definitions, conversations with a table each, and ones with changes."""
    chance = random.Random(seed)
    tables, changing = [*_tables(corpus, chance)][:TABLES], [*_series(corpus, chance)][:SERIES]
    states = {one.name: iter(one.states) for one in (*tables, *changing)}
    async with connect(_server(states), progressive=False) as client:
        listed = (await client.request("tools/list"))["tools"]
        shown = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in listed]
        for one in (*tables, *changing):
            handle = ""
            for state in one.states:
                arguments: dict[str, Any] = {"operation": "records.read", "params": {"name": one.name}}
                arguments |= {"since": handle} if handle else {}
                reply = Reply(await client.request("tools/call", {"name": "query", "arguments": arguments}))
                assert not reply.is_error, reply.text
                handle = reply.handle or ""
                compact = jsonrpc.encode(state).decode()
                one.exchanges.append(Exchange("query", arguments, "\n".join(reply.texts), compact))
    return jsonrpc.encode(shown).decode(), tables, changing


def _server(states: dict[str, Iterator[Any]]) -> DeltaServer:
    """A server behind meta-tools with a gateway's budget; each call gives the next state of what is named."""
    disclosure = Disclosure("meta", query=True)
    server = DeltaServer("records", disclosure=disclosure, results=ResultPolicy(max_tokens=20_000))

    @server.tool("records_read", category="records", action="read", annotations={"readOnlyHint": True})
    def read(name: str) -> Any:
        """Read the records of this name as they are now."""
        return next(states[name])

    return server


# Recorded data


def _tables(corpus: Path, chance: random.Random) -> Iterator[Conversation]:
    for name, rows, around in _recorded_rows(corpus):
        for part in range(2):
            chosen = _cut(rows[part * len(rows) // 2 :])
            if len(chosen) < 4 or not has_key(chosen):
                continue
            questions = table_questions(chosen, chance, TABLE_QUESTIONS)
            if len(questions) == TABLE_QUESTIONS:
                yield Conversation(f"{name}-{part + 1}", [around(chosen)], questions)


def _series(corpus: Path, chance: random.Random) -> Iterator[Conversation]:
    sources = [*_recorded_series(corpus), *_edited_series(corpus, chance)]
    for name, states, around in sources:
        questions = change_questions(states[-2], states[-1], chance, CHANGE_QUESTIONS)
        if len(questions) == CHANGE_QUESTIONS:
            yield Conversation(name, [around(rows) for rows in states], questions)


def _recorded_rows(corpus: Path) -> Iterator[tuple[str, list[Row], Callable[[list[Row]], Any]]]:
    def read(*path: str) -> Any:
        return json.loads(corpus.joinpath("results", *path).read_text())

    def bare(rows: list[Row]) -> Any:
        return rows

    def below(value: dict[str, Any], name: str) -> Callable[[list[Row]], Any]:
        beside = {key: own for key, own in value.items() if key != name and not isinstance(own, list | dict)}
        return lambda rows: {**beside, name: rows}

    for name in ("list_issues", "issue_comments", "collaborators", "teams"):
        yield name, read("github", f"{name}.json"), bare
    for name, member in (("workflow_runs", "workflow_runs"), ("search_code", "items")):
        value = read("github", f"{name}.json")
        yield name, value[member], below(value, member)
    yield "tickets", read("rows400_nested.json")[40:160], bare
    httpx = read("pypi_httpx.json")
    yield "files", [file for files in httpx["releases"].values() for file in files], bare
    users = read("slack", "users.list.json")
    yield "users", users["members"], below(users, "members")
    channels = read("slack", "conversations.list.json")
    yield "channels", channels["channels"], below(channels, "channels")
    yield "submissions", _states(corpus, "hn_domain_older")[0], bare
    fires = _states(corpus, "calfire_incidents")[0]
    yield "fires", fires["Incidents"], below(fires, "Incidents")
    yield "year", fires["AllYearIncidents"], below(fires, "AllYearIncidents")


def _states(corpus: Path, name: str) -> list[Any]:
    lines = (corpus / "evolving" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["data"] for line in lines]


def _recorded_series(corpus: Path) -> Iterator[tuple[str, list[list[Row]], Callable[[list[Row]], Any]]]:
    submissions = [rows[:14] for rows in _states(corpus, "hn_domain_older")]
    for start in range(0, len(submissions) - _STEPS, 2):
        yield f"submissions-from-{start}", submissions[start : start + _STEPS], lambda rows: rows
    fires = [[{**row, "Url": ""} for row in state["Incidents"]] for state in _states(corpus, "calfire_incidents")]
    fires = [rows[:8] for rows in fires]
    if all(has_key(rows) for rows in fires):
        for start in range(0, len(fires) - _STEPS, 2):
            yield f"fires-from-{start}", fires[start : start + _STEPS], lambda rows: {"Incidents": rows}


def _edited_series(
    corpus: Path, chance: random.Random
) -> Iterator[tuple[str, list[list[Row]], Callable[[list[Row]], Any]]]:
    """Recorded rows, to which happens what happens to such rows: here the changes are many and of every kind."""
    for name, rows, around in _recorded_rows(corpus):
        for part in range(2):
            chosen = _cut(rows[part * len(rows) // 2 :])
            if len(chosen) >= 5 and has_key(chosen):
                states = [chosen[:-2]]
                for at in range(_STEPS - 1):
                    states.append(_edit(states[-1], chosen[len(chosen) - 2 + at], chance))
                yield f"{name}-changing-{part + 1}", states, around


def _edit(rows: Sequence[Row], new: Row, chance: random.Random) -> list[Row]:
    key, after = key_of(rows), copy.deepcopy([*rows])
    for row in chance.sample(after, 2):
        texts = [name for name, value in row.items() if isinstance(value, str) and name != key and 0 < len(value) < 80]
        numbers = [name for name, value in row.items() if type(value) is int and name != key]
        if numbers:
            row[chance.choice(numbers)] += chance.randrange(1, 50)
        if texts:
            name = chance.choice(texts)
            words = row[name].split(" ")
            words[chance.randrange(len(words))] = chance.choice(["closed", "moved", "v2", "draft"])
            row[name] = " ".join(words)
    if chance.random() < 0.5:
        del after[chance.randrange(len(after))]
    after.insert(chance.choice([0, len(after), len(after) // 2]), new)
    return after


def _cut(rows: Sequence[Row]) -> list[Row]:
    """As many of the rows as a model can be asked to read, 16 at most; of long rows the first members."""
    cut = copy.deepcopy([*rows[:16]])
    while cut and _cost(cut) > MAX_TOKENS:
        texts = {name: max(len(str(row.get(name))) for row in cut) for name, own in cut[0].items() if type(own) is str}
        longest = max(texts, key=texts.__getitem__, default="")
        if len(cut) > _MANY:
            cut.pop()
        elif texts.get(longest, 0) > _LONG_CHARS:
            cut = [{name: value for name, value in row.items() if name != longest} for row in cut]
        elif len(cut) > _FEW:
            cut.pop()
        else:
            longest = max(cut[0], key=lambda name: len(jsonrpc.encode(cut[0][name])))
            cut = [{name: value for name, value in row.items() if name != longest} for row in cut]
    return cut


def _cost(rows: list[Row]) -> int:
    return tokens.count(jsonrpc.encode(rows).decode())
