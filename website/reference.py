"""Pages of the reference from what the code reads: commands, keys of files, limits, names."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as msgspec_inspect

from deltamcp.cli.main import EXIT_CODES, VERBS, make_parser
from deltamcp.gateway import config
from deltamcp.gateway.config import ENTRY_KEYS, GatewayConfig, UpstreamConfig
from deltamcp.limits import Limits
from deltamcp.results.policy import ResultPolicy
from deltamcp.sources.openapi.settings import ApiSettings
from deltamcp.transports.metrics import METRICS
from deltamcp.version import VERSION
from website.python_reference import cell, field_documents, first_paragraph

ROOT = Path(__file__).resolve().parent.parent
_SOURCE = ROOT / "src" / "deltamcp"


def commands_page() -> str:
    parts = [
        "# Commands",
        "Every command with its options, as `delta-mcp COMMAND --help` has them."
        " [Command line](../command-line.md) tells how they are used.",
    ]
    for name, parser in subcommands(make_parser(VERBS), "delta-mcp"):
        parts.append(f"## `{name}`")
        parts += [part for part in (_plain(parser.description), code_block(_usage(parser, name))) if part]
        rows = [_option_row(action) for action in parser._actions if _is_shown(action)]
        if rows:
            parts.append("\n".join(("| option | |", "|---|---|", *rows)))
        parts += [_plain(parser.epilog)] if parser.epilog else []
    parts += [
        "## Exit codes",
        "| code | after |\n|---|---|\n| 0 | done |\n"
        + "\n".join(f"| {code} | `{kind.__name__}`: {cell(first_paragraph(kind))} |" for kind, code in EXIT_CODES)
        + "\n| 130 | the user interrupted it |",
    ]
    return "\n\n".join(parts) + "\n"


def subcommands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A parser and those of its subcommands, with the words that call them."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, subparser in action.choices.items():
                yield from subcommands(subparser, f"{name} {verb}")


def _usage(parser: argparse.ArgumentParser, name: str) -> str:
    parser.prog = name
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
    return parser.format_usage().removeprefix("usage: ").rstrip()


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)


def _option_row(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    values = " ".join(value) if isinstance(value, tuple) else value
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{values}`"
    if action.option_strings and action.nargs != 0:
        chosen = " or ".join(f"`{choice}`" for choice in action.choices or ())
        names += f" {chosen}" if chosen and not action.metavar else f" `{values}`"
    text = (action.help or "") % {**vars(action), "prog": "delta-mcp"} if action.help else ""
    return f"| {cell(names)} | {cell(escaped(' '.join(text.split())))} |"


def gateway_page() -> str:
    return (
        "\n\n".join(
            (
                "# Keys of a gateway's file",
                "Every key of the TOML that `delta-mcp gateway` reads. [Gateway](../gateway.md) tells how to use them.",
                "## The file",
                _keys(config.field_types(GatewayConfig, frozenset({"upstreams"})), GatewayConfig),
                "Besides, `include` names files of hosts whose servers are taken over, `[defaults]` has keys for all"
                " servers, and each `[servers.NAME]` is a server.",
                "## `[servers.NAME]` and `[defaults]`",
                _keys(config.field_types(UpstreamConfig, frozenset({"name", "entry", "filled"})), UpstreamConfig),
                "## How a server is reached",
                "As in an entry of an `mcpServers` file, in `[servers.NAME]`.",
                "| key | value |\n|---|---|\n"
                + "\n".join(f"| `{key}` | {_kind(type_)} |" for key, type_ in ENTRY_KEYS.items()),
                "## How an API is reached",
                "In `[servers.NAME]` with `openapi`, a file or an address.",
                _keys(config.field_types(ApiSettings, frozenset()), ApiSettings),
                "## `results`",
                "A table of these keys; those of a server come before those of the gateway.",
                _keys(config.field_types(ResultPolicy, frozenset()), ResultPolicy),
            )
        )
        + "\n"
    )


def _keys(types: Any, owner: type) -> str:
    texts = field_documents(owner)
    defaults = {field.name: field for field in msgspec.structs.fields(owner)}
    rows = [
        f"| `{key}` | {_kind(type_)}{_default(defaults.get(key))} | {cell(texts.get(key, ''))} |"
        for key, type_ in types.items()
    ]
    return "\n".join(("| key | value, and the default | |", "|---|---|---|", *rows))


def _kind(type_: Any) -> str:
    return cell(config.phrase(msgspec_inspect.type_info(type_)))


def _default(field: "msgspec.structs.FieldInfo | None") -> str:
    if field is None or field.required:
        return ""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return ""
    return f"; `{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def operations_page() -> str:
    schema = json.loads((ROOT / "docs" / "operations.schema.json").read_text())
    parts = [
        "# Keys of operations.json",
        "Every key that [the schema](../operations.schema.json) knows."
        " [Operations file](../operations-file.md) tells how they are used."
        " Names that begin with `_` may stand anywhere, and mean nothing.",
    ]
    for title, node in (("The file", schema), *((f"A `{name}`", node) for name, node in schema["$defs"].items())):
        rows = list(_schema_rows(node, ""))
        if rows:
            parts += [f"## {title}", "\n".join(("| key | value | |", "|---|---|---|", *rows))]
    return "\n\n".join(parts) + "\n"


def _schema_rows(node: Any, above: str) -> Iterator[str]:
    if isinstance(node, list):
        for one in node:
            yield from _schema_rows(one, above)
    if not isinstance(node, dict):
        return
    for name, value in node.get("properties", {}).items():
        yield f"| `{above}{name}` | {cell(_schema_kind(value))} | {cell(value.get('description', ''))} |"
        yield from _schema_rows(value, f"{above}{name}.")
    for key in ("oneOf", "anyOf", "allOf", "then", "else"):
        yield from _schema_rows(node.get(key, []), above)
    for key in ("items", "additionalProperties"):
        yield from _schema_rows(node.get(key), f"{above}*.")
    for value in node.get("patternProperties", {}).values():
        yield from _schema_rows(value, f"{above}*.")


def _schema_kind(node: Any) -> str:
    if not isinstance(node, dict):
        return ""
    if "$ref" in node:
        return f"a {node['$ref'].rsplit('/', 1)[-1]}"
    if "enum" in node:
        return ", ".join(f"`{json.dumps(one)}`" for one in node["enum"])
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kinds = node.get("type")
    if kinds:
        return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    nested = [_schema_kind(one) for key in ("allOf", "anyOf", "oneOf") for one in node.get(key, [])]
    return " or ".join(dict.fromkeys(one for one in nested if one))


def limits_page() -> str:
    texts = field_documents(Limits)
    rows = [
        f"| `{field.name}` | {field.default:,} | {cell(texts[field.name])} |"
        for field in msgspec.structs.fields(Limits)
    ]
    return (
        "\n\n".join(
            (
                "# Every limit",
                "The fields of `Limits`, for `DeltaServer(limits=Limits(...))`."
                " [Limits](../limits.md) tells what happens at each.",
                "\n".join(("| limit | default | |", "|---|---|---|", *rows)),
            )
        )
        + "\n"
    )


def names_page() -> str:
    text = "\n".join(path.read_text() for path in sorted(_SOURCE.rglob("*.py")))
    variables = sorted(set(re.findall(r"DELTA_MCP_[A-Z_]+", text)))
    loggers = sorted(set(re.findall(r'getLogger\("(deltamcp[^"]*)"\)', text)))
    metrics = [
        f"| `{name}` | {', '.join(f'`{label}`' for label in row.labels)} | {cell(row[2])} |"
        for name, row in sorted(METRICS.items())
    ]
    return (
        "\n\n".join(
            (
                "# Variables, metrics, loggers",
                f"What version {VERSION} reads from its environment, and what it tells those who watch."
                " [Monitoring](../monitoring.md) tells how they are used.",
                "## Variables of the environment",
                "\n".join(f"- `{name}`" for name in variables),
                "## Metrics",
                "\n".join(("| metric | labels | |", "|---|---|---|", *metrics)),
                "## Loggers",
                "\n".join(f"- `{name}`" for name in loggers),
            )
        )
        + "\n"
    )


def code_block(text: str) -> str:
    return f"```text\n{text}\n```"


def escaped(text: str) -> str:
    """A text of the command line in Markdown, where it is no markup."""
    return re.sub(r"([<>*_])", r"\\\1", text)


def _plain(text: str | None) -> str:
    return escaped(" ".join((text or "").split()))
