"""`python -m bench.replicas`: kills replicas under load; exits with 1 if a call, session, cursor or answer is wrong."""

import argparse
import asyncio
import itertools
import time

import redis.asyncio

from bench.hostile.stores import SkippedError
from bench.replicas.clients import Load, LoadClient, bare_session, our_client, sdk_client
from bench.replicas.ledger import Ledger
from bench.replicas.server import EFFECTS, PRINCIPALS
from bench.replicas.topology import Topology, run_topology
from deltamcp.values import Era

SESSIONS_EACH = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replicas", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="of load (60)")
    parser.add_argument("--pause", type=float, default=5, metavar="N", help="seconds between two kills (5)")
    parser.add_argument("--replicas", type=int, default=3, metavar="N", help="behind nginx (3)")
    parser.add_argument("--no-sdk", action="store_true", help="without the official SDK's client")
    parser.add_argument("--modern", action="store_true", help="without clients of the handshake era")
    given = parser.parse_args()
    try:
        with run_topology(given.replicas) as topology:
            ledger, kills = asyncio.run(_run(topology, given))
            log = topology.log_text()
    except SkippedError as skipped:
        raise SystemExit(f"not run: {skipped}") from None
    print(f"{kills} kills in {given.seconds:g} s")
    for (client, outcome), count in sorted(ledger.outcomes.items()):
        print(f"{client:<26}{outcome:<20}{count:>8,}")
    if traces := log.count("Traceback"):
        first = log[max(0, log.index("Traceback") - 500) :][:5000]
        ledger.wrong.append(f"{traces} tracebacks in the logs of the replicas; the first is:\n{first}")
    for what in ledger.wrong:
        print(f"WRONG {what}")
    if not ledger.wrong:
        print("every call answered, retried or told as maybe done; no session, cursor or answer lost or mistaken")
    raise SystemExit(1 if ledger.wrong else 0)


async def _run(topology: Topology, given: argparse.Namespace) -> tuple[Ledger, int]:
    ledger = Ledger()
    load = Load(topology.url, topology.port, ledger, time.monotonic() + given.seconds)
    eras = (Era.MODERN,) if given.modern else (Era.MODERN, Era.HANDSHAKE)
    clients: list[LoadClient] = [our_client(era) for era in eras]
    if not given.modern:
        clients += [bare_session] * SESSIONS_EACH
    if not given.no_sdk:
        clients += [sdk_client(era) for era in eras]
    killing = asyncio.create_task(_kill_in_turn(topology, load, given.pause))
    async with asyncio.TaskGroup() as group:
        for client, principal in itertools.product(clients, PRINCIPALS):
            group.create_task(_run_client(client, load, principal))
    kills = await killing
    store = redis.asyncio.Redis.from_url(topology.store, decode_responses=True)
    effects = {str(nonce): int(times) for nonce, times in (await store.hgetall(EFFECTS)).items()}
    await store.aclose()
    ledger.check_effects(effects)
    return ledger, kills


async def _run_client(client: LoadClient, load: Load, principal: str) -> None:
    try:
        await client(load, principal)
    except Exception as error:  # it does not even connect
        load.ledger.report(str(principal), f"a client ended with {type(error).__name__}: {error}")


async def _kill_in_turn(topology: Topology, load: Load, pause: float) -> int:
    """Kills one replica after the other, and starts another process in its place at once."""
    kills = 0
    for replica in itertools.cycle(topology.replicas):
        await asyncio.sleep(pause)
        if load.is_over:
            return kills
        await asyncio.to_thread(replica.restart)
        kills += 1
    return kills


if __name__ == "__main__":
    main()
