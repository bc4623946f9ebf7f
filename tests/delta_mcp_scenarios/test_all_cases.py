"""Every case of the original's 13 scenarios has a test that is named after it, or is listed here with the reason."""

import ast
import re
from collections import Counter

from tests.support.paths import ROOT

NUMBERS = {
    1: range(1, 6),
    2: range(1, 8),
    3: range(1, 9),
    4: range(1, 13),
    5: range(1, 15),
    6: range(1, 17),
    7: range(1, 9),
    8: range(1, 6),
    9: (0, 1, 2, 3, 4, 5, 8),
    10: range(1, 6),
    11: range(1, 16),
    12: range(1, 9),
    13: range(1, 5),
}
"""The numbers of the cases, by scenario."""
CASES = {f"CS-{scenario:02}-{case:02}" for scenario, cases in NUMBERS.items() for case in cases}

CONTRADICTORY = {
    "CS-06-02": "The original names the algorithms of tokens as resource_signing_alg_values_supported; by RFC 9728, 2, "
    "which MCP requires, those are the algorithms by which a resource signs its responses. This one signs none.",
    "CS-06-08": "It accepts a token whose signature nobody verified. Unsigned tokens are never accepted.",
    "CS-06-12": "It accepts a token without an expiry if asked to. Tokens that never expire are never accepted.",
}
"""The cases that contradict the specification of MCP, or a rule of this library."""

ADAPTED = {
    "CS-02-04": "The original times the second describe; the test counts its requests, of which there are none.",
    "CS-02-07": "The original compares hashes that it never sends; the test compares the digests of tools/manifest.",
    "CS-03-06": "The original calls search without its required query; here it is told so, as a result. list_dir runs.",
    "CS-03-07": "The original shows the text of any exception; here that of a ToolError, which is written for models.",
    "CS-06-05": "From here to CS-06-16 a challenge over HTTP gives the reason, and tokens are signed: one that nobody "
    "signed is refused for that, before its claims are looked at.",
    "CS-07-04": "The original times it; the test counts requests: one.",
    "CS-07-05": "The original times it; the test counts requests: one.",
    "CS-07-06": "The original times it; the test counts requests: none.",
    "CS-07-07": "The original times it; the test counts requests: one.",
    "CS-07-08": "The original's formula has only one value; the test looks for unused schemas in what was sent.",
    "CS-11-06": "The original's handler is any function; here the engine raises what it never should.",
}
"""The cases that check the same in another way."""

_FUNCTION = re.compile(r"test_cs_(\d\d)_(\d\d)_")
_PARAMETERS = re.compile(r"CS-(\d\d)-(\d\d)")


def find_tests() -> Counter[str]:
    """The cases that tests are named after, as functions or as sets of parameters."""
    found: Counter[str] = Counter()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        named = _FUNCTION.search(text) or _PARAMETERS.search(text)
        for node in ast.walk(ast.parse(text)) if named else ():
            match = None
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                match = _FUNCTION.match(node.name)
            elif isinstance(node, ast.keyword) and node.arg == "id" and isinstance(node.value, ast.Constant):
                match = _PARAMETERS.fullmatch(str(node.value.value))
            if match is not None:
                found[f"CS-{match[1]}-{match[2]}"] += 1
    return found


def test_there_are_114_cases() -> None:
    assert len(CASES) == 114


def test_every_case_is_tested_once_or_contradicts_a_rule() -> None:
    tested = find_tests()
    assert [case for case, count in tested.items() if count > 1] == []
    assert tested.keys().isdisjoint(CONTRADICTORY)
    assert tested.keys() | CONTRADICTORY.keys() == CASES


def test_what_is_said_of_a_test_is_said_of_one_that_exists() -> None:
    assert ADAPTED.keys() <= find_tests().keys()
