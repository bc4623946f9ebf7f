"""Forms of elicitation: makes the flat schemas that MCP allows, and reads the forms that users filled in."""

from typing import TYPE_CHECKING, Any, Literal

from deltamcp.catalog.excerpt import MESSAGE_CHARS, cut
from deltamcp.errors import ConfigurationError, InputDeclinedError
from deltamcp.values import JSON

if TYPE_CHECKING:
    import pydantic

_FIELD_TYPES = {"string", "integer", "number", "boolean", "array"}


_ONLY_FIELD = "value"
"""The field of a form for one plain value, under the name that FastMCP gives it."""


def form_schema(schema: Any) -> dict[str, JSON]:
    """Returns the schema of a form: an object of primitive fields, without references and nulls.

    `schema` is a JSON Schema of an object; a type with fields; or a plain type or a list of texts to choose from, whose
    form has one field, `value`.

    Raises:
        ConfigurationError: a field is not primitive, or there is no form for the type.
    """
    full = schema if isinstance(schema, dict) else _type_schema(schema)
    definitions = full.get("$defs", {})
    properties = {name: _flatten(name, field, definitions) for name, field in full.get("properties", {}).items()}
    form: dict[str, JSON] = {"type": "object", "properties": properties}
    if full.get("required"):
        form["required"] = full["required"]
    return form


def _type_schema(form_type: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a type with fields; of the one field, if it is a plain type or a list of choices."""
    full = _adapter(form_type).json_schema()
    if "properties" in full:
        return full
    definitions = full.pop("$defs", {})
    return {"properties": {_ONLY_FIELD: full}, "required": [_ONLY_FIELD], "$defs": definitions}


def _adapter(form_type: Any) -> "pydantic.TypeAdapter[Any]":
    import pydantic  # takes 60 ms, and forms that other servers ask for are JSON Schemas

    try:
        if isinstance(form_type, list):
            form_type = Literal[tuple(_check_choices(form_type))]
        return pydantic.TypeAdapter(form_type)
    except pydantic.errors.PydanticUserError:
        raise ConfigurationError(
            "A form is a model, a plain type such as str, a list of texts to choose from, or a JSON Schema."
        ) from None


def _check_choices(choices: list[Any]) -> list[str]:
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise ConfigurationError('The choices of a form must be texts, as in ["red", "blue"].')
    return choices


def _flatten(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, JSON]:
    if "$ref" in field:
        reference = field["$ref"].removeprefix("#/$defs/")
        field = {**definitions.get(reference, {}), **{key: value for key, value in field.items() if key != "$ref"}}
    branches = [branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"]
    if len(branches) == 1:
        rest = {key: value for key, value in field.items() if key != "anyOf"}
        field = {**_flatten(name, branches[0], definitions), **rest}
    if field.get("default", ...) is None:
        del field["default"]
    if "const" in field:  # MCP's forms have no constants
        field = {**{key: value for key, value in field.items() if key != "const"}, "enum": [field["const"]]}
    if field.get("type") not in _FIELD_TYPES:
        raise ConfigurationError(f"The form field {name!r} must be text, a number, a boolean or a choice.")
    return field


def read_form(schema: Any, content: JSON) -> Any:
    """Returns the user's input: an instance of the form's type, one value, or a dict if the form is a JSON Schema.

    Raises:
        InputDeclinedError: the input does not fit the form.
    """
    if not isinstance(content, dict):
        raise InputDeclinedError("The client accepted the form but sent no content.")
    if isinstance(schema, dict):
        from jsonschema_rs import ValidationError, validator_for

        try:
            validator_for(form_schema(schema)).validate(content)
        except ValidationError as problem:
            raise _misfit(problem.message) from None
        return content
    import pydantic

    from deltamcp.catalog.fail_fast_validator import fail_fast_validator

    adapter = _adapter(schema)
    has_fields = "properties" in adapter.json_schema()
    if not has_fields and _ONLY_FIELD not in content:
        raise _misfit(f"{_ONLY_FIELD} is missing")
    try:
        return fail_fast_validator(adapter.core_schema).validate_python(content if has_fields else content[_ONLY_FIELD])
    except pydantic.ValidationError as error:
        raise _misfit(error.errors()[0]["msg"]) from None


def _misfit(problem: str) -> InputDeclinedError:
    return InputDeclinedError(f"The client's answer does not fit the form: {cut(problem, MESSAGE_CHARS)}.")
