"""Attacks on stored results and on the stores that hold them."""

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import messages
from bench.hostile import stores
from bench.hostile.attack import (
    RESULT_KEY,
    Answered,
    Attack,
    Prepared,
    Surroundings,
    attacker,
    make_calls,
    others_call,
    others_continue,
    stored,
)
from bench.hostile.attacked_server import OTHER, AttackedServer, HttpCaller
from bench.hostile.stores import AttackedStore


def _views(server: AttackedServer, handle: Prepared) -> Answered:
    given: list[dict[str, Any]] = [
        {"handle": handle, "grep": "|".join("0123456789"[: place + 2])} for place in range(8)
    ]
    given += [{"handle": handle, "fields": "@" + "|@" * place} for place in range(4)]
    given += [{"handle": handle, "path": "", "offset": 1_000_000 + place} for place in range(4)]
    return make_calls(server, "continue", given)


def _evictions(server: AttackedServer, handle: Prepared) -> Answered:
    """Many results of one caller; another caller's is read afterwards."""
    caller, handles, last = attacker(server), [], ""
    for _ in range(80):
        result = caller.call("list_more_in_parts", {}).result
        handles.append(result.get("_meta", {}).get(RESULT_KEY, {}).get("handle"))
        last = result["content"][0]["text"].rpartition("\n")[2]
    read = HttpCaller(server.port, OTHER).call("continue", {"handle": handle, "offset": 60})
    broken = f"another caller's result is gone: {read.sentence}" if read.result.get("isError") else ""
    kept = sum(
        not caller.call("continue", {"handle": one, "path": "/0"}).result.get("isError") for one in handles if one
    )
    return Answered(f"{kept} of 80 are stored at the end; the last reply: {last[:120]}", broken, 4.0 * kept)


def _store_for_other(server: AttackedServer) -> Prepared:
    return HttpCaller(server.port, OTHER).store("list_rows_in_parts")


@contextlib.contextmanager
def _beside(open_store: Callable[[], contextlib.AbstractContextManager[AttackedStore]]) -> Iterator[Surroundings]:
    with open_store() as store:
        yield Surroundings({"store": store.url}, store.hang)


def _hung_store(server: AttackedServer, _: Prepared) -> Answered:
    """Callers whose results go to a store that does not answer."""
    caller = attacker(server)
    with server.beside():

        def timed(_: int) -> float:
            began = time.perf_counter()
            caller.call("list_rows_in_parts", {})
            return time.perf_counter() - began

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            first = list(threads.map(timed, range(8)))
        later = [timed(place) for place in range(5)]
        reply = caller.call("list_rows_in_parts", {})
    said = messages.parse_reply(reply.body)["result"]["content"][0]["text"].rpartition("\n")[2]
    waits = f"eight callers at once waited up to {max(first):.1f} s, five later ones up to {max(later) * 1e3:.0f} ms"
    broken = []
    if max(first) > 3:
        broken.append(f"the first callers waited {max(first):.1f} s for the store")
    if max(later) > 0.5:
        broken.append(f"later callers waited {max(later):.1f} s for the store")
    return Answered(f"{waits}: {said[:160]}", "; ".join(broken))


STORE_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "views",
        "16 different `continue` on one 4 MB list",
        _views,
        stored("list_more_in_parts"),
        others=others_continue,
        keeps=True,
    ),
    Attack(
        "evictions",
        "80 results of 4 MB of one caller; another caller's result",
        _evictions,
        _store_for_other,
        keeps=True,
    ),
    Attack("redis", "a hung Redis", _hung_store, others=others_call, surroundings=lambda: _beside(stores.redis)),
    Attack(
        "sqlite", "a locked SQLite file", _hung_store, others=others_call, surroundings=lambda: _beside(stores.sqlite)
    ),
)
