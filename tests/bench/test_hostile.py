"""The benchmark of attacks: how it makes requests, judges figures and searches, and one attack from end to end."""

import argparse
import ast
import json
import os
import random
import subprocess
import sys

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.hostile import __main__ as hostile
from bench.hostile import (
    credential_attacks,
    endpoints,
    introspection_endpoint,
    other_caller,
    payloads,
    rule,
    search,
    table,
)
from bench.hostile.attacks import ATTACKS
from bench.hostile.client_attacks import CLIENT_ATTACKS
from bench.hostile.dashboard_attacks import DASHBOARD_ATTACKS
from bench.hostile.endpoints import Endpoint
from bench.hostile.hostile_server import doubling_schema
from bench.hostile.rule import Measured
from bench.hostile.search import Candidate, Cost, FilledField
from bench.hostile.servers import gateway
from bench.hostile.servers.options import GatewayOptions
from bench.hostile.shapes import SHAPES
from bench.hostile.stdio_attacks import STDIO_ATTACKS
from bench.peers import ROOT
from deltamcp.gateway.config import read_gateway_file
from deltamcp.values import Era

ECHO = Endpoint(
    Era.MODERN, "tools/call", {"name": "echo"}, (("params", "name"), ("params", "arguments", "text")), "echo"
)
LITE_ECHO = ECHO._replace(path=f"{endpoints.LITE_PREFIX}rpc", label="MCP-lite echo")
PING = Endpoint(Era.HANDSHAKE, "ping", {}, (("id",),), "ping")


def candidates() -> st.SearchStrategy[Candidate]:
    fields = st.builds(
        FilledField,
        st.sampled_from(ECHO.fields),
        st.sampled_from(list(SHAPES)),
        st.integers(1_000, search.LARGEST // 3),
    )
    return st.builds(
        Candidate,
        st.just(0),
        st.lists(fields, min_size=1, max_size=3).map(tuple),
        st.sampled_from(search.ENCODINGS),
        st.just(1),
        st.sampled_from(search.CONNECTIONS),
    )


# The rule


def test_a_figure_within_the_rule_is_no_breach():
    assert Measured(waited_ms=100, grown_mb=64, retained_mb=64, expired_mb=64).breaches() == []
    assert Measured(grown_mb=300, retained_mb=290, stored_mb=250).breaches() == []


def test_every_breach_is_told():
    broken = Measured(101, 1, 65, 66, 67, broken="another caller's result is gone")
    assert broken.breaches() == [
        "others waited 101 ms",
        "memory grew by 65 MB",
        "66 MB stayed",
        "67 MB stayed after all lifetimes",
        "another caller's result is gone",
    ]
    assert Measured(20_000, timed_out=True).breaches() == ["others waited > 20.0 s"]


def test_stored_data_does_not_excuse_what_stays_after_its_lifetime():
    assert Measured(expired_mb=65, stored_mb=1_000).breaches() == ["65 MB stayed after all lifetimes"]


def test_only_what_the_machine_may_have_done_is_measured_again():
    assert not Measured(waited_ms=50).is_doubtful
    assert Measured(waited_ms=500).is_doubtful
    assert not Measured(waited_ms=5_000).is_doubtful
    assert not Measured(waited_ms=500, timed_out=True).is_doubtful
    assert not Measured(waited_ms=50, grown_mb=500).is_doubtful


def test_the_best_of_several_attempts_has_the_least_of_each_figure():
    best = rule.best_of([Measured(200, 1, 70, None, broken="late"), Measured(90, 2, 80, 5, answered="413")])
    assert best == Measured(90, 1, 70, 5, answered="413", attempts=2)


def test_what_goes_wrong_every_time_stays():
    assert rule.best_of([Measured(broken="gone"), Measured(broken="gone again")]).broken == "gone"


# The table


def test_the_table_has_a_row_an_attack_and_a_column_a_library():
    rows = [
        table.AttackRow("a", "an attack", {"ours": Measured(20, 1, 8, 2, 0), "sdk": Measured(11_000, 1, 900)}),
        table.AttackRow("b", "another", {"ours": Measured(grown_mb=3, broken="no answer")}),
        table.AttackRow("c", "a third", skipped="not measured: redis-server is not installed"),
    ]
    assert table.markdown(rows, ["ours", "sdk"]).splitlines() == [
        "| attack | Delta-MCP: others waited, memory | official SDK: others waited, memory | stays, Delta-MCP |",
        "|---|---|---|---|",
        "| an attack | 20 ms, 8 MB | 11.0 s, 900 MB | 2 MB, later 0 MB |",
        "| another | 3 MB; no answer | – | – |",
        "| a third | not measured: redis-server is not installed | – | – |",
    ]
    assert [row.breaches for row in rows] == [[], ["no answer"], []]
    assert json.loads(json.dumps(rows[1].as_json()))["measured"]["ours"]["broken"] == "no answer"


def test_attacks_have_names_of_their_own():
    names = (
        [one.name for group in ATTACKS.values() for one in group]
        + [one.name for one in STDIO_ATTACKS]
        + [one.name for one in CLIENT_ATTACKS]
        + [one.name for one in DASHBOARD_ATTACKS]
    )
    assert len(names) == len(set(names))


# Requests


def test_sizes_go_down_so_that_one_is_just_below_any_limit():
    assert list(payloads.sizes(900, 200)) == [900, 600, 400, 266]


def test_content_stands_where_the_parameters_leave_a_place():
    body = json.loads(payloads.call("total", b'{"values":[[],[]]}', {"progressToken": "t"}))
    assert body["params"]["arguments"] == {"values": [[], []]}
    assert body["params"]["_meta"]["progressToken"] == "t"
    assert "io.modelcontextprotocol/protocolVersion" in body["params"]["_meta"]
    packed = cbor2.loads(payloads.cbor_request("server/discover", {"x": "@@@"}, payloads.cbor_array(b"\x80", 3)))
    assert packed["params"]["x"] == [[], [], []]


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_about_the_size_that_is_asked_for(name):
    content = SHAPES[name](9_999)
    assert len(content) <= 10_100
    assert name in ("deep lists", "a negative number") or len(content) > 8_000
    if name not in ("too deep", "a long integer"):
        json.loads(content)


@given(candidates(), st.integers(), st.sampled_from([ECHO, LITE_ECHO]))
def test_a_changed_candidate_is_one_that_a_server_may_be_sent(candidate, seed, endpoint):
    changed = search.mutate(candidate, [endpoint], random.Random(seed))
    assert 1 <= len(changed.fields) <= 3
    assert sum(field.size for field in changed.fields) * changed.batch <= search.LARGEST
    assert all(field.path in ECHO.fields and field.shape in SHAPES for field in changed.fields)
    assert changed.encoding in search.ENCODINGS
    assert changed.batch in search.BATCHES and changed.connections in search.CONNECTIONS
    assert endpoint.is_lite or changed.batch == 1


def test_candidates_of_mcp_lite_come_in_batches_and_on_connections():
    chance = random.Random(1)
    first = Candidate(0, (FilledField(("params", "name"), "letters", 2_000),))
    changed = [search.mutate(first, [LITE_ECHO], chance) for _ in range(200)]
    assert {one.batch for one in changed} == set(search.BATCHES)
    assert {one.connections for one in changed} == set(search.CONNECTIONS)
    [largest] = {one for one in changed if one.batch == 16}
    assert search.describe(largest, [LITE_ECHO]).endswith("letters, 16 in a batch")
    body = json.loads(search.encode(largest, LITE_ECHO.message()))
    assert len(body) == 16 and body[0]["params"]["name"] == "x" * 2_000


def test_a_candidate_is_its_endpoints_message_with_fields_filled_in():
    filled = (FilledField(("params", "arguments", "text"), "zeros", 5), FilledField(("id",), "letters", 3))
    message = {"id": 1, "params": {"name": "echo", "arguments": {"text": "x"}}}
    expected = {"id": "xxx", "params": {"name": "echo", "arguments": {"text": [0, 0]}}}
    assert json.loads(search.encode(Candidate(0, filled), message)) == expected
    assert cbor2.loads(search.encode(Candidate(0, filled, "cbor"), message)) == expected


def test_the_search_finds_what_costs_most_and_makes_it_worse():
    """A server that is slow only for many nulls in one field, and slower the more there are."""
    tries = 0

    def try_(candidate: Candidate) -> Cost:
        nonlocal tries
        tries += 1
        total = sum(field.size for field in candidate.fields)
        slow = sum(f.size for f in candidate.fields if (f.path, f.shape) == (("params", "arguments", "text"), "nulls"))
        return Cost(slow / 1_000, 0.0, total, "")

    found = search.search([PING, ECHO], try_, lambda: 1 - tries / 1_000)
    worst = found[0]
    assert worst.candidate.endpoint == 1
    assert worst.cost.waited_ms > 1_000
    assert 1_000 < tries <= 1_080  # the worst are tried again, also with one field only
    assert "echo: params.arguments.text = " in search.describe(worst.candidate, [PING, ECHO])


def test_what_was_found_is_told_without_what_does_not_matter():
    costly, idle = FilledField(ECHO.fields[0], "nulls", 5_000), FilledField(ECHO.fields[1], "letters", 9_000)

    def try_(candidate: Candidate) -> Cost:
        return Cost(500.0 if costly in candidate.fields else 1.0, 0.0, 1, "")

    both = Candidate(0, (costly, idle))
    assert search.simplify(search.Found(both, try_(both)), try_).candidate == Candidate(0, (costly,))

    def try_together(candidate: Candidate) -> Cost:
        return Cost(500.0 if len(candidate.fields) == 2 else 1.0, 0.0, 1, "")

    assert search.simplify(search.Found(both, try_together(both)), try_together).candidate == both


def test_a_search_with_the_same_seed_tries_the_same():
    def run() -> list[Candidate]:
        tried: list[Candidate] = []

        def try_(candidate: Candidate) -> Cost:
            tried.append(candidate)
            return Cost(len(candidate.fields[0].shape), 0, 1, "")

        search.search([ECHO], try_, lambda: 1 - len(tried) / 300, seed=7)
        return tried

    assert run() == run()


def test_endpoints_are_read_from_a_schema_with_samples_of_what_is_required():
    schema = {
        "$defs": {
            "ClientRequest": {"anyOf": [{"$ref": "#/$defs/ReadRequest"}]},
            "ReadRequest": {"properties": {"method": {"const": "notes/read"}, "params": {"$ref": "#/$defs/Params"}}},
            "Params": {
                "type": "object",
                "properties": {
                    "_meta": {"type": "object", "properties": {"x": {}}},
                    "at": {"$ref": "#/$defs/At"},
                    "n": {"type": "integer"},
                },
                "required": ["at", "_meta"],
            },
            "At": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
        }
    }
    [found] = endpoints.endpoints(schema, Era.MODERN)
    assert (found.method, found.params) == ("notes/read", {"at": {"line": 1}})
    assert {("params", "at"), ("params", "at", "line"), ("params", "n"), ("id",)} <= set(found.fields)
    assert ("params", "_meta", "x") not in found.fields


def test_calls_are_also_requests_of_mcp_lite_and_messages_of_grpc():
    [call] = endpoints.calls([{"name": "echo", "inputSchema": {"properties": {"text": {"type": "string"}}}}], {})
    lite = {one.label: one for one in endpoints.lite_endpoints([call])}
    assert lite["MCP-lite echo"].message()["params"] == {"name": "echo", "arguments": {}}
    assert ("params", "_meta", "request_state") in lite["MCP-lite echo"].fields
    assert lite["MCP-lite /listtools"].message() == {} and ("query",) in lite["MCP-lite /listtools"].fields
    assert all(one.is_lite and not one.is_grpc for one in lite.values())
    [grpc_call] = endpoints.grpc_calls([call])
    assert grpc_call.is_grpc and grpc_call.message() == {"name": "echo", "arguments": {}}
    assert {("name",), ("arguments", "text"), ("meta", "answers")} <= set(grpc_call.fields)


def test_a_schema_of_doubling_references_is_small_and_admits_texts():
    assert len(json.dumps(doubling_schema())) < 6_000
    assert doubling_schema(2)["$defs"]["d1"]["allOf"] == [{"$ref": "#/$defs/d2"}] * 2


# Servers and other callers


def test_another_caller_sees_when_a_reply_is_whole():
    assert not other_caller.is_whole(b"HTTP/1.1 200 OK\r\nContent-Le")
    assert not other_caller.is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
    assert other_caller.is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")
    assert other_caller.is_whole(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")


def test_no_attacked_peer_imports_this_package():
    for name in ("sdk", "fastmcp", "tools", "options"):
        tree = ast.parse((ROOT / "bench" / "hostile" / "servers" / f"{name}.py").read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [module for module in modules if module.startswith("deltamcp")]


@pytest.mark.deep
def test_attacks_are_made_and_measured_from_end_to_end(tmp_path):
    file = tmp_path / "figures.json"
    words = ["--only", "body,grpc-headers-1,large-result", "--no-peers", "--seconds", "0", "--attempts", "1"]
    words += ["--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.hostile", *words], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr  # 1 if this machine is so busy that others waited
    rows = {row["name"]: row["measured"]["ours"] for row in json.loads(file.read_text())["rows"]}
    assert {name: (row["broken"], row["timed_out"]) for name, row in rows.items()} == dict.fromkeys(rows, ("", False))
    assert rows["body"]["answered"].startswith("HTTP/1.1 413")
    assert rows["large-result"]["answered"].startswith("200 lorem ipsum")
    assert rows["grpc-headers-1"]["answered"]
    assert all(row["waited_ms"] >= 0 for row in rows.values())


def test_an_unknown_attack_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "bench.hostile", "--only", "body,nothing"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "there is no attack 'nothing'" in done.stderr


def test_groups_and_names_choose_attacks():
    planned = hostile.plan()
    everything = hostile.choose(argparse.ArgumentParser(), argparse.Namespace(only=None, group=None), planned)
    assert everything == planned
    groups = {"http", "lite", "many", "grpc", "gateway", "openapi", "stdio", "client", "dashboard"}
    assert {one.group for one in everything} == groups
    parser, chosen = argparse.ArgumentParser(), argparse.Namespace(only="body", group="stdio,client")
    found = {one.name for one in hostile.choose(parser, chosen, planned)}
    expected = {"body", *(one.name for one in STDIO_ATTACKS), *(one.name for one in CLIENT_ATTACKS)}
    assert found == expected
    with pytest.raises(SystemExit):
        hostile.choose(parser, argparse.Namespace(only=None, group="nothing"), planned)


# Other attacks


@pytest.mark.parametrize(
    ("length", "letters", "can_be_guessed"),
    [(4, "23456789abcdefghjkmnpqrstvwxyz", True), (22, "0123456789abcdef", False)],
)
def test_a_handle_that_can_be_guessed_in_its_lifetime_breaks_the_rule(length, letters, can_be_guessed):
    chance = random.Random(1)
    handles = ["R" + "".join(chance.choices(letters, k=length)) for _ in range(300)]
    found = credential_attacks.letters_of(handles)
    assert (len(found[0]), found[1]) == (1, sorted(letters))
    assert bool(credential_attacks.judge_guesses(found, 1_000).broken) == can_be_guessed


def test_a_gateway_is_configured_as_its_options_say(tmp_path):
    upstreams = [("evil", {"command": "x", "args": ["-E", '{"tools": 5}'], "on_new": "announce"})]
    written = gateway.configuration(GatewayOptions(upstreams, str(tmp_path), "full"))  # type: ignore[arg-type]
    file = tmp_path / "gateway.toml"
    file.write_text(written)
    config = read_gateway_file(file).config
    assert (config.disclosure, config.wait_seconds) == ("full", 0.1)
    assert config.upstreams[0].entry["args"] == ["-E", '{"tools": 5}']


def test_a_hostile_upstream_lists_what_it_is_told_once_the_gate_is_open(tmp_path):
    gate = tmp_path / "gate"
    job = {"gate": str(gate), "names": [300], "tools": 3_000, "resources": 3, "result_mb": 0.001}
    program = ROOT / "bench" / "hostile" / "hostile_upstream.py"
    process = subprocess.Popen(
        [sys.executable, "-EP", str(program), json.dumps(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        for number, (method, params) in enumerate(
            [
                ("initialize", {}),
                ("tools/list", {}),
                ("tools/list", {"cursor": "2500"}),
                ("tools/call", {}),
                ("resources/list", {}),
                ("x", {}),
            ]
        ):
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            process.stdin.write(line.encode() + b"\n")
        process.stdin.close()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "hostile"
        gate.touch()
        said = [json.loads(line) for line in process.stdout]
    by_id = {one["id"]: one for one in said if "id" in one}
    assert [len(tool["name"]) for tool in by_id[1]["result"]["tools"][:2]] == [1, 300]
    assert by_id[1]["result"]["nextCursor"] == "2500" and len(by_id[2]["result"]["tools"]) == 502
    assert len(by_id[3]["result"]["content"][0]["text"]) == 1_000
    assert [one["uri"] for one in by_id[4]["result"]["resources"]] == ["place://0/0", "place://1/0", "place://2/0"]
    assert by_id[5]["error"]["code"] == -32601


def test_an_endpoint_calls_good_tokens_active():
    assert b'{"active": false}' in introspection_endpoint.answer("bad-1")
    assert b'"active": true' in introspection_endpoint.answer("good-1")
