"""The retrieval benchmark on a corpus small enough to grade by hand, and the search over all tools of the real one."""

import json

import pytest

from bench.benchmarks import retrieval as beside
from bench.corpora import retrieval
from bench.corpora.tool_corpus import read
from bench.options import BenchOptions
from bench.peers import NO_PEERS, InstalledPeers
from deltamcp.catalog.search.index import SearchIndex

FIRST_TOOL_FOR_EVERY_QUERY = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    ranking = [asked["tools"][0]["id"]]
    count = len(asked["queries"])
    print(json.dumps({"set": asked["set"], "rankings": [ranking] * count, "seconds": [2.0] * count}))
"""


@pytest.fixture
def data(tmp_path):
    def write(path, *rows):
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(map(json.dumps, rows)) + "\n")

    write("mcp_tools/mail.json", {"server": "mail", "tools": [{"name": "send", "description": "Send mail."}]})
    write("mcp_tools/notes.json", {"server": "notes", "tools": [{"name": "write"}, {"name": "read"}]})
    write("mcp_tools/broken.json", ["no server"])
    write("retrieval/real/queries.jsonl", {"qid": "1", "query": "send mail", "gold": [["mail/send"]]})
    write(
        "retrieval/made/pool.jsonl",
        {"id": "a", "server": "math", "name": "add", "description": "Sum of numbers.", "inputSchema": {}},
        {"id": "b", "server": "", "name": "divide", "description": "Quotient of numbers."},
    )
    write(
        "retrieval/made/hard.jsonl",
        {"qid": "1", "query": "quotient", "gold": [["b", "c"]]},
        {"qid": "2", "query": "divide", "gold": [["a"], ["b"]]},
    )
    write("retrieval/made/notes.jsonl", {"something": "else"})
    return tmp_path


@pytest.fixture
def fewer(monkeypatch):
    """Makes the large catalog small, so that it is built fast."""
    monkeypatch.setattr(retrieval, "LARGE", 12)


def test_a_catalog_may_have_names_in_any_script(data, fewer):
    """Catalogs of published servers have such names."""
    tool = {"name": "convertir_número", "description": "Escribe un número con letras.", "inputSchema": {}}
    row = {"id": "Números a Letras/convertir_número", "server": "Números a Letras", **tool}
    (data / "retrieval/made/pool.jsonl").write_text(json.dumps(row) + "\n")
    (data / "mcp_tools/números.json").write_text(json.dumps({"server": "Погода", "tools": [tool]}))
    query = {"qid": "1", "query": "número con letras", "gold": [[row["id"]]]}
    (data / "retrieval/made/hard.jsonl").write_text(json.dumps(query) + "\n")
    sets = retrieval.run(data)["summary"]["sets"]
    assert sets["made/hard"]["recall_at_1"] == sets["made/hard"]["shown_recall"] == 100


def test_sets_are_named_by_folder_and_file(data):
    corpus = read(data)
    assert [each.name for each in corpus.sets] == ["made/hard", "real"]
    assert [entry.id for entry in corpus.pools["made"]] == ["a", "b"]
    assert corpus.pools["real"] == corpus.servers
    assert {entry.id for entry in corpus.servers} == {"mail/send", "notes/write", "notes/read"}


def test_recall_counts_groups(data, fewer):
    report = retrieval.run(data)
    made = report["summary"]["sets"]["made/hard"]
    ranking = {"recall_at_1": 75, "recall_at_5": 75, "recall_at_10": 75, "mrr": 1, "queries": 2, "tools": 2}
    assert made == ranking | {"shown_recall": 75, "good_recall": 75, "reply_lines": 1, "reply_tokens": 8}
    assert report["summary"]["macro_recall_at_5"] == 87.5
    assert report["summary"]["macro_mrr"] == 1


def test_what_is_left_out_of_a_reply_is_not_counted_as_shown(data, fewer, monkeypatch):
    monkeypatch.setattr("deltamcp.catalog.search.index._WEAK_SHARE", 2.0)
    every_hit_is_weak = retrieval.run(data)["summary"]
    assert every_hit_is_weak["macro_good_recall"] == 0
    assert every_hit_is_weak["macro_shown_recall"] == every_hit_is_weak["macro_recall_at_5"] == 87.5
    monkeypatch.setattr("deltamcp.catalog.search.index._SCORE_SHARE", 2.0)
    no_hit_is_relevant = retrieval.run(data)["summary"]
    assert no_hit_is_relevant["macro_shown_recall"] == 0
    assert no_hit_is_relevant["macro_recall_at_5"] == 87.5


def test_every_number_has_its_provenance_and_goes_into_json(data, fewer):
    report = retrieval.run(data)
    assert report["provenance"].keys() == report["summary"].keys()
    assert json.loads(json.dumps(report)) == report


def test_an_empty_directory_gives_an_empty_report(tmp_path):
    summary = retrieval.run(tmp_path)["summary"]
    assert summary["sets"] == {}
    assert summary["macro_recall_at_5"] == 0


def options(peers: InstalledPeers) -> BenchOptions:
    return BenchOptions(rounds=1, seconds=0.1, peers=peers, full=False)


def test_a_peer_that_is_left_out_is_named_in_the_table(data, fewer, monkeypatch):
    monkeypatch.setattr(beside, "CORPUS", data)
    report = beside.measure(options(InstalledPeers([], {}, ["fastmcp is left out: for a reason"])))
    assert "(fastmcp is left out: for a reason)" in str(report)
    assert [name for name, _ in report.tables[1].rows] == ["ours"]


def test_a_peer_that_fails_ends_the_benchmark(data, fewer, monkeypatch, tmp_path):
    script = tmp_path / "peer.py"
    script.write_text("import no_such_module_anywhere")
    monkeypatch.setattr(beside, "PEER", script)
    with pytest.raises(RuntimeError, match="no_such_module_anywhere"):
        beside.run_fastmcp(read(data))


def test_a_peer_is_graded_on_the_same_data(data, fewer, monkeypatch, tmp_path):
    script = tmp_path / "peer.py"
    script.write_text(FIRST_TOOL_FOR_EVERY_QUERY)
    monkeypatch.setattr(beside, "PEER", script)
    found = beside.run_fastmcp(read(data))
    assert found["sets"].keys() == retrieval.run(data)["summary"]["sets"].keys()
    assert found["sets"]["made/hard"]["recall_at_10"] == 25
    assert found["p50_ms"] == 2000


def test_without_a_corpus_the_benchmark_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "CORPUS", tmp_path)
    assert "nothing was measured" in str(beside.measure(options(NO_PEERS)))


def test_fastmcp_finds_the_same_tools(data, fewer):
    pytest.importorskip("fastmcp")
    assert beside.run_fastmcp(read(data))["macro_recall_at_5"] == 87.5


def test_every_published_tool_is_found_by_its_name_and_first_words(shared):
    servers = read(shared / "corpus").servers
    if not servers:
        pytest.skip("there is no corpus")
    index = SearchIndex()
    for entry in servers:
        index.put(entry.id, entry.tool, entry.group)
    assert len(index) == len(servers)
    lost = []
    for entry in servers:
        query = " ".join([entry.tool["name"], *entry.tool.get("description", "").split()[:8]])
        if entry.id not in [hit.id for hit in index.search(query, 10)]:
            lost.append(entry.id)
    assert lost == []
