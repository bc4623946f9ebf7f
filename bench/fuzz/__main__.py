"""`python -m bench.fuzz`: sends mutated requests to server processes; exits with 1 if one of them goes wrong."""

import argparse
import asyncio
import contextlib
import logging
import statistics
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple

from bench import machine
from bench.fuzz.cases import describe, make_body_case, make_http_bytes
from bench.fuzz.document_cases import make_document, read_document, read_documents
from bench.fuzz.grpc_cases import make_connection_bytes, make_message_case
from bench.fuzz.grpc_sender import GrpcSender
from bench.fuzz.sender import FuzzSender
from bench.fuzz.server import COMPAT, OPEN, RESOURCE
from bench.fuzz.verdict import FuzzTally
from bench.hostile.attacked_server import resident_bytes
from bench.ports import find_free_port
from bench.server_process import HttpServerProcess
from bench.token_issuer import run_issuer

MAX_GROWTH = 1.05
SLACK_MB = 4.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--http", type=int, default=200_000, metavar="N", help="mutated HTTP requests (200,000)")
    parser.add_argument("--bodies", type=int, default=100_000, metavar="N", help="mutated JSON-RPC messages (100,000)")
    parser.add_argument("--grpc", type=int, default=60_000, metavar="N", help="mutated messages of gRPC (60,000)")
    parser.add_argument(
        "--frames", type=int, default=60_000, metavar="N", help="mutated connections of HTTP/2 (60,000)"
    )
    parser.add_argument("--documents", type=int, default=5_000, metavar="N", help="mutated OpenAPI documents (5,000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all chance (1)")
    parser.add_argument(
        "--replay", metavar="KIND:NUMBER", default="", help="one case that was found, such as http:1234 or grpc:1"
    )
    given = parser.parse_args()
    machine.raise_descriptor_limit()
    began, broken = time.monotonic(), 0
    if given.replay.startswith("document:"):
        data = make_document(given.seed, int(given.replay.partition(":")[2]))
        print(data.decode(errors="replace"))
        print(f"{read_document(data)} operations")
        return
    broken += _fuzz_documents(given.documents, given.seed)
    with run_issuer() as issuer:
        token = issuer.sign("ann", RESOURCE, "call")
        if given.replay:
            raise SystemExit(asyncio.run(_replay(given.replay, given.seed, issuer.url, token)))
        servers = {"without authentication": OPEN, "with access tokens": issuer.url, "compat=True": COMPAT}
        sends_nothing = not (given.http or given.bodies or given.grpc or given.frames)
        for place, (title, auth) in enumerate(servers.items() if not sends_nothing else ()):
            parts = FuzzParts(
                *(
                    range(count * place // len(servers), count * (place + 1) // len(servers))
                    for count in (given.http, given.bodies, given.grpc, given.frames)
                )
            )
            print(f"{title}:", flush=True)
            broken += len(asyncio.run(_fuzz(auth, token, parts, given.seed)))
    print(
        f"\n{given.documents:,} OpenAPI documents, {given.http:,} requests and {given.bodies:,} messages over HTTP, ",
        end="",
    )
    print(
        f"{given.grpc:,} messages and {given.frames:,} connections of gRPC in {time.monotonic() - began:.0f} s: ",
        end="",
    )
    print(f"{broken} findings" if broken else "0 crashes, 0 hangs, memory flat")
    raise SystemExit(1 if broken else 0)


def _fuzz_documents(count: int, seed: int) -> int:
    """Reads mutated documents in this process, before others are started; how much went wrong."""
    if not count:
        return 0
    logging.getLogger("deltamcp").setLevel(logging.CRITICAL)  # each says what it leaves out
    tally = read_documents(seed, range(count))
    print(
        f"documents:\n  {tally.read:,} with {tally.operations:,} operations; the slowest took {tally.slowest:.2f} s, ",
        end="",
    )
    print(f"and the process grew by {tally.grown_mb:.0f} MB", flush=True)
    for one in tally.findings:
        print(f"  FOUND {one}")
    return len(tally.findings)


class FuzzParts(NamedTuple):
    """The numbers of the cases of each kind."""

    http: range
    bodies: range
    grpc: range
    frames: range


async def _fuzz(auth: str, token: str, parts: FuzzParts, seed: int) -> list[str]:
    """Fuzzes one server process; what went wrong."""
    grpc_port = find_free_port()
    with HttpServerProcess("server", auth, str(grpc_port), package="bench.fuzz") as server:
        pid, tally = server.server.process.pid, FuzzTally()
        sender = FuzzSender(server.port, seed, tally, token, auth != COMPAT)
        grpc_sender = GrpcSender(grpc_port, seed, tally, token)
        memory = {}
        for title, send in (
            ("messages", sender.send_bodies(parts.bodies)),
            ("requests", sender.send_requests(parts.http)),
            ("messages of gRPC", grpc_sender.send_messages(parts.grpc)),
            ("connections of gRPC", grpc_sender.send_connections(parts.frames)),
        ):
            samples = await _run(send, sender, pid)
            memory[title] = samples
            print(f"  {title}: {dict(tally.statuses.most_common())}", flush=True)
            tally.statuses.clear()
            print(f"  memory by thirds: {_thirds(samples)} MB", flush=True)
        found = list(tally.findings)
        found += [what for title, samples in memory.items() if (what := _judge_memory(title, samples))]
        if (code := server.server.process.poll()) is not None:
            found.append(f"the server has ended with {code}")
        if "Traceback" in (log := server.server.stderr_all()):
            found.append(f"a traceback in the log: {log[log.index('Traceback') :][:3000]}")
    waits = sender.canary_waits
    print(f"  canary: {len(waits)} calls, median {statistics.median(waits) * 1e3:.1f} ms, longest {max(waits):.2f} s")
    for one in found:
        print(f"  FOUND {one}")
    return found


async def _run(work: Coroutine[Any, Any, None], sender: FuzzSender, pid: int) -> list[float]:
    """Sends cases while another caller calls `add`; the sizes of the process meanwhile, in MB."""
    samples: list[float] = []

    async def sample() -> None:
        while True:
            samples.append(resident_bytes(pid) / 1e6)
            await asyncio.sleep(0.2)

    beside = [asyncio.create_task(sample()), asyncio.create_task(sender.watch())]
    try:
        await work
    finally:
        for task in beside:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return samples


def _thirds(samples: list[float]) -> list[float]:
    size = max(1, len(samples) // 3)
    parts = [samples[:size], samples[size : 2 * size], samples[2 * size :]]
    return [round(statistics.median(part), 1) for part in parts if part]


def _judge_memory(title: str, samples: list[float]) -> str:
    thirds = _thirds(samples)
    if len(samples) < 150 or thirds[-1] <= thirds[1] * MAX_GROWTH + SLACK_MB:
        return ""
    return f"memory grows while {title} are sent: {thirds} MB by thirds"


async def _replay(case: str, seed: int, issuer: str, token: str) -> int:
    """Sends one case to all three servers and prints what it is."""
    kind, _, number = case.partition(":")
    at, found = int(number), 0
    print(_describe(kind, seed, at))
    for auth in (OPEN, issuer, COMPAT):
        grpc_port = find_free_port()
        with HttpServerProcess("server", auth, str(grpc_port), package="bench.fuzz") as server:
            tally = FuzzTally()
            sender = FuzzSender(server.port, seed, tally, token, auth != COMPAT)
            grpc_sender = GrpcSender(grpc_port, seed, tally, token)
            send = {
                "body": sender.send_bodies,
                "http": sender.send_requests,
                "grpc": grpc_sender.send_messages,
                "frames": grpc_sender.send_connections,
            }[kind]
            await send(range(at, at + 1))
            log = server.server.stderr_all()
        found += len(tally.findings) + ("Traceback" in log)
        print(f"{auth}: {dict(tally.statuses)} {tally.findings}\n{log[-3000:]}")
    return 1 if found else 0


def _describe(kind: str, seed: int, number: int) -> str:
    """A case in words."""
    match kind:
        case "body":
            return describe(make_body_case(seed, number))
        case "grpc":
            return repr(make_message_case(seed, number))
        case "frames":
            return repr(make_connection_bytes(seed, number)[:2_000])
        case _:
            return repr(make_http_bytes(seed, number, {})[:2_000])


if __name__ == "__main__":
    main()
