"""Where metadata is looked for, and whose it may be."""

import pytest

from deltamcp.auth.json_document import issuer_document_urls
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import (
    BearerChallenge,
    covers,
    find_issuer,
    find_resource,
    is_server,
    resource_document_urls,
)
from deltamcp.errors import UnauthorizedError
from tests.support.login_issuer import as_json, serve_login_issuer


@pytest.mark.parametrize(
    ("server", "urls"),
    [
        ("https://h/mcp", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]),
        ("https://h/a/b/", ["/.well-known/oauth-protected-resource/a/b", "/.well-known/oauth-protected-resource"]),
        ("https://h/mcp?x=y#z", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]),
        ("https://h", ["/.well-known/oauth-protected-resource"]),
        ("https://u:p@h/", ["/.well-known/oauth-protected-resource"]),
    ],
)
def test_a_servers_metadata_is_looked_for_at_its_path_then_at_the_root(server, urls):
    assert resource_document_urls(server) == [f"https://h{url}" for url in urls]


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        ("https://h", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        ("https://h/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "https://h/tenant1",
            [
                "/.well-known/oauth-authorization-server/tenant1",
                "/.well-known/openid-configuration/tenant1",
                "/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_an_issuers_metadata_is_looked_for_in_the_order_of_the_specification(issuer, urls):
    assert issuer_document_urls(issuer) == [f"https://h{url}" for url in urls]


@pytest.mark.parametrize(
    ("resource", "server", "expected"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h/mcp/", "https://h/mcp", True),
        ("https://h:443/mcp", "https://h/mcp", True),
        ("HTTPS://H/mcp", "https://h/mcp", True),
        ("https://h", "https://h/mcp", True),
        ("https://h/a", "https://h/a/b", True),
        ("https://h/a", "https://h/ab", False),
        ("https://h/a/b", "https://h/a", False),
        ("https://evil/mcp", "https://h/mcp", False),
        ("https://h.evil/mcp", "https://h/mcp", False),
        ("http://h/mcp", "https://h/mcp", False),
        ("https://h:8443/mcp", "https://h/mcp", False),
        ("https://h:99999/mcp", "https://h/mcp", False),
        ("https://h@evil/mcp", "https://h/mcp", False),
        ("https://u@h/mcp", "https://h/mcp", False),
        ("https://h/mcp#x", "https://h/mcp", False),
        ("", "https://h/mcp", False),
        ("https://[", "https://h/mcp", False),
        ("https://\u2100/mcp", "https://h/mcp", False),
    ],
)
def test_a_resource_is_the_server_or_contains_it(resource, server, expected):
    assert covers(resource, server) is expected


@pytest.mark.parametrize(
    ("resource", "server", "expected"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h/mcp/", "https://h/mcp", True),
        ("https://h/mcp", "https://h/mcp/", True),
        ("https://h", "https://h/", True),
        ("https://h:443/mcp", "https://h/mcp", True),
        ("HTTPS://H/mcp", "https://h/mcp", True),
        ("https://h/mcp", "https://h/mcp?project=1", True),
        ("https://h/mcp?project=1", "https://h/mcp?project=1", True),
        ("https://h/mcp?project=2", "https://h/mcp?project=1", False),
        ("https://h/mcp?project=2", "https://h/mcp", False),
        ("https://h", "https://h/mcp", False),
        ("https://h/", "https://h/tenant/mcp", False),
        ("https://h/tenant", "https://h/tenant/mcp", False),
        ("https://h/tenant/mcp/more", "https://h/tenant/mcp", False),
        ("https://h/other", "https://h/mcp", False),
        ("https://h/MCP", "https://h/mcp", False),
        ("https://h/x/../mcp", "https://h/mcp", False),
        ("https://h/%6dcp", "https://h/mcp", False),
        ("https://u@h/mcp", "https://h/mcp", False),
    ],
)
def test_a_resource_is_the_server_alone(resource, server, expected):
    assert is_server(resource, server) is expected


@pytest.mark.parametrize("path", ["", "/", "/tenant"])
async def test_metadata_of_all_of_a_host_is_refused_unless_the_program_allows_it(path):
    async with serve_login_issuer() as issuer:
        server = f"{issuer.url}/tenant/mcp"
        issuer.routes["/whole"] = lambda _: _answer({"resource": f"{issuer.url}{path}"})
        challenge = BearerChallenge(f"{issuer.url}/whole")
        with pytest.raises(UnauthorizedError, match=r"OAuth\(resource=\.\.\.\)"):
            await find_resource(JsonHttp(server), server, challenge)
        with pytest.raises(UnauthorizedError, match=r"OAuth\(resource=\.\.\.\)"):
            await find_resource(JsonHttp(server), server, challenge, f"{issuer.url}/tena")
        found = await find_resource(JsonHttp(server), server, challenge, f"{issuer.url}{path}")
        assert found is not None and found.resource == f"{issuer.url}{path}"


@pytest.mark.parametrize("issuer", ["https://as.example?x", "https://as.example/#https://honest.example"])
async def test_an_issuer_has_neither_a_query_nor_a_fragment(issuer):
    with pytest.raises(UnauthorizedError, match="is no authorization server"):
        await find_issuer(JsonHttp("https://mcp.example/mcp"), issuer)


async def test_metadata_of_another_server_is_refused():
    async with serve_login_issuer() as issuer:
        issuer.routes["/other"] = lambda _: _answer({"resource": "https://other.example/mcp"})
        server = f"{issuer.url}/mcp"
        with pytest.raises(UnauthorizedError, match="another address"):
            await find_resource(JsonHttp(server), server, BearerChallenge(f"{issuer.url}/other"))


async def test_a_server_without_metadata_has_none_and_one_that_names_it_must_have_it():
    async with serve_login_issuer() as issuer:
        server = f"{issuer.url}/mcp"
        assert await find_resource(JsonHttp(server), server, BearerChallenge()) is None
        with pytest.raises(UnauthorizedError, match="HTTP 404"):
            await find_resource(JsonHttp(server), server, BearerChallenge(f"{issuer.url}/nowhere"))


@pytest.mark.parametrize("change", ["/", "x", ".evil"])
async def test_metadata_of_another_issuer_is_refused_however_similar(change):
    async with serve_login_issuer() as issuer:
        issuer.metadata["issuer"] = issuer.url + change
        with pytest.raises(UnauthorizedError, match="says that it is"):
            await find_issuer(JsonHttp(issuer.url), issuer.url)


@pytest.mark.parametrize("body", [[], {"issuer": 3}, {}, {"issuer": "x", "token_endpoint": {}}])
async def test_metadata_of_the_wrong_shape_is_told(body):
    async with serve_login_issuer() as issuer:
        issuer.routes["/.well-known/oauth-authorization-server"] = lambda _: _answer(body)
        with pytest.raises(UnauthorizedError, match="cannot be read"):
            await find_issuer(JsonHttp(issuer.url), issuer.url)


async def _answer(body):
    return as_json(body)
