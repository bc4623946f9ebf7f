"""The servers under measurement, each a program: `python -m bench.servers.<name> TRANSPORT TOOLS [MORE]`.

TRANSPORT is `stdio` or a port of the loopback. TOOLS is `add`, `many:N`, `described:N` (see `tools`) or a JSON file of
listed tools. MORE is for HTTP: to `bare` a file with the body it answers, without which it opens silent streams; to a
peer the word `shipped`, without which it is set to answer in JSON, its faster form and ours.
"""
