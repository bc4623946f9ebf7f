"""Words for a kind of service find the services known for it."""

import itertools

import pytest

from deltamcp.catalog.search import services, words
from deltamcp.catalog.search.index import SearchIndex

CATALOGUE = {
    "hubspot": {"search_contacts": "Find contacts by a filter", "create_deal": "Create a deal"},
    "people": {"find_contact": "Find a contact by name in the address book"},
    "azure": {"query_workspace": "Run a Kusto query against a workspace", "list_vms": "List virtual machines"},
    "confluence": {"create_page": "Create a page in a space", "get_space": "Get a space"},
    "browser": {"close_page": "Close a page of the browser", "new_page": "Open a page of the browser"},
    "airtable": {"list_records": "List records of a base", "update_records": "Update records of a base"},
    "linear": {"save_comment": "Save a comment on a piece of work"},
    "blog": {"save_comment": "Save a comment on an article"},
    "bitbucket": {"approve": "Approve a change", "decline": "Decline a change"},
    "forms": {"approve": "Approve an answer", "send": "Send a form", "guess": "Guess; jira: the author's cat"},
}


@pytest.fixture
def index() -> SearchIndex:
    index = SearchIndex()
    for group, tools in CATALOGUE.items():
        for name, description in tools.items():
            schema = {"type": "object", "properties": {"salesforce": {"type": "string"}}}
            index.put(f"{group}.{name}", {"name": name, "description": description, "inputSchema": schema}, group)
    return index


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("CRM contact by email", "hubspot.search_contacts"),
        ("KQL", "azure.query_workspace"),
        ("create a wiki page", "confluence.create_page"),
        ("update the spreadsheet", "airtable.update_records"),
        ("comment on a ticket", "linear.save_comment"),
        ("approve pull request", "bitbucket.approve"),
    ],
)
def test_a_kind_of_service_finds_the_services_known_for_it(index, query, found):
    assert index.search(query)[0].id == found


def test_a_service_does_not_find_others_of_its_kind(index):
    assert [hit.id for hit in index.search("pipedrive")] == []
    assert {hit.id.partition(".")[0] for hit in index.search("hubspot", 20)} == {"hubspot"}


def test_a_parameter_does_not_make_a_tool_part_of_a_service(index):
    assert {hit.id.partition(".")[0] for hit in index.search("crm", 20)} == {"hubspot"}


def test_the_word_itself_counts_more_than_what_it_stands_for(index):
    index.put("crm.export", {"name": "export", "description": "Export all"}, "crm")
    assert index.search("crm")[0].id == "crm.export"


def test_every_word_of_the_table_is_one_that_is_searched_by():
    for line in services._SERVICES.strip().splitlines():
        kinds, _, names = line.partition(":")
        assert kinds.split() and names.split(), line
        for word in itertools.chain(kinds.split(), names.split()):
            assert words.terms(word) == [words.stem(word)], word


def test_each_line_of_the_table_has_a_first_word_of_its_own():
    """The index identifies a line by it."""
    first = [line.split()[0] for line in services._SERVICES.strip().splitlines()]
    assert len(set(first)) == len(first)
