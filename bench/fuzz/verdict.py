"""What a run of the fuzzer found: requests that were not answered as they must be, and what the server process did."""

import dataclasses
import json
from collections import Counter
from typing import Any

ALLOWED_5XX = (501, 503, 505)
"""A method, a load and a version that the server does not take are told with these."""
MAX_FINDINGS = 50


@dataclasses.dataclass
class FuzzTally:
    """The statuses of all replies, and the cases that went wrong."""

    statuses: Counter[str] = dataclasses.field(default_factory=Counter)
    findings: list[str] = dataclasses.field(default_factory=list)

    def count(self, status: str) -> None:
        self.statuses[status] += 1

    def report(self, kind: str, number: int, what: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(f"{kind}:{number} {what}")

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())


def check_reply(status: int, content_type: str, body: bytes) -> str:
    """Says what is wrong with a reply; empty if nothing is."""
    if status >= 500 and status not in ALLOWED_5XX:
        return f"{status} {body[:200]!r}"
    if b"Traceback" in body:
        return "a traceback in the reply"
    if content_type.partition(";")[0] != "application/json" or "variant" in content_type or not body:
        return ""
    try:
        said: Any = json.loads(body, parse_constant=_refuse)
    except ValueError as error:
        return f"the reply is no JSON: {error} in {body[:200]!r}"
    for message in said if isinstance(said, list) else [said]:
        if not isinstance(message, dict) or (not {"result", "error", "method"} & set(message) and "jsonrpc" in message):
            return f"the reply is no JSON-RPC message: {body[:200]!r}"
    return ""


def _refuse(word: str) -> None:
    raise ValueError(f"{word} on the wire")
