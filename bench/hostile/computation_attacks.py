"""Attacks by requests that are costly to perform: programs, patterns, paths, texts."""

import json

from bench import messages
from bench.hostile import payloads
from bench.hostile.attack import (
    RESULT_KEY,
    Answered,
    Attack,
    Prepared,
    attacker,
    make_calls,
    open_session,
    others_continue,
    send_together,
    stored,
    summarize,
)
from bench.hostile.attacked_server import MEGABYTE, AttackedServer, modern_headers
from bench.hostile.patterns import HOSTILE_PATTERNS, TEXT
from bench.hostile.payloads import MESSAGE_BYTES, sizes
from bench.hostile.servers.options import ServerOptions
from deltamcp.values import Era


def _grep(server: AttackedServer, handle: Prepared) -> Answered:
    bodies = [
        messages.call(Era.MODERN, "continue", {"handle": handle, "grep": payloads.words(count) + f"|v{place}"})
        for place, count in enumerate((10_000, 140, 140, 140))
    ]
    return Answered(summarize(send_together(server, bodies, modern_headers("tools/call", "continue"))))


def _patterns(server: AttackedServer, handle: Prepared) -> Answered:
    return make_calls(server, "continue", [{"handle": handle, "grep": pattern} for pattern in HOSTILE_PATTERNS])


def _store_text_for_patterns(server: AttackedServer) -> Prepared:
    return attacker(server).store("echo_in_parts", arguments={"text": TEXT})


_EXPRESSIONS = (
    "[?" + "&&".join(["@>=`0`"] * 200) + "]",
    "|".join(["sort(@)"] * 200),
    "map(&[" + ",".join(["@"] * 15) + "], @)",
    "[*].to_string(@)|join('',@)",
)
_ROW_EXPRESSIONS = ("|".join(["sort_by(@,&email)"] * 90), "[?" + "||".join(["contains(email,'zz')"] * 70) + "]")


def _jmespath(server: AttackedServer, handles: Prepared) -> Answered:
    numbers, rows = handles
    given = [{"handle": numbers, "fields": expression} for expression in _EXPRESSIONS]
    given += [{"handle": rows, "fields": expression} for expression in _ROW_EXPRESSIONS]
    return make_calls(server, "continue", given)


def _store_both(server: AttackedServer) -> Prepared:
    caller = attacker(server)
    return caller.store("list_numbers_in_parts"), caller.store("list_rows_in_parts")


_FIELD_PATHS = (
    ",".join(f"name.x{number}" for number in range(3_000)),
    ",".join(f"tags.x{number}" for number in range(3_000)),
    ",".join(f"x{number}" for number in range(3_000)),
    ".".join(["tags"] * 3_000),
    ",".join(["id", *(f"y{number}.z" for number in range(100_000))]),
)


def _field_paths(server: AttackedServer, handle: Prepared) -> Answered:
    return make_calls(server, "continue", [{"handle": handle, "fields": paths} for paths in _FIELD_PATHS])


def _long_paths(server: AttackedServer, handle: Prepared) -> Answered:
    """Long paths into a stored result; the search found them."""
    size = MESSAGE_BYTES - 1_000
    paths = [unit * (size // len(unit)) for unit in ("a.", "/0", "[?a]|", "~", "-")]
    replies = [make_calls(server, "continue", [{"handle": handle, "path": path}]) for path in paths]
    replies += [make_calls(server, "count", [{"items": [{"$result": handle, "path": path}]}]) for path in paths]
    return Answered("; ".join(dict.fromkeys(reply.text for reply in replies)))


def _meta_fields(server: AttackedServer, _: Prepared) -> Answered:
    """Expressions and paths in `_meta`, for tools without a policy."""
    caller, replies = attacker(server), []
    for tool, fields in [("list_numbers", one) for one in _EXPRESSIONS] + [
        ("list_rows", one) for one in (*_ROW_EXPRESSIONS, *_FIELD_PATHS)
    ]:
        body = payloads.call(tool, b"{}", {RESULT_KEY: {"fields": fields}})
        replies.append(caller.post(body, modern_headers("tools/call", tool)))
    return Answered(summarize(replies))


def _references(server: AttackedServer, handle: Prepared) -> Answered:
    return make_calls(
        server,
        "count",
        [
            {"items": [{"$result": handle, "path": f"/k{number:05}"} for number in range(3_000)]},
            {"items": [{"$result": handle, "path": "/k03199"}] * 3_000},
            {"items": [{"$result": handle, "path": f"/none{number}"} for number in range(3_000)]},
            {"items": [{"$result": handle}] * 3_000},
        ],
    )


def _edits(server: AttackedServer, handles: Prepared) -> Answered:
    text, numbers = handles
    swaps = [{"find": ("lorem", "l0rem")[n % 2], "replace": ("l0rem", "lorem")[n % 2], "all": True} for n in range(999)]
    front = [{"op": "add", "path": "/0", "value": 1}] * 999
    moves = [{"op": "move", "from": "/0", "path": "/400000"}] * 999
    caller = attacker(server)
    replies = [caller.call("shorten", {"text": {"$result": text, "patch": swaps}})]
    replies += [caller.call("count", {"items": {"$result": numbers, "patch": patch}}) for patch in (front, moves)]
    return Answered(summarize(replies))


def _store_text_and_numbers(server: AttackedServer) -> Prepared:
    caller = attacker(server)
    return caller.store("read_text_in_parts"), caller.store("list_numbers_in_parts")


def _template(server: AttackedServer, session: Prepared) -> Answered:
    caller, replies = attacker(server), []
    for count in (300, 1_000, 10_000, 100_000, 1_000_000):
        body = messages.request(Era.HANDSHAKE, "resources/read", {"uri": "y://" + "-" * count})
        replies.append(caller.post(body, modern_headers("resources/read", session=session)))
    return Answered(summarize(replies))


def _hard_tokens(server: AttackedServer, _: Prepared) -> Answered:
    """Texts that tokenisers find hard, echoed by a tool whose results are counted."""
    caller, replies = attacker(server), []
    for filler in ("a", " ", "\t", "aB", "\u0301", "👩‍👩‍👧‍👦", "東", "0", "'s", "{[("):
        length = len(json.dumps(filler, ensure_ascii=False).encode()) - 2
        text = json.dumps({"text": filler * (3 * MEGABYTE // length)}, ensure_ascii=False)
        replies.append(caller.post(payloads.call("echo_in_parts", text.encode()), _ECHO_HEADERS))
    return Answered(summarize(replies), stored_mb=3.0 * len(replies))


_ECHO_HEADERS = modern_headers("tools/call", "echo_in_parts")


def _unknown_names(server: AttackedServer, session: Prepared) -> Answered:
    """Long names, for which servers look for similar ones."""
    caller, replies = attacker(server), []
    for size in sizes():
        name = ("list_rows_in_parts " * (size // 19 + 1))[:size]
        for method, params in (
            ("tools/call", {"name": name}),
            ("tools/describe", {"names": name.split()[:10_000]}),
            ("prompts/get", {"name": name}),
            ("resources/read", {"uri": name}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": name}},
            ),
        ):
            body = messages.request(Era.HANDSHAKE, method, params)
            replies.append(caller.post(body, modern_headers(method, session=session)))
    return Answered(summarize(replies))


def _search_words(server: AttackedServer, _: Prepared) -> Answered:
    """Long queries and names to the meta-tools."""
    caller, replies = attacker(server), []
    for size in sizes():
        text = " ".join(f"list{number} user rows" for number in range(size // 20))
        for tool, arguments in (
            ("discover", {"query": text}),
            ("discover", {"query": [text[: size // 10]] * 10}),
            ("discover", {"category": text}),
            ("get_schema", {"operation": [text[: size // 10]] * 10}),
            ("execute", {"operation": text, "params": {}}),
            ("execute", {"operation": "echo", "params": text}),
        ):
            replies.append(caller.call(tool, arguments))
    return Answered(summarize(replies))


def _changes(server: AttackedServer, session: Prepared) -> Answered:
    """The same large result again and again, of which the server sends what changed, and rows that were sent before."""
    caller = attacker(server)
    replies = [caller.call("list_rows_as_changes", {}, session) for _ in range(5)]
    roots = ({"pack_root": root} for root in ("", "reset", "0" * 64, "f" * 100_000))
    replies += [caller.call("list_rows_as_changes", given, session) for given in roots]
    return Answered(summarize(replies))


def _delta_mcp_pages(server: AttackedServer, session: Prepared) -> Answered:
    """Pages of lists, by the arguments that clients of Delta-MCP send."""
    caller, replies = attacker(server), []
    for tool in ("list_numbers", "list_rows", "list_more_in_parts"):
        for page, size in ((1, 1), (10**9, 1), (1, 10**9), (2, 1_000), (400, 1_000), (-1, 0)):
            replies.append(caller.call(tool, {"page": page, "pageSize": size}, session))
    stored = sum(b'"handle"' in reply.body for reply in replies)
    return Answered(summarize(replies), stored_mb=4.0 * stored)


def _open_delta_mcp_session(server: AttackedServer) -> Prepared:
    params = {"protocolVersion": "delta-mcp/0.2.0", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = messages.request(Era.HANDSHAKE, "initialize", params)
    return attacker(server).post(body, messages.headers(None, "initialize")).session


def _result_resources(server: AttackedServer, handles: Prepared) -> Answered:
    """Stored results read as resources, whole and in part."""
    caller, replies = attacker(server), []
    text, numbers = handles
    for uri in (f"{text}", f"{numbers}", f"{numbers}/470000", f"{numbers}" + "/0" * 2_000, f"{numbers}/" + "9" * 4_000):
        replies += [caller.request("resources/read", {"uri": f"attacked://results/{uri}"}) for _ in range(3)]
    return Answered(summarize(replies))


COMPUTATION_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "grep",
        "`continue(grep=…)` with 140 and 10,000 words on 1 MB, four at once",
        _grep,
        stored("list_rows_in_parts"),
        others=others_continue,
    ),
    Attack(
        "patterns",
        "200 patterns that take matchers for ever, on 200 kB",
        _patterns,
        _store_text_for_patterns,
        others=others_continue,
    ),
    Attack("jmespath", "JMESPath of 1.6 kB on 960 kB", _jmespath, _store_both, others=others_continue),
    Attack("field-paths", "3,000 field paths on 960 kB", _field_paths, stored("list_rows_in_parts")),
    Attack("paths", "`continue(path=…)` and `$result` paths of 4 MB", _long_paths, stored("list_rows_in_parts")),
    Attack("meta-fields", "the two above in `_meta`, for tools without a policy", _meta_fields),
    Attack("references", "3,000 `$result` references into 2.9 MB", _references, stored("get_settings_in_parts")),
    Attack("edits", "1,000 edits of a stored text, and of a stored list", _edits, _store_text_and_numbers),
    Attack("changes", "a result of 1 MB as changes, nine times", _changes, open_session, others=others_continue),
    Attack(
        "pages", "pages of 1 MB and 4 MB lists, as Delta-MCP clients ask", _delta_mcp_pages, _open_delta_mcp_session
    ),
    Attack("resources", "stored results as resources", _result_resources, _store_text_and_numbers),
    Attack("template", "a resource template and up to 1,000,000 dashes", _template, open_session, for_peers=True),
    Attack("tokens", "3 MB that a tokenizer finds hard, counted", _hard_tokens),
    Attack("names", "4 MB names of tools, prompts, resources", _unknown_names, open_session, for_peers=True),
    Attack(
        "search", "4 MB queries to `discover` and `get_schema`", _search_words, options=ServerOptions(disclosure="meta")
    ),
)
