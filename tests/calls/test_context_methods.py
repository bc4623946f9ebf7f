"""What a function asks of its context: levels of log messages, progress, resources of its own server."""

import pytest

from deltamcp import BlobResource, Context, DeltaServer, Elicited, Principal, ResourceNotFoundError, connect

ERAS = ("modern", "handshake")


def _shelf() -> DeltaServer:
    shelf = DeltaServer("shelf")

    @shelf.resource("book://{title}")
    async def book(title: str) -> str:
        if title == "none":
            raise ResourceNotFoundError
        return f"The text of {title}"

    @shelf.resource("cover://all", mime_type="image/png")
    def cover() -> bytes:
        return b"png"

    @shelf.tool
    async def quote(title: str, ctx: Context) -> str:
        """Quotes a book."""
        (found,) = await ctx.read_resource(f"book://{title}")
        assert not isinstance(found, BlobResource)
        return found.text[:30]

    @shelf.tool
    def cover_bytes(ctx: Context) -> int:
        """Counts the bytes of the cover."""
        (found,) = ctx.wait(ctx.read_resource("cover://all"))
        assert isinstance(found, BlobResource)
        return len(found.blob)

    return shelf


@pytest.mark.parametrize("era", ERAS)
async def test_a_function_reads_resources_of_its_server(era):
    async with connect(_shelf(), speak=era) as client:
        assert await client.call("quote", title="Emma") == "The text of Emma"
        assert await client.call("cover_bytes") == 3
        missing = await client.call_tool("quote", {"title": "none"})
        assert missing.is_error and missing.text == "There is no resource at book://none."


async def test_a_function_of_a_mounted_server_reads_by_the_uris_of_that_server():
    library, house = DeltaServer("library"), DeltaServer("house")
    library.mount(_shelf(), "shelf")
    house.mount(library, "library")
    async with connect(house) as client:
        assert await client.call("library_shelf_quote", title="Emma") == "The text of Emma"
        assert await client.call("library_shelf_cover_bytes") == 3


async def test_a_function_cannot_read_what_its_caller_may_not_see():
    server = DeltaServer("secrets")

    @server.tool
    async def peek(ctx: Context) -> str:
        """Reads a resource that is not there."""
        try:
            await ctx.read_resource("secret://one")
        except ResourceNotFoundError as error:
            return str(error)
        return "seen"

    @server.resource("open://one")
    def one() -> str:
        return "open"

    async with connect(server) as client:
        assert await client.call("peek") == "There is no resource at secret://one."


@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_resource_and_of_the_function_that_reads_it_are_told_apart(era):
    server = DeltaServer("asking")
    asked = []

    @server.resource("name://user")
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        return str(answer.content)

    @server.tool
    async def greet(ctx: Context) -> str:
        """Greets."""
        word = await ctx.elicit("Which word?", str)
        (found,) = await ctx.read_resource("name://user")
        assert not isinstance(found, BlobResource)
        return f"{word.content} {found.text}"

    def answer(params):
        asked.append(params["message"])
        return Elicited("accept", {"value": "Hello" if "word" in params["message"] else "Ada"})

    async with connect(server, speak=era, on_elicitation=answer) as client:
        assert await client.call("greet") == "Hello Ada"
    assert asked == ["Which word?", "Your name?"]


async def test_messages_have_the_level_of_the_method():
    server, seen = DeltaServer("logs"), []

    @server.tool
    async def work(ctx: Context) -> str:
        """Works."""
        await ctx.debug("d")
        await ctx.info("i", logger="mine")
        await ctx.warning({"disk": 90})
        await ctx.error("e")
        await ctx.report_progress(1, 2, "half")
        return "done"

    async with connect(server, log_level="debug", on_log=lambda *one: seen.append(one)) as client:
        await client.call("work")
    assert seen == [
        ("debug", "d", None),
        ("info", "i", "mine"),
        ("warning", {"disk": 90}, None),
        ("error", "e", None),
    ]


async def test_progress_under_its_old_name_warns():
    server = DeltaServer("old")

    @server.tool
    async def work(ctx: Context) -> str:
        """Works."""
        with pytest.warns(DeprecationWarning, match="called report_progress"):
            await ctx.progress(1)
        return str(ctx.principal == Principal("local"))

    async with connect(server) as client:
        assert await client.call("work") == "True"
