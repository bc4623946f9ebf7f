"""Tokens that must be refused, each with its reason, and the good ones that must not."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp.auth.bearer import TokenError
from deltamcp.auth.claims import ClaimRules, client_id, user_id
from deltamcp.auth.jwt_verifier import ALGORITHMS, JwtVerifier, PublicKey, read_key_set, read_token
from deltamcp.values import Principal
from tests.support.fake_issuer import RESOURCE, base64url, ec_key, ed_key, public_jwk, rsa_key, sign

ISSUER = "https://issuer.example"
KEYS: dict[str, Any] = {"ec": ec_key(), "rsa": rsa_key(), "ed": ed_key()}
NAMES = {"ec": "ES256", "rsa": "RS256", "ed": "EdDSA"}


class FixedKeys:
    """Has the keys of `KEYS`, and fetches nothing."""

    def __init__(self) -> None:
        found = read_key_set({"keys": [public_jwk(key, kid=id_) for id_, key in KEYS.items()]})
        assert found is not None and len(found) == len(KEYS)
        self._keys = found

    async def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        return next((key for key in self._keys if key.id == key_id and key.fits(algorithm)), None)

    async def close(self) -> None: ...


VERIFIER = JwtVerifier(FixedKeys(), ClaimRules(ISSUER, [RESOURCE]))  # type: ignore[arg-type]


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    good = {"iss": ISSUER, "sub": "ada", "aud": RESOURCE, "exp": now + 600, "iat": now, "scope": "read"}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def token(kid: str = "ec", header: dict[str, Any] | None = None, **changes: Any) -> str:
    """A token that is good but for the changes."""
    alg = NAMES[kid]
    return sign({"alg": alg, "kid": kid, "typ": "at+jwt", **(header or {})}, claims(**changes), KEYS[kid], alg)


def raw(header: dict[str, Any] | str, payload: dict[str, Any] | str, kid: str = "ec") -> str:
    return sign(header, payload, KEYS[kid], NAMES[kid])


def hmac_token(secret: bytes, alg: str = "HS256", kid: str = "rsa") -> str:
    """A token whose signature is an HMAC, as for a verifier that takes the public key for a shared secret."""
    signed = f"{base64url({'alg': alg, 'kid': kid, 'typ': 'JWT'})}.{base64url(claims())}"
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}.get(alg, hashlib.sha256)
    return f"{signed}.{base64url(hmac.new(secret, signed.encode(), digest).digest())}"


def public_bytes(kid: str, encoding: serialization.Encoding, format_: serialization.PublicFormat) -> bytes:
    found: bytes = KEYS[kid].public_key().public_bytes(encoding, format_)
    return found


PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
INFO, PKCS1 = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1


def unsigned(alg: str, ending: str = ".") -> str:
    return f"{base64url({'alg': alg, 'kid': 'ec'})}.{base64url(claims())}{ending}"


def with_text(name: str, text: str) -> str:
    """A token with a claim whose value is exactly this JSON text."""
    rest = json.dumps(claims(**{name: ...}))[1:-1]
    return raw({"alg": "ES256", "kid": "ec"}, f'{{{rest}, "{name}": {text}}}')


def twice(name: str, first: Any, second: Any) -> str:
    rest = json.dumps(claims(**{name: ...}))[1:-1]
    payload = f'{{"{name}": {json.dumps(first)}, {rest}, "{name}": {json.dumps(second)}}}'
    return raw({"alg": "ES256", "kid": "ec"}, payload)


def parts(made: str) -> list[str]:
    return made.split(".")


def swapped(*replaced: tuple[int, str]) -> str:
    pieces = parts(token())
    for place, text in replaced:
        pieces[place] = text
    return ".".join(pieces)


def used_bits_spelled_differently(place: int) -> str:
    """A good token whose part at this place ends in a character with the same used bits, but others that are not 0."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for filler in range(3):
        pieces = parts(token(filler="x" * filler))
        if place == 0:
            pieces = parts(token(header={"filler": "x" * filler}))
        unused = {2: 4, 3: 2}.get(len(pieces[place]) % 4, 0)
        if unused:
            pieces[place] = pieces[place][:-1] + alphabet[alphabet.index(pieces[place][-1]) | 1]
            return ".".join(pieces)
    raise AssertionError("one of three lengths has unused bits")


NOW = time.time()
OTHER = "https://other.example/mcp"

BAD: dict[str, tuple[Callable[[], str], str]] = {
    # The audience
    "aud of another resource": (lambda: token(aud=OTHER), "wrong_audience"),
    "aud missing": (lambda: token(aud=...), "wrong_audience"),
    "aud null": (lambda: token(aud=None), "wrong_audience"),
    "aud empty": (lambda: token(aud=""), "wrong_audience"),
    "aud empty list": (lambda: token(aud=[]), "wrong_audience"),
    "aud list of others": (lambda: token(aud=[OTHER, "account"]), "wrong_audience"),
    "aud is the origin": (lambda: token(aud="https://tools.example"), "wrong_audience"),
    "aud is a path below": (lambda: token(aud=f"{RESOURCE}/more"), "wrong_audience"),
    "aud begins with the resource": (lambda: token(aud=f"{RESOURCE}x"), "wrong_audience"),
    "aud on a longer host": (lambda: token(aud="https://tools.example.evil/mcp"), "wrong_audience"),
    "aud over http": (lambda: token(aud="http://tools.example/mcp"), "wrong_audience"),
    "aud with a port": (lambda: token(aud="https://tools.example:8443/mcp"), "wrong_audience"),
    "aud with a query": (lambda: token(aud=f"{RESOURCE}?a=b"), "wrong_audience"),
    "aud with a fragment": (lambda: token(aud=f"{RESOURCE}#a"), "wrong_audience"),
    "aud with two slashes": (lambda: token(aud=f"{RESOURCE}//"), "wrong_audience"),
    "aud with a space": (lambda: token(aud=f"{RESOURCE} "), "wrong_audience"),
    "aud joined by a space": (lambda: token(aud=f"{OTHER} {RESOURCE}"), "wrong_audience"),
    "aud in capitals": (lambda: token(aud=RESOURCE.upper()), "wrong_audience"),
    "aud a star": (lambda: token(aud="*"), "wrong_audience"),
    "aud an object": (lambda: token(aud={RESOURCE: True}), "malformed_claim"),
    "aud nested": (lambda: token(aud=[[RESOURCE]]), "malformed_claim"),
    "aud a list with a number": (lambda: token(aud=[RESOURCE, 5]), "malformed_claim"),
    "aud a list with null": (lambda: token(aud=[None]), "malformed_claim"),
    "aud true": (lambda: token(aud=True), "malformed_claim"),
    "resource instead of aud": (lambda: token(aud=..., resource=RESOURCE), "wrong_audience"),
    "azp instead of aud": (lambda: token(aud=..., azp=RESOURCE), "wrong_audience"),
    # The issuer
    "iss of another": (lambda: token(iss="https://evil.example"), "wrong_issuer"),
    "iss missing": (lambda: token(iss=...), "wrong_issuer"),
    "iss with a slash": (lambda: token(iss=f"{ISSUER}/"), "wrong_issuer"),
    "iss in capitals": (lambda: token(iss=ISSUER.upper()), "wrong_issuer"),
    "iss null": (lambda: token(iss=None), "wrong_issuer"),
    "iss a list": (lambda: token(iss=[ISSUER]), "wrong_issuer"),
    "iss begins with the issuer": (lambda: token(iss=f"{ISSUER}.evil"), "wrong_issuer"),
    # The times
    "expired": (lambda: token(exp=NOW - 60), "expired"),
    "exp just beyond the leeway": (lambda: token(exp=time.time() - 10.5), "expired"),
    "exp 0": (lambda: token(exp=0), "expired"),
    "exp negative": (lambda: token(exp=-1), "expired"),
    "exp missing": (lambda: token(exp=...), "missing_expiry"),
    "exp null": (lambda: token(exp=None), "missing_expiry"),
    "exp a string": (lambda: token(exp=str(NOW + 600)), "malformed_claim"),
    "exp true": (lambda: token(exp=True), "malformed_claim"),
    "exp a list": (lambda: token(exp=[NOW + 600]), "malformed_claim"),
    "exp an object": (lambda: token(exp={}), "malformed_claim"),
    "exp NaN": (lambda: with_text("exp", "NaN"), "malformed"),
    "exp Infinity": (lambda: with_text("exp", "Infinity"), "malformed"),
    "exp too large for a float": (lambda: with_text("exp", "1e999"), "malformed_claim"),
    "exp with 400 digits": (lambda: with_text("exp", "9" * 400), "malformed_claim"),
    "exp with 5000 digits": (lambda: with_text("exp", "9" * 5000), "malformed"),
    "nbf in the future": (lambda: token(nbf=NOW + 3600), "not_yet_valid"),
    "nbf a string": (lambda: token(nbf="soon"), "malformed_claim"),
    "iat in the future": (lambda: token(iat=NOW + 3600), "issued_in_future"),
    "iat an object": (lambda: token(iat={}), "malformed_claim"),
    # The algorithm
    "alg none": (lambda: unsigned("none"), "algorithm_not_allowed"),
    "alg None": (lambda: unsigned("None"), "algorithm_not_allowed"),
    "alg NONE": (lambda: unsigned("NONE"), "algorithm_not_allowed"),
    "alg nOnE": (lambda: unsigned("nOnE"), "algorithm_not_allowed"),
    "alg none with a space": (lambda: unsigned("none "), "algorithm_not_allowed"),
    "alg empty": (lambda: unsigned(""), "algorithm_not_allowed"),
    "alg none with the signature of another": (
        lambda: unsigned("none", f".{parts(token())[2]}"),
        "algorithm_not_allowed",
    ),
    "alg none without the last dot": (lambda: unsigned("none", ""), "malformed"),
    "alg missing": (lambda: raw({"kid": "ec"}, claims()), "malformed"),
    "alg null": (lambda: raw({"alg": None, "kid": "ec"}, claims()), "malformed"),
    "alg a list": (lambda: raw({"alg": ["ES256"], "kid": "ec"}, claims()), "malformed"),
    "alg in small letters": (lambda: raw({"alg": "es256", "kid": "ec"}, claims()), "algorithm_not_allowed"),
    "alg unknown": (lambda: raw({"alg": "XS256", "kid": "ec"}, claims()), "algorithm_not_allowed"),
    "alg ES256K": (lambda: raw({"alg": "ES256K", "kid": "ec"}, claims()), "algorithm_not_allowed"),
    "HS256 by the RSA key's PEM": (lambda: hmac_token(public_bytes("rsa", PEM, INFO)), "algorithm_not_allowed"),
    "HS256 by the RSA key's PEM without its end": (
        lambda: hmac_token(public_bytes("rsa", PEM, INFO).strip()),
        "algorithm_not_allowed",
    ),
    "HS256 by the RSA key's PKCS1": (lambda: hmac_token(public_bytes("rsa", PEM, PKCS1)), "algorithm_not_allowed"),
    "HS256 by the RSA key's DER": (lambda: hmac_token(public_bytes("rsa", DER, INFO)), "algorithm_not_allowed"),
    "HS256 by the RSA key's JWK": (
        lambda: hmac_token(json.dumps(public_jwk(KEYS["rsa"])).encode()),
        "algorithm_not_allowed",
    ),
    "HS256 by the RSA modulus": (
        lambda: hmac_token(base64.urlsafe_b64decode(public_jwk(KEYS["rsa"])["n"] + "==")),
        "algorithm_not_allowed",
    ),
    "HS256 by the EC key's PEM": (
        lambda: hmac_token(public_bytes("ec", PEM, INFO), kid="ec"),
        "algorithm_not_allowed",
    ),
    "HS256 by the EC key's DER": (
        lambda: hmac_token(public_bytes("ec", DER, INFO), kid="ec"),
        "algorithm_not_allowed",
    ),
    "HS384 by the RSA key's PEM": (
        lambda: hmac_token(public_bytes("rsa", PEM, INFO), "HS384"),
        "algorithm_not_allowed",
    ),
    "HS512 by the RSA key's PEM": (
        lambda: hmac_token(public_bytes("rsa", PEM, INFO), "HS512"),
        "algorithm_not_allowed",
    ),
    "HS256 by an empty secret": (lambda: hmac_token(b""), "algorithm_not_allowed"),
    "HMAC under the name RS256": (
        lambda: hmac_token(public_bytes("rsa", PEM, INFO), "RS256"),
        "invalid_signature",
    ),
    # The key
    "signed by another key": (
        lambda: sign({"alg": "ES256", "kid": "ec"}, claims(), ec_key(1), "ES256"),
        "invalid_signature",
    ),
    "signed by another RSA key": (
        lambda: sign({"alg": "RS256", "kid": "rsa"}, claims(), rsa_key(1), "RS256"),
        "invalid_signature",
    ),
    "RS256 named, PS256 used": (
        lambda: sign({"alg": "RS256", "kid": "rsa"}, claims(), rsa_key(), "PS256"),
        "invalid_signature",
    ),
    "PS256 named, RS256 used": (
        lambda: sign({"alg": "PS256", "kid": "rsa"}, claims(), rsa_key(), "RS256"),
        "invalid_signature",
    ),
    "RS512 named, RS256 used": (
        lambda: sign({"alg": "RS512", "kid": "rsa"}, claims(), rsa_key(), "RS256"),
        "invalid_signature",
    ),
    "an EC algorithm with an RSA key": (lambda: raw({"alg": "ES256", "kid": "rsa"}, claims()), "unknown_key"),
    "an RSA algorithm with an EC key": (lambda: raw({"alg": "RS256", "kid": "ec"}, claims()), "unknown_key"),
    "EdDSA with an EC key": (lambda: raw({"alg": "EdDSA", "kid": "ec"}, claims()), "unknown_key"),
    "ES384 with a key of P-256": (lambda: raw({"alg": "ES384", "kid": "ec"}, claims()), "unknown_key"),
    "kid unknown": (lambda: raw({"alg": "ES256", "kid": "nobody"}, claims()), "unknown_key"),
    "kid empty": (lambda: raw({"alg": "ES256", "kid": ""}, claims()), "unknown_key"),
    "kid a path": (lambda: raw({"alg": "ES256", "kid": "../../dev/null"}, claims()), "unknown_key"),
    "kid of SQL": (lambda: raw({"alg": "ES256", "kid": "x' UNION SELECT 'a"}, claims()), "unknown_key"),
    "kid with a null": (lambda: raw({"alg": "ES256", "kid": "ec\0"}, claims()), "unknown_key"),
    "kid a number": (lambda: raw({"alg": "ES256", "kid": 0}, claims()), "malformed"),
    "kid twice": (lambda: raw('{"alg": "ES256", "kid": "no", "kid": "ec"}', claims()), "malformed"),
    "kid a list": (lambda: raw({"alg": "ES256", "kid": ["ec"]}, claims()), "malformed"),
    "a key in the header": (
        lambda: sign({"alg": "ES256", "kid": "ec", "jwk": public_jwk(ec_key(1))}, claims(), ec_key(1), "ES256"),
        "invalid_signature",
    ),
    "an address of keys in the header": (
        lambda: sign({"alg": "ES256", "kid": "mine", "jku": "https://evil.example/k"}, claims(), ec_key(1), "ES256"),
        "unknown_key",
    ),
    "an address of a certificate in the header": (
        lambda: sign({"alg": "ES256", "kid": "mine", "x5u": "https://evil.example/c"}, claims(), ec_key(1), "ES256"),
        "unknown_key",
    ),
    # The signature
    "signature missing": (lambda: swapped((2, "")), "invalid_signature"),
    "signature of another token": (lambda: swapped((2, parts(token(sub="eve"))[2])), "invalid_signature"),
    "payload of another token": (lambda: swapped((1, parts(token(sub="eve"))[1])), "invalid_signature"),
    "header of another token": (lambda: swapped((0, base64url({"alg": "ES256", "kid": "ec"}))), "invalid_signature"),
    "signature cut": (lambda: swapped((2, base64url(b"\1" * 63))), "invalid_signature"),
    "signature of zeros": (lambda: swapped((2, base64url(b"\0" * 64))), "invalid_signature"),
    "signature in DER": (
        lambda: swapped((2, base64url(b"\x30\x06\x02\x01\x01\x02\x01\x01"))),
        "invalid_signature",
    ),
    # The form
    "cut in the payload": (lambda: token()[:60], "malformed"),
    "two parts": (lambda: ".".join(parts(token())[:2]), "malformed"),
    "four parts": (lambda: f"{token()}.AAAA", "malformed"),
    "five parts, as an encrypted token": (
        lambda: ".".join([base64url({"alg": "RSA-OAEP", "enc": "A256GCM"}), "AA", "AA", "AA", "AA"]),
        "malformed",
    ),
    "enc in three parts": (lambda: token(header={"enc": "A256GCM"}), "wrong_type"),
    "only dots": (lambda: "..", "malformed"),
    "header empty": (lambda: swapped((0, "")), "malformed"),
    "header a list": (lambda: swapped((0, base64url("[]"))), "malformed"),
    "header no JSON": (lambda: swapped((0, base64url("{alg"))), "malformed"),
    "header no UTF-8": (lambda: swapped((0, base64url(b'{"alg": "\xff"}'))), "malformed"),
    "header with alg twice": (
        lambda: raw('{"alg": "none", "kid": "ec", "alg": "ES256"}', claims()),
        "malformed",
    ),
    "header nested deeply": (lambda: swapped((0, base64url("[" * 9000))), "malformed"),
    "padding": (lambda: f"{token()}=", "malformed"),
    "padding inside": (lambda: token().replace(".", "=.", 1), "malformed"),
    "standard base64": (lambda: swapped((1, "+/+/")), "malformed"),
    "a line break": (lambda: swapped((1, parts(token())[1] + "\n")), "malformed"),
    "payload spelled differently": (lambda: used_bits_spelled_differently(1), "malformed"),
    "header spelled differently": (lambda: used_bits_spelled_differently(0), "malformed"),
    "signature spelled differently": (lambda: used_bits_spelled_differently(2), "malformed"),
    "payload a list": (lambda: raw({"alg": "ES256", "kid": "ec"}, "[]"), "malformed"),
    "payload null": (lambda: raw({"alg": "ES256", "kid": "ec"}, "null"), "malformed"),
    "payload no JSON": (lambda: raw({"alg": "ES256", "kid": "ec"}, "{sub: ada}"), "malformed"),
    "aud twice": (lambda: twice("aud", OTHER, RESOURCE), "malformed"),
    "exp twice": (lambda: twice("exp", 0, NOW + 600), "malformed"),
    "sub twice": (lambda: twice("sub", "eve", "ada"), "malformed"),
    # The kind
    "crit": (lambda: token(header={"crit": ["exp"], "exp": 5}), "critical_header"),
    "crit b64": (lambda: token(header={"crit": ["b64"], "b64": False}), "critical_header"),
    "crit empty": (lambda: token(header={"crit": []}), "critical_header"),
    "typ of an ID token": (lambda: token(header={"typ": "id_token+jwt"}), "wrong_type"),
    "typ of a logout token": (lambda: token(header={"typ": "logout+jwt"}), "wrong_type"),
    "typ of a proof": (lambda: token(header={"typ": "dpop+jwt"}), "wrong_type"),
    "typ empty": (lambda: token(header={"typ": ""}), "wrong_type"),
    "typ a number": (lambda: token(header={"typ": 5}), "malformed"),
    "nonce, as in ID tokens": (lambda: token(nonce="n", scope=...), "wrong_type"),
    "at_hash, as in ID tokens": (lambda: token(at_hash="h"), "wrong_type"),
    "Keycloak's ID token": (lambda: token(typ="ID"), "wrong_type"),
    "Keycloak's refresh token": (lambda: token(typ="Refresh"), "wrong_type"),
    "Cognito's ID token": (lambda: token(token_use="id"), "wrong_type"),
    "a logout token": (lambda: token(events={"http://schemas.openid.net/event/backchannel-logout": {}}), "wrong_type"),
    "bound to a key of its holder": (lambda: token(cnf={"jkt": "x"}), "bound_to_key"),
    # The subject and the scopes
    "nobody": (lambda: token(sub=...), "missing_subject"),
    "sub empty": (lambda: token(sub=""), "malformed_claim"),
    "sub a number": (lambda: token(sub=5), "malformed_claim"),
    "sub with a line break": (lambda: token(sub="ada\nroot"), "malformed_claim"),
    "sub of 600 characters": (lambda: token(sub="a" * 600), "malformed_claim"),
    "client_id no text": (lambda: token(sub=..., client_id={"a": 1}), "malformed_claim"),
    "scope an object": (lambda: token(scope={"read": True}), "malformed_claim"),
    "scope a list of numbers": (lambda: token(scope=[1]), "malformed_claim"),
}


async def refusal_of(made: str) -> str:
    """The reason for which a token is refused; it fails the test if it is not."""
    with pytest.raises(TokenError) as refused:
        await VERIFIER.verify(made)
    return refused.value.fault.value


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_token_is_refused_with_its_reason(name: str) -> None:
    make, reason = BAD[name]
    assert await refusal_of(make()) == reason


def test_the_table_has_distinct_bad_tokens() -> None:
    assert len({make() for make, _ in BAD.values()}) == len(BAD) >= 60


@pytest.mark.parametrize(
    "made",
    [
        lambda: token(),
        lambda: token("rsa"),
        lambda: token("ed"),
        lambda: token(aud=[OTHER, RESOURCE]),
        lambda: token(aud=f"{RESOURCE}/"),
        lambda: token(aud=[f"{RESOURCE}/"]),
        lambda: token(header={"typ": "JWT"}),
        lambda: token(header={"typ": "application/at+JWT"}),
        lambda: raw({"alg": "ES256", "kid": "ec"}, claims()),
        lambda: token(exp=time.time() - 5),
        lambda: token(nbf=time.time() + 5),
        lambda: token(iat=...),
        lambda: token(scope=...),
        lambda: token(nonce="n", typ="Bearer"),
        lambda: sign({"alg": "PS256", "kid": "rsa"}, claims(), rsa_key(), "PS256"),
        lambda: jwt.encode(claims(), KEYS["ec"], "ES256", {"kid": "ec"}),
    ],
)
async def test_a_good_token_is_accepted(made: Callable[[], str]) -> None:
    assert (await VERIFIER.verify(made())).id == "ada"


async def test_a_resource_with_a_slash_takes_tokens_without_and_a_replay_elsewhere_is_refused() -> None:
    here = JwtVerifier(FixedKeys(), ClaimRules(ISSUER, [f"{RESOURCE}/"]))  # type: ignore[arg-type]
    elsewhere = JwtVerifier(FixedKeys(), ClaimRules(ISSUER, [OTHER]))  # type: ignore[arg-type]
    made = token()
    assert (await here.verify(made)).id == "ada"
    with pytest.raises(TokenError, match="another audience"):
        await elsewhere.verify(made)


@pytest.mark.parametrize(
    ("changes", "id_", "scopes"),
    [
        ({"sub": ..., "client_id": "robot"}, "client:robot", {"read"}),
        ({"sub": ..., "azp": "robot"}, "client:robot", {"read"}),
        ({"sub": "client:robot"}, "user:client:robot", {"read"}),
        ({"sub": "user:7"}, "user:7", {"read"}),
        ({"scope": ["a", "b"]}, "ada", {"a", "b"}),
        ({"scope": ..., "scp": "a b"}, "ada", {"a", "b"}),
        ({"scope": ..., "scp": ["a", "b"]}, "ada", {"a", "b"}),
        ({"scope": ""}, "ada", set()),
    ],
)
async def test_the_principal_is_read_from_the_claims_in_use(changes: Any, id_: str, scopes: frozenset[str]) -> None:
    principal = await VERIFIER.verify(token(**changes))
    assert (principal.id, principal.scopes, principal.issuer) == (id_, scopes, ISSUER)


_NAMES = st.lists(st.sampled_from(["user:", "client:", "ada", " ", "https://a.example", "%20"]), max_size=5).map(
    "".join
)
_ISSUERS = st.sampled_from(
    ["", "https://a.example", "https://a.example client:ada", "https://b.example", "a%20b", "a b"]
)


@settings(max_examples=500)
@given(*2 * [st.tuples(st.sampled_from([user_id, client_id]), _NAMES, _ISSUERS)])
def test_no_two_users_or_clients_of_any_issuers_have_one_key(one: Any, other: Any) -> None:
    keys = {Principal(kind(name), issuer=issuer).key for kind, name, issuer in (one, other)}
    assert len(keys) == len({one, other})


async def test_an_algorithm_that_is_not_pinned_is_refused() -> None:
    verifier = JwtVerifier(FixedKeys(), ClaimRules(ISSUER, [RESOURCE]), ["RS256"])  # type: ignore[arg-type]
    assert (await verifier.verify(token("rsa"))).id == "ada"
    with pytest.raises(TokenError, match="not allowed"):
        await verifier.verify(token("ec"))


GOOD = {kid: token(kid) for kid in KEYS}


@pytest.mark.parametrize("kid", GOOD)
async def test_any_single_bit_changed_is_refused(kid: str) -> None:
    good = GOOD[kid].encode()
    for place in range(len(good)):
        for bit in range(8):
            changed = bytearray(good)
            changed[place] ^= 1 << bit
            with pytest.raises(TokenError):
                await VERIFIER.verify(changed.decode("latin-1"))


@given(st.text(max_size=200))
async def test_any_text_is_refused_without_another_error(text: str) -> None:
    with pytest.raises(TokenError):
        await VERIFIER.verify(text)


@given(st.sampled_from(sorted(GOOD)), st.data())
async def test_any_piece_replaced_is_refused(kid: str, data: st.DataObject) -> None:
    good = GOOD[kid]
    start = data.draw(st.integers(0, len(good) - 1))
    end = data.draw(st.integers(start, len(good)))
    piece = data.draw(st.text("ABCXYZabcxyz019-_.", max_size=8))
    changed = good[:start] + piece + good[end:]
    if changed != good:
        with pytest.raises(TokenError):
            await VERIFIER.verify(changed)


def test_every_algorithm_needs_a_public_key() -> None:
    assert not [name for name in ALGORITHMS if name.startswith("HS") or name.lower() == "none"]


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        public_jwk(rsa_key(0, 1024), kid="a"),
        public_jwk(rsa_key(), kid="a", use="enc"),
        public_jwk(rsa_key(), kid="a", key_ops=["encrypt"]),
        public_jwk(rsa_key(), kid="a", alg="RSA-OAEP"),
        public_jwk(rsa_key(), kid=5),
        public_jwk(ec_key(), kid="a", crv="P-384"),
        public_jwk(ec_key(), kid="a", x="AA"),
        {"kty": "RSA", "kid": "a"},
        {"kty": ["RSA"], "kid": "a"},
        "text",
        None,
    ],
)
def test_a_key_that_must_not_verify_tokens_is_ignored(jwk: Any) -> None:
    assert read_key_set({"keys": [jwk]}) == []


def test_a_private_key_in_a_key_set_is_used_as_a_public_one() -> None:
    private = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    private.pop("key_ops")
    found = read_key_set({"keys": [private]})
    assert found is not None
    assert not hasattr(found[0].loaded, "private_bytes")


def test_a_document_without_keys_is_no_key_set() -> None:
    assert read_key_set({}) is None
    assert read_key_set({"keys": {"kty": "RSA"}}) is None


def test_a_token_says_nothing_of_its_header_but_algorithm_and_key() -> None:
    read = read_token(token(header={"jku": "https://evil.example", "jwk": {}, "x5c": []}))
    assert (read.algorithm, read.key_id) == ("ES256", "ec")
