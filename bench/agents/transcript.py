"""What an agent writes and reads in one task, and what that costs: o200k tokens of every request and every reply."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from deltamcp import tokens
from deltamcp.wire import jsonrpc

_WORD = re.compile(r"[^\W\d]\w*")
_LITERAL = re.compile(r"'[^']*'|`[^`]*`")
_OWN_KEY = re.compile(r"\b\w+(?=\s*:)")
_JMESPATH = frozenset(
    (
        *("abs", "avg", "ceil", "contains", "ends_with", "floor", "join", "keys", "length", "map", "max", "max_by"),
        *("merge", "min", "min_by", "not_null", "reverse", "sort", "sort_by", "starts_with", "sum", "to_array"),
        *("to_number", "to_string", "type", "values"),
    )
)
"""The functions of JMESPath's specification, which a model that knows the word knows."""


class UntoldWordError(AssertionError):
    """A script used a name that its agent has been told nowhere."""


class Exchange(NamedTuple):
    """One request and its reply."""

    tool: str
    arguments: dict[str, Any]
    reply: str

    @property
    def written(self) -> int:
        return tokens.count(self.tool) + tokens.count(jsonrpc.encode(self.arguments).decode())

    @property
    def read(self) -> int:
        return tokens.count(self.reply)


class Transcript:
    """The exchanges of one task, and the words that its agent has been told."""

    def __init__(self, told: Iterable[str]) -> None:
        """`told` is what the agent reads before its first request: its task and the definitions."""
        self.exchanges: list[Exchange] = []
        self._told = _JMESPATH.union(*(_WORD.findall(text) for text in told))

    @property
    def tokens(self) -> int:
        return sum(each.written + each.read for each in self.exchanges)

    def add(self, tool: str, arguments: dict[str, Any], reply: str) -> None:
        self.exchanges.append(Exchange(tool, arguments, reply))
        self._told |= {*_WORD.findall(reply)}

    def has_told(self, word: str) -> bool:
        """Whether the agent has read a name."""
        return word in self._told

    def check_told(self, words: Iterable[str]) -> None:
        """Check that an agent may know these names.

        Raises:
            UntoldWordError: it may not.
        """
        if untold := {*words} - self._told:
            raise UntoldWordError(f"No definition, task or reply has {', '.join(sorted(untold))}.")


def names_in_fields(fields: str) -> set[str]:
    """The names that an expression takes for granted: of functions and fields, not those that it makes itself."""
    return {*_WORD.findall(_OWN_KEY.sub("", _LITERAL.sub("", fields)))}
