"""Evaluates JMESPath expressions, with a limit on the work that an expression may cause.

An expression that a peer sends is a program: `[?contains(a, b)]` compares every item with another, and `to_string` in
`to_string` doubles a text. The interpreter of the `jmespath` library therefore counts what it visits, compares and
copies.
"""

import functools
import math
from typing import Any

from jmespath.exceptions import JMESPathError, JMESPathTypeError, UnknownFunctionError
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from deltamcp.errors import UsageError
from deltamcp.results.document import MAX_VALUES
from deltamcp.results.expression_functions import (
    ITEMS_PER_STEP,
    MAX_BYTES,
    NAMES,
    TOO_MUCH,
    CountedFunctions,
    json_size,
)
from deltamcp.values import JSON
from deltamcp.work import Work

_MAX_COPIES = 16
_MAX_EXPRESSION_CHARS = 2_000
"""Longer expressions are refused, because the parser is recursive."""
_CACHED_CHARS = 256
"""Longer expressions are parsed each time, because callers choose them; authors write short ones."""
_STEPS_PER_VISIT = 2
_TYPE_WORDS = {
    "array-number": "an array of numbers",
    "array-string": "an array of strings",
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "NoneType": "null",
    "list": "array",
    "dict": "object",
}
"""The library's own names of types, as its users know them."""


def check(expression: str) -> None:
    """Check that an expression is valid.

    Raises:
        UsageError: the expression does not parse, or would copy the value too often.
    """
    _parse(expression)


def search(expression: str, value: JSON, work: Work) -> JSON:
    """Return what an expression selects of a value.

    Raises:
        UsageError: the expression is invalid, does not apply to the value or makes too much of it.
    """
    parsed = _parse(expression)
    try:
        result = _CountedInterpreter(work).visit(parsed, value)
        if json_size(result, work) > MAX_BYTES:
            raise UsageError(TOO_MUCH)
        return result
    except JMESPathTypeError as error:
        # The text of the original error contains the value.
        expected = " or ".join(_TYPE_WORDS.get(each, each) for each in error.expected_types)
        actual = _TYPE_WORDS.get(error.actual_type, error.actual_type)
        raise UsageError(f"fields: {error.function_name}() takes {expected}, not {actual}.") from None
    except UnknownFunctionError as error:
        name = str(error).rpartition(" ")[2]
        raise UsageError(f"fields: there is no function {name[:60]}; there are {', '.join(NAMES)}.") from None
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError):
        raise UsageError("fields: the expression does not apply to this value.") from None


def _parse(expression: str) -> Any:
    return (_parse_cached if len(expression) <= _CACHED_CHARS else _parse_anew)(expression)


def _parse_anew(expression: str) -> Any:
    if len(expression) > _MAX_EXPRESSION_CHARS:
        raise UsageError(f"fields: an expression may have at most {_MAX_EXPRESSION_CHARS} characters.")
    try:
        parsed = Parser().parse(expression).parsed
        copies = _count_copies(parsed)
    except (JMESPathError, ValueError) as error:
        raise UsageError(f"fields is neither paths nor JMESPath: {str(error)[:200]}") from None
    except RecursionError:
        raise UsageError("fields: the expression is nested too deeply.") from None
    finally:
        Parser.purge()  # the library's own cache, which has no limit on the length of its keys
    if copies > _MAX_COPIES:
        raise UsageError(TOO_MUCH)
    return parsed


_parse_cached = functools.lru_cache(maxsize=64)(_parse_anew)


def _count_copies(node: Any) -> int:
    """Return how many copies of its input an expression may make: `[@, @] | [@, @]` makes four."""
    inner = [_count_copies(child) for child in node["children"] if isinstance(child, dict)]
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        return max(1, sum(inner))
    return min(math.prod(inner), _MAX_COPIES + 1)


def _equal(left: Any, right: Any, work: Work) -> bool:
    """Whether two values are equal, as `==` says."""
    work.spend()
    if type(left) is not type(right):
        return bool(left == right)
    if type(left) is list:
        return len(left) == len(right) and all(
            _equal(item, other, work) for item, other in zip(left, right, strict=True)
        )
    if type(left) is dict:
        return len(left) == len(right) and all(
            name in right and _equal(item, right[name], work) for name, item in left.items()
        )
    if type(left) is str:
        work.scan(min(len(left), len(right)))
    return bool(left == right)


class _CountedInterpreter(TreeInterpreter):  # type: ignore[misc]
    """Counts each visit of a node, and what nodes do besides visiting others."""

    def __init__(self, work: Work) -> None:
        super().__init__(Options(custom_functions=CountedFunctions(work)))
        self._work = work

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._work.spend(_STEPS_PER_VISIT)
        return super().visit(node, *args, **kwargs)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        if isinstance(left, str | list | dict) and type(left) is type(right) and node["value"] in ("eq", "ne"):
            return _equal(left, right, self._work) is (node["value"] == "eq")
        if isinstance(left, str) and isinstance(right, str):
            self._work.scan(min(len(left), len(right)))
        literals = [{"type": "literal", "value": side, "children": []} for side in (left, right)]
        return super().visit_comparator({**node, "children": literals}, value)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        merged: list[Any] = []
        for element in base:
            self._work.spend()
            if isinstance(element, list):
                self._work.spend(len(element) // ITEMS_PER_STEP)
                merged.extend(element)
            else:
                merged.append(element)
            if len(merged) > MAX_VALUES:
                raise UsageError(TOO_MUCH)
        return merged

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self._work.spend(len(value) // ITEMS_PER_STEP)
        return super().visit_slice(node, value)
