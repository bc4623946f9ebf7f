"""The example that maps a repository: what it sees, how it ranks, and how little of a pack an edit changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import examples.code_context.server as code_context
from deltamcp import ToolError
from deltamcp.gcf import apply_delta, decode, decode_delta, diff, encode, encode_delta, pack_root
from examples.code_context import work_tree
from examples.code_context.graph import Graph
from examples.code_context.server import pack
from examples.code_context.source import Scope, read
from examples.code_context.words import words
from examples.code_context.work_tree import WorkTree, module_name
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.raw_client import raw_client

SHOP = {
    "src/shop/__init__.py": "from .cart import Cart\n",
    "src/shop/base.py": '''
from typing import Protocol, Self


class Base:
    """What things of the shop have in common."""

    def log(self, text):
        return format_line(text)

    def total(self):
        raise NotImplementedError

    @classmethod
    def build(cls) -> Self:
        return cls()


class Clock(Protocol):
    def now(self) -> float: ...


def format_line(text):
    return text.strip()
''',
    "src/shop/prices.py": '''
"""Prices and discounts."""

RATE = 7
"""Percent of tax."""


def discount(amount: float, percent: float) -> float:
    """The amount less its discount."""
    return amount - amount * percent / 100


def taxed(amount):
    return amount * RATE


class Book:
    @property
    def title(self) -> str:
        return clean("x")

    def price(self):
        return taxed(1)


def clean(text):
    return text
''',
    "src/shop/cart.py": '''
import shop.prices as p

from . import prices
from .base import Base, Clock
from .prices import Book, discount as less


class Cart(Base):
    """A shopping cart."""

    def __init__(self, clock: Clock, owner=None):
        self.clock = clock
        self.book = Book()
        self.owner = owner

    def total(self):
        self.log("total")
        self.clock.now()
        self.book.price()
        return less(self._sum(), 5)

    def _sum(self):
        title = self.book.title
        return p.taxed(1) + prices.taxed(2)

    async def checkout(self, other: "Cart | None" = None):
        def inner():
            return less(1, 2)

        text = "hides nothing"
        other.total()
        super().total()
        return inner()


def make(clean) -> Cart:
    clean("the parameter, not the function")
    return Cart(None)
''',
    "src/shop/cli.py": """
import json
from shop import Cart
from shop.cart import make


async def main():
    cart = make(str)
    await cart.checkout()
    json.dumps({})
    Cart.build().total()
    for one in [cart]:
        one.unknowable()
""",
    "tests/test_cart.py": """
from shop.cart import Cart


def test_the_total_of_a_cart_has_its_discount():
    assert Cart(None).total()
""",
}


def git(where: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "-C", str(where), *arguments], check=True, capture_output=True, env=environment)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.email", "a@example.com")
    git(tmp_path, "config", "user.name", "A")
    for name, text in SHOP.items():
        write(tmp_path, name, text)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "A shop")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def edit(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))


def edges_from(graph: Graph, source: str, *kinds: str) -> set[str]:
    return {
        target for (start, target), kind in graph.edges.items() if start == source and kind in (kinds or ("calls",))
    }


def names(payload) -> list[str]:
    return [symbol.qualified_name for symbol in payload.symbols]


# What it sees


def test_symbols_have_importable_names_and_kinds(shop):
    symbols = WorkTree(shop).graph().symbols
    kinds = {name: scope.kind for name, scope in symbols.items() if name.startswith("shop.")}
    assert kinds["shop.cart"] == "file"
    assert kinds["shop.cart.Cart"] == "class"
    assert kinds["shop.cart.Cart.checkout"] == "method"
    assert kinds["shop.cart.make"] == "function"
    assert kinds["shop.base.Clock"] == "interface"
    assert kinds["shop.prices.RATE"] == "const"
    assert symbols["shop"].path == "src/shop/__init__.py"
    assert "shop.cart.Cart.checkout.inner" not in symbols


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("src/a/b.py", "a.b"),
        ("packages/x/src/a/__init__.py", "a"),
        ("tools/run.py", "tools.run"),
        ("src.py", "src"),
        ("__init__.py", "__init__"),
    ],
)
def test_a_module_is_named_as_importers_name_it(path, name):
    assert module_name(path) == name


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        # a relative import with an alias, own and inherited methods, attributes given a class or a parameter
        (
            "shop.cart.Cart.total",
            {
                "shop.base.Base.log",
                "shop.base.Clock.now",
                "shop.prices.Book.price",
                "shop.prices.discount",
                "shop.cart.Cart._sum",
            },
        ),
        # a property, a module's alias, a module from its package
        ("shop.cart.Cart._sum", {"shop.prices.Book.title", "shop.prices.taxed"}),
        # a quoted annotation, a function inside, super
        ("shop.cart.Cart.checkout", {"shop.cart.Cart.total", "shop.prices.discount", "shop.base.Base.total"}),
        # a class, and not the function whose name a parameter has
        ("shop.cart.make", {"shop.cart.Cart"}),
        # what a function is annotated to return, what a package imports for others, Self; nothing outside
        (
            "shop.cli.main",
            {"shop.cart.make", "shop.cart.Cart.checkout", "shop.base.Base.build", "shop.base.Base.total"},
        ),
        # a function of the same module, defined further down
        ("shop.base.Base.log", {"shop.base.format_line"}),
    ],
)
def test_calls_are_resolved(shop, source, targets):
    assert edges_from(WorkTree(shop).graph(), source) == targets


def test_classes_inherit_modules_import_and_constants_are_used(shop):
    graph = WorkTree(shop).graph()
    assert edges_from(graph, "shop.cart.Cart", "inherits") == {"shop.base.Base"}
    assert edges_from(graph, "shop.cart.Cart.total", "overrides") == {"shop.base.Base.total"}
    assert edges_from(graph, "shop.cart", "imports") == {"shop.prices", "shop.base"}
    assert edges_from(graph, "shop.prices.taxed", "uses") == {"shop.prices.RATE"}


@pytest.mark.parametrize(
    "text",
    [
        "class A(B): pass\nclass B(A):\n    def f(self): self.g(); super().g()\n",
        "a = b\nb = a\na.f()\n",
        "from loop import *\nfrom loop import x as y\ny()\nx()\n",
        "def f(x):\n    x = x.y\n    return x.z()\n",
        "class A:\n    def __call__(self) -> 'A': ...\nA()()()()()()()()()()()().x\n",
        "A = A\nB = A.c\nA()\nA.b()\n",
        "from .... import x\nfrom ....y import z\nz(); x()\n",
        "def f(x: 'not an annotation(', y: '\\x00'): ...\n",
        "lambda: (yield)\nprint(*[i for i in range(3)], **{})\nmatch x:\n    case A(b=c): c.d()\n",
        "",
    ],
)
def test_code_that_leads_nowhere_does_no_harm(shop, text):
    write(shop, "loop.py", text)
    assert "loop" in WorkTree(shop).graph().symbols


def test_two_modules_of_one_name_are_kept_apart(shop):
    write(shop, "other/src/shop/prices.py", "def other(): ...\n")
    symbols = WorkTree(shop).graph().symbols
    assert "shop.prices.other" in symbols and "src.shop.prices.discount" in symbols


def test_a_source_root_nobody_told_us_of_is_found_by_what_is_imported(shop):
    write(shop, "back/app/models.py", "def load(): ...\n")
    write(shop, "back/app/json/decoder.py", "")
    write(shop, "back/app/views.py", "import json.decoder\nfrom app.models import load\ndef view(): load()\n")
    graph = WorkTree(shop).graph()
    assert edges_from(graph, "back.app.views.view") == {"back.app.models.load"}
    assert edges_from(graph, "back.app.views", "imports") == {"back.app.models"}


def test_words_of_names_and_prose_have_one_form():
    assert words("HTTPServer") == words("http_server") == words("HTTP servers")
    assert words("frame") == words("framing") == words("Frames")
    assert words("string") != words("str")


# How it ranks


@pytest.mark.parametrize(
    ("task", "best"),
    [
        ("change how the discount is computed", "shop.prices.discount"),
        ("fix the checkout of a cart", "shop.cart.Cart.checkout"),
        ("what does the cli do", "shop.cli"),
        ("the test of the cart total", "test_cart.test_the_total_of_a_cart_has_its_discount"),
    ],
)
def test_what_a_task_names_comes_first(shop, task, best):
    assert names(pack(WorkTree(shop).graph(), task))[0].endswith(best)


def test_matches_are_targets_and_what_calls_them_is_related(shop):
    found = {symbol.qualified_name: symbol for symbol in pack(WorkTree(shop).graph(), "discount").symbols}
    best, caller = found["shop.prices.discount"], found["shop.cart.Cart.total"]
    assert (best.score, best.provenance, best.distance) == (1.0, "match", 0)
    assert (caller.provenance, caller.distance) == ("rwr", 1) and 0 < caller.score < 1
    assert max(symbol.distance for symbol in found.values()) <= 2
    assert all((symbol.provenance == "match") == (symbol.distance == 0) for symbol in found.values())


def test_edges_are_among_the_symbols_and_containment_is_left_to_the_names(shop):
    payload = pack(WorkTree(shop).graph(), "discount of a cart", limit=6)
    assert len(payload.symbols) == 6 and payload.edges
    ends = {end for edge in payload.edges for end in (edge.source, edge.target)}
    assert ends <= set(names(payload))
    assert "contains" not in {edge.edge_type for edge in payload.edges}


def test_a_path_narrows_it(shop):
    payload = pack(WorkTree(shop).graph(), "discount cart", path="./src/shop/prices.py")
    assert payload.symbols and all(name.startswith("shop.prices") for name in names(payload))


def test_words_that_nothing_has_are_told(shop):
    with pytest.raises(ToolError, match="words"):
        pack(WorkTree(shop).graph(), "xylophone")


def test_the_same_files_and_task_give_the_same_text_in_any_process(shop):
    program = (
        "import sys; from deltamcp.gcf import encode; from examples.code_context.server import WorkTree, pack; "
        "sys.stdout.write(encode(pack(WorkTree(sys.argv[1]).graph(), sys.argv[2])))"
    )
    task = "discount of a cart"
    texts = {encode(pack(WorkTree(shop).graph(), task))}
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(shop), task],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        )
        texts.add(done.stdout)
    assert len(texts) == 1


# What an edit changes


TASK = "total of a cart with its discount"


def test_nothing_touched_is_the_same_pack(shop):
    repository = WorkTree(shop)
    first = pack(repository.graph(), TASK)
    assert repository.graph() is repository.graph()
    again = pack(repository.graph(), TASK)
    assert pack_root(again.symbols, again.edges) == pack_root(first.symbols, first.edges)


def test_an_edit_that_changes_no_name_or_call_is_the_same_pack(shop):
    repository = WorkTree(shop)
    first = pack(repository.graph(), TASK)
    edit(shop, "src/shop/prices.py", "percent / 100", "percent / 1000  # sic")
    again = pack(repository.graph(), TASK)
    assert pack_root(again.symbols, again.edges) == pack_root(first.symbols, first.edges)


def test_only_what_changed_is_read_again(shop, monkeypatch):
    reads: list[str] = []

    def noted(source: bytes, path: str, name: str) -> Scope:
        reads.append(path)
        return read(source, path, name)

    monkeypatch.setattr(work_tree, "read", noted)
    repository = WorkTree(shop)
    repository.graph()
    assert sorted(reads) == sorted(SHOP)
    reads.clear()
    stamp = (shop / "src/shop/prices.py").stat().st_mtime_ns
    edit(shop, "src/shop/prices.py", "taxed", "taxes")
    os.utime(shop / "src/shop/prices.py", ns=(stamp, stamp))  # within one tick of the clock, and of the same length
    graph = repository.graph()
    assert reads == ["src/shop/prices.py"] and "shop.prices.taxes" in graph.symbols
    os.utime(shop / "src/shop/prices.py")
    assert repository.graph() is graph and reads == ["src/shop/prices.py"]


def test_a_renamed_function_is_one_removed_and_one_added(shop):
    repository = WorkTree(shop)
    first = pack(repository.graph(), TASK)
    edit(shop, "src/shop/base.py", "format_line", "printable")
    delta = diff(first, pack(repository.graph(), TASK))
    assert [symbol.qualified_name for symbol in delta.removed] == ["shop.base.format_line"]
    assert [symbol.qualified_name for symbol in delta.added] == ["shop.base.printable"]
    assert {edge.target for edge in delta.removed_edges} == {"shop.base.format_line"}
    assert {edge.target for edge in delta.added_edges} == {"shop.base.printable"}


def test_a_new_call_is_a_new_edge_and_little_else(shop):
    repository = WorkTree(shop)
    first = pack(repository.graph(), TASK)
    edit(shop, "src/shop/prices.py", "return amount - amount", "return taxed(amount) - amount")
    delta = diff(first, pack(repository.graph(), TASK))
    assert [(edge.source, edge.target) for edge in delta.added_edges] == [("shop.prices.discount", "shop.prices.taxed")]
    assert not delta.removed_edges
    assert len(delta.added) <= len(first.symbols) // 4


def test_a_file_that_does_not_parse_counts_as_it_last_did(shop):
    repository = WorkTree(shop)
    first = pack(repository.graph(), TASK)
    good = (shop / "src/shop/cart.py").read_text()
    for broken in (b"def (:\n", b"x = '\x00'", b"\xff\xfe", b"(" * 5000):
        (shop / "src/shop/cart.py").write_bytes(broken)
        assert pack(repository.graph(), TASK) == first
    assert "shop.cart.Cart" not in WorkTree(shop).graph().symbols
    write(shop, "src/shop/cart.py", good + "\n\ndef empty_cart_total(): ...\n")
    assert "shop.cart.empty_cart_total" in names(pack(repository.graph(), TASK))


def test_untracked_files_count_ignored_and_deleted_ones_and_links_do_not(shop):
    repository = WorkTree(shop)
    repository.graph()
    write(shop, ".gitignore", "hidden/\n")
    write(shop, "hidden/secret.py", "def discount_secret(): ...\n")
    write(shop, "src/shop/coupons.py", "def discount_coupon(): ...\n")
    (shop / "src/shop/linked.py").symlink_to(shop / "hidden/secret.py")
    (shop / "src/shop/cli.py").unlink()
    found = repository.graph().symbols
    assert "shop.coupons.discount_coupon" in found
    assert not {"hidden.secret", "shop.linked", "shop.cli", "shop.cli.main"} & set(found)
    (shop / "src/shop/coupons.py").unlink()
    assert "shop.coupons" not in repository.graph().symbols


def test_names_that_gcf_cannot_write_are_encoded(shop):
    write(shop, "my tools/prüfung.py", "def größe(discount): ...\n")
    payload = pack(WorkTree(shop).graph(), "discount", path="my tools")
    assert "my%20tools.pr%C3%BCfung.gr%C3%B6%C3%9Fe" in names(payload)
    encode(payload)


def test_deltas_over_many_edits_lead_to_the_pack_itself(shop):
    repository = WorkTree(shop)
    held = pack(repository.graph(), TASK)
    assert decode(encode(held)).symbols
    cart = "src/shop/cart.py"
    edits = [
        lambda: edit(shop, cart, "def _sum", "def _subtotal"),
        lambda: edit(shop, cart, "self._sum", "self._subtotal"),
        lambda: write(shop, "src/shop/gift.py", "from .cart import Cart\ndef gift_total(c: Cart): return c.total()\n"),
        lambda: edit(shop, "src/shop/gift.py", "c.total()", "c.checkout()"),
        lambda: edit(shop, cart, "(Base)", ""),
        lambda: (shop / "src/shop/gift.py").unlink(),
        lambda: edit(shop, "src/shop/prices.py", "def discount", "async def discount"),
        lambda: edit(shop, cart, "class Cart:", "class Cart(Base):"),
    ]
    roots = set()
    for change in edits:
        change()
        now = pack(repository.graph(), TASK)
        delta = decode_delta(encode_delta(diff(held, now)))
        held = apply_delta(held, delta)
        assert pack_root(held.symbols, held.edges) == pack_root(now.symbols, now.edges)
        roots.add(pack_root(now.symbols, now.edges))
    assert len(roots) >= 6


# This repository, and the server


@pytest.fixture(scope="module")
def here() -> Graph:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git work tree")
    return WorkTree(ROOT).graph()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("budget of a result page", "deltamcp.results.policy.ResultPolicy"),
        ("how does stdio framing work", "deltamcp.transports.stdio.server"),
        ("add a new store", "deltamcp.stores.store.Store"),
        ("validate tool arguments", "deltamcp.client.lists.Definition.check_arguments"),
        ("count the tokens of a text", "deltamcp.tokens.count"),
    ],
)
def test_this_repository_is_mapped_as_its_developers_would(here, task, expected):
    assert expected in names(pack(here, task))[:20]


@pytest.mark.deep
def test_calls_of_this_repository_are_resolved(here):
    assert "deltamcp.stores.store.open_store" in edges_from(here, "deltamcp.server.DeltaServer._open_store")
    assert "deltamcp.stores.store.Store.get" in {
        target for source, target in here.edges if source.startswith("deltamcp.delivery.stored_results.")
    }


def test_outside_of_a_repository_git_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ToolError, match=r"git: .*repository"):
        WorkTree(tmp_path).graph()


async def test_the_server_has_the_map_and_the_source(shop, monkeypatch):
    monkeypatch.setattr(code_context, "repository", WorkTree(shop))
    assert names(code_context.context_for_task("discount"))[0] == "shop.prices.discount"
    async with raw_client(code_context.server) as client:
        await client.handshake()
        listed = (await client.call("tools/list"))["result"]["tools"]
        assert {"context_for_task", "source_of"} <= {tool["name"] for tool in listed}
        said = await client.call("tools/call", name="source_of", arguments={"name": "shop.prices.taxed"})
        assert said["result"]["content"][0]["text"].startswith("src/shop/prices.py:13\ndef taxed(amount):\n    return")
        said = await client.call("tools/call", name="source_of", arguments={"name": "shop.prices.nothing"})
        assert said["result"]["isError"] is True


def test_it_runs_by_its_path(shop):
    hello = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/code_context/server.py"), str(shop)],
        input=hello,
        cwd=shop,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0 and '"id":1' in done.stdout
