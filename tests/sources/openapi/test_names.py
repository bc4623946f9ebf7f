"""Names of operations from documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.sources.openapi.operations import MAX_NAME_CHARS, LockedName, Unnamed, choose_names


def named(*operations: Unnamed) -> list[LockedName]:
    return choose_names(operations, {})


@pytest.mark.parametrize(
    ("operation", "name", "id"),
    [
        (Unnamed("GET", "/repos", "repos/list", "repos"), "repos_list", "repos.list"),
        (Unnamed("GET", "/pets", "listPets", "pets"), "listPets", "pets.listPets"),
        (Unnamed("GET", "/pets", "pet_list", "pets"), "pet_list", "pets.list"),
        (Unnamed("GET", "/pets", "list pets!", ""), "list_pets", "list_pets"),
        (Unnamed("GET", "/items/{item_id}", "read_item_items__item_id__get", ""), "read_item", "read_item"),
        (Unnamed("GET", "/api/v1/users/{id}/posts", None, "users"), "list_users_posts", "users.list_users_posts"),
        (Unnamed("DELETE", "/v2.1/users/{id}", None, "users"), "delete_users_by_id", "users.delete_users_by_id"),
        (Unnamed("GET", "/", None, ""), "get", "get"),
    ],
)
def test_a_name_says_what_the_operation_does(operation, name, id):
    (one,) = named(operation)
    assert (one.name, one.id) == (name, id)


def test_an_operation_keeps_its_name_in_the_next_version_of_the_document():
    old = Unnamed("GET", "/pets", "listPets", "pets")
    locked = {old.key: named(old)[0]}
    renamed = Unnamed("GET", "/pets", "getAllPets", "animals")
    moved = Unnamed("GET", "/v2/pets", "listPets", "pets")
    assert choose_names([renamed], locked)[0].name == "listPets"
    assert choose_names([moved], locked)[0] == locked[old.key]


def test_the_name_of_an_operation_that_is_gone_goes_to_no_other():
    locked = {"GET /old": LockedName("listPets", "pets.listPets")}
    (one,) = choose_names([Unnamed("GET", "/new", "listPets", "pets")], locked)
    assert one.name.startswith("listPets_") and one.id.startswith("pets.listPets_")


_TEXTS = st.text("ab/_-. é", max_size=90)
_OPERATIONS = st.lists(
    st.builds(Unnamed, st.sampled_from(["GET", "PUT"]), _TEXTS, st.none() | _TEXTS, _TEXTS),
    unique_by=lambda one: one.key,
    max_size=8,
)


@given(_OPERATIONS)
def test_all_operations_have_different_names_that_do_not_depend_on_their_order(operations):
    found = named(*operations)
    assert len({one.name for one in found}) == len({one.id for one in found}) == len(operations)
    assert all(0 < len(one.name) <= MAX_NAME_CHARS for one in found)
    assert [*reversed(found)] == named(*reversed(operations))


@given(_OPERATIONS, _OPERATIONS)
def test_names_stay_when_operations_are_added(old, new):
    locked = dict(zip((one.key for one in old), named(*old), strict=True))
    added = [one for one in new if one.key not in locked and one.operation_id is None]
    assert choose_names([*added, *old], locked)[len(added) :] == [locked[one.key] for one in old]
