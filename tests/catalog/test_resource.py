"""Resources and the functions they belong to."""

import pytest

from deltamcp import ConfigurationError, Context
from deltamcp.catalog.items.resource import Resource


def test_an_address_and_its_function_must_belong_together():
    def takes(a: str) -> str:
        return a

    for uri in ("x://fixed", "x://{b}", "x://{a}/{b}"):
        with pytest.raises(ConfigurationError):
            Resource(takes, Context, uri)
    assert Resource(takes, Context, "x://{a}").list_item["uriTemplate"] == "x://{a}"
