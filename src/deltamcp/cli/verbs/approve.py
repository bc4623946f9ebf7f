"""`delta-mcp approve` shows which definitions and entries the gateway keeps out, and approves or rejects them."""

import argparse
import sys
from pathlib import Path

from deltamcp.cli.terminal.elicitation import agrees
from deltamcp.cli.terminal.output import print_changed_line, print_line, suggest
from deltamcp.dashboard.reviews import NOUNS, decide_seen, find_imitations, seen_text
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.definition import UnreadableDiffError, diff_lines, name_text
from deltamcp.gateway.trust.review import ENTRY, ApprovalRecord, entry_name, kind_of, name_at, variance_hint

_LISTED = "delta-mcp approve alone lists what waits"
_NO_TERMINAL = (
    "--yes needs a person at a terminal; where there is none, on_new and on_changed of a server, in the gateway's "
    "configuration, say what it may list."
)


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp approve [UPSTREAM [TOOL ...]] [--yes | --reject]"
    verb.description = (
        "Shows what servers list that is not what you approved, and what a project's file says anew of how servers are "
        "reached: nobody uses it before you approve it."
    )
    verb.add_argument("upstream", nargs="?", metavar="UPSTREAM", help="a server behind the gateway; without it, all")
    verb.add_argument(
        "names", nargs="*", metavar="TOOL", help="tools, prompts, `instructions` or `entry`; without them, all"
    )
    decision = verb.add_mutually_exclusive_group()
    decision.add_argument(
        "--yes", action="store_true", help="approve what is shown, at a terminal, if you only press Enter"
    )
    decision.add_argument("--reject", action="store_true", help="keep out what is shown, until it changes again")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if args.yes and not is_terminal:
        raise ConfigurationError(_NO_TERMINAL)
    approvals = Approvals()
    records = approvals.records()
    imitations = find_imitations(records.values())
    if args.upstream is not None:
        names = sorted({name for record in records.values() for name in _servers(record)})
        if args.upstream not in names:
            raise ConfigurationError(
                f"No gateway has seen a server {args.upstream!r}{suggest(args.upstream, names, '', _LISTED)}"
            )
        records = {path: record for path, record in records.items() if args.upstream in _servers(record)}
    chosen = {path: _choose(record, args.upstream, args.names) for path, record in records.items()}
    if args.names and not any(chosen.values()):
        raise ConfigurationError(f"Nothing of {args.upstream} waits by that name; delta-mcp approve shows what does.")
    if not any(chosen.values()):
        print_line("Nothing waits to be approved.")
        return
    if args.upstream is None and not (args.yes or args.reject):
        for path, places in chosen.items():
            for place in places:
                _show_heading(records[path], place, imitations)
        print_line("")
        print_line("delta-mcp approve UPSTREAM shows what changed.")
        return
    readable = {path: _show(records[path], places, imitations) for path, places in chosen.items()}
    if args.reject:
        _decide(approvals, chosen, records, is_approval=False)
    elif not any(readable.values()):
        return
    elif is_terminal:
        print_line("")
        if agrees("Approve?", by_default=args.yes):
            _decide(approvals, readable, records, is_approval=True)
    else:
        print_line("")
        print_line("A person approves it, at a terminal; --reject keeps it out.")


def _servers(record: ApprovalRecord) -> set[str]:
    """Returns the servers that a record is about: one, or those that a project's file lists."""
    if record.kinds != (ENTRY,):
        return {record.upstream}
    return set(map(entry_name, [*record.approved, *record.waiting, *record.rejected]))


def _choose(record: ApprovalRecord, server: str | None, names: list[str]) -> list[str]:
    """Returns the places that wait; what was rejected only if it is named."""
    out = {**record.waiting, **record.rejected} if names else record.waiting
    return [
        place
        for place in out
        if (entry_name(place) in ("", server) or server is None)
        and (not names or ("entry" if entry_name(place) else name_at(place)) in names)
    ]


def _show_heading(record: ApprovalRecord, place: str, imitations: dict[tuple[str, str], str]) -> None:
    is_new = place not in record.approved
    state = "rejected" if place not in record.waiting else "new" if is_new else "changed"
    kind = NOUNS[kind_of(place)]
    server, name = name_text(entry_name(place) or record.upstream), name_at(place)
    print_line(f"{server}: {kind} {name_text(record.upstream if entry_name(place) else name)}: {state}")
    if place.startswith("/tools/") and (found := imitations.get((record.upstream, name_at(place)))):
        print_line(f"  {found}")


def _show(record: ApprovalRecord, places: list[str], imitations: dict[tuple[str, str], str]) -> list[str]:
    """Prints what changed; returns the places of what was shown whole."""
    shown = []
    for place in places:
        _show_heading(record, place, imitations)
        try:
            lines = diff_lines(record.approved.get(place), {**record.rejected, **record.waiting}[place])
        except UnreadableDiffError as error:
            print_line(f"  {error}")
            continue
        for line in lines:
            print_changed_line(line)
        if hint := variance_hint(record, place, record.waiting.get(place)):
            print_line(f"  {hint}")
        shown.append(place)
    return shown


def _decide(
    approvals: Approvals, chosen: dict[Path, list[str]], records: dict[Path, ApprovalRecord], is_approval: bool
) -> None:
    """Approves or rejects what was shown, and nothing that came after it."""
    for path, places in chosen.items():
        record = records[path]
        shown = {**record.rejected, **record.waiting}
        seen = {place: seen_text(place, record.approved.get(place), shown[place]) for place in places}
        decide_seen(approvals, path, seen, is_approval)
    count = sum(map(len, chosen.values()))
    done = "Approved" if is_approval else "Rejected"
    print_line(f"{done} {count}. A gateway that runs notices within seconds.")
