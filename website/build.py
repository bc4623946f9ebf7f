"""Builds the site: collects its pages, has Zensical write HTML, and checks what that wrote.

Zensical's own strict mode is on; `website/links.py` checks the HTML besides, because a page may hold HTML of its own.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from website.links import faults_of
from website.pages import ADDRESS, REPOSITORY, ROOT, SECTIONS, SitePage, llms_text, site_pages, site_text

BUILD = ROOT / "build" / "website"
SITE = BUILD / "site"


def collect(folder: Path) -> list[SitePage]:
    """Writes the pages and the settings of the site into a folder; returns the pages."""
    pages = site_pages()
    sources = folder / "pages"
    shutil.rmtree(sources, ignore_errors=True)
    for page in pages:
        path = sources / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(site_text(page, pages))
    shutil.copytree(ROOT / "docs" / "pictures", sources / "docs" / "pictures", dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs" / "pictures", sources / "pictures", dirs_exist_ok=True)
    for path in (ROOT / "docs").glob("*.json"):
        shutil.copy(path, sources)
        shutil.copy(path, sources / "reference")
    shutil.copytree(ROOT / "website" / "overrides", folder / "overrides", dirs_exist_ok=True)
    (sources / "llms.txt").write_text(llms_text(pages))
    (folder / "zensical.toml").write_text(_settings(pages))
    return pages


def _settings(pages: list[SitePage]) -> str:
    settings = (ROOT / "website" / "zensical.toml").read_text()
    sections = ",\n".join(
        f"  {{ {json.dumps(section)} = {json.dumps([page.path for page in pages if page.section == section])} }}"
        for section in SECTIONS
    )
    site = f'[project]\nsite_url = "{ADDRESS}"\nrepo_url = "{REPOSITORY}"\nnav = [\n{sections}\n]'
    return settings.replace("[project]", site, 1)


def build(folder: Path = BUILD) -> list[str]:
    """Builds the site in a folder; returns every fault of it, in a sentence each."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = collect(folder)
    shutil.rmtree(folder / "site", ignore_errors=True)
    ran = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if ran.returncode != 0:
        told = re.sub(r"\x1b\[[\d;]*m", "", ran.stdout + ran.stderr)
        return ["Zensical says:", *(line for line in told.splitlines() if not line.startswith("  File"))]
    for page in pages:
        shutil.copy(folder / "pages" / page.path, folder / "site" / page.path)
    return faults_of(folder / "site")
