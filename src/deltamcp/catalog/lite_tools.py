"""Tools as MCP-lite lists them: with a category, always with a description, and with its system tool `redeem`."""

import re

from deltamcp.catalog.text import prose
from deltamcp.values import JSON

REDEEM = "redeem"
"""The tool that is listed, and first, where another may answer with a promise."""
MAX_WAIT_MS = 30_000
REDEEM_ACTIONS = ("redeem", "status", "cancel")
REDEEM_DEFINITION: dict[str, JSON] = {
    "name": REDEEM,
    "@type": "system",
    "description": "Get the result of a long-running call by the promise token that it returned.",
    "inputSchema": {
        "type": "object",
        "required": ["promise"],
        "properties": {
            "promise": {"type": "string", "description": "The token of the promise."},
            "action": {
                "enum": list(REDEEM_ACTIONS),
                "description": "redeem: the result, or the promise again if there is none yet; status: how far the "
                "call is; cancel: stop it.",
            },
            "wait_ms": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_WAIT_MS,
                "description": "How long to wait for the result.",
            },
            "input": {"type": "object", "description": "Answers to the call's questions, by their ids."},
        },
    },
}

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""MCP's rule for new names, SEP-986, which MCP-lite has for all."""
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")


def is_name(name: str) -> bool:
    """Whether MCP-lite allows a tool to have this name."""
    return _NAME.fullmatch(name) is not None


def definition(tool: dict[str, JSON], type_: str | None) -> dict[str, JSON]:
    """Returns a tool's definition."""
    return {**_start(tool, type_), **tool, "description": _description(tool)}


def index_entry(tool: dict[str, JSON], type_: str | None, summary: str) -> dict[str, JSON]:
    """Returns a definition with an empty schema in place of its own, which `tools/describe` has."""
    return {
        **_start(tool, type_),
        "description": summary or prose.cut(_description(tool), prose.SUMMARY_CHARS),
        "inputSchema": {"type": "object"},
        "_meta": {"schema": "deferred"},
    }


def _start(tool: dict[str, JSON], type_: str | None) -> dict[str, JSON]:
    return {"name": tool["name"], "@type": type_} if type_ else {"name": tool["name"]}


def _description(tool: dict[str, JSON]) -> str:
    """Returns the description or, if the author gave none, the words of the name as a sentence."""
    given: str = tool.get("description", "")
    if given.strip():
        return given
    words = _WORD_START.sub(" ", tool["name"]).strip() or tool["name"]
    return f"{words[0].upper()}{words[1:]}."
