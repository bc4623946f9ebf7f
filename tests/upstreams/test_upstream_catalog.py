"""What of an upstream's lists is taken."""

from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.values import JSON


def test_tools_and_prompts_whose_names_are_too_long_are_left_out_and_counted():
    tools: list[dict[str, JSON]] = [{"name": "a" * 128}, {"name": "b" * 129}, {"name": "c" * 60_000}, {"name": 5}]
    lists = UpstreamListing({}, "2025-11-25", tools, prompts=[{"name": "d" * 129}, {"name": "e"}])
    taken = lists.within_bounds()
    assert taken.tools == [tools[0], tools[3]] and taken.prompts == [{"name": "e"}]
    assert taken.left_out == {"tools": 2, "prompts": 1}


def test_lists_within_bounds_stay_as_they_are():
    lists = UpstreamListing({}, "2025-11-25", [{"name": "a"}], prompts=[{"name": "e"}])
    assert lists.within_bounds() is lists


def test_of_each_list_the_first_ten_thousand_items_are_taken_and_the_rest_is_counted():
    tools: list[dict[str, JSON]] = [{"name": f"tool{number}"} for number in range(10_002)]
    resources: list[dict[str, JSON]] = [{"uri": f"x:{number}", "name": "n" * 200} for number in range(10_001)]
    lists = UpstreamListing({}, "2025-11-25", [{"name": "a" * 129}, *tools], resources, resources[:3])
    taken = lists.within_bounds()
    assert taken.tools == tools[:10_000] and taken.resources == resources[:10_000] and len(taken.templates) == 3
    assert taken.left_out == {"tools": 3, "resources": 1}


def test_resources_that_repeat_the_operations_of_a_server_of_this_library_are_left_out():
    ours: JSON = {"capabilities": {"extensions": {"io.github.delta-mcp/progressive-disclosure": {}}}}
    resources: list[dict[str, JSON]] = [{"uri": "shop://operations/index"}, {"uri": "shop://hours"}]
    uris = ("shop://operations/{+path}", "shop://results/{handle}{+path}", "shop://results/{id}")
    templates: list[dict[str, JSON]] = [{"uriTemplate": uri} for uri in uris]
    assert isinstance(ours, dict)
    taken = UpstreamListing(ours, "2026-07-28", [], resources, templates).of_operations()
    assert (taken.resources, taken.templates) == (resources[1:], templates[2:])
    foreign = UpstreamListing({}, "2026-07-28", [], resources, templates)
    assert foreign.of_operations() is foreign
