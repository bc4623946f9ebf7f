"""`execute`'s arguments to an operation and its parameters, with what models commonly misplace put right.

A repair is made only where one reading fits the operation, and is told.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from deltamcp.catalog import render
from deltamcp.catalog.discovery import unknown
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.signature import ArgumentError
from deltamcp.catalog.view import View
from deltamcp.errors import UnfitError
from deltamcp.results.policy import ROOT, read_root
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

_DEPTH = 128
"""Of params that come as text, past the eyes that look at messages."""
_ALSO_OPERATION = ("name", "tool", "tool_name", "operation_id", "operationId", "id")
_ALSO_PARAMS = ("arguments", "args", "parameters", "input", "inputs", "parameter", "kwargs")


class Routed(NamedTuple):
    operation: Operation
    params: dict[str, JSON]
    fields: list[str] | str | None
    """What is wanted of the result."""
    held: str | None
    """The root of it that the caller holds, where it says one."""
    repair: str
    """What was put right, one sentence; empty where nothing was."""


def route(view: View, arguments: Mapping[str, JSON]) -> Routed:
    """
    Raises:
        UnfitError: no operation can be made of them.
    """
    given = dict(arguments)
    repairs: list[str] = []
    name = given.pop("operation", None)
    if name is None:
        name = _renamed(given, _ALSO_OPERATION, repairs, "operation", str)
    if not isinstance(name, str):
        raise UnfitError(f'operation must be a string: {view.called(Meta.EXECUTE)}(operation="...", params={{...}}).')
    operation = view.find(name) or view.find(name.strip().removesuffix("()"))
    if operation is None:
        raise UnfitError(unknown(view, name))
    fields = None if "fields" in operation.parameter_names else given.pop("fields", None)
    if not (fields is None or isinstance(fields, str) or (isinstance(fields, list) and all(map(_is_text, fields)))):
        raise UnfitError("fields must be a list of paths into the result, or a JMESPath expression.")
    theirs = ROOT in operation.parameter_names and not operation.takes_root
    held = None if theirs or ROOT not in given else read_root(given.pop(ROOT))
    params = _params(operation, given, repairs)
    if given:
        params = _with_stray(operation, given, params, repairs)
    return Routed(operation, params, fields, held, " ".join(repairs))


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _params(operation: Operation, given: dict[str, JSON], repairs: list[str]) -> dict[str, JSON]:
    known = operation.parameter_names
    sent = given.pop("params", None)
    if sent is None:
        others = [name for name in _ALSO_PARAMS if name not in known]
        sent = _renamed(given, others, repairs, "params", (dict, str))
    params: dict[str, JSON] | None = _decoded(sent, repairs)
    if params is None:
        raise UnfitError(f"params must be an object: {render.signature(operation.tool, operation.id)}.")
    inner = next(iter(params), "") if len(params) == 1 else ""
    wrapped = inner in ("params", *_ALSO_PARAMS) and inner not in known and isinstance(params[inner], dict)
    if wrapped and not _fits(operation, params):
        repairs.append(f"Took params out of a second {inner!r} around them.")
        params = params[inner]
    repeated = params.get("operation") in (operation.id, operation.name) and "operation" not in known
    if repeated and not _fits(operation, params):
        repairs.append("Left out the operation repeated inside params.")
        params = {key: value for key, value in params.items() if key != "operation"}
    return params


def _fits(operation: Operation, params: dict[str, JSON]) -> bool:
    """Whether parameters can be meant as they stand."""
    try:
        operation.bind(params)
    except ArgumentError:
        return False
    return True


def _decoded(sent: JSON, repairs: list[str]) -> dict[str, JSON] | None:
    """An object, whether it came as one, as text, or not at all."""
    if sent is None:
        return {}
    if isinstance(sent, str):
        try:
            sent = msgspec.json.decode(sent or "{}")
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        if jsonrpc.depth(sent) > _DEPTH:
            return None
        repairs.append("Read params, which came as a string, as JSON.")
    return sent if isinstance(sent, dict) else None


def _with_stray(
    operation: Operation, beside: dict[str, JSON], params: dict[str, JSON], repairs: list[str]
) -> dict[str, JSON]:
    """The parameters with those that stood beside `params` instead of inside."""
    known = operation.parameter_names
    stray = [name for name in beside if name not in known or name in params]
    if stray:
        raise UnfitError(
            f"{', '.join(repr(name[:50]) for name in stray[:5])} is neither operation nor params. "
            f"{operation.id} takes: {render.signature(operation.tool, operation.id)}."
        )
    repairs.append(f"Moved {', '.join(beside)} into params, where parameters belong.")
    return {**params, **beside}


def _renamed(
    given: dict[str, JSON], names: Iterable[str], repairs: list[str], right: str, kinds: type | tuple[type, ...]
) -> JSON:
    """The value of the one other name it came under; none where there is no such name, or two."""
    present = [name for name in names if isinstance(given.get(name), kinds)]
    if len(present) != 1:
        return None
    repairs.append(f"Took {present[0]!r} for {right!r}.")
    return given.pop(present[0])
