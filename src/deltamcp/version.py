"""The version of this library, which `pyproject.toml` has too: to look it up in the installed package takes 20 ms."""

VERSION = "0.2.0"
