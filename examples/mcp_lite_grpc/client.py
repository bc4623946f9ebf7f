"""A service that reads the weather over gRPC, and asserts what it gets.

python -m examples.mcp_lite_grpc.client 127.0.0.1:8001     # after the server was started
"""

import asyncio
import sys

from deltamcp import CallFailedError, connect


async def main(address: str) -> None:
    async with connect(f"grpc://{address}") as client:
        stations = await client.call("list_stations")
        print("list_stations:", ", ".join(f"{one['station']} {one['celsius']} °C" for one in stations))
        assert stations[0] == {"station": "Bergen", "celsius": 11}, stations

        readings = await client.call("watch_station", station="Cairo", readings=3)
        print("watch_station:", [one["celsius"] for one in readings])
        assert [one["reading"] for one in readings] == [1, 2, 3], readings

        counted = await client.call("count_nanoseconds", years=300)
        print("count_nanoseconds:", counted["nanoseconds"])
        assert counted["nanoseconds"] == 300 * 365 * 86_400 * 10**9 + 1, counted

        try:
            await client.call("watch_station", station="Atlantis")
        except CallFailedError as error:
            print(f"watch_station: {error.code}, {error}")
            assert error.code == "NO_SUCH_STATION", error.code
        else:
            raise AssertionError("Atlantis has a weather station")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
