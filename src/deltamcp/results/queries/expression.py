"""Evaluates JMESPath expressions and the functions that their callers miss, with a limit on the work they may cause.

| function | returns |
|---|---|
| `count_by(rows, &key)` | how many rows have each key: `{"open": 12, "closed": 3}`, the most first |
| `group_by(rows, &key)` | the rows of each key: `{"open": [...], "closed": [...]}` |
| `sum_by(rows, &value)`, `sum_by(rows, &key, &value)` | the sum of the rows' values; for each key, the largest first |
| `unique(list)` | the list without repetitions |
| `rows(object)` | the members of an object as rows: each with its name as `key`, in place of a member of its own that
is called so, and its other members or `value` |

JMESPath has `sort_by`, `max_by`, `min_by`, `length`, `sum`, `avg`, `join`, `contains`, `keys`, `values` and more.

An expression that a peer sends is a program: `[?contains(a, b)]` compares every item with another, and `to_string` in
`to_string` doubles a text. The interpreter of the `jmespath` library therefore counts what it visits, compares and
copies.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from jmespath.exceptions import JMESPathError, JMESPathTypeError, UnknownFunctionError
from jmespath.functions import Functions, signature
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from deltamcp.errors import UsageError
from deltamcp.results.document import MAX_VALUES
from deltamcp.values import JSON
from deltamcp.work import Work

ITEMS_PER_STEP = 4
"""Items of a list that compiled code copies or checks in the time of a step, or more."""
MAX_BYTES = 8 * 1024 * 1024
"""The most that an expression may make, as JSON, and the longest text on the way to it."""
TOO_MUCH = "fields: the expression would copy the value too many times."
KEY, VALUE = "key", "value"
"""The names that `rows` gives to what the members of an object have no names for."""
_SORT_ROUNDS = 20
"""How often a sort compares each text, about: the binary logarithm of the most values there are."""
_NUMBERS = (int, float)
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
"""Objects with the same members are the same, in whatever order they have them."""


def json_size(value: JSON, work: Work) -> int:
    """Returns about how many bytes the JSON of a value takes. A part that the value has twice counts twice."""
    size, stack = 0, [value]
    while stack:
        work.spend()
        node = stack.pop()
        size += 2
        if type(node) is str:
            work.scan(len(node))
            size += len(node)
        elif type(node) is list:
            stack += node
        elif type(node) is dict:
            size += sum(map(len, node)) + 4 * len(node)
            stack += node.values()
        if len(stack) > MAX_VALUES:
            raise UsageError(TOO_MUCH)
    return size


class CountedFunctions(Functions):  # type: ignore[misc]
    """Counts what each function reads of its arguments, before it does so."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        work = self._work
        for argument in resolved_args:
            if isinstance(argument, list | dict):
                work.spend(len(argument) // ITEMS_PER_STEP)
            elif isinstance(argument, str):
                work.scan(len(argument))
        match function_name, resolved_args:
            case "contains", [list(subject), searched]:
                work.spend(len(subject) * (1 + self._compared_values(searched)))
            case "contains", [str(subject), str(searched)]:
                work.scan(len(subject) * (1 + min(len(searched), 100) // 16))
            case "join", [str(separator), list(array)]:
                self._refuse_above(len(separator) * len(array) + self._scan_texts(array, 1))
            case "to_string", [value]:
                # An escape may double a text.
                self._refuse_above(2 * json_size(value, work) if isinstance(value, list | dict) else 0)
            case "sort", [list(array)]:
                work.spend(len(array))
                self._scan_texts(array, _SORT_ROUNDS)
            case (("max" | "min"), [list(array)]):
                self._scan_texts(array, 1)
            case _:
                pass
        return super().call_function(function_name, resolved_args)

    def _create_key_func(self, expref: Any, allowed_types: Any, function_name: str) -> Any:
        key_of = super()._create_key_func(expref, allowed_types, function_name)

        def counted_key_of(item: Any) -> Any:
            key = key_of(item)
            if isinstance(key, str):
                self._work.scan(len(key) * _SORT_ROUNDS)
            return key

        return counted_key_of

    def _compared_values(self, searched: Any) -> int:
        return json_size(searched, self._work) // 256 if isinstance(searched, str | list | dict) else 0

    def _scan_texts(self, array: Sequence[Any], times: int) -> int:
        chars = sum(len(item) for item in array if isinstance(item, str))
        self._work.scan(chars * times)
        return chars

    def _refuse_above(self, chars: int) -> None:
        if chars > MAX_BYTES:
            raise UsageError(TOO_MUCH)

    # Functions beyond JMESPath's

    @signature({"types": ["array"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_count_by(self, rows: list[Any], key: Any) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in rows:
            name = self._key_text(key, row)
            counts[name] = counts.get(name, 0) + 1
        return self._largest_first(counts)

    @signature({"types": ["array"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_group_by(self, rows: list[Any], key: Any) -> dict[str, list[Any]]:
        groups: dict[str, list[Any]] = {}
        for row in rows:
            groups.setdefault(self._key_text(key, row), []).append(row)
        return groups

    @signature({"types": ["array"]}, {"types": ["expref"], "variadic": True})  # type: ignore[untyped-decorator]
    def _func_sum_by(self, rows: list[Any], *expressions: Any) -> Any:
        if len(expressions) > 2:
            raise UsageError("fields: sum_by takes rows, the key or none, and the value: sum_by(rows, &key, &value).")
        value = expressions[-1]
        if len(expressions) == 1:
            return sum(self._number(value, row) for row in rows)
        sums: dict[str, Any] = {}
        for row in rows:
            name = self._key_text(expressions[0], row)
            sums[name] = sums.get(name, 0) + self._number(value, row)
        return self._largest_first(sums)

    @signature({"types": ["array"]})  # type: ignore[untyped-decorator]
    def _func_unique(self, items: list[Any]) -> list[Any]:
        seen: dict[bytes, Any] = {}
        for item in items:
            self._work.spend(1 + self._compared_values(item))
            seen.setdefault(_encode_sorted(item), item)
        return list(seen.values())

    @signature({"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @signature({"types": ["object"]})  # type: ignore[untyped-decorator]
    def _func_rows(self, members: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        for name, value in members.items():
            # A list below a data key, such as the files of a release, is rows itself.
            for inner in value if isinstance(value, list) else [value]:
                own = inner if isinstance(inner, dict) else {VALUE: inner}
                self._work.spend(1 + len(own) // ITEMS_PER_STEP)
                rows.append({KEY: name} | own | {KEY: name})
            if len(rows) > MAX_VALUES:
                raise UsageError(TOO_MUCH)
        return rows

    def _key_text(self, expression: Any, row: Any) -> str:
        key = expression.visit(expression.expression, row)
        if isinstance(key, str):
            self._work.scan(len(key))
            return key
        self._work.spend(1 + self._compared_values(key))
        return _encode_sorted(key).decode()

    def _number(self, expression: Any, row: Any) -> int | float:
        """Returns the number of a row; a row without one counts nothing."""
        number = expression.visit(expression.expression, row)
        if number is None:
            return 0
        if type(number) not in _NUMBERS:
            raise JMESPathTypeError("sum_by", None, "other values", ["number"])
        return number  # type: ignore[no-any-return]

    def _largest_first(self, numbers: dict[str, Any]) -> dict[str, Any]:
        self._work.spend(len(numbers) * _SORT_ROUNDS // ITEMS_PER_STEP)
        return dict(sorted(numbers.items(), key=lambda each: -each[1]))


NAMES = tuple(sorted(CountedFunctions.FUNCTION_TABLE))
"""The names of all functions."""


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
    """Checks that an expression is valid.

    Raises:
        UsageError: the expression does not parse, or would copy the value too often.
    """
    _parse(expression)


def search(expression: str, value: JSON, work: Work) -> JSON:
    """Returns what an expression selects of a value.

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
    """Returns how many copies of its input an expression may make: `[@, @] | [@, @]` makes four."""
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
