"""The page this implementation grew from: its example runs as printed, and its bytes are the v1 dialect."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamcp.gcf import (
    Unchanged,
    decode_delta,
    decode_unchanged,
    encode_delta,
    encode_unchanged,
    kind_of,
    root_matches,
    short_root,
)

PAGE = "seeds/001_7eee80b5ec590b97.txt"

V1 = """\
GCF tool=context_for_task delta=true base_root=a1b2c3 new_root=d4e5f6 tokens=30 savings=85%
## removed
fn pkg.OldFunc
## added
@0 fn pkg.NewFunc 0.85 rwr
## edges_removed
pkg.Router -> pkg.OldFunc calls
## edges_added
pkg.Router -> pkg.NewFunc calls
"""
V3 = V1.replace("GCF tool", "GCF profile=graph tool").replace("0.85 rwr", "0.85 rwr 0")

FORMAT = """\
GCF tool=context_for_task delta=true base_root=a1b2c3 new_root=d4e5f6 tokens=30 savings=81%
## removed
fn github.com/org/repo/pkg.OldHandler
method github.com/org/repo/pkg.Server.Deprecated
## added
@0 fn github.com/org/repo/pkg.NewHandler 0.85 rwr
@1 fn github.com/org/repo/pkg.UpdatedAuth 0.79 lsp_resolved
## edges_removed
github.com/org/repo/pkg.Router -> github.com/org/repo/pkg.OldHandler calls
## edges_added
github.com/org/repo/pkg.Router -> github.com/org/repo/pkg.NewHandler calls
"""


@pytest.fixture
def page(shared: Path) -> str:
    if not (place := shared / PAGE).is_file():
        pytest.skip(f"there is no {place}")
    return place.read_text()


@pytest.fixture
def example(page: str) -> str:
    code = page.partition("\npython\n")[2].partition("\ntypescript\n")[0]
    assert code.startswith("from gcf import encode_delta, DeltaPayload, Symbol, Edge\n")
    return code.replace("from gcf import", "from deltamcp.gcf import")


def test_the_example_runs_as_printed(example: str, capsys: pytest.CaptureFixture[str]):
    exec(example, {})
    assert capsys.readouterr().out == V3 + "\n"


def test_the_examples_bytes_are_the_v1_dialect(example: str, page: str):
    names: dict[str, Any] = {}
    exec(example, names)
    output = page.partition("\nOutput:\n\n")[2].partition("\n\npack_root")[0] + "\n"
    assert output == V1
    assert encode_delta(names["delta"], dialect="v1") == output
    assert encode_delta(names["delta"]) == V3


def test_the_page_shows_these_texts(page: str):
    assert V1 in page
    assert FORMAT in page


@pytest.mark.parametrize(("text", "full_tokens"), [(V1, 200), (FORMAT, 160)])
def test_the_pages_deltas_are_read_and_written_again(text: str, full_tokens: int):
    assert kind_of(text) == "graph-delta"
    delta = replace(decode_delta(text), full_tokens=full_tokens)
    assert encode_delta(delta, dialect="v1") == text
    assert decode_delta(encode_delta(delta)) == decode_delta(text)


def test_the_pages_word_for_unchanged():
    text = encode_unchanged(Unchanged("a1b2c3d4", 12), dialect="v1")
    assert text == "unchanged pack_root=a1b2c3d4 symbols=12\n"
    assert kind_of(text) == "graph-unchanged"
    assert decode_unchanged(text) == decode_unchanged(text.rstrip()) == Unchanged("a1b2c3d4", 12)


def test_an_echoed_root_may_be_as_short_as_the_pages():
    root = "sha256:a1b2c3d4" + 56 * "0"
    assert root_matches(root, "a1b2c3d4")
    assert root_matches(root, "sha256:a1b2c3d40")
    assert root_matches(root, root)
    assert not root_matches(root, "a1b2c3")
    assert not root_matches(root, "a1b2c3d5")
    assert not root_matches(root, "md5:a1b2c3d4")
    assert root_matches(root, short_root(root))
    with pytest.raises(ValueError, match="at least 8"):
        short_root(root, 7)
