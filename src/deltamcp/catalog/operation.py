"""An operation: something that can be called, and the tool that MCP lists for it."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pydantic
from msgspec import to_builtins

from deltamcp.catalog import headers
from deltamcp.catalog.options import check, listed
from deltamcp.catalog.signature import ArgumentError, Signature, compact, function_name, output_schema, returns, shape
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Icon

if TYPE_CHECKING:
    import jsonschema_rs

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


class ToolOptions(TypedDict, total=False):
    """What an author may say of a tool beyond its function."""

    name: str
    title: str
    description: str
    annotations: dict[str, JSON]
    """MCP's hints, such as `{"readOnlyHint": True}`."""
    icons: list[Icon]
    meta: dict[str, JSON]
    timeout: float
    """Seconds."""
    input_schema: dict[str, JSON]
    """Replaces the signature: the function then takes the arguments as one dict, checked against this."""
    output_schema: dict[str, JSON]


class Operation:
    """A function with a name, a schema and a deadline. `tool` is what `tools/list` shows of it, key by key."""

    __slots__ = (
        "__dict__",
        "_bind",
        "_returns",
        "context_name",
        "function",
        "is_async",
        "name",
        "timeout",
        "tool",
    )

    def __init__(self, function: Callable[..., Any], context_type: type, **options: Unpack[ToolOptions]) -> None:
        """
        Raises:
            ConfigurationError: the name or a parameter is not usable.
        """
        check(options, ToolOptions)
        self.function = function
        self.name = options.get("name") or function_name(function)
        self.timeout = options.get("timeout")
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"The tool name {self.name!r} must be 1 to 128 letters, digits, '_', '-' or '.'; pass name=..."
            )
        input_schema = options.get("input_schema")
        if input_schema is None:
            signature = Signature(function, context_type)
            self._bind: Callable[[Mapping[str, JSON]], dict[str, Any]] = signature.bind
            self.is_async, self.context_name, returned = signature.is_async, signature.context_name, signature.returned
            input_schema = signature.schema
        else:
            self.is_async, self.context_name, fields, returned = shape(function, context_type)
            if len(fields) != 1:
                raise ConfigurationError(
                    f"{self.name}: with input_schema the function takes one parameter, the dict of arguments, "
                    "and besides it at most a Context."
                )
            self._bind = Foreign(input_schema, *fields).bind
        output_schema = options.get("output_schema")
        self._returns = returns(function, returned) if output_schema is None else output_schema
        self.tool = _tool(self.name, options, inspect.getdoc(function), input_schema)
        if self._returns is not None:
            self.tool["outputSchema"] = self.output_schema
        self.parameter_headers  # noqa: B018 - a bad x-mcp-header is told at registration

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Raises `ArgumentError` where the arguments do not fit."""
        return self._bind(arguments)

    @functools.cached_property
    def output_schema(self) -> dict[str, JSON] | None:
        if self._returns is None or isinstance(self._returns, dict):
            return self._returns
        return output_schema(self._returns)

    def structured(self, value: Any) -> JSON:
        """What the function returned, as the JSON its output schema promises.

        Raises:
            ValueError: it is not that; the text says where.
        """
        if isinstance(self._returns, dict):
            for problem in self._output_validator.iter_errors(value):
                raise ValueError(f"{_pointer(problem)}: {problem.message}")
            return value
        assert self._returns is not None, "only operations with an output schema have structured results"
        try:
            return self._returns.dump_python(self._returns.validate_python(value), mode="json", by_alias=True)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the value"
            raise ValueError(f"{where}: {first['msg']}") from error

    @functools.cached_property
    def _output_validator(self) -> "jsonschema_rs.Validator":
        assert isinstance(self._returns, dict)
        return _compile(self._returns)

    @functools.cached_property
    def parameter_headers(self) -> tuple[headers.ParameterHeader, ...]:
        """The arguments a client mirrors into `Mcp-Param-*` headers."""
        return headers.annotated(self.name, self.tool["inputSchema"])


def _tool(name: str, options: ToolOptions, documented: str | None, input_schema: dict[str, JSON]) -> dict[str, JSON]:
    parts = {
        "name": name,
        "title": options.get("title"),
        "description": options.get("description") or documented,
        "inputSchema": input_schema,
        "annotations": options.get("annotations"),
        "icons": to_builtins(options.get("icons")),
        "_meta": options.get("meta"),
    }
    return listed(parts)


class Foreign:
    """Arguments under a schema nobody here wrote: checked by jsonschema-rs, passed on as they came."""

    def __init__(self, schema: dict[str, JSON], parameter: str) -> None:
        self._schema = schema
        self._parameter = parameter

    @functools.cached_property
    def _validator(self) -> "jsonschema_rs.Validator":
        return _compile(self._schema)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        validator = self._validator
        if not validator.is_valid(arguments):
            raise ArgumentError([_sentence(problem) for problem in validator.iter_errors(arguments)])
        return {self._parameter: arguments}


def _compile(schema: dict[str, JSON]) -> "jsonschema_rs.Validator":
    import jsonschema_rs  # 30 ms to import, needed only where a schema is not the function's own

    # MCP 2026-07-28 "$ref Resolution": network references MUST NOT be dereferenced.
    return jsonschema_rs.validator_for(schema, retriever=_no_retrieval)


def _no_retrieval(uri: str) -> JSON:
    raise ValueError(f"the reference {uri} is not part of the schema, and nothing is fetched")


def _pointer(problem: "jsonschema_rs.ValidationError") -> str:
    return ".".join(str(part) for part in problem.instance_path) or "arguments"


def _sentence(problem: "jsonschema_rs.ValidationError") -> str:
    return f"{_pointer(problem)}: {problem.message.rstrip('.')}; expected {compact(problem.kind.as_dict())}."
