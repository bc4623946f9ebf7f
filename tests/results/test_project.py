"""Expressions that choose fields: bounded, checked early, and refused without the value."""

import pytest

from deltamcp import ConfigurationError, ResultPolicy
from deltamcp.tokens import count
from tests.support.office_server import KEY, call, handle_of, office_server, result_text
from tests.support.raw_client import raw_client

BOMBS = ["|".join(["[@,@]"] * 16), "|".join(["{a: @, b: @}"] * 12), "map(&[@,@,@,@,@], [@,@,@,@])", "a" * 3000 + "[0]"]


@pytest.mark.parametrize("expression", BOMBS)
async def test_an_expression_does_not_multiply_what_it_is_given(expression):
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "rows")
        assert (await call(raw, "continue", handle=handle, fields=expression))["isError"]
        assert (await call(raw, "rows", {"fields": expression}))["isError"]
    with pytest.raises(ConfigurationError):
        ResultPolicy(fields=expression)


@pytest.mark.parametrize("expression", ["length(@)", "sort_by(@, &id)[0]", "[?id > `3`] | length(@)", "map(&id, @)"])
async def test_a_right_expression_is_right_before_there_is_a_value(expression):
    async with raw_client(office_server()) as raw:
        assert not (await call(raw, "rows", {"fields": expression})).get("isError")


async def test_an_error_does_not_hold_the_value():
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "rows")
        refused = await call(raw, "continue", handle=handle, fields="abs(@)")
        assert refused["isError"] and "name 7" not in result_text(refused) and count(result_text(refused)) < 60


async def test_an_expression_that_fails_costs_no_result_and_does_not_stay():
    server = office_server()
    async with raw_client(server) as raw:
        result = await call(raw, "rows", {"fields": "{a: abs(@)}"})
        assert not result.get("isError") and "does not apply" in result_text(result)
        on = await call(raw, "continue", handle=result["_meta"][KEY]["handle"])
        assert not on.get("isError") and server.ran == ["rows"]
