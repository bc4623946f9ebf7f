"""A page that takes long to make: made once for all who ask at once, at most once a second, and not on the loop."""

import asyncio
import threading

import pytest

from deltamcp.transports.metrics import PAGE_SECONDS, SharedPage
from tests.support.loop_iterations import LoopIterations


class Making:
    """Counts what is begun and made, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.threads: list[int] = []
        self.begun = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.page = SharedPage(self._begin, lambda: self.now)

    def _begin(self):
        self.begun += 1
        number = self.begun

        def make() -> bytes:
            assert self.may_end.wait(60)
            self.threads.append(threading.get_ident())
            if number == 13:
                raise ValueError("unlucky")
            return b"page %d" % number

        return make


async def test_who_asks_at_once_shares_one_page():
    made = Making()
    pages = await asyncio.gather(*(made.page.read("ann") for _ in range(50)))
    assert set(pages) == {b"page 1"} and made.begun == 1


async def test_a_page_is_made_in_a_thread():
    made = Making()
    await made.page.read("ann")
    assert made.threads != [threading.get_ident()]


async def test_a_page_is_made_at_most_once_a_second():
    made = Making()
    assert await made.page.read("ann") == b"page 1"
    made.now += 0.9 * PAGE_SECONDS
    assert await made.page.read("bob") == b"page 1"
    made.now += 0.1 * PAGE_SECONDS
    assert await made.page.read("ann") == b"page 2"
    assert made.begun == 2


async def test_a_page_that_takes_longer_than_a_second_is_not_made_twice_at_once():
    made = Making()
    made.may_end.clear()
    first = asyncio.create_task(made.page.read("ann"))
    await asyncio.sleep(0)
    made.now += 5 * PAGE_SECONDS
    second = asyncio.create_task(made.page.read("bob"))
    await asyncio.sleep(0)
    made.may_end.set()
    assert set(await asyncio.gather(first, second)) == {b"page 1"}


async def test_who_leaves_does_not_take_the_page_from_others():
    made = Making()
    made.may_end.clear()
    first, second = (asyncio.create_task(made.page.read(name)) for name in ("ann", "bob"))
    await asyncio.sleep(0)
    first.cancel()
    made.may_end.set()
    assert await second == b"page 1"


async def test_a_page_that_cannot_be_made_is_made_again_for_who_asks_next():
    made = Making()
    made.begun = 12
    with pytest.raises(ValueError, match="unlucky"):
        await made.page.read("ann")
    assert await made.page.read("ann") == b"page 14"


async def test_who_waited_is_sent_the_page_in_turn():
    made, ended = Making(), []
    iterations = LoopIterations()

    async def read(account: str) -> None:
        await made.page.read(account)
        ended.append((account, iterations.count))

    tasks = [asyncio.create_task(read("mallory")) for _ in range(100)]
    await asyncio.gather(*tasks, asyncio.create_task(read("ann")))
    counts = [iteration for _, iteration in ended]
    assert max(map(counts.count, counts)) <= 8
    assert [account for account, _ in ended].index("ann") < 10
