"""A client that gives the server a folder, works in it, and tries to get out of it.

python -m examples.filesystem.client
"""

import asyncio
import os
import tempfile
from pathlib import Path

from deltamcp import CallFailedError, connect, count_tokens


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, outside = Path(place, "folder"), Path(place, "secret.txt")
        folder.mkdir()
        outside.write_text("a secret")
        (folder / "log.txt").write_text("".join(f"line {number}\n" for number in range(1, 5001)))
        (folder / "link").symlink_to(outside)
        (folder / "up").symlink_to(place)
        os.link(outside, folder / "second-name")
        await work(folder, outside)


async def work(folder: Path, outside: Path) -> None:
    command = {"command": "delta-mcp", "args": ["serve", "examples/filesystem/server.py"]}
    async with connect({**command, "env": {"SANDBOX": str(folder), "PATH": os.environ["PATH"]}}) as client:
        print(await client.call("write_file", path="notes.md", text="# Notes\n"))
        assert (folder / "notes.md").read_text() == "# Notes\n"

        listed = await client.call("list_folder")
        print(", ".join(f"{entry['name']} ({entry['kind']})" for entry in listed))

        found = await client.call("search_files", pattern="*.md")
        assert found == ["notes.md"], found

        reply = await client.call_tool("read_file", {"path": "log.txt"})
        assert reply.is_part
        assert count_tokens(reply.text) <= 500
        whole = await client.whole(reply)
        assert whole == (folder / "log.txt").read_text()
        print("log.txt:", len(whole), "characters, of which a model reads at most 500 tokens first")

        for path in ("../secret.txt", "/etc/passwd", "link", "up/secret.txt", "second-name"):
            for tool, more in (("read_file", {}), ("write_file", {"text": "mine"})):
                try:
                    await client.call(tool, path=path, **more)
                except CallFailedError as error:
                    said = str(error)
                else:
                    raise AssertionError(f"{tool} got out by {path}")
            print("refused:", said)
        assert outside.read_text() == "a secret"


if __name__ == "__main__":
    asyncio.run(main())
