"""Builds the wheel and the sdist, and checks them as those who install them would: `make dist`.

Each check runs with the wheel alone in an environment of its own, of every interpreter that is found: what the command
line says, a server and a gateway as `delta-mcp new` writes them, and the types that the package exports.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
INTERPRETERS = ("python3.11", "python3.12", "python3.13")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MAX_WHEEL_BYTES = 3_000_000
MAX_INSTALLED_BYTES = 130_000_000
"""Of what pip unpacks, without the byte code that it compiles and without itself."""
_INSTALLERS = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}


def main() -> None:
    wheel = build()
    check_files(wheel)
    tried = [interpreter for interpreter in INTERPRETERS if try_wheel(wheel, interpreter)]
    if not tried:
        raise SystemExit(f"None of {', '.join(INTERPRETERS)} can be run here.")
    print(f"==> {wheel.name} and its sdist are in {DIST}; tried with {', '.join(tried)}")


def build() -> Path:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    [wheel] = DIST.glob("*.whl")
    return wheel


def check_files(wheel: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
    run(str(Path(sys.executable).with_name("check-wheel-contents")), str(wheel))
    size = wheel.stat().st_size
    print(f"the wheel has {size / 1e6:.2f} MB, of at most {MAX_WHEEL_BYTES / 1e6:.0f}")
    if size > MAX_WHEEL_BYTES:
        raise SystemExit("The wheel is too large.")


def try_wheel(wheel: Path, interpreter: str) -> bool:
    """Installs the wheel and uses it; returns False where the interpreter cannot be run."""
    found = next(_interpreters(interpreter), None)
    if found is None:
        print(f"{interpreter} cannot be run here")
        return False
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "environment")
        run(found, "-m", "venv", str(home))
        began = time.monotonic()
        run(str(home / "bin" / "pip"), "install", "--quiet", str(wheel))
        seconds = time.monotonic() - began
        unpacked, compiled = installed_bytes(next(home.glob("lib/*/site-packages")))
        print(
            f"{interpreter}: installed in {seconds:.0f} s; {unpacked / 1e6:.0f} MB, of at most"
            f" {MAX_INSTALLED_BYTES / 1e6:.0f}, and {compiled / 1e6:.0f} MB of byte code"
        )
        if unpacked > MAX_INSTALLED_BYTES:
            raise SystemExit("What is installed is too large.")
        environment = {
            **os.environ,
            "VIRTUAL_ENV": str(home),
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        run("delta-mcp", "--help", environment=environment)
        for kind in ("server", "gateway"):
            run("delta-mcp", "new", kind, f"my-{kind}", folder=Path(place), environment=environment)
            run("python", f"test_{kind}.py", folder=Path(place, f"my-{kind}"), environment=environment)
        if interpreter == INTERPRETERS[0]:
            # The types of modules for an extra are those of its packages.
            run(str(home / "bin" / "pip"), "install", "--quiet", f"{wheel}[{','.join(EXTRAS)}]")
            pyright = str(Path(sys.executable).with_name("pyright"))
            run(pyright, "--verifytypes", "deltamcp", "--ignoreexternal", folder=Path(place), environment=environment)
    return True


def _interpreters(name: str) -> Iterator[str]:
    places = [shutil.which(name), *map(str, sorted(Path.home().glob(f".pyenv/versions/{name[6:]}.*/bin/python")))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", "import venv"], capture_output=True).returncode == 0:
            yield place


def installed_bytes(packages: Path) -> tuple[int, int]:
    """The bytes that packages have, and those of their byte code, without what installs them."""
    unpacked = compiled = 0
    for path in packages.rglob("*"):
        name = path.relative_to(packages).parts[0].split("-")[0]
        if path.is_file() and name not in _INSTALLERS:
            if path.suffix == ".pyc":
                compiled += path.stat().st_size
            else:
                unpacked += path.stat().st_size
    return unpacked, compiled


def run(*words: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
    """
    Raises:
        SystemExit: the command fails; what it wrote is shown.
    """
    program = shutil.which(words[0], path=environment["PATH"] if environment else None) or words[0]
    ran = subprocess.run([program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.stderr.write(ran.stdout[-6000:] + ran.stderr[-6000:])
        raise SystemExit(f"{' '.join(words)} failed.")


if __name__ == "__main__":
    main()
