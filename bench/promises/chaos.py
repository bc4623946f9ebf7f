"""Promises while their processes are killed: none may be lost, and none may run twice that must not."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any, NamedTuple

import httpx2

from bench.promises.topology import PromiseTopology

_LIMIT_SECONDS = 240.0
"""A promise without an outcome after so long counts as lost."""
_WAIT_MS = 5_000
_PAUSE = 0.25


class ChaosReport(NamedTuple):
    """What came of the promises."""

    answered: int
    unknown: int
    """Calls that must not be repeated, whose worker was killed; their clients were told so."""
    kills: int
    wrong: list[str]
    """What must not happen, a sentence each."""

    def __str__(self) -> str:
        lines = [f"{self.kills} kills: {self.answered} promises answered, {self.unknown} ended as OUTCOME_UNKNOWN"]
        lines += [f"WRONG {what}" for what in self.wrong]
        return "\n".join(lines if self.wrong else [*lines, "none lost, none run twice that must not be"])


async def run_chaos(topology: PromiseTopology, count: int, pause: float, seconds: float) -> ChaosReport:
    """Makes `count` promises of up to `seconds` each while one process is killed every `pause` seconds."""
    outcomes: dict[str, str] = {}
    ready = asyncio.Event()
    killing = asyncio.create_task(_kill(topology, pause, ready))
    chance = random.Random(17)
    async with httpx2.AsyncClient(timeout=15, trust_env=False) as client, asyncio.TaskGroup() as group:
        names = itertools.cycle(("look_up", "charge"))
        for number in range(count):
            caller = _Caller(client, topology.endpoints, random.Random(number))
            nonce = f"nonce-{number}"
            group.create_task(_make(caller, next(names), nonce, chance.uniform(0.1, seconds), outcomes))
            await asyncio.sleep(pause / 10)
        ready.set()
    kills = await killing
    return ChaosReport(
        sum(text.startswith(("found ", "charged ")) for text in outcomes.values()),
        sum(text == "OUTCOME_UNKNOWN" for text in outcomes.values()),
        kills,
        _wrong(topology, count, outcomes),
    )


async def _kill(topology: PromiseTopology, pause: float, ready: asyncio.Event) -> int:
    """Kills one process after the other until all promises are made, and starts another in its place at once."""
    chance, kills = random.Random(2026), 0
    while not ready.is_set():
        await asyncio.sleep(pause)
        await asyncio.to_thread(chance.choice(topology.processes).restart)
        kills += 1
    return kills


async def _make(caller: "_Caller", tool: str, nonce: str, seconds: float, outcomes: dict[str, str]) -> None:
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            outcomes[f"{tool} {nonce}"] = await caller.call(tool, {"nonce": nonce, "seconds": seconds}, nonce)
    except TimeoutError:
        outcomes[f"{tool} {nonce}"] = "no outcome"


class _Caller:
    """A client that asks any replica, and another one where that does not answer."""

    def __init__(self, client: httpx2.AsyncClient, endpoints: list[str], chance: random.Random) -> None:
        self._client = client
        self._endpoints = endpoints
        self._chance = chance

    async def call(self, tool: str, arguments: dict[str, Any], key: str) -> str:
        """Returns the text of the answer, or the code of the error."""
        # Asked again under the same key, where the reply was lost, the server returns the same promise.
        result = await self._ask(tool, arguments, {"idempotency_key": key})
        while result["_meta"]["response_type"] == "promise":
            token = result["_meta"]["promise_token"]
            result = await self._ask("redeem", {"promise": token, "wait_ms": _WAIT_MS}, {})
        if result["_meta"]["response_type"] == "failure":
            return str(result["error"]["code"])
        return str(result["content"][0]["text"])

    async def _ask(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        while True:
            try:
                request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                reply = (await self._client.post(self._chance.choice(self._endpoints), json=request)).json()
            except (httpx2.HTTPError, ValueError):
                await asyncio.sleep(_PAUSE)
                continue
            if "result" in reply:
                result: dict[str, Any] = reply["result"]
                return result
            if not reply["error"].get("data", {}).get("retryable"):
                return {"_meta": {"response_type": "failure"}, "error": {"code": str(reply["error"])}}
            await asyncio.sleep(_PAUSE)


def _wrong(topology: PromiseTopology, count: int, outcomes: dict[str, str]) -> list[str]:
    wrong = []
    begun = Counter(topology.effects())
    if len(outcomes) != count:
        wrong.append(f"{len(outcomes)} of {count} clients ended")
    for call, outcome in sorted(outcomes.items()):
        tool, nonce = call.split()
        if tool == "charge" and begun[call] > 1:
            wrong.append(f"{call} ran {begun[call]} times")
        if outcome == "OUTCOME_UNKNOWN" and tool == "charge":
            continue
        if outcome != f"{'found' if tool == 'look_up' else 'charged'} {nonce}":
            wrong.append(f"{call} was lost: {outcome}")
        elif not begun[call]:
            wrong.append(f"{call} has an answer and never ran")
    log = topology.log_text()
    if "Traceback" in log:
        wrong.append(f"tracebacks in the logs; the first is:\n{log[max(0, log.index('Traceback') - 300) :][:4000]}")
    return wrong
