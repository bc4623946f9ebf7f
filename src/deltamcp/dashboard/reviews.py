"""The definitions and entries of servers that wait for somebody to approve them: listed, shown, decided. It blocks."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from deltamcp.errors import UsageError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust import review
from deltamcp.gateway.trust.approvals import Approvals, load
from deltamcp.gateway.trust.definition import UnreadableDiffError, diff_lines
from deltamcp.gateway.trust.imitation import compare_tools
from deltamcp.gateway.trust.review import ApprovalRecord, entry_name, kind_of, name_at, variance_hint
from deltamcp.values import JSON

NOUNS = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
    "instructions": "text",
    "requests": "API",
    "entry": "entry in",
}
"""What a definition is called, by the list that has it."""


class Reviews:
    """What waits in the records of approvals."""

    def __init__(
        self,
        approvals: Approvals,
        configs: Callable[[], Iterable[UpstreamConfig]],
        entry_records: Callable[[], Iterable[Path]],
    ) -> None:
        """
        Args:
            configs: Returns the servers whose definitions are meant.
            entry_records: Returns the records of the projects' files whose entries are.
        """
        self._approvals = approvals
        self._configs = configs
        self._entry_records = entry_records

    def list_waiting(self) -> list[JSON]:
        """
        Raises:
            ConfigurationError: a record cannot be read.
        """
        servers = self._servers()
        records = {path: record for path, record in self._approvals.records().items() if path in servers}
        is_waiting = any(record.waiting for record in records.values())
        imitations = find_imitations(records.values()) if is_waiting else {}
        return [
            {
                **_heading(record, place),
                "imitates": imitations.get((record.upstream, name_at(place)), "") if kind_of(place) == "tools" else "",
            }
            for record in records.values()
            for place in record.waiting
        ]

    def show(self, server: str, place: str) -> JSON:
        """Returns the whole difference between what was approved and what waits, and the text that stands for it.

        Raises:
            ConfigurationError: the record cannot be read.
            UsageError: nothing waits there.
        """
        record = self._find(server, place)[1]
        old, new = record.approved.get(place), record.waiting[place]
        shown: dict[str, JSON] = {**_heading(record, place), "hint": variance_hint(record, place, new)}
        try:
            return {**shown, "lines": [*diff_lines(old, new)], "seen": seen_text(place, old, new), "fault": ""}
        except UnreadableDiffError as error:
            return {**shown, "lines": [], "seen": "", "fault": str(error)}

    def decide(self, server: str, place: str, seen: str, is_approval: bool) -> None:
        """Approves or rejects what waits, if it is what somebody has seen.

        Raises:
            ConfigurationError: the record cannot be read or written.
            UsageError: it is not, or nothing waits there.
        """
        path, _ = self._find(server, place)
        if not decide_seen(self._approvals, path, {place: seen}, is_approval):
            raise UsageError("It has changed since it was shown, or nothing waits there any more; look again.")

    def _servers(self) -> Mapping[Path, str]:
        """Returns the name of the server that each record is about; none of a record of entries."""
        found = dict.fromkeys(self._entry_records(), "")
        for config in self._configs():
            path, of_principals = self._approvals.path(config), self._approvals.path_for_principals(config)
            found |= {path: config.name, of_principals: config.name}
        return found

    def _find(self, server: str, place: str) -> tuple[Path, ApprovalRecord]:
        for path, name in self._servers().items():
            if server == (name or entry_name(place)):
                record = load(path)
                if record is not None and place in record.waiting:
                    return path, record
        raise UsageError("Nothing waits there any more.")


def _heading(record: ApprovalRecord, place: str) -> dict[str, JSON]:
    """Returns what waits at a place: an entry of a server is told with the file that has it."""
    of_entry = entry_name(place)
    return {
        "server": of_entry or record.upstream,
        "place": place,
        "kind": NOUNS[kind_of(place)],
        "name": record.upstream if of_entry else name_at(place),
        "change": "changed" if place in record.approved else "new",
    }


def decide_seen(approvals: Approvals, path: Path, seen: dict[str, str], is_approval: bool) -> list[str]:
    """Approves or rejects definitions, by their places, that still are what somebody has seen; returns their places.

    Raises:
        ConfigurationError: the record cannot be read or written.
    """
    decided: list[str] = []

    def decide(record: ApprovalRecord) -> ApprovalRecord:
        out = {**record.rejected, **record.waiting}
        decided[:] = [
            place
            for place, text in seen.items()
            if place in out and text and text == seen_text(place, record.approved.get(place), out[place])
        ]
        return (review.approve if is_approval else review.reject)(record, decided)

    approvals.change(path, decide)
    return decided


def seen_text(place: str, old: JSON, new: JSON) -> str:
    """Returns a text that stands for what somebody has seen: what was approved, and what waits."""
    return hashlib.sha256(json.dumps([place, old, new], sort_keys=True).encode()).hexdigest()


def find_imitations(records: Iterable[ApprovalRecord]) -> dict[tuple[str, str], str]:
    """Returns sentences about tools that could be taken for another server's, by server and name."""
    tools = {
        record.upstream: [
            one for place, one in {**record.approved, **record.waiting}.items() if place.startswith("/tools/")
        ]
        for record in records
    }
    return {(one.upstream, one.tool): str(one) for one in compare_tools(tools).imitations}
