"""The page that the user opens, and which answers of it count."""

import base64
import hashlib
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from deltamcp.client.oauth.grants import CodeRequest, make_code_request, make_state, read_code
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import IssuerDocument
from deltamcp.client.oauth.token_storage import ClientIdentity
from deltamcp.errors import UnauthorizedError

ISSUER = "https://as.example"
CLIENT = ClientIdentity("me & you", redirect_uri="http://127.0.0.1:1234/callback")
HTTP = JsonHttp("https://mcp.example/mcp")


def document(**fields) -> IssuerDocument:
    usual = {"authorization_endpoint": f"{ISSUER}/authorize", "code_challenge_methods_supported": ["plain", "S256"]}
    return IssuerDocument(ISSUER, **{**usual, **fields})


def request(scopes=(), **fields) -> CodeRequest:
    return make_code_request(HTTP, document(**fields), CLIENT, "https://mcp.example/mcp", scopes, make_state())


def redirect(asked: CodeRequest, **fields) -> str:
    return f"/callback?{urlencode({'code': 'c0de', 'state': asked.state, **fields})}"


def test_the_page_has_everything_that_the_specification_demands():
    asked = request(("a", "b"))
    query = {name: values[0] for name, values in parse_qs(urlsplit(asked.url).query).items()}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(asked.verifier.encode()).digest()).rstrip(b"=").decode()
    assert query == {
        "response_type": "code",
        "client_id": "me & you",
        "redirect_uri": CLIENT.redirect_uri,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": asked.state,
        "resource": "https://mcp.example/mcp",
        "scope": "a b",
    }
    assert 43 <= len(asked.verifier) <= 128  # RFC 7636, 4.1


def test_two_requests_share_no_secret():
    one, other = request(), request()
    assert one.state != other.state and one.verifier != other.verifier
    assert one.verifier not in repr(one) and one.state not in repr(one)


def test_a_query_that_the_endpoint_has_stays():
    assert request(authorization_endpoint=f"{ISSUER}/authorize?tenant=7#x").url.startswith(
        f"{ISSUER}/authorize?tenant=7&response_type=code"
    )


def test_offline_access_is_asked_for_with_consent():
    assert "prompt=consent" in request(("offline_access",)).url
    assert "prompt" not in request(("a",)).url


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
def test_an_issuer_without_pkce_is_refused(methods):
    with pytest.raises(UnauthorizedError, match="PKCE"):
        request(code_challenge_methods_supported=methods)


@pytest.mark.parametrize(
    "endpoint",
    ["javascript:alert(1)", "http://as.example/", "http://127.0.0.1/", "data:text/html,x", "file:///x", None],
)
def test_a_page_that_is_not_https_is_never_opened(endpoint):
    with pytest.raises(UnauthorizedError):
        request(authorization_endpoint=endpoint)


@pytest.mark.parametrize(
    ("advertised", "iss", "accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example", False),
        (True, f"{ISSUER}/", False),
        (True, "https://AS.example", False),
        (None, ISSUER, True),
        (None, None, True),
        (None, "https://evil.example", False),
        (False, "", False),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_the_issuer_in_the_answer_is_compared_as_the_specification_says(advertised, iss, accepted, refused):
    asked = request(authorization_response_iss_parameter_supported=advertised)
    fields = ({} if iss is None else {"iss": iss}) | ({"error": "server_error"} if refused else {})
    if accepted and not refused:
        assert read_code(asked, redirect(asked, **fields)) == "c0de"
        return
    with pytest.raises(UnauthorizedError) as caught:
        read_code(asked, redirect(asked, **fields))
    assert ("server_error" in str(caught.value)) is accepted, "an error of somebody else is not shown"


@pytest.mark.parametrize("state", ["", "x", "ü"])
def test_the_answer_to_another_request_is_refused(state):
    asked = request()
    with pytest.raises(UnauthorizedError, match="another login"):
        read_code(asked, redirect(asked, state=state))


@pytest.mark.parametrize("change", ["&state={state}", "&state=x"])
def test_a_parameter_that_comes_twice_counts_as_none(change):
    asked = request()
    with pytest.raises(UnauthorizedError):
        read_code(asked, redirect(asked) + change.format(state=asked.state))


def test_no_code_and_a_refusal_are_told():
    asked = request()
    with pytest.raises(UnauthorizedError, match="no code"):
        read_code(asked, f"/callback?state={asked.state}")
    with pytest.raises(UnauthorizedError, match="refused, by you"):
        read_code(asked, redirect(asked, error="access_denied"))
    with pytest.raises(UnauthorizedError) as caught:
        read_code(asked, redirect(asked, error="<b>\x1b[31m", error_description="c0de"))
    assert "\x1b" not in str(caught.value) and "c0de" not in str(caught.value)


def test_an_answer_with_thousands_of_parameters_is_refused():
    asked = request()
    with pytest.raises(UnauthorizedError):
        read_code(asked, redirect(asked) + "&x=1" * 10_000)
