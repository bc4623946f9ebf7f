"""Swagger 2.0: one operation of it as OpenAPI 3 writes it, made when that operation is needed."""

from collections.abc import Iterable, Mapping
from typing import Any

_DEFAULT_TYPE = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "csv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "tsv": {"style": "tabDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"explode": True},
}
"""`collectionFormat` (Swagger 2.0, Parameter Object) as a style of OpenAPI 3; tabs have none there."""
_UNNAMED_STYLES = {"spaceDelimited": "simpleSpaces", "tabDelimited": "simpleTabs", "pipeDelimited": "simplePipes"}
"""Those of places where a value has no name."""
_PARAMETER_KEYS = frozenset(
    {"name", "in", "required", "description", "allowEmptyValue", "deprecated", "collectionFormat", "example"}
)
"""The members of a parameter that are not of its schema."""


def modern_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parameter that is neither of the body nor of a form."""
    schema = {key: value for key, value in parameter.items() if key not in _PARAMETER_KEYS and not key.startswith("x-")}
    kept = {key: parameter[key] for key in ("name", "in", "required", "description", "deprecated") if key in parameter}
    style = _STYLES.get(str(parameter.get("collectionFormat", "csv")), {}) if parameter.get("type") == "array" else {}
    if "style" in style and parameter.get("in") in ("path", "header"):
        style = {**style, "style": _UNNAMED_STYLES[style["style"]]}
    return {**kept, **style, "schema": schema}


def modern_body(
    body: Mapping[str, Any] | None, fields: Iterable[Mapping[str, Any]], consumes: Iterable[Any]
) -> dict[str, Any] | None:
    """Returns the request body of a body parameter or of form parameters; None if there are none."""
    types = [one for one in consumes if isinstance(one, str)]
    if body is not None:
        schema = body.get("schema", {})
        return {
            "description": body.get("description"),
            "required": body.get("required") is True,
            "content": {one: {"schema": schema} for one in types or [_DEFAULT_TYPE]},
        }
    members = list(fields)
    if not members:
        return None
    has_file = any(field.get("type") == "file" for field in members)
    usable = [one for one in types if one.partition(";")[0].strip().lower() in (_FORM, _MULTIPART)]
    media_type = _MULTIPART if has_file else next(iter(usable), _FORM)
    properties: dict[str, Any] = {}
    encoding: dict[str, Any] = {}
    for field in members:
        name = field.get("name")
        if not isinstance(name, str):
            continue
        made = modern_parameter(field)
        properties[name] = {**made["schema"], "description": field.get("description")}
        if field.get("type") == "array":
            encoding[name] = {"style": made.get("style", "form"), "explode": made.get("explode", False)}
    required = [
        field["name"] for field in members if field.get("required") is True and isinstance(field.get("name"), str)
    ]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {media_type: {"schema": schema, "encoding": encoding}}}


def modern_servers(document: Mapping[str, Any], schemes: Any) -> list[dict[str, Any]]:
    """Returns the servers of `host`, `basePath` and `schemes`; a document without a host is at the host it is from."""
    host, base = document.get("host"), document.get("basePath")
    path = base if isinstance(base, str) and base.startswith("/") else "/"
    if not isinstance(host, str) or not host:
        return [{"url": path}]
    given = schemes if isinstance(schemes, list) and schemes else document.get("schemes")
    named = [one for one in given if one in ("https", "http")] if isinstance(given, list) else []
    return [{"url": f"{scheme}://{host}{path}"} for scheme in sorted(named or ["https"], reverse=True)]


def modern_scheme(scheme: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a security scheme."""
    match scheme.get("type"):
        case "basic":
            return {**scheme, "type": "http", "scheme": "basic"}
        case "oauth2":
            flow = {"application": "clientCredentials", "accessCode": "authorizationCode"}.get(
                str(scheme.get("flow")), str(scheme.get("flow"))
            )
            keys = ("tokenUrl", "authorizationUrl", "scopes")
            return {**scheme, "flows": {flow: {key: scheme[key] for key in keys if key in scheme}}}
        case _:
            return dict(scheme)
