"""The servers that faults are tried on, each a program: `python -m bench.faults.servers.<name> TRANSPORT TOOLS`.

TRANSPORT is `stdio` or a port of the loopback. Each is started by its library's own `run`, with the library's defaults.
"""
