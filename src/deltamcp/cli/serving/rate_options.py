"""The command-line options of rate limits, as `--rate-address 100/60`."""

import argparse

from deltamcp.calls.rate_limits import EVERY_TOOL, Rate, RateLimits
from deltamcp.errors import ConfigurationError


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--rate-address",
        metavar="COUNT/SECONDS",
        help="how many HTTP requests one address may send in how many seconds, as 100/60",
    )
    verb.add_argument(
        "--rate-principal", metavar="COUNT/SECONDS", help="how many HTTP requests one authenticated caller may send"
    )
    verb.add_argument(
        "--rate-tool",
        action="append",
        default=[],
        metavar="[TOOL=]COUNT/SECONDS",
        help="how often a caller may call each tool, or the one of this name; repeatable",
    )


def read_limits(args: argparse.Namespace) -> RateLimits | None:
    """Returns the limits that the command line sets; None if it sets none.

    Raises:
        ConfigurationError: an option is no rate.
    """
    if not (args.rate_address or args.rate_principal or args.rate_tool):
        return None
    named = [text.rpartition("=") for text in args.rate_tool]
    return RateLimits(
        per_address=args.rate_address and _read_rate("--rate-address", args.rate_address),
        per_principal=args.rate_principal and _read_rate("--rate-principal", args.rate_principal),
        per_tool={name or EVERY_TOOL: _read_rate("--rate-tool", text) for name, _, text in named} or None,
    )


def _read_rate(option: str, text: str) -> Rate:
    count, _, seconds = text.partition("/")
    try:
        return Rate(int(count), float(seconds))
    except (ValueError, ConfigurationError):
        raise ConfigurationError(
            f"{option} takes COUNT/SECONDS above 0, such as 100/60 for 100 in a minute, not {text!r}."
        ) from None
