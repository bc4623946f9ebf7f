"""Expressions that choose fields: bounded, checked early, and refused without the value."""

import pytest

from deltamcp import ConfigurationError, DeltaServer, ResultPolicy
from deltamcp.results.queries.query import find_missing
from deltamcp.tokens import count
from deltamcp.work import unlimited_work
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
        assert not result.get("isError") and "abs() takes number, not array." in result_text(result)
        assert result_text(result).startswith("Shape: 300 x {id:int, name}.") and count(result_text(result)) < 60
        on = await call(raw, "continue", handle=result["_meta"][KEY]["handle"])
        assert not on.get("isError") and server.ran == ["rows"]


# Fields that do not exist


async def test_the_note_names_a_requested_field_that_no_row_has():
    async with raw_client(office_server()) as raw:
        result = await call(raw, "rows", {"fields": "id,bogus"})
        assert not result.get("isError") and "No field 'bogus'; there are id, name" in result_text(result)
        assert "bogus" not in result_text(result).splitlines()[0]
        on = await call(raw, "continue", handle=result["_meta"][KEY]["handle"], fields=["id", "ownr.name"])
        assert not on.get("isError") and "No field 'ownr.name'; there are id, name" in result_text(on)


async def test_a_call_with_only_fields_that_do_not_exist_shows_the_shape_of_the_result_it_has_made():
    server = office_server()
    async with raw_client(server) as raw:
        result = await call(raw, "rows", {"fields": "bogus"})
        text = result_text(result)
        assert not result.get("isError") and "No field 'bogus'; there are id, name" in text
        assert text.startswith("Shape: 300 x {id:int, name}.") and count(text) < 60
        on = await call(raw, "continue", handle=result["_meta"][KEY]["handle"])
        assert "name" in result_text(on) and server.ran == ["rows"]


@pytest.mark.parametrize("arguments", [{"fields": "bogus"}, {"fields": ["bogus", "nme"], "grep": "name"}])
async def test_continue_refuses_only_fields_that_do_not_exist(arguments):
    async with raw_client(office_server()) as raw:
        refused = await call(raw, "continue", handle=await handle_of(raw, "rows"), **arguments)
        assert refused["isError"] and result_text(refused).startswith("No field 'bogus'")
        assert "; there are id, name" in result_text(refused)


async def test_an_author_may_select_fields_that_a_result_lacks():
    server = DeltaServer("office", results=ResultPolicy(fields=["id", "bogus"]))
    server.tool(lambda: [{"id": 1, "x": 2}], name="one")
    server.tool(lambda: [{"x": 2}], name="none")
    async with raw_client(server) as raw:
        one, none = [await call(raw, name) for name in ("one", "none")]
        assert "No field" not in str((one, none)) and result_text(none).startswith("[{}]")


ROWS = {"total": 2, "items": [{"id": 1, "owner": None, "tags": []}, {"id": 2, "owner": {"name": "a"}, "tags": []}]}


@pytest.mark.parametrize(
    ("value", "fields", "sentence"),
    [
        (ROWS, "id", ""),
        (ROWS, "items[0].bogus", ""),
        (ROWS, "owner.name,tags.colour", ""),
        (ROWS, "total,items.id", ""),
        (ROWS, "owner.nme", "No field 'owner.nme'; there are owner.name."),
        (ROWS, "id.x", "No field 'id.x'; there are id, owner, tags."),
        (ROWS, "total,bogus", "No field 'bogus'; there are total, items."),
        (ROWS, ["bogus", "ownr.name"], "No field 'bogus' or 'ownr.name'; there are id, owner, tags."),
        ([{"id": 1}, {"name": "b"}], "name", ""),
        ([], "bogus", ""),
        (["a", "b"], "bogus", ""),
    ],
)
def test_missing_fields(value, fields, sentence):
    assert find_missing(value, fields, ["items"], unlimited_work()).sentence(1000) == sentence


@pytest.mark.parametrize("max_tokens", [50, 100, 300, 20_000])
def test_the_sentence_about_missing_fields_is_bounded(max_tokens):
    value = {f"{'name' * 30}{number}": number for number in range(1000)}
    missing = find_missing(value, [f"{'bogus' * 20}{number}" for number in range(90)], None, unlimited_work())
    assert missing.are_all and count(missing.sentence(max_tokens)) <= min(max_tokens // 2, 200)
