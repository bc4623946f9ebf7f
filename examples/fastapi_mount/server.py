"""An application of FastAPI whose paths are for browsers, and whose tools are for models.

uvicorn examples.fastapi_mount.server:app --port 8000
"""

from fastapi import FastAPI

from deltamcp import DeltaServer, ToolError

PRICES = {"tea": 3.5, "soup": 7.0}
server = DeltaServer("menu", version="1.0")


@server.tool(annotations={"readOnlyHint": True})
async def price(dish: str) -> float:
    """Say what a dish costs."""
    if dish not in PRICES:
        raise ToolError(f"There is no {dish}; there are {', '.join(PRICES)}.")
    return PRICES[dish]


app = FastAPI(lifespan=server.lifespan, routes=server.routes())


@app.get("/menu")
async def menu() -> dict[str, float]:
    return PRICES
