"""The questions of a request, their forms, and what a client's answers to them come to.

MCP answers by the key of a form. MCP-lite's clients, which a model may write, also answer by the ids of single
questions: the names of form fields where only one pending form has that field.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from deltamcp.catalog.text.clean_text import MESSAGE_CHARS, cut
from deltamcp.errors import ConfigurationError, InputDeclinedError
from deltamcp.values import JSON, InputRequest, Inputs

if TYPE_CHECKING:
    import pydantic


CONSENT_ANSWERS = ("accept", "decline")
"""The answers to a question that has no field, such as one for consent."""
_NO_FIELD = "confirm"
"""The id of a question that has no field."""


class Question(Struct, frozen=True, array_like=True):
    """A field of a pending form, or a form without fields."""

    id: str
    key: str
    """The key of the form among the pending requests."""
    field: str | None
    """None if the client only accepts or declines."""
    required: bool


def list_questions(requests: Mapping[str, InputRequest]) -> list[Question]:
    """Returns the questions of the pending requests, with ids that differ."""
    found: list[tuple[str, str | None, bool]] = []
    for key, request in requests.items():
        if request.method != "elicitation/create":
            continue
        schema = request.params.get("requestedSchema") or {}
        names, required = schema.get("properties") or {}, schema.get("required") or ()
        found += [(key, name, name in required) for name in names] or [(key, None, True)]
    count = Counter(field or _NO_FIELD for _, field, _ in found)
    return [
        Question(
            (field or _NO_FIELD) if count[field or _NO_FIELD] == 1 else f"{key}.{field or _NO_FIELD}",
            key,
            field,
            required,
        )
        for key, field, required in found
    ]


class FormAnswers(Struct, frozen=True):
    """What the answers of a client come to."""

    responses: dict[str, JSON]
    """The results of the requests that are answered, by their keys."""
    drafts: dict[str, dict[str, JSON]]
    """The fields of forms of which required fields are still missing, by the keys of the forms."""


def read_responses(
    questions: Iterable[Question], inputs: Inputs, drafts: Mapping[str, dict[str, JSON]], asks_again: bool
) -> FormAnswers:
    """Returns the answers to the pending questions; `drafts` are those of earlier rounds.

    With `asks_again`, a form that is accepted without a required field stays a draft, so that the server asks again;
    without it only one that is answered by the ids of questions does.
    """
    forms: dict[str, list[Question]] = {}
    for question in questions:
        forms.setdefault(question.key, []).append(question)
    responses, left = dict(inputs.responses), {}
    for key, form in forms.items():
        response = responses.pop(key, None)
        may_stay_draft = asks_again or response is None
        if response is None:
            response = _read_fields(form, inputs)
        content = {**drafts.get(key, {}), **_content(response)}
        if response is None:
            if content:
                left[key] = content
        elif not _is_accepted(response):
            responses[key] = response
        elif may_stay_draft and not _is_complete(form, content):
            left[key] = content
        else:
            responses[key] = {**response, "content": content} if content else response
    return FormAnswers(responses, left)


def find_misfit(requests: Mapping[str, InputRequest], answers: FormAnswers) -> str | None:
    """Returns which answer does not fit its form and why, for the client; None if all fit."""
    for key, request in requests.items():
        if request.method != "elicitation/create":
            continue
        response, schema = answers.responses.get(key), request.params.get("requestedSchema") or {}
        content = answers.drafts.get(key, {})
        if key in answers.responses:
            if not isinstance(response, dict) or response.get("action") not in ("accept", "decline", "cancel"):
                return f"The answer to {key} must be an object with the action accept, decline or cancel."
            if not _is_accepted(response):
                continue
            content = _content(response)
            missing = [name for name in schema.get("required") or () if name not in content]
            if missing:
                return f"The answer to {key} has no {missing[0]}."
        for name, field in (schema.get("properties") or {}).items():
            problem = _field_problem(field, content[name]) if name in content else None
            if problem is not None:
                return f"The answer to {name} does not fit: {problem}."
    return None


def _field_problem(schema: dict[str, JSON], value: JSON) -> str | None:
    from jsonschema_rs import ValidationError, validator_for

    try:
        validator = validator_for(schema)
    except ValueError:  # the author's schema is none; the function says what it thinks of the value
        return None
    try:
        validator.validate(value)
    except ValidationError as problem:
        return cut(problem.message, MESSAGE_CHARS)
    except ValueError:  # what the validator does not look into: more than 255 lists inside each other
        return "it is nested too deeply"
    return None


def _read_fields(form: list[Question], inputs: Inputs) -> JSON:
    """Returns the response to a form by the answers to its questions; None if there are none."""
    only = form[0]
    if only.field is None:
        answer = inputs.fields.get(only.id, inputs.action)
        return None if answer is None else {"action": _read_consent(answer), "content": {}}
    if inputs.action in ("decline", "cancel"):
        return {"action": inputs.action}
    content = {question.field: inputs.fields[question.id] for question in form if question.id in inputs.fields}
    return {"action": "accept", "content": content} if content or inputs.action == "accept" else None


def _read_consent(answer: JSON) -> str:
    """Returns the action that an answer to a question without a field means; what is no clear consent is none."""
    if answer in (True, "accept", "yes", "true"):
        return "accept"
    return "cancel" if answer == "cancel" else "decline"


def _is_complete(form: list[Question], content: dict[str, JSON]) -> bool:
    return all(question.field in content for question in form if question.required and question.field is not None)


def _is_accepted(response: JSON) -> bool:
    return isinstance(response, dict) and response.get("action") == "accept"


def _content(response: JSON) -> dict[str, JSON]:
    content = response.get("content") if isinstance(response, dict) else None
    return content if isinstance(content, dict) else {}


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

    from deltamcp.catalog.items.signature import fail_fast_validator

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
