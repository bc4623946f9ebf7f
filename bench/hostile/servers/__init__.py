"""The servers under attack, each a program: `python -m bench.hostile.servers.<name> TRANSPORT OPTIONS`.

TRANSPORT is `stdio` or a port of the loopback. OPTIONS is the JSON of `tools.ServerOptions`.
"""
