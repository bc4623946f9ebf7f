"""Attacks on who may call: guesses at handles and tokens, and the pages at which users log in."""

import contextlib
import hashlib
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import messages
from bench.hostile.attack import Answered, Attack, Prepared, RequestParts, Surroundings
from bench.hostile.attacked_server import AttackedServer, HttpCaller, discover_request
from bench.hostile.flood import Flood, write_request
from bench.hostile.gateway_attacks import START_SECONDS
from bench.hostile.login_server import run_login_server
from bench.hostile.other_caller import NUMBER
from bench.hostile.servers.options import GatewayOptions, ServerOptions
from bench.machine import CLIENT_CORE, run_on_core
from bench.ports import find_free_port, wait_for_port
from deltamcp.values import Era

_ENDPOINT = Path(__file__).with_name("introspection_endpoint.py")
_RESULT_SECONDS = 1800.0
"""The longest life of a stored result, by default."""
_CHANCE = 1e-6
"""The chance of a guess in this time that is accepted."""
_HANDLES = 150
"""How many handles are looked at, to see of what they are made."""
_GUESS_SECONDS = 4.0
_BAD_TOKENS = 5_000
_COOKIE_BYTES = 30_000


def _token(name: str) -> str:
    return f"dmcp_{hashlib.sha256(name.encode()).hexdigest()}"


def _token_lines(*lines: tuple[str, str, str]) -> str:
    """The lines of a file of tokens: of each the token's own name, the principal, and its scopes."""
    return ";".join(
        f"{principal} sha256:{hashlib.sha256(_token(name).encode()).hexdigest()} {scopes}"
        for name, principal, scopes in lines
    )


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


TOKENS = _token_lines(("reader", "ann", "payroll"), ("guesser", "ann", ""), ("other", "bob", ""))


def bob_discovers(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    """A caller with a token of its own."""
    return {"server/discover": _others_authenticated(_token("other"))}


# Handles


def _store_results(server: AttackedServer) -> Prepared:
    """The handles of results that a token has stored."""
    owner = HttpCaller(server.port, token=_token("reader"))
    given = {"text": " ".join(map(str, range(4_000)))}
    return [owner.store("echo_in_parts", arguments=given) for _ in range(_HANDLES)]


def letters_of(handles: list[str]) -> list[list[str]]:
    """The characters that handles have at each place, as far as these ones show."""
    return [sorted({one[place] for one in handles if place < len(one)}) for place in range(max(map(len, handles)))]


def judge_guesses(letters: list[list[str]], rate: float) -> Answered:
    """Whether a handle of these characters can be guessed while its result lives, by so many guesses a second."""
    values = math.prod(map(len, letters))
    chance = rate * _RESULT_SECONDS / values
    text = f"{values:,.3g} handles, {rate:,.0f} guesses a second: a chance of {min(chance, 1):.1g} in half an hour"
    return Answered(text, text if chance > _CHANCE else "")


def _guess_handles(server: AttackedServer, handles: Prepared) -> Answered:
    """Guesses at the handles of results that another token of the same principal has stored."""
    letters, chance = letters_of(handles), random.Random(1)
    headers = messages.headers(Era.MODERN, "tools/call", "continue") | _bearer(_token("guesser"))

    def guess(_: int) -> bytes:
        handle = "".join(chance.choice(choice) for choice in letters)
        return write_request("POST", "/mcp", messages.call(Era.MODERN, "continue", {"handle": handle}), headers)

    found = Flood(server.port, guess, 16).run(_GUESS_SECONDS)
    return judge_guesses(letters, found.statuses["200"] / found.seconds)


def _others_authenticated(token: str) -> RequestParts:
    body, headers = discover_request()
    return body, headers | _bearer(token)


# Introspection


@contextlib.contextmanager
def _run_introspection() -> Iterator[Surroundings]:
    port = find_free_port()
    with run_on_core(CLIENT_CORE):
        process = subprocess.Popen([sys.executable, "-EP", str(_ENDPOINT), str(port)])
    try:
        wait_for_port(port, process)
        yield Surroundings({"introspection": f"http://127.0.0.1:{port}/introspect"}, None)
    finally:
        process.kill()
        process.wait()


def _send_bad_tokens(server: AttackedServer, _: Prepared) -> Answered:
    body, headers = discover_request()
    found = Flood(
        server.port, lambda number: write_request("POST", "/mcp", body, headers | _bearer(f"bad-{number:08}")), 500
    ).run(10, _BAD_TOKENS)
    return Answered(found.text)


def _others_with_tokens(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    """A caller with one token that is known, and one with a new token for each request."""
    return {
        "the same token": _others_authenticated("good"),
        "a new token": _others_authenticated(f"good-{NUMBER}"),
    }


# Pages of logins


@contextlib.contextmanager
def _run_behind_logins() -> Iterator[Surroundings]:
    with run_login_server() as url, tempfile.TemporaryDirectory() as folder:
        yield Surroundings(
            {
                "upstreams": [("books", {"url": url, "auth": "oauth"})],
                "folder": folder,
                "public_url": "http://127.0.0.1:1",
                "tokens": TOKENS,
            },
            None,
        )


def _start_login(server: AttackedServer) -> Prepared:
    """The path of the page at which a login of the attacker's own starts."""
    caller = HttpCaller(server.port, token=_token("reader"))
    reply = caller.call("execute", {"operation": "gateway.log_in_books", "params": {}})
    found = re.search(rb"/upstream-login\?id=[\w-]+", reply.body)
    if found is None:
        raise RuntimeError(f"there is no login: {reply.sentence}")
    time.sleep(START_SECONDS)
    return found.group().decode()


def _send_cookies(server: AttackedServer, path: Prepared) -> Answered:
    caller = HttpCaller(server.port)
    statuses = []
    for unit in ("\\\\", '\\"', "\\1", "a=b; ", "=", " ", '"', ";", "a", 'a="b', "$a="):
        cookie = 'a="' + unit * (_COOKIE_BYTES // len(unit)) + '"'
        for verb in ("GET", "POST"):
            statuses.append(caller.ask(verb, path, b"", {"Cookie": cookie}).status)
    return Answered(f"{len(statuses)} requests: {', '.join(map(str, dict.fromkeys(statuses)))}")


CREDENTIAL_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "handles",
        "guesses at the handle of a stored result",
        _guess_handles,
        _store_results,
        others=bob_discovers,
        options=ServerOptions(tokens=TOKENS),
        more_seconds=10,
    ),
    Attack(
        "bad-tokens",
        f"{_BAD_TOKENS:,} bad tokens, which an authorization server is asked about",
        _send_bad_tokens,
        others=_others_with_tokens,
        surroundings=_run_introspection,
    ),
    Attack(
        "cookies",
        "cookies of 30 kB at the page of a login",
        _send_cookies,
        _start_login,
        others=bob_discovers,
        options=GatewayOptions(),
        surroundings=_run_behind_logins,
        more_seconds=20,
    ),
)
