"""A server with two tools.

delta-mcp serve examples/stdio/server.py
"""

from deltamcp import DeltaServer, ToolError

server = DeltaServer("kitchen", version="1.0")
RECIPES = {"pancakes": ["flour", "milk", "eggs"], "omelette": ["eggs", "butter"], "porridge": ["oats", "milk"]}


@server.tool(annotations={"readOnlyHint": True})
async def find_recipes(ingredient: str) -> list[str]:
    """Find what can be cooked with an ingredient."""
    return [name for name, needed in RECIPES.items() if ingredient in needed]


@server.tool(annotations={"readOnlyHint": True})
async def shopping_list(recipe: str, portions: int = 1) -> dict[str, int]:
    """List how much of each ingredient a recipe needs."""
    if recipe not in RECIPES:
        raise ToolError(f"There is no recipe for {recipe}; there are {', '.join(RECIPES)}.")
    return dict.fromkeys(RECIPES[recipe], portions)


if __name__ == "__main__":
    server.run()
