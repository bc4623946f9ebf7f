"""What of a gateway needs a person, the most urgent first, each with what to do. Pure: does no I/O."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from msgspec import Struct

from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LISTED, LedgerRows, Usage
from deltamcp.gateway.trust.review import approve_command, entry_name

UNUSED_DAYS = 30


class Urgency(enum.IntEnum):
    """How soon somebody should look; the lower, the sooner."""

    BROKEN = 1
    """A model gets errors."""
    WAITING = 2
    """A model lacks something until a person decides."""
    COSTLY = 3
    """It works, and costs more than it should."""


class Need(Struct, frozen=True):
    """One thing that needs a person."""

    urgency: Urgency
    kind: str
    title: str
    advice: str
    """What to do."""
    server: str = ""
    details: list[str] = []
    """Lines of a server, or names."""
    command: str = ""
    """What one types to do it, if there is such a command."""
    page: str = ""
    """The page that has more."""


def rank(
    servers: Sequence[Any],
    waiting: Sequence[Any],
    cut_tools: Mapping[str, int],
    rows: LedgerRows,
    segments: Mapping[str, str],
    configuration: Mapping[str, Any],
) -> list[Need]:
    """Returns what needs a person, the most urgent first.

    Args:
        servers: The rows of `Servers.list_all`.
        waiting: What `Reviews.list_waiting` returns.
        cut_tools: The operations whose results were all cut, and how many calls there were.
        rows: The ledger of some months.
        segments: The servers, by their names in the ledger.
        configuration: What `LiveConfiguration.describe` tells an operator.
    """
    needs = [
        *_configuration(configuration),
        *(need for row in servers for need in _needs_of(row)),
        *_reviews(waiting),
        *_costs(cut_tools, rows, segments),
        *_find_unused(servers, rows, segments),
    ]
    return sorted(needs, key=lambda need: need.urgency)


def _costs(cut_tools: Mapping[str, int], rows: LedgerRows, segments: Mapping[str, str]) -> Iterator[Need]:
    total = ledger_figures.total(rows).total
    if total.saved < 0:
        yield Need(
            Urgency.COSTLY,
            "loses",
            f"The gateway has cost {-total.saved:,} tokens more than it saved",
            'disclosure = "auto" in its configuration lists tools plainly where that costs less.',
            command="delta-mcp stats --by day",
        )
    for name, calls in sorted(cut_tools.items(), key=lambda pair: -pair[1]):
        segment, _, tool = name.partition(".")
        server = segments.get(segment, segment)
        yield Need(
            Urgency.COSTLY,
            "cut",
            f"Every result of {name} was cut ({calls} calls)",
            f"Raise max_tokens in [servers.{server}.results], or have {tool} return less.",
            server,
            page="calls?outcome=cut",
        )


def _configuration(described: Mapping[str, Any]) -> Iterator[Need]:
    if described.get("fault"):
        yield Need(
            Urgency.WAITING,
            "configuration",
            "The configuration is wrong, so the one before stays in use",
            "Mend its file; the gateway reads it again by itself.",
            details=[described["fault"]],
        )
    if described.get("leftOut"):
        yield Need(
            Urgency.WAITING,
            "left out",
            "Servers of the configuration are left out",
            "Do what is said of each; the gateway then starts it by itself.",
            details=[*described["leftOut"]],
        )
    if described.get("afterRestart"):
        keys = ", ".join(described["afterRestart"])
        yield Need(
            Urgency.COSTLY,
            "restart",
            f"The new {keys} of the configuration {'hold' if ',' in keys else 'holds'} after a restart",
            "Stop the gateway, and start it again.",
        )


def _needs_of(row: Mapping[str, Any]) -> Iterator[Need]:
    name = row["name"]
    if row["wantsLogin"]:
        yield Need(
            Urgency.BROKEN,
            "login",
            f"{name} needs a login",
            "Log in at a terminal; the gateway then uses the new login by itself.",
            name,
            [row["error"]] if row["error"] else [],
            f"delta-mcp login {name}",
            "servers",
        )
    elif row["isDown"]:
        yield Need(
            Urgency.BROKEN,
            "down",
            f"{name} is down{': ' + row['error'].rstrip('.') if row['error'] else ''}",
            "Mend what it says, then restart it. The gateway tries again by itself, too.",
            name,
            [*row["stderr"]],
            f"delta-mcp restart {name}",
            "servers",
        )
    elif row["fault"]:
        yield Need(
            Urgency.BROKEN,
            "unlisted",
            f"{name} does not list its tools",
            "Its stderr may say why; restart it when it is mended.",
            name,
            [row["fault"]],
            f"delta-mcp logs {name}",
            "servers",
        )


def _reviews(waiting: Sequence[Any]) -> Iterator[Need]:
    by_server: dict[str, list[Any]] = {}
    for one in waiting:
        by_server.setdefault(one["server"], []).append(one)
    for server, found in by_server.items():
        counts = [
            f"{len(some)} {change} {word if len(some) == 1 else plural}"
            for word, plural in (("definition", "definitions"), ("entry", "entries"))
            for change in ("changed", "new")
            if (some := [one for one in found if one["change"] == change and _is_entry(one) == (word == "entry")])
        ]
        they = "it" if len(found) == 1 else "them"
        yield Need(
            Urgency.WAITING,
            "review",
            f"{server} has {' and '.join(counts)}, kept out until you approve {they}",
            "Read what changed, then approve or reject it.",
            server,
            [one["imitates"] or f"{one['kind']} {one['name']}" for one in found[:5]],
            approve_command(server),
            "review",
        )


def _is_entry(waiting: Mapping[str, Any]) -> bool:
    return bool(entry_name(waiting["place"]))


def _find_unused(servers: Sequence[Any], rows: LedgerRows, segments: Mapping[str, str]) -> Iterator[Need]:
    """Tells of servers that were listed for so long, and never called; silent while the ledger is younger than that."""
    days = sorted({key.day for key in rows})
    if not days or _days_between(days[0], days[-1]) < UNUSED_DAYS - 1:
        return
    recent = {key: usage for key, usage in rows.items() if _days_between(key.day, days[-1]) < UNUSED_DAYS}
    for segment, name in segments.items():
        lists = _usage(recent, segment, is_list=True)
        if segment == GATEWAY or not lists.calls or _usage(recent, segment, is_list=False).calls:
            continue
        first = min(key.day for key in rows if key.upstream == segment)
        if _days_between(first, days[-1]) < UNUSED_DAYS - 1:
            continue
        yield Need(
            Urgency.COSTLY,
            "unused",
            f"Nobody used {name} in {UNUSED_DAYS} days",
            f"enabled = false in [servers.{name}] takes it away.",
            name,
            [
                f"Its definitions are {lists.before // lists.calls:,} tokens of a list without the gateway, "
                f"{lists.after // lists.calls:,} with it; {lists.calls:,} conversations were sent one."
            ],
            page="servers",
        )


def _usage(rows: LedgerRows, segment: str, is_list: bool) -> Usage:
    found = Usage()
    for key, usage in rows.items():
        if key.upstream == segment and (key.tool == LISTED) == is_list:
            found.add(usage)
    return found


def _days_between(one: str, other: str) -> int:
    return (date.fromisoformat(other) - date.fromisoformat(one)).days
