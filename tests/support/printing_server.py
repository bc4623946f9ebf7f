"""A server whose tools write to stdout in every way that a program has: `python printing_server.py`."""

import ctypes
import os
import subprocess
import sys
import threading

from deltamcp import DeltaServer

server = DeltaServer("printing")
print("printed before the server runs")


@server.tool
async def on_the_loop() -> str:
    print("printed on the loop")
    sys.stdout.buffer.write(b"written to the buffer\n")
    sys.stdout.write("written and left in the buffer")
    return "done"


@server.tool
def in_a_thread() -> str:
    print("printed in a thread")
    return "done"


@server.tool
def by_descriptor() -> str:
    os.write(1, b"written to descriptor 1\n")
    return "done"


@server.tool
def by_child() -> str:
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return "done"


@server.tool
def by_c_library() -> str:
    ctypes.CDLL(None).puts(b"put by the C library")
    return "done"


@server.tool
def after_the_end() -> str:
    threading.Thread(target=print_later, daemon=False).start()
    return "done"


def print_later() -> None:
    stopped.wait()
    print("printed by a thread that outlived its call")


@server.tool
def from_stdin() -> str:
    try:
        return input("a prompt: ")
    except EOFError:
        return "done"


stopped = threading.Event()
server.run()
stopped.set()
print("printed after the server ran")
