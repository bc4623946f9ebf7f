"""A customer of the studio, who may leave and come back: the token of the order is in a file.

python -m examples.promises_worker.client http://127.0.0.1:8000 order.txt
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from deltamcp import connect


def show(progress: float, total: float | None, message: str | None) -> None:
    print(f"{message}: {progress / total:.0%}" if total else message, flush=True)


async def main(address: str, file: Path) -> None:
    async with connect(f"mcplite+{address}") as client:
        if file.exists():
            order = client.pending(file.read_text())
            print("back for the film that was ordered", flush=True)
        else:
            order = await client.start("render", film="Metropolis")
            assert order.token is not None, "a film of 50 frames is not rendered at once"
            file.write_text(order.token)
            file.chmod(0o600)
            print("ordered", flush=True)
        film = await order.result(progress=show)
        assert film["film"] == "Metropolis" and film["frames"] == 50, film
        print(f"{film['film']} is ready: {film['frames']} frames", flush=True)
        file.unlink()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
