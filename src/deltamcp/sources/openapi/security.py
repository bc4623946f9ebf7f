"""Security schemes: what a request carries so that the service knows who sends it."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from deltamcp.sources.openapi import swagger
from deltamcp.sources.openapi.document import OpenApiDocument

Place: TypeAlias = Literal["header", "query", "cookie"]


class SecurityScheme(Struct, frozen=True):
    """A security scheme of a document, as far as it says how a request carries a credential."""

    name: str
    kind: Literal["apiKey", "basic", "bearer", "clientCredentials", "other"]
    place: Place = "header"
    parameter: str = "authorization"
    """The name of the header, the query parameter or the cookie; of a header in lower case."""
    prefix: str = ""
    """What is before the credential, such as `Bearer `."""
    token_url: str = ""
    """Where a client of OAuth 2 gets its tokens; may be relative."""
    refresh_url: str = ""


class Carried(Struct, frozen=True):
    """What one credential adds to a request."""

    place: Place
    name: str
    value: str

    def __repr__(self) -> str:
        return f"<Carried in the {self.place} {self.name}>"


def read_schemes(document: OpenApiDocument) -> dict[str, SecurityScheme]:
    """Returns the security schemes of a document by their names."""
    kind = "securityDefinitions" if document.version.is_swagger else "securitySchemes"
    found: dict[str, SecurityScheme] = {}
    for name, component in document.components(kind):
        value = component.value
        if isinstance(value, dict):
            found[name] = _read_scheme(name, swagger.modern_scheme(value) if document.version.is_swagger else value)
    return found


def _read_scheme(name: str, value: Mapping[str, Any]) -> SecurityScheme:
    match value.get("type"):
        case "apiKey":
            place, parameter = value.get("in"), value.get("name")
            if place in ("header", "query", "cookie") and isinstance(parameter, str) and parameter:
                key = parameter.lower() if place == "header" else parameter
                return SecurityScheme(name, "apiKey", place, key)
        case "http":
            scheme = str(value.get("scheme", "")).strip()
            if scheme.lower() == "basic":
                return SecurityScheme(name, "basic", prefix="Basic ")
            if scheme.lower() == "bearer":
                return SecurityScheme(name, "bearer", prefix="Bearer ")
            if scheme.replace("-", "").isalnum():
                return SecurityScheme(name, "bearer", prefix=f"{scheme} ")
        case "oauth2":
            flows = value.get("flows")
            flow = flows.get("clientCredentials") if isinstance(flows, dict) else None
            if isinstance(flow, dict) and isinstance(flow.get("tokenUrl"), str):
                refresh = flow.get("refreshUrl")
                return SecurityScheme(
                    name,
                    "clientCredentials",
                    prefix="Bearer ",
                    token_url=flow["tokenUrl"],
                    refresh_url=refresh if isinstance(refresh, str) else "",
                )
            return SecurityScheme(name, "bearer", prefix="Bearer ")
        case "openIdConnect":
            return SecurityScheme(name, "bearer", prefix="Bearer ")
        case _:
            pass
    return SecurityScheme(name, "other")


Requirement: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Schemes that are needed together, each with its scopes; an empty one needs nothing."""


def read_requirements(operation: Mapping[str, Any], document: OpenApiDocument) -> list[Requirement]:
    """Returns the alternatives of an operation, else those of the document; none if nothing is needed."""
    given = operation.get("security", document.content.get("security"))
    return [
        tuple((name, tuple(_texts(scopes))) for name, scopes in one.items())
        for one in (given if isinstance(given, list) else ())
        if isinstance(one, dict)
    ]


def _texts(values: Any) -> Iterator[str]:
    return (one for one in values if isinstance(one, str)) if isinstance(values, list) else iter(())


def carry(scheme: SecurityScheme, credential: str) -> Carried:
    """Returns what a scheme adds to a request for a key, a token, or `user:password`."""
    if scheme.kind == "basic":
        credential = base64.b64encode(credential.encode()).decode()
    value = credential if credential.startswith(scheme.prefix) else f"{scheme.prefix}{credential}"
    return Carried(scheme.place, scheme.parameter, value)
