"""Measures one attack on one server: what others waited, how the process grew, and what of it stayed."""

import contextlib
import math
import threading
import time
from typing import Any

from bench.hostile.attack import Answered, Attack
from bench.hostile.attacked_server import (
    MEGABYTE,
    AttackedServer,
    OtherCallerProcess,
    Waits,
    reset_peak,
    resident_bytes,
)
from bench.hostile.rule import ATTEMPTS, Measured, best_of
from bench.peers import OURS

_BASELINE_SECONDS = 0.7
_REST_SECONDS = 1.0
_EXPIRY_SECONDS = 5.0


def measure(attack: Attack, server: str, bound: float, attempts: int = ATTEMPTS) -> Measured:
    """Makes an attack, again if it breaks the rule, and takes the best figures.

    Args:
        bound: The seconds after which an attack is ended.

    Raises:
        SkippedError: something that the attack needs is not there.
    """
    made: list[Measured] = []
    while len(made) < attempts:
        found = _measure_once(attack, server, bound, short=False)
        if attack.keeps and not found.timed_out and server == OURS:
            found.expired_mb = _measure_once(attack, server, bound, short=True).retained_mb
        made.append(found)
        if not found.is_doubtful:
            break
    return best_of(made)


def _measure_once(attack: Attack, server: str, bound: float, short: bool) -> Measured:
    options = attack.options._replace(short_lifetimes=short)
    with contextlib.ExitStack() as stack:
        beside = None
        if attack.surroundings is not None:
            found = stack.enter_context(attack.surroundings())
            beside, options = found.beside, options._replace(**found.options)
        process = stack.enter_context(AttackedServer(server, options, beside))
        prepared = attack.prepare(process)
        others = [
            stack.enter_context(
                OtherCallerProcess(process.grpc_port if headers is None else process.port, body, headers)
            )
            for body, headers in attack.others(process, prepared).values()
        ]
        time.sleep(0.3)
        for other in others:
            other.report()  # the first requests include the start of the other caller
        time.sleep(_BASELINE_SECONDS)
        baseline = [other.report() for other in others]
        process.settle()
        before = resident_bytes(process.process.pid)
        reset_peak(process.process.pid)
        answered, timed_out = _attack(attack, process, prepared, bound + attack.more_seconds)
        ended = process.has_ended
        if not timed_out and not ended:
            time.sleep(_EXPIRY_SECONDS if short else _REST_SECONDS)
        waits = [other.report() for other in others]
        peak = resident_bytes(process.process.pid, peak=True)
        if not timed_out and not ended:
            process.settle()
        after = resident_bytes(process.process.pid)
        failed = sum(one.failed for one in waits)
    broken = answered.broken or ended
    if not broken and failed:
        broken = f"{failed} requests of others failed"
    return Measured(
        waited_ms=_excess_ms(waits, baseline),
        baseline_ms=_excess_ms(baseline, baseline),
        grown_mb=_megabytes(peak - before),
        retained_mb=None if timed_out or ended else _megabytes(after - before),
        answered=answered.text,
        broken=broken,
        stored_mb=answered.stored_mb,
        timed_out=timed_out,
    )


def _excess_ms(waits: list[Waits], baseline: list[Waits]) -> float:
    """The longest wait of any other caller, less what its request takes without an attack."""
    return max(max(0.0, waited.longest - usual.median) * 1e3 for waited, usual in zip(waits, baseline, strict=True))


def _megabytes(size: float) -> float | None:
    return None if math.isnan(size) else size / MEGABYTE


def _attack(attack: Attack, process: AttackedServer, prepared: Any, bound: float) -> tuple[Answered, bool]:
    """Runs an attack in a thread, and says whether it was not over in time."""
    ends: list[Answered] = []

    def run() -> None:
        try:
            ends.append(attack.run(process, prepared))
        except Exception as error:  # the server was killed meanwhile, or answered what no server answers
            ends.append(Answered(f"{type(error).__name__}: {str(error)[:200]}"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(bound)
    if thread.is_alive():
        return Answered(f"not over after {bound:g} s"), True
    return ends[0], False
