"""The run against replicas: what its ledger takes for wrong, and the processes that it starts."""

import socket

import pytest

from bench.hostile.stores import SkippedError
from bench.replicas.ledger import Ledger
from bench.replicas.server import find_principal, token_of
from bench.replicas.topology import run_topology


def test_an_answer_is_right_only_for_its_caller_and_its_call():
    ledger = Ledger()
    assert ledger.check_answer("c", "ann", "n1", {"principal": "ann", "nonce": "n1", "replica": 1})
    assert ledger.wrong == []
    for answer in ({"principal": "bob", "nonce": "n1"}, {"principal": "ann", "nonce": "n2"}, None, "text"):
        assert not ledger.check_answer("c", "ann", "n1", answer)
    assert len(ledger.wrong) == 4


def test_effects_are_compared_with_what_clients_were_told():
    ledger = Ledger(answered={"a", "b"}, open={"c", "d"})
    ledger.check_effects({"a": 1, "b": 1, "c": 1})
    assert ledger.wrong == []
    ledger.check_effects({"a": 2, "c": 2, "e": 1})
    assert [what.partition(":")[0] for what in ledger.wrong] == [
        "2 writes executed twice",
        "2 writes answered but not executed",
        "1 writes never told",
    ]


def test_principals_are_known_by_their_tokens():
    scope = {"headers": [(b"authorization", f"Bearer {token_of('bob')}".encode())]}
    found = find_principal(scope)
    assert found is not None and found.id == "bob"
    assert find_principal({"headers": []}) is None


def test_replicas_behind_nginx_are_started_restarted_and_ended():
    try:
        with run_topology(2) as topology:
            first = topology.replicas[0].process.pid
            topology.replicas[0].restart()
            assert topology.replicas[0].process.pid != first
            with socket.create_connection(("127.0.0.1", topology.port), 10):
                pass
            processes = [replica.process for replica in topology.replicas]
    except SkippedError as skipped:
        pytest.skip(str(skipped))
    assert all(process.poll() is not None for process in processes)
