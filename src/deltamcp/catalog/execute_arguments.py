"""`execute`'s arguments to an operation and its parameters, with what models commonly misplace put right.

A repair is made only where one reading fits the operation, and is told.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from deltamcp.catalog import tool_text
from deltamcp.catalog.discovery import unknown_operation_text
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.signature import InvalidArgumentsError
from deltamcp.catalog.view import View
from deltamcp.errors import UnfitError
from deltamcp.results.policy import ROOT_KEY, parse_root
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_MAX_PARAMS_DEPTH = 128
"""Of params that come as text, past the eyes that look at messages."""
_OPERATION_ALIASES = ("name", "tool", "tool_name", "operation_id", "operationId", "id")
_PARAMS_ALIASES = ("arguments", "args", "parameters", "input", "inputs", "parameter", "kwargs")


class ExecuteArguments(NamedTuple):
    operation: Operation
    params: dict[str, JSON]
    fields: list[str] | str | None
    """What is wanted of the result."""
    held_root: str | None
    """The root of it that the caller holds, where it says one."""
    repair: str
    """What was put right, one sentence; empty where nothing was."""


def parse_execute_arguments(view: View, arguments: Mapping[str, JSON]) -> ExecuteArguments:
    """
    Raises:
        UnfitError: no operation can be made of them.
    """
    given = dict(arguments)
    repairs: list[str] = []
    name = given.pop("operation", None)
    if name is None:
        name = _take_alias(given, _OPERATION_ALIASES, repairs, "operation", str)
    if not isinstance(name, str):
        raise UnfitError(
            f'operation must be a string: {view.meta_tool_name(MetaTool.EXECUTE)}(operation="...", params={{...}}).'
        )
    operation = view.find(name) or view.find(name.strip().removesuffix("()"))
    if operation is None:
        raise UnfitError(unknown_operation_text(view, name))
    fields = None if "fields" in operation.parameter_names else given.pop("fields", None)
    if not (fields is None or isinstance(fields, str) or (isinstance(fields, list) and all(map(_is_text, fields)))):
        raise UnfitError("fields must be a list of paths into the result, or a JMESPath expression.")
    theirs = ROOT_KEY in operation.parameter_names and not operation.takes_root
    held = None if theirs or ROOT_KEY not in given else parse_root(given.pop(ROOT_KEY))
    params = _take_params(operation, given, repairs)
    if given:
        params = _add_stray_params(operation, given, params, repairs)
    return ExecuteArguments(operation, params, fields, held, " ".join(repairs))


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _take_params(operation: Operation, given: dict[str, JSON], repairs: list[str]) -> dict[str, JSON]:
    known = operation.parameter_names
    sent = given.pop("params", None)
    if sent is None:
        others = [name for name in _PARAMS_ALIASES if name not in known]
        sent = _take_alias(given, others, repairs, "params", (dict, str))
    params: dict[str, JSON] | None = _decode_params(sent, repairs)
    if params is None:
        raise UnfitError(f"params must be an object: {tool_text.signature_line(operation.tool, operation.id)}.")
    inner = next(iter(params), "") if len(params) == 1 else ""
    wrapped = inner in ("params", *_PARAMS_ALIASES) and inner not in known and isinstance(params[inner], dict)
    if wrapped and not _can_bind(operation, params):
        repairs.append(f"Took params out of a second {inner!r} around them.")
        params = params[inner]
    repeated = params.get("operation") in (operation.id, operation.name) and "operation" not in known
    if repeated and not _can_bind(operation, params):
        repairs.append("Left out the operation repeated inside params.")
        params = {key: value for key, value in params.items() if key != "operation"}
    return params


def _can_bind(operation: Operation, params: dict[str, JSON]) -> bool:
    """Whether parameters can be meant as they stand."""
    try:
        operation.bind(params)
    except InvalidArgumentsError:
        return False
    return True


def _decode_params(sent: JSON, repairs: list[str]) -> dict[str, JSON] | None:
    """An object, whether it came as one, as text, or not at all."""
    if sent is None:
        return {}
    if isinstance(sent, str):
        try:
            sent = msgspec.json.decode(sent or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        if jsonrpc.nesting_depth(sent) > _MAX_PARAMS_DEPTH:
            return None
        repairs.append("Read params, which came as a string, as JSON.")
    return sent if isinstance(sent, dict) else None


def _add_stray_params(
    operation: Operation, beside: dict[str, JSON], params: dict[str, JSON], repairs: list[str]
) -> dict[str, JSON]:
    """The parameters with those that stood beside `params` instead of inside."""
    known = operation.parameter_names
    stray = [name for name in beside if name not in known or name in params]
    if stray:
        raise UnfitError(
            f"{', '.join(repr(name[:50]) for name in stray[:5])} is neither operation nor params. "
            f"{operation.id} takes: {tool_text.signature_line(operation.tool, operation.id)}."
        )
    repairs.append(f"Moved {', '.join(beside)} into params, where parameters belong.")
    return {**params, **beside}


def _take_alias(
    given: dict[str, JSON], names: Iterable[str], repairs: list[str], right: str, kinds: type | tuple[type, ...]
) -> JSON:
    """The value of the one other name it came under; none where there is no such name, or two."""
    present = [name for name in names if isinstance(given.get(name), kinds)]
    if len(present) != 1:
        return None
    repairs.append(f"Took {present[0]!r} for {right!r}.")
    return given.pop(present[0])
