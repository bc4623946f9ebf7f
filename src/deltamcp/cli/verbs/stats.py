"""`delta-mcp stats` tells what the gateway saved a model and what it cost, and draws the days."""

import argparse
import datetime
import sys
from pathlib import Path

from deltamcp import tokens
from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.command_parser import whole_number
from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LedgerFile, LedgerRows, Usage

_HEADINGS = {"day": ["day"], "upstream": ["upstream"], "tool": ["upstream", "tool"]}
_NOTHING = "Nothing is counted yet: what a host does through the gateway is; delta-mcp install HOST puts it there."
_DRAWN_DAYS, _BAR_COLUMNS = 30, 40
_BARS = ("█", "░", "▒")
_ASCII_BARS = ("#", ".", "!")
"""What stands for tokens that a model read, for those it was saved, and for those that it only read because of us."""


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--days", type=whole_number("days", 10_000), metavar="N", help="the last N days, today included; all by default"
    )
    verb.add_argument("--by", choices=list(ledger_figures.GROUPS), default="tool", help="what to sum by (tool)")
    verb.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    verb.add_argument("--html", type=Path, metavar="FILE", help="also write a page")
    verb.add_argument("--reset", action="store_true", help="forget all figures")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    file = LedgerFile()
    if args.reset:
        file.reset()
        output.print_line(f"The ledger at {file.path} is empty.")
        return
    rows = file.read(args.days)
    if args.html and rows:
        from deltamcp.cli.terminal import report_pages

        report_pages.write(args.html, report_pages.stats_page(rows, tokens.describe()))
    if args.json:
        _print_json(rows, args.by)
    elif rows:
        _print_table(rows, args.by)
    else:
        output.print_line(_NOTHING)


def _print_json(rows: LedgerRows, by: str) -> None:
    headings = _HEADINGS[by]
    found = [
        {**dict(zip(headings, key, strict=True)), **usage.as_json()}
        for key, usage in ledger_figures.group(rows, by).items()
    ]
    totals = ledger_figures.total(rows)
    output.print_json({"tokenizer": tokens.describe(), "total": totals.as_json(), "by": by, "rows": found})


def _print_table(rows: LedgerRows, by: str) -> None:
    console = output.make_console()
    grouped = ledger_figures.group(rows, by).items()
    shown = grouped if by == "day" else sorted(grouped, key=lambda pair: -pair[1].saved)
    output.print_table(
        "",
        _HEADINGS[by],
        ["calls", "failed", "without", "with", "saved"],
        [[*_names(key, by), *_saved_figures(usage)] for key, usage in shown],
        console,
    )
    for line in draw_days(rows, datetime.date.today(), _can_draw()):
        console.print(line)
    for sentence in ledger_figures.sentences(ledger_figures.total(rows)):
        console.print(sentence)
    console.print(f"Tokens are those of {tokens.describe()}. A list counts once for a conversation.")


def draw_days(rows: LedgerRows, today: datetime.date, can_draw: bool = True) -> list[str]:
    """Returns a bar for each of the last days, as long as the most tokens of a day are, and what they stand for.

    Args:
        can_draw: Whether the terminal has the characters of bars; otherwise they are ASCII.
    """
    read, kept, more = _BARS if can_draw else _ASCII_BARS
    days = ledger_figures.days_until(rows, today, 1)[-_DRAWN_DAYS:]
    largest = max(max(usage.before, usage.after) for _, usage in days)
    if not largest:
        return []
    lines = [f"Tokens by day: {read} read, {kept} saved, {more} read because of the gateway"]
    for day, usage in days:
        both, after, before = (
            round(_BAR_COLUMNS * figure / largest)
            for figure in (min(usage.before, usage.after), usage.after, usage.before)
        )
        bar = read * both + kept * (before - both) + more * (after - both)
        lines.append(f"{day} {bar:<{_BAR_COLUMNS}} {usage.saved:>12,}".rstrip())
    return lines


def _can_draw() -> bool:
    try:
        "".join(_BARS).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _names(key: tuple[str, ...], by: str) -> list[str]:
    return list(key) if by == "day" else [key[0] if key[0] != GATEWAY else "(gateway)", *key[1:]]


def _saved_figures(usage: Usage) -> list[str]:
    return [f"{number:,}" for number in (usage.calls, usage.failed, usage.before, usage.after, usage.saved)]
