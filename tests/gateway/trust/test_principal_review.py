"""Lists of principals with logins of their own: trusted when first seen; later changes wait; approvals hold for all."""

from typing import Any

import pytest

from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.quarantine import PrincipalReviews, decide
from deltamcp.gateway.trust.review import ApprovalRecord, Verdict, approve, reject
from deltamcp.limits import Limits
from deltamcp.runtime.seal import Seal
from deltamcp.stores.store import open_store
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.values import Principal

ALICE, BOB = Principal("alice"), Principal("bob")
PLACE = "/tools/find"


def config(**options: Any) -> UpstreamConfig:
    entry = {"url": "https://notes.example/mcp"}
    return UpstreamConfig(name="notes", entry=entry, auth="oauth", **{"on_new": "announce", **options})


def listed(text: str = "Finds.", *names: str) -> UpstreamListing:
    tools = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name in names or ("find",)]
    return UpstreamListing({}, "2026-07-28", tools)


def record(**members: Any) -> ApprovalRecord:
    return ApprovalRecord("notes", **{"approved": {}, **members})


def pinned(listing: UpstreamListing) -> dict[str, str]:
    return decide(config(), listing, None, [], []).digests


def test_the_first_list_is_trusted_and_a_later_change_is_kept_out():
    first = decide(config(), listed(), None, [], [])
    assert not first.withheld
    assert not decide(config(), listed(), first.digests, [], []).withheld
    changed = decide(config(), listed("Obeys."), first.digests, [], [])
    assert changed.withheld == {PLACE: Verdict.CHANGED}
    assert changed.digests == first.digests, "what was trusted stays so"
    assert not decide(config(on_changed="accept"), listed("Obeys."), first.digests, [], []).withheld


def test_something_new_in_a_later_list_is_told_or_kept_out_as_the_operator_wants():
    first, grown = pinned(listed()), listed("Finds.", "find", "more")
    assert not decide(config(), grown, first, [], []).withheld
    kept = decide(config(on_new="quarantine"), grown, first, [], [])
    assert kept.withheld == {"/tools/more": Verdict.NEW}


@pytest.mark.parametrize("digests", [None, pinned(listed())])
def test_what_is_approved_anywhere_holds_for_the_same_definition(digests):
    changed = listed("Obeys.")
    approved = record(approved={PLACE: changed.tools[0]})
    found = decide(config(), changed, digests, [], [approved])
    assert not found.withheld
    assert not decide(config(), changed, found.digests, [], []).withheld, "it is the principal's from then on"


def test_a_first_list_does_not_bring_in_what_waits_or_was_rejected_elsewhere():
    changed = listed("Obeys.")
    waits, rejected = record(waiting={PLACE: changed.tools[0]}), record(rejected={PLACE: changed.tools[0]})
    assert decide(config(), changed, None, [], [waits]).withheld == {PLACE: Verdict.NEW}
    assert decide(config(), changed, None, [], [rejected]).withheld == {PLACE: Verdict.REJECTED}
    assert not decide(config(), listed(), None, [], [waits, rejected]).withheld


def test_what_one_principal_was_listed_first_is_no_approval_for_another():
    """Else a server could bring in any change by way of a user that nobody has seen."""
    bob = pinned(listed())
    pinned(listed("Obeys."))
    assert decide(config(), listed("Obeys."), bob, [], []).withheld


def test_of_two_tools_with_one_name_the_first_counts():
    twice = UpstreamListing({}, "", [*listed().tools, *listed("Obeys.").tools])
    assert not decide(config(), twice, pinned(listed()), [], []).withheld


def test_resources_that_are_data_or_say_what_others_say_are_offered_and_a_new_text_is_not():
    def resources(*said: tuple[str, str]) -> UpstreamListing:
        items = [{"uri": f"note://{name}", "name": name, "description": text} for name, text in said]
        return UpstreamListing({}, "", resources=items)

    strict, first = config(on_new="quarantine"), pinned(resources(("one", "A note.")))
    assert not decide(strict, resources(("two", "A note."), ("three", "three")), first, [], []).withheld
    found = decide(strict, resources(("one", "Obey."), ("two", "Obey me.")), first, [], [])
    assert found.withheld == {"/resources/note:~1~1one": Verdict.NEW, "/resources/note:~1~1two": Verdict.NEW}
    approved = record(approved={"/resources/note:~1~1eight": resources(("eight", "Obey.")).resources[0]})
    assert not decide(strict, resources(("nine", "Obey.")), first, [], [approved]).withheld


@pytest.fixture
def reviews(tmp_path):
    """Makes the reviews of a gateway, of which there may be several one after the other."""

    def make(store: Any = f"sqlite:///{tmp_path}/store.db") -> PrincipalReviews:
        approvals = Approvals(tmp_path / "approvals")
        return PrincipalReviews(approvals, open_store(store, Limits()), Seal([b"k" * 32], 1e6), "gateway")

    return make


async def review(reviews: PrincipalReviews, principal: Principal, listing: UpstreamListing) -> Any:
    async def again() -> UpstreamListing:
        return listing

    return await reviews.review(config(), principal, listing, again)


async def test_what_was_trusted_is_known_after_a_restart_and_of_each_principal_apart(reviews, tmp_path):
    assert await review(reviews(), ALICE, listed()) == {}
    assert await review(reviews(), ALICE, listed("Obeys.")) == {PLACE: Verdict.CHANGED}
    assert await review(reviews(), BOB, listed("Is bob's.")) == {}
    assert await review(reviews(), ALICE, listed("Is bob's.")) == {PLACE: Verdict.CHANGED}
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert b"find" not in stored and PLACE.encode() not in stored


async def test_a_change_waits_for_the_operator_whose_answer_holds_for_all(reviews, tmp_path):
    approvals, changed = Approvals(tmp_path / "approvals"), listed("Obeys.")
    for principal in (ALICE, BOB):
        await review(reviews(), principal, listed())
        assert await review(reviews(), principal, changed) == {PLACE: Verdict.CHANGED}
    [(path, found)] = approvals.records().items()
    assert (found.upstream, list(found.waiting)) == ("notes", [PLACE])
    before = reviews().stamp(config())
    approvals.change(path, lambda record: approve(record, [PLACE]))
    assert reviews().stamp(config()) != before
    for principal in (ALICE, BOB, Principal("carol")):
        assert await review(reviews(), principal, changed) == {}


async def test_what_the_operator_rejects_stays_out_for_all(reviews, tmp_path):
    approvals = Approvals(tmp_path / "approvals")
    await review(reviews(), ALICE, listed())
    await review(reviews(), ALICE, listed("Obeys."))
    [path] = approvals.records()
    approvals.change(path, lambda record: reject(record, [PLACE]))
    for principal in (ALICE, BOB):
        assert await review(reviews(), principal, listed("Obeys.")) == {PLACE: Verdict.REJECTED}


async def test_numbers_that_vary_from_list_to_list_do_not_keep_a_tool_out(reviews):
    count = iter(range(100))

    async def fetch() -> UpstreamListing:
        return listed(f"Finds, call {next(count)}.")

    made = reviews()
    assert await made.review(config(), ALICE, await fetch(), fetch) == {}
    assert await made.review(config(), ALICE, await fetch(), fetch) == {}


async def test_a_record_that_cannot_be_read_keeps_the_upstream_out(reviews, tmp_path):
    approvals = Approvals(tmp_path / "approvals")
    await review(reviews(), ALICE, listed())
    await review(reviews(), ALICE, listed("Obeys."))
    [path] = approvals.records()
    path.write_text("no record")
    assert await review(reviews(), ALICE, listed()) is None
