"""`python -m website.operations_schema`: writes the schema of `operations.json` from the keys that are read."""

import json
from collections.abc import Iterable, Mapping

from deltamcp.catalog.operations_file import (
    CATEGORY_KEYS,
    FILE_KEYS,
    HANDLER_KEYS,
    HTTP_KEYS,
    OPERATION_KEYS,
    OPERATION_MARKERS,
    PLACE_KEYS,
    REQUIRED_HANDLER_KEYS,
    RESULTS_KEYS,
    SERVICE_KEYS,
    UPSTREAM_KEYS,
    KeyType,
)
from deltamcp.values import JSON
from website.pages import ROOT

_ID_SEGMENT = r"(?:[A-Za-z0-9]|[^\x00-\x7f])(?:[A-Za-z0-9_-]|[^\x00-\x7f]){0,63}"
"""What `is_id_segment` admits, as far as a regular expression can say that all validators of JSON Schema take."""
PUBLISHED = ROOT / "docs" / "operations.schema.json"


def operations_schema() -> dict[str, JSON]:
    """Makes a JSON Schema of the file; the reader also finds faults that no schema can express."""

    def object_of(keys: Mapping[str, KeyType], needed: Iterable[str] = (), **special: JSON) -> dict[str, JSON]:
        return {
            "type": "object",
            "properties": {**{key: kind.schema for key, kind in keys.items()}, **special},
            "patternProperties": {"^_": True},
            "additionalProperties": False,
            "required": list(needed),
        }

    def children_of(definition: str, **special: JSON) -> dict[str, JSON]:
        return {
            "type": "object",
            "properties": special,
            "patternProperties": {"^_": True, f"^{_ID_SEGMENT}$": {"$ref": f"#/$defs/{definition}"}},
            "additionalProperties": False,
        }

    def map_of(definition: str) -> dict[str, JSON]:
        return {"type": "object", "patternProperties": {"^[^_]|^$": {"$ref": f"#/$defs/{definition}"}}}

    place = {"anyOf": [PLACE_KEYS["in"].schema, object_of(PLACE_KEYS, ["in"])]}
    param_map = {"type": "object", "additionalProperties": place, **_description_of(HANDLER_KEYS["http"]["param_map"])}
    params = {"param_map": param_map}
    handlers = [
        object_of(
            keys,
            ("kind", *REQUIRED_HANDLER_KEYS[kind]),
            **(params if kind == "http" else {}),
            kind={"const": kind, **_description_of(keys["kind"])},
        )
        for kind, keys in HANDLER_KEYS.items()
    ]
    kind_text = "What the node is, where its keys do not tell."
    kinds = {"properties": {"_kind": {"enum": ["operation", "category"], "description": kind_text}}}
    not_index = {"propertyNames": {"not": {"const": "index"}}}
    is_operation = {
        "if": {"required": ["_kind"]},
        "then": {"properties": {"_kind": {"const": "operation"}}},
        "else": {"anyOf": [{"required": [marker]} for marker in sorted(OPERATION_MARKERS)]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "operations.json",
        **object_of(
            FILE_KEYS,
            operations={"allOf": [{"$ref": "#/$defs/category"}, not_index], **_description_of(FILE_KEYS["operations"])},
            categories={
                "allOf": [{"$ref": "#/$defs/companions"}, not_index],
                **_description_of(FILE_KEYS["categories"]),
            },
            http={
                **object_of(HTTP_KEYS, services=map_of("service") | _description_of(HTTP_KEYS["services"])),
                **_description_of(FILE_KEYS["http"]),
                "anyOf": [{"required": ["base_url"]}, {"required": ["services"]}],
            },
            mcpServers=map_of("upstream") | _description_of(FILE_KEYS["mcpServers"]),
            results={**object_of(RESULTS_KEYS), **_description_of(FILE_KEYS["results"])},
        ),
        "anyOf": [{"required": ["operations"]}, {"required": ["categories"]}],
        "$defs": {
            "category": children_of("node", _description=FILE_KEYS["description"].schema),
            "node": {
                **kinds,
                "if": is_operation,
                "then": {"$ref": "#/$defs/operation"},
                "else": {"$ref": "#/$defs/category"},
            },
            "companions": children_of("companion"),
            "companion": object_of(
                CATEGORY_KEYS,
                operations={"$ref": "#/$defs/companionOperations", **_description_of(CATEGORY_KEYS["operations"])},
                categories={"$ref": "#/$defs/companions", **_description_of(CATEGORY_KEYS["categories"])},
            ),
            "companionOperations": children_of("companionOperation"),
            "companionOperation": {
                **kinds,
                "if": {"required": ["_kind"], "properties": {"_kind": {"const": "category"}}},
                "then": {"$ref": "#/$defs/category"},
                "else": {"$ref": "#/$defs/operation"},
            },
            "operation": object_of(
                OPERATION_KEYS, handler={"$ref": "#/$defs/handler", **_description_of(OPERATION_KEYS["handler"])}
            ),
            "handler": {"oneOf": handlers},
            "service": object_of(SERVICE_KEYS, ["base_url"]),
            "upstream": {**object_of(UPSTREAM_KEYS), "oneOf": [{"required": ["command"]}, {"required": ["url"]}]},
        },
    }


def _description_of(kind: KeyType) -> dict[str, JSON]:
    """Returns what the schema says of a key whose type it has in more detail."""
    return {"description": kind.schema["description"]}


if __name__ == "__main__":
    PUBLISHED.write_text(json.dumps(operations_schema(), indent=2, ensure_ascii=False) + "\n")
