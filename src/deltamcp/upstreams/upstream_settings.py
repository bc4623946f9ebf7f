"""What an operator sets for the connection to an upstream."""

from typing import Literal

from msgspec import Struct


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """How an upstream is started, used and stopped."""

    timeout: float | None = None
    """The seconds that a request may take; None for the client's own bound."""
    concurrency: int | None = None
    """The requests that it performs at once; None for any number."""
    max_waiting: int = 100
    """The requests that wait for their turn; further ones are refused, and may be sent again later."""
    start: Literal["first-use", "ahead"] = "first-use"
    """Whether it is started when somebody needs it, or with this server and again whenever it is lost."""
    start_seconds: float = 30.0
    """The seconds that it may take to start and to introduce itself."""
    idle_seconds: float | None = 600.0
    """After how many seconds without a request it is stopped; None never."""
    process_for: Literal["all", "principal"] = "all"
    """Whether all callers share one process or connection, or each principal has its own."""
    max_principals: int = 32
    """How many principals may have their own at once; who has not used it for longest makes room for another."""
