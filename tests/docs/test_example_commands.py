"""The examples of MCP-lite and promises do what their READMEs say, by the commands that are printed there."""

import json
import shutil
import signal

import pytest

from tests.docs.example_readme import ExampleReadme, run_shell, shell_environment
from tests.docs.page import assert_printed
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.program import running_program
from tests.support.redis_server import redis_server


def started(command, tmp_path):
    """The program that a command starts and that runs until the block ends."""
    words = ["sh", "-c", f"exec {command.text}"]
    return running_program(words, tmp_path, cwd=ROOT, env=shell_environment())


def test_the_bookshop_over_mcp_lite_and_http(tmp_path):
    serve, client, listed, called, streamed = ExampleReadme("mcp_lite_http").commands()
    with started(serve, tmp_path) as server:
        server.wait_for(r"Serving bookshop at (\S+)")
        assert client.shown is not None
        assert_printed(run_shell(client.text), client.shown, client.text)
        if shutil.which("curl") is None:
            pytest.skip("there is no curl on PATH")
        names = [tool["name"] for tool in json.loads(run_shell(listed.text))]
        assert names == ["search_books", "order_book", "review", "read_preface"]
        result = json.loads(run_shell(called.text))["result"]
        assert result["_meta"]["response_type"] == "answer" and "The Waves" in result["content"][0]["text"]
        events = [line for line in run_shell(streamed.text).splitlines() if line.startswith("event: ")]
        assert [event for event in events if event != "event: heartbeat"] == ["event: message"] * 3 + ["event: done"]


def test_weather_stations_over_grpc(tmp_path):
    serve, client, listed, called, streamed = ExampleReadme("mcp_lite_grpc").commands()
    with started(serve, tmp_path) as server:
        server.wait_for(r"Serving weather at grpc://(\S+)")
        assert client.shown is not None
        assert_printed(run_shell(client.text), client.shown, client.text)
        tools = json.loads(run_shell(listed.text))["tools"]
        assert [tool["name"] for tool in tools] == ["list_stations", "watch_station", "count_nanoseconds"]
        assert "Bergen" in run_shell(called.text)
        assert run_shell(streamed.text).count('"partial"') == 5


def test_films_that_a_worker_renders(tmp_path):
    readme = ExampleReadme("promises_worker")
    _, serve, work, client, detach = readme.commands()
    order = tmp_path / "order.txt"
    folders = [tmp_path / name for name in ("redis", "server", "worker", "client", "again", "back")]
    for folder in folders:
        folder.mkdir()
    with redis_server(readme.port(6379), folders[0]), started(work, folders[2]):
        ordering = client._replace(text=client.text.replace("order.txt", str(order)))
        with started(serve, folders[1]) as server:
            server.wait_for(r"Serving studio at (\S+)")
            with started(ordering, folders[3]) as customer:
                customer.wait_for("frame ")
                customer.end(signal.SIGINT)
            assert order.exists()
        with started(serve, folders[4]) as server:
            server.wait_for(r"Serving studio at (\S+)")
            with started(ordering, folders[5]) as customer:
                customer.wait_for("back for the film")
                customer.wait_for("Metropolis is ready: 50 frames")
                assert customer.process.wait(HANG_SECONDS) == 0
            assert client.shown is not None
            assert_printed(run_shell(ordering.text), client.shown, client.text)
            assert run_shell(detach.text).strip().startswith("prom_")
