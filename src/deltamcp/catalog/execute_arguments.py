"""The arguments of the meta-tool `execute`: parses them and repairs common mistakes of models.

It repairs arguments only where a single interpretation fits the operation, and reports each repair.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.schema.arguments import InvalidArgumentsError
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.view import View
from deltamcp.errors import UsageError
from deltamcp.results.pages import MAX_PAGES
from deltamcp.results.policy import take_since
from deltamcp.results.queries.query import Query, parse_query
from deltamcp.values import ANSWERS_KEY, JSON
from deltamcp.wire.codecs import JSON_CODEC
from deltamcp.wire.message_bounds import MessageBoundError

_OPERATION_ALIASES = ("name", "tool", "tool_name", "operation_id", "operationId", "id")
_PARAMS_ALIASES = ("arguments", "args", "parameters", "input", "inputs", "parameter", "kwargs")


class UnknownOperationError(UsageError):
    """The arguments name no operation that there is; `name` is what they name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no operation {name[:200]!r}.")
        self.name = name


class ExecuteArguments(NamedTuple):
    """The parsed arguments of `execute`."""

    operation: Operation
    params: dict[str, JSON]
    query: Query
    """The parts of the result that the caller wants."""
    since: str | None
    """The handle or root of the result that the caller already has, where it sends one."""
    pages: int
    """How many pages of a service's results the caller wants."""
    repair: str
    """Sentences that report the repairs; empty where there were none."""


def parse_execute_arguments(view: View, arguments: Mapping[str, JSON]) -> ExecuteArguments:
    """Parses the arguments of `execute`, and repairs them where needed.

    Raises:
        UnknownOperationError: there is no operation of that name.
        UsageError: the arguments do not name an operation, or cannot be repaired.
        MissingScopesError: the caller may not call the operation.
    """
    remaining = dict(arguments)
    repairs: list[str] = []
    name = remaining.pop("operation", None)
    if name is None:
        name = _take_alias(remaining, _OPERATION_ALIASES, repairs, "operation", str)
    if not isinstance(name, str):
        raise UsageError(
            f'operation must be a string: {view.meta_tool_name(MetaTool.EXECUTE)}(operation="...", params={{...}}).'
        )
    view.withheld.check({name, name.strip().removesuffix("()")})
    operation = view.find(name) or view.find(name.strip().removesuffix("()"))
    if operation is None:
        raise UnknownOperationError(name)
    own_names = _stray_names(operation, remaining.get("params"))
    query = _take_query(operation, remaining)
    since = take_since(remaining, own_names)
    pages = _take_pages(operation, remaining)
    answers = remaining.pop(ANSWERS_KEY, None)
    params = _take_params(operation, remaining, repairs)
    if answers is not None:
        params = {**params, ANSWERS_KEY: answers}
    if remaining:
        params = _add_stray_params(operation, remaining, params, repairs)
    return ExecuteArguments(operation, params, query, since, pages, " ".join(repairs))


def _stray_names(operation: Operation, params: JSON) -> Collection[str]:
    """Returns the names of the operation's parameters that are not in `params`, and so may be out of their place."""
    if operation.takes_since:
        return ()
    return operation.parameter_names - params.keys() if isinstance(params, dict) else operation.parameter_names


def _take_query(operation: Operation, remaining: dict[str, JSON]) -> Query:
    """Takes fields and grep, unless the operation has parameters of these names."""
    taken = {name: remaining.pop(name, None) for name in ("fields", "grep") if name not in operation.parameter_names}
    return parse_query(taken.get("fields"), taken.get("grep"))


def _take_pages(operation: Operation, remaining: dict[str, JSON]) -> int:
    """Takes the number of pages, unless the operation has a parameter of this name.

    Raises:
        UsageError: it is no such number, or the operation may not be called again and again.
    """
    if "pages" not in remaining or "pages" in operation.parameter_names:
        return 1
    pages = remaining.pop("pages")
    if pages is None:
        return 1
    if isinstance(pages, str) and pages.isdecimal() and len(pages) < 4:
        pages = int(pages)
    if not isinstance(pages, int) or isinstance(pages, bool) or not 1 <= pages <= MAX_PAGES:
        raise UsageError(f"pages must be a number from 1 to {MAX_PAGES}.")
    if pages > 1 and not (operation.is_read_only and operation.consent_policy == "allow"):
        raise UsageError(f"{operation.id} is not declared read-only, so that pages cannot follow it; ask page by page.")
    return pages


def _take_params(operation: Operation, remaining: dict[str, JSON], repairs: list[str]) -> dict[str, JSON]:
    known = operation.parameter_names
    sent = remaining.pop("params", None)
    if sent is None or sent == "":
        aliases = [name for name in _PARAMS_ALIASES if name not in known]
        sent = _take_alias(remaining, aliases, repairs, "params", (dict, str))
    params: dict[str, JSON] | None = _decode_params(sent, repairs)
    if params is None:
        raise UsageError(f"params must be an object: {tool_text.signature_line(operation.tool, operation.id)}.")
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
    """Returns whether the operation accepts the parameters as they are."""
    try:
        operation.bind(params)
    except InvalidArgumentsError:
        return False
    return True


def _decode_params(sent: JSON, repairs: list[str]) -> dict[str, JSON] | None:
    """Returns params that came as an object, as text or not at all as an object; None for any other value."""
    if sent is None:
        return {}
    if isinstance(sent, str):
        try:
            # The text is one value to the check of messages, so that what is in it has the same bounds again.
            sent = JSON_CODEC.decode(sent.encode())
        except MessageBoundError as error:
            raise UsageError(f"params cannot be read: {error}") from None
        except ValueError:
            return None
        repairs.append("Read params, which came as a string, as JSON.")
    return sent if isinstance(sent, dict) else None


def _add_stray_params(
    operation: Operation, stray: dict[str, JSON], params: dict[str, JSON], repairs: list[str]
) -> dict[str, JSON]:
    """Adds parameters that came next to `params` instead of inside."""
    known = operation.parameter_names
    unknown = [name for name in stray if name not in known or name in params]
    if unknown:
        raise UsageError(
            f"{', '.join(repr(name[:50]) for name in unknown[:5])} is neither operation nor params. "
            f"{operation.id} takes: {tool_text.signature_line(operation.tool, operation.id)}."
        )
    repairs.append(f"Moved {', '.join(stray)} into params, where parameters belong.")
    return {**params, **stray}


def _take_alias(
    remaining: dict[str, JSON],
    aliases: Iterable[str],
    repairs: list[str],
    proper_name: str,
    types: type | tuple[type, ...],
) -> JSON:
    """Takes the value of the only alias that is present; None where there is no alias, or more than one."""
    present = [name for name in aliases if isinstance(remaining.get(name), types)]
    if len(present) != 1:
        return None
    repairs.append(f"Took {present[0]!r} for {proper_name!r}.")
    return remaining.pop(present[0])
