"""A client that asks what a task is about, and asks again after an edit: then it gets what changed.

python -m examples.code_context.client
"""

import asyncio
import os
import tempfile
from pathlib import Path

from deltamcp import connect, count_tokens

CART = """
class Cart:
    def add(self, item): ...

    def total(self):
        return sum(discounted(item) for item in self.items)


def discounted(item):
    return item.price * 0.9
"""


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "cart.py").write_text(CART)
        for number in range(30):
            (Path(place) / f"part{number}.py").write_text(
                f"from cart import Cart\n\n\ndef discount_total_{number}(cart: Cart):\n    return cart.total()\n"
            )
        git = await asyncio.create_subprocess_exec("git", "init", "--quiet", place)
        assert await git.wait() == 0
        await work(Path(place))


async def work(repository: Path) -> None:
    command = {"command": "delta-mcp", "args": ["serve", "examples/code_context/server.py"]}
    environment = {"CODE_CONTEXT_REPO": str(repository), "PATH": os.environ["PATH"]}
    async with connect({**command, "env": environment}, speak="handshake") as client:
        first = await client.call_tool("context_for_task", {"task": "total of a cart with its discount"})
        assert "cart.Cart.total" in first.text

        source = await client.call("source_of", name="cart.discounted")
        print("source:", source.splitlines()[0])

        (repository / "cart.py").write_text(CART.replace("def discounted", "def taxed(item): ...\n\n\ndef discounted"))
        task = {"task": "total of a cart with its discount", "since": first.handle}
        again = await client.call_tool("context_for_task", task)
        share = count_tokens(again.text) / count_tokens(first.text)
        assert share < 0.25, share
        print("after an edit: less than a quarter of the tokens")


if __name__ == "__main__":
    asyncio.run(main())
