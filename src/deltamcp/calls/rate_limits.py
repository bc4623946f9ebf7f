"""Rate limits: how often an address, a principal and a principal's calls of one tool may come."""

import logging
import math
import time
from collections.abc import Iterable, Mapping

from msgspec import Struct

from deltamcp.catalog.items.operation import Operation
from deltamcp.errors import ConfigurationError, Fault, ToolErrorCode
from deltamcp.results.content import server_error
from deltamcp.stores.store import SharedStore, StoreError, TokenBuckets, hash_key
from deltamcp.values import Caller, Failure, ToolResult

logger: logging.Logger = logging.getLogger("deltamcp")

EVERY_TOOL = "*"


class Rate(Struct, frozen=True):
    """How many requests may come in how many seconds; unused ones add up to `burst`, which is `count` unless set."""

    count: int
    """How many requests."""
    seconds: float = 1.0
    """In how many seconds."""
    burst: int | None = None
    """How many may come at once; `count` by default."""

    def __post_init__(self) -> None:
        numbers = (self.count, self.seconds, 1 if self.burst is None else self.burst)
        if not all(isinstance(number, int | float) and 0 < number < math.inf for number in numbers):
            raise ConfigurationError(f"{self!r} must have a count, seconds and a burst above 0.")

    @property
    def size(self) -> int:
        """The requests that may come at once."""
        return self.count if self.burst is None else self.burst

    def __str__(self) -> str:
        return f"{self.count} in {self.seconds:g} s"


class RateLimits(Struct, frozen=True, kw_only=True):
    """The rate limits of a server: `DeltaServer(rate_limits=RateLimits(...))`. What is left out has no limit."""

    per_address: Rate | None = None
    """HTTP and gRPC requests of one client address, before authentication."""
    per_principal: Rate | None = None
    """HTTP and gRPC requests of one principal; callers who are not authenticated have their address's limit only."""
    per_tool: Rate | Mapping[str, Rate] | None = None
    """Calls of one tool by one caller, over every transport: a rate for each tool, or rates by the tools' names, where
    "*" stands for all others."""

    def __post_init__(self) -> None:
        given = [self.per_address, self.per_principal, *self.tool_rates.values()]
        if not all(rate is None or isinstance(rate, Rate) for rate in given):
            raise ConfigurationError("RateLimits takes Rate(count, seconds), and for per_tool also a dict of them.")

    @property
    def tool_rates(self) -> Mapping[str, Rate]:
        """The rates by the names of tools."""
        if isinstance(self.per_tool, Mapping):
            return self.per_tool
        return {} if self.per_tool is None else {EVERY_TOOL: self.per_tool}

    def replace(self, other: "RateLimits") -> "RateLimits":
        """Returns these limits with those that the other ones set."""
        return RateLimits(
            per_address=other.per_address or self.per_address,
            per_principal=other.per_principal or self.per_principal,
            per_tool=other.per_tool or self.per_tool,
        )


def warn_of_unknown_tools(limits: RateLimits, operations: Iterable[Operation]) -> None:
    """Logs the names in `per_tool` that no tool has: their limits would limit nothing."""
    known = {EVERY_TOOL}.union(*((operation.name, operation.id) for operation in operations))
    if unknown := sorted(limits.tool_rates.keys() - known):
        logger.warning("rate_limits names tools that do not exist: %s", ", ".join(unknown))


class Rates:
    """Takes tokens from the buckets of a server's rate limits.

    The buckets are in the store, where all replicas take from them; while it does not answer, in this process.
    """

    def __init__(self, limits: RateLimits, store: SharedStore, server_name: str) -> None:
        self._limits = limits
        self._tool_rates = limits.tool_rates
        self._store = store
        self._owner = f"rate {server_name}"
        self._own = TokenBuckets(time.monotonic)

    @property
    def limits_tools(self) -> bool:
        return bool(self._tool_rates)

    async def check_address(self, address: str) -> Failure | None:
        """Counts a request for an address; returns a failure if there were too many."""
        return await self._check("per_address", self._limits.per_address, address, "of this address")

    async def check_principal(self, caller: Caller) -> Failure | None:
        """Counts a request for an authenticated caller's principal; returns a failure if there were too many."""
        rate = None if caller.is_anonymous else self._limits.per_principal
        return await self._check("per_principal", rate, caller.principal.key, "of this principal")

    async def _check(self, limit: str, rate: Rate | None, key: str, whose: str) -> Failure | None:
        if rate is None or not (seconds := await self._take(f"{limit} {key}", rate)):
            return None
        text = f"Too many requests {whose}: {rate} are allowed; try again in {math.ceil(seconds)} s."
        return Failure(Fault.RATE_LIMITED, text, {"limit": limit}, retry_seconds=seconds)

    async def check_tool(self, operation: Operation, name: str, caller: Caller) -> ToolResult | None:
        """Counts a call of a tool; returns the error result that the caller gets if there were too many."""
        rates = self._tool_rates
        rate = rates.get(operation.name) or rates.get(operation.id) or rates.get(EVERY_TOOL)
        if rate is None:
            return None
        seconds = await self._take(f"per_tool {operation.id} {caller.account}", rate)
        if not seconds:
            return None
        sentence = (
            f"{name} was not called, because it was called too often: {rate} are allowed. "
            f"Wait {math.ceil(seconds)} s before you call it again."
        )
        details = {"retry_after_ms": math.ceil(seconds * 1000)}
        return server_error(sentence, ToolErrorCode.RATE_LIMITED, retryable=True, details=details)

    async def _take(self, key: str, rate: Rate) -> float:
        bucket = hash_key(self._owner, key)
        try:
            return await self._store.take_token(bucket, rate.count / rate.seconds, rate.size)
        except StoreError as error:
            logger.debug("rates are counted in this process: %s", error)
            return self._own.take(bucket, rate.count / rate.seconds, rate.size)
