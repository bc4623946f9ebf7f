"""`delta-mcp openapi` reports on a document, and `audit` counts an API as it counts servers."""

import json

import pytest

from tests.support.command_line import assert_one_sentence, run

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "2"},
    "servers": [{"url": "https://shop.example/v2"}],
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
    "paths": {
        "/orders": {
            "get": {"operationId": "list_orders", "tags": ["orders"], "responses": {}},
            "post": {
                "operationId": "order",
                "tags": ["orders"],
                "responses": {},
                "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}},
            },
        },
        "/old": {"get": {"operationId": "old", "deprecated": True, "responses": {}}},
        "/bad": {"get": {"operationId": "bad", "parameters": [{"$ref": "#/none"}], "responses": {}}},
    },
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_the_report_has_operations_costs_addresses_and_what_is_left_out(folder):
    done = run("openapi", "shop.json", cwd=folder)
    assert done.code == 0, done.err
    shown = words_of(done.out)
    assert "Shop 2 (OpenAPI 3.1.0)" in shown and "orders 2" in shown
    assert "2 tools behind the gateway" in shown
    assert "Requests go to https://shop.example." in shown
    assert "credentials.key is for its security scheme, apiKey, in the header x-key." in shown
    assert "1 deprecated operation is left out; --deprecated has them." in shown
    assert "What of it cannot be used: - #/paths/~1bad/get" in shown


def test_the_report_as_json_has_every_operation_with_its_place_and_tokens(folder):
    report = json.loads(run("openapi", "shop.json", "--json", "--deprecated", cwd=folder).out)
    assert [one["name"] for one in report["operations"]] == ["list_orders", "order", "old"]
    assert all(one["tokens"] > 0 and one["place"].startswith("#/paths/") for one in report["operations"])
    assert len(report["faults"]) == 1 and report["tokens"]["plain"] > 0


def test_a_document_that_does_not_say_where_its_api_is_is_reported_all_the_same(folder):
    (folder / "shop.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": "/v2"}]}))
    shown = words_of(run("openapi", "shop.json", cwd=folder).out)
    assert "set base_url" in shown and "orders 2" in shown
    (folder / "shop.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": "http://127.0.0.1:1"}]}))
    shown = words_of(run("openapi", "shop.json", cwd=folder).out)
    assert "127.0.0.1 is no public address" in shown and "orders 2" in shown
    assert "orders 2" in words_of(run("openapi", "shop.json", "--base-url", "http://localhost:1", cwd=folder).out)


def test_an_operations_file_is_written_once_and_is_right(folder):
    done = run("openapi", "shop.json", "--to", "operations.json", cwd=folder)
    assert done.code == 0, done.err
    assert "operations.json has 1 operation: delta-mcp validate operations.json" in done.out
    assert "POST /orders: its body is text/plain, which an operations file cannot send" in done.out
    assert run("validate", "operations.json", cwd=folder, SHOP_KEY="a-k3y").code == 0
    assert_one_sentence(run("openapi", "shop.json", "--to", "operations.json", cwd=folder), 2)


@pytest.mark.parametrize("text", ["{}", "{", "", '{"openapi": "9.0"}'])
def test_what_is_no_document_is_told_in_one_sentence(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    assert_one_sentence(run("openapi", "bad.json", cwd=tmp_path), 2)
    assert_one_sentence(run("openapi", "nowhere.yaml", cwd=tmp_path), 2)


def test_audit_counts_a_document_and_the_apis_of_a_gateways_file(folder):
    done = run("audit", "shop.json", "--json", cwd=folder)
    report = json.loads(done.out)
    [server] = report["servers"]
    assert (server["name"], server["runs"], server["cost"]["tools"]) == ("shop", "shop.json", 2)
    assert (
        report["next_steps"][-1].endswith("delta-mcp gateway --openapi shop.json")
        or "no more" in report["next_steps"][0]
    )

    text = '[servers.shop]\nopenapi = "shop.json"\nallow = ["GET"]\n[servers.away]\nopenapi = "away.json"\n'
    (folder / "gateway.toml").write_text(text)
    report = json.loads(run("audit", "gateway.toml", "--json", cwd=folder).out)
    counted = {one["name"]: one["cost"] and one["cost"]["tools"] for one in report["servers"]}
    assert counted == {"shop": 1, "away": None}
    assert "There is no file" in next(one["problem"] for one in report["servers"] if one["name"] == "away")


def test_a_document_in_the_place_of_a_configuration_is_told(folder):
    done = run("gateway", "shop.json", cwd=folder)
    assert_one_sentence(done, 2)
    assert "delta-mcp gateway --openapi shop.json" in done.err
