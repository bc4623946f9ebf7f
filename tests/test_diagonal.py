"""The mark `diagonal`: `make test` has every value of the parameters, in as few combinations as that takes."""

import pytest

from tests.support.properties import is_deep

DIAGONAL = {("json", "stdio"), ("cbor", "http"), ("json", "memory")}


@pytest.mark.diagonal("encoding", "transport")
@pytest.mark.parametrize("transport", ["stdio", "http", "memory"])
@pytest.mark.parametrize("encoding", ["json", "cbor"])
def test_only_combinations_on_it_run(encoding, transport):
    assert is_deep() or (encoding, transport) in DIAGONAL


def test_they_all_run(request):
    function = test_only_combinations_on_it_run.__name__
    run = [item.callspec.params for item in request.session.items if item.originalname == function]
    assert {(one["encoding"], one["transport"]) for one in run} >= DIAGONAL
    assert len(run) == (6 if is_deep() else 3)
