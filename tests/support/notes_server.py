"""A server with notes: a tool of every kind of traffic, resources, a prompt and its completion. It runs over stdio."""

from deltamcp import Context, DeltaServer, ResourceLink


def notes_server() -> DeltaServer:
    server, notes = DeltaServer("notes", "1"), {"first": "one"}

    @server.tool
    async def add(name: str, text: str, ctx: Context) -> str:
        """Store a note."""
        notes[name] = text
        await ctx.report_progress(1, total=2)
        await ctx.info(f"{name} is stored")
        server.resource_updated(f"note://{name}")
        return f"{len(notes)} notes"

    @server.tool
    async def clear(ctx: Context) -> str:
        """Delete all notes, if the user agrees."""
        answer = await ctx.elicit("Delete all?", bool)
        return "deleted" if answer.content else "kept"

    @server.tool
    def find() -> ResourceLink:
        """Find a note."""
        return ResourceLink("note://first", "first")

    @server.tool
    def grow() -> str:
        """Have one more tool."""
        server.tool(lambda: "grown", name="grown")
        return "done"

    @server.tool
    def rows(count: int) -> list[dict[str, int]]:
        """List rows."""
        return [{"row": number} for number in range(count)]

    @server.resource("note://{name}", mime_type="text/plain")
    def read(name: str) -> str:
        """A note."""
        return notes[name]

    @server.prompt
    def summarise(name: str) -> str:
        """Summarise a note."""
        return f"Summarise: {notes[name]}"

    @server.completion(prompt="summarise", argument="name")
    def complete_name(value: str) -> list[str]:
        return [name for name in notes if name.startswith(value)]

    return server


if __name__ == "__main__":
    notes_server().run()
