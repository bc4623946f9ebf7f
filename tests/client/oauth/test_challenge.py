"""`WWW-Authenticate` headers: what is written is read back, and nothing else is made of them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.client.oauth.metadata import BearerChallenge, read_bearer_challenge, split_challenges

WORDS = st.text("!#$%&'*+-.^_`|~" + string.ascii_letters + string.digits, min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
PARAMETERS = st.dictionaries(WORDS.map(str.lower), st.tuples(VALUES, st.booleans()), max_size=4)
CHALLENGES = st.lists(st.tuples(WORDS, PARAMETERS, st.sampled_from(["", "abc", "dG9rZW4=", "a/b+c=="])), max_size=4)


def write(challenges, separator: str) -> str:
    written = []
    for scheme, parameters, token68 in challenges:
        texts = [f"{name}={_value(value, quoted)}" for name, (value, quoted) in parameters.items()]
        written.append(f"{scheme} {', '.join(texts) or token68}".rstrip())
    return separator.join(written)


def _value(text: str, quoted: bool) -> str:
    if not quoted and text and all(char in "-._~" + string.ascii_letters + string.digits for char in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(CHALLENGES, st.sampled_from([", ", ",", " , ", ",,"]))
def test_what_is_written_is_read(challenges, separator):
    expected = [
        (scheme.lower(), {name: value for name, (value, _) in parameters.items()})
        for scheme, parameters, _ in challenges
    ]
    assert split_challenges(write(challenges, separator)) == expected


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text):
    assert isinstance(read_bearer_challenge(text), BearerChallenge)
    assert isinstance(read_bearer_challenge(f"Bearer {text}"), BearerChallenge)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", BearerChallenge()),
        ("Bearer", BearerChallenge()),
        ("Basic realm=x", BearerChallenge()),
        ('bearer SCOPE="a b"', BearerChallenge(scopes=("a", "b"))),
        ('Bearer error = "invalid_token"', BearerChallenge(error="invalid_token")),
        ("Negotiate a87421000492aa874209af8bc028==, Bearer scope=x", BearerChallenge(scopes=("x",))),
        ('Basic realm="a, Bearer scope=no", Bearer scope="yes"', BearerChallenge(scopes=("yes",))),
        (r'Bearer realm="a \" b", scope="c"', BearerChallenge(scopes=("c",))),
        (
            'Bearer realm="gateway", Bearer resource_metadata="https://a/b", error="insufficient_scope"',
            BearerChallenge("https://a/b", (), "insufficient_scope"),
        ),
        ('Bearer scope="a", scope="b"', BearerChallenge(scopes=("a",))),
        ('Bearer scope="a \x01 b\\"c d"', BearerChallenge(scopes=("a", "d"))),
        ('Bearer scope="unended', BearerChallenge()),
    ],
)
def test_the_challenge_of_bearer_is_found(header, expected):
    assert read_bearer_challenge(header) == expected


def test_a_large_header_is_read_in_no_time():
    assert split_challenges('Bearer a="' + "\\" * 60_000) == [("bearer", {})]
    assert len(split_challenges("a," * 30_000)) <= 30_000
    assert read_bearer_challenge("Bearer " + 'x="y",' * 10_000 + 'scope="z"') == BearerChallenge()
