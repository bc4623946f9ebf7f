"""Operations of an author's functions: the schemas of their signatures, or those that the author gave."""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import to_builtins

from deltamcp.catalog.arguments import DeclaredArguments, InvalidArgumentsError
from deltamcp.catalog.items.function import (
    FunctionShape,
    check_options,
    docstring,
    function_name,
    inspect_function,
    omit_empty,
    read_tags,
    tagged_meta,
)
from deltamcp.catalog.items.operation import TASK_SUPPORT, Operation, ToolOptions
from deltamcp.catalog.json_schema import ForeignSchema, describes_object, wrapper_schema
from deltamcp.errors import ConfigurationError
from deltamcp.results.content import symbol_graph_type
from deltamcp.results.policy import QUERY_SCHEMAS, ResultPolicy
from deltamcp.values import CONTENT_TYPES, JSON, PROMISES_KEY

if TYPE_CHECKING:
    import pydantic
    import pydantic_core

_ROWLESS_TYPES = (str, int, float, bool, bytes, None, type(None), *CONTENT_TYPES)


class FunctionOperation(Operation):
    """An author's function as an operation."""

    __slots__ = ("_bind", "_by_name", "_context_type", "_declared", "_output_type", "_return_annotation")

    def __init__(
        self,
        function: Callable[..., Any],
        context_type: type,
        *,
        by_name: bool = False,
        declared: DeclaredArguments | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """
        Args:
            by_name: Whether the function takes the arguments by name although the schema is given, not as one dict.
            declared: The arguments that the function may get although the schema admits others; None admits those too.

        Raises:
            ConfigurationError: the name, a parameter or an option cannot be used.
        """
        check_options(options, ToolOptions)
        self._context_type = context_type
        self._by_name = by_name
        self._declared = declared
        input_schema = options.get("input_schema")
        if input_schema is None:
            from deltamcp.catalog.items.signature import Signature  # with pydantic, which other operations do not need

            signature = Signature(function, context_type)
            self._bind: Callable[[Mapping[str, JSON]], dict[str, Any]] = signature.bind
            shape, input_schema = signature.function_shape, signature.schema
            description: str | None = signature.description
        else:
            shape = inspect_function(function, context_type)
            description = docstring(function)
            self._bind = functools.partial(
                _bind_foreign,
                ForeignSchema(input_schema, is_own=True),
                None if by_name else _arguments_parameter(shape),
                declared,
            )
        name = options.get("name") or function_name(function)
        has_return_type = not by_name and "return" in getattr(function, "__annotations__", ())
        self._return_annotation: Any = shape.return_annotation if has_return_type else Any
        given = options.get("output_schema")
        self._output_type: pydantic.TypeAdapter[Any] | dict[str, JSON] | None = None if given is True else given
        says_nothing = shape.return_annotation is Any and given is not True  # as of the operations of HTTP APIs
        if self._output_type is None and not by_name and not says_nothing:
            from deltamcp.catalog.items.signature import any_return_adapter, return_adapter

            find_adapter = any_return_adapter if given is True else return_adapter
            self._output_type = find_adapter(shape.return_annotation)
        tool, wraps_output = _tool_definition(name, options, description, input_schema), False
        if self.output_schema is not None:
            wraps_output = not describes_object(self.output_schema)
            tool["outputSchema"] = wrapper_schema(self.output_schema) if wraps_output else self.output_schema
        super().__init__(function, shape, tool, options)
        self.wraps_output = wraps_output

    def with_name(self, name: str, id_: str, policy: ResultPolicy | None) -> "FunctionOperation":
        return FunctionOperation(
            self.function,
            self._context_type,
            by_name=self._by_name,
            declared=self._declared,
            **self._named_options(name, id_, policy),
        )

    def _free_query_arguments(self, policy: ResultPolicy) -> tuple[str, ...]:
        wants = policy.queries if policy.queries is not None else policy.max_tokens is not None
        is_closed = self.tool["inputSchema"].get("additionalProperties") is False
        if not wants or policy.compat or not is_closed or self._output_type is not None:
            return ()
        returns = self._return_annotation
        if returns is str:
            # Most tools that change something return a sentence.
            return ("grep",) if (self.is_read_only or policy.queries) and "grep" not in self.parameter_names else ()
        if returns in _ROWLESS_TYPES:
            return ()
        return tuple(name for name in QUERY_SCHEMAS if name not in self.parameter_names)

    @property
    def may_send_tables(self) -> bool:
        """The return type may exclude rows."""
        returns = self._return_annotation
        is_symbol_graph = isinstance(returns, type) and issubclass(returns, symbol_graph_type())
        return super().may_send_tables and returns not in _ROWLESS_TYPES and not is_symbol_graph

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        return self._bind(arguments)

    @functools.cached_property
    def output_schema(self) -> dict[str, JSON] | None:
        if self._output_type is None or isinstance(self._output_type, dict):
            return self._output_type
        from deltamcp.catalog.items.signature import output_schema

        return output_schema(self._output_type)

    def structured_content(self, value: Any) -> JSON:
        if isinstance(self._output_type, dict):
            return super().structured_content(value)
        assert self._output_type is not None, "only operations with an output schema have structured results"
        try:
            return self._output_type.dump_python(
                self._fail_fast_validator.validate_python(value), mode="json", by_alias=True
            )
        except _validation_error_type() as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the value"
            raise ValueError(f"{where}: {first['msg']}") from error

    @functools.cached_property
    def _fail_fast_validator(self) -> "pydantic_core.SchemaValidator":
        from deltamcp.catalog.items.signature import fail_fast_validator

        assert self._output_type is not None and not isinstance(self._output_type, dict)
        return fail_fast_validator(self._output_type.core_schema)

    @functools.cached_property
    def default_arguments(self) -> dict[str, JSON]:
        """The defaults of a schema that the author gave; those of a signature are the function's own."""
        if "input_schema" not in self._options:
            return {}
        properties = self._options["input_schema"].get("properties", {})
        return {name: schema["default"] for name, schema in properties.items() if _has_default(schema)}


def _validation_error_type() -> "type[pydantic.ValidationError]":
    import pydantic

    return pydantic.ValidationError


def _has_default(schema: JSON) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _arguments_parameter(shape: FunctionShape) -> str:
    fields = shape.named_fields()
    if len(fields) != 1:
        raise ConfigurationError(
            "with input_schema the function takes one parameter, the dict of arguments, and besides it at most a "
            "Context and dependencies."
        )
    return next(iter(fields))


def _bind_foreign(
    schema: ForeignSchema,
    parameter: str | None,
    declared: DeclaredArguments | None,
    arguments: Mapping[str, JSON],
) -> dict[str, Any]:
    if declared is not None and (problems := declared.problems(arguments)):
        raise InvalidArgumentsError(problems)
    if not schema.is_valid(arguments):
        arguments = schema.drop_nulls(arguments)
        if problems := schema.problems(arguments):
            raise InvalidArgumentsError(problems)
    return dict(arguments) if parameter is None else {parameter: arguments}


def _tool_definition(
    name: str, options: ToolOptions, docstring: str | None, input_schema: dict[str, JSON]
) -> dict[str, JSON]:
    policy = options.get("promise", "never")
    meta = tagged_meta(options.get("meta"), read_tags(options.get("tags", ())))
    parts = {
        "name": name,
        "title": options.get("title"),
        "description": options.get("description") or docstring,
        "inputSchema": input_schema,
        "annotations": options.get("annotations"),
        "icons": to_builtins(options.get("icons")),
        "execution": TASK_SUPPORT.get(policy),
        "_meta": meta if policy == "never" else {**(meta or {}), PROMISES_KEY: True},
    }
    return omit_empty(parts)
