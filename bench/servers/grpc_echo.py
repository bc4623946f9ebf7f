"""The limit over gRPC: grpc.aio on uvloop, which sends back the bytes that it gets."""

import asyncio
import sys
from typing import Any

import grpc
import uvloop


async def echo(data: bytes, context: Any) -> bytes:
    return data


async def serve(port: int) -> None:
    method = grpc.unary_unary_rpc_method_handler(echo)
    server = grpc.aio.server(handlers=[grpc.method_handlers_generic_handler("mcplite.MCPLite", {"CallTool": method})])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
