"""Forms of elicitation: makes the flat schemas that MCP allows, and reads the forms that users filled in."""

from typing import Any

import pydantic

from deltamcp.errors import ConfigurationError, InputDeclinedError
from deltamcp.values import JSON

_FIELD_TYPES = {"string", "integer", "number", "boolean", "array"}


def form_schema(schema: type | dict[str, JSON]) -> dict[str, JSON]:
    """Returns the schema of a form: an object of primitive fields, without references and nulls.

    Raises:
        ConfigurationError: a field is not primitive.
    """
    full = schema if isinstance(schema, dict) else pydantic.TypeAdapter(schema).json_schema()
    definitions = full.get("$defs", {})
    properties = {name: _flatten(name, field, definitions) for name, field in full.get("properties", {}).items()}
    form: dict[str, JSON] = {"type": "object", "properties": properties}
    if full.get("required"):
        form["required"] = full["required"]
    return form


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
    if field.get("type") not in _FIELD_TYPES:
        raise ConfigurationError(f"The form field {name!r} must be text, a number, a boolean or a choice.")
    return field


def read_form(schema: type | dict[str, JSON], content: JSON) -> Any:
    """Returns the user's input: an instance of the form's type, or a dict if the form is a JSON Schema.

    Raises:
        InputDeclinedError: the input does not fit the form.
    """
    if not isinstance(content, dict):
        raise InputDeclinedError("The client accepted the form but sent no content.")
    if isinstance(schema, dict):
        from jsonschema_rs import validator_for

        for problem in validator_for(form_schema(schema)).iter_errors(content):
            raise InputDeclinedError(f"The client's answer does not fit the form: {problem.message}.")
        return content
    try:
        return pydantic.TypeAdapter(schema).validate_python(content)
    except pydantic.ValidationError as error:
        raise InputDeclinedError(f"The client's answer does not fit the form: {error.errors()[0]['msg']}.") from None
