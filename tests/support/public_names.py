"""What users call by name: what the package exports, commands, configuration, metrics, loggers, variables.

`python -m tests.support.public_names` records them, which is due when one of them changes on purpose.
"""

import argparse
import enum
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import deltamcp
import deltamcp.middleware
from deltamcp.cli.main import VERBS, make_parser
from deltamcp.client.options import ClientOptions
from deltamcp.gateway.api_server import api_keys
from deltamcp.gateway.config import ENTRY_KEYS, GatewayConfig, UpstreamConfig
from deltamcp.transports.metrics import METRICS
from deltamcp.transports.options import GrpcOptions, HttpServerOptions, McpLiteOptions
from tests.support.paths import ROOT

RECORD = ROOT / "tests" / "public_names.json"
SOURCE = ROOT / "src" / "deltamcp"


def public_names() -> dict[str, Any]:
    text = "\n".join(path.read_text() for path in sorted(SOURCE.rglob("*.py")))
    return {
        "deltamcp": {name: _members(getattr(deltamcp, name)) for name in dir(deltamcp)},
        "deltamcp.middleware": {
            name: _members(getattr(deltamcp.middleware, name)) for name in deltamcp.middleware.__all__
        },
        "commands": dict(_commands(make_parser(VERBS), "delta-mcp")),
        "keys": {
            "servers of a gateway": sorted({*UpstreamConfig.__struct_fields__, *ENTRY_KEYS}),
            "APIs": sorted(api_keys()),
            "gateway": sorted(GatewayConfig.__struct_fields__),
            "HTTP": sorted(HttpServerOptions.__annotations__),
            "MCP-lite": sorted(McpLiteOptions.__annotations__),
            "gRPC": sorted(GrpcOptions.__annotations__),
            "client": sorted(ClientOptions.__annotations__),
        },
        "metrics": {name: list(row.labels) for name, row in sorted(METRICS.items())},
        "loggers": sorted(set(re.findall(r'getLogger\("(deltamcp[^"]*)"\)', text))),
        "variables": sorted(set(re.findall(r"DELTA_MCP_[A-Z_]+", text))),
    }


def _members(thing: Any) -> list[str]:
    """Names the parameters of a function; of a class also its methods with theirs, and other public members."""
    if not inspect.isclass(thing):
        return _parameters(thing)
    made_from = _parameters(thing) if _is_ours_to_make(thing) else []
    found = [f"({', '.join(made_from)})"]
    for name, member in sorted(inspect.getmembers(thing)):
        if not name.startswith("_") and any(name in vars(owner) for owner in thing.__mro__ if _is_ours(owner)):
            if inspect.isfunction(member) or inspect.ismethod(member):
                found.append(f"{name}({', '.join(_parameters(member))})")
            elif name not in made_from:
                found.append(name)
    return found


def _is_ours_to_make(thing: type) -> bool:
    """Members of an enum are not made, and exceptions mostly as Python makes them, which its versions spell apart."""
    return not issubclass(thing, enum.Enum) and thing.__init__ is not Exception.__init__


def _is_ours(owner: type) -> bool:
    return owner.__module__.startswith("deltamcp")


def _parameters(thing: Any) -> list[str]:
    found = inspect.signature(thing).parameters.values()
    return [str(one.replace(annotation=one.empty, default=one.empty)) for one in found]


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, list[str]]]:
    options: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, subparser in action.choices.items():
                yield from _commands(subparser, f"{name} {verb}")
        else:
            options += action.option_strings or [str(action.metavar or action.dest)]
    yield name, sorted(options)


if __name__ == "__main__":
    RECORD.write_text(json.dumps(public_names(), indent=1, sort_keys=True) + "\n")
