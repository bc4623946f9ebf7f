"""`python -m website build` builds the site into build/website/site; `serve` shows it at an address."""

import argparse
import subprocess
import sys

from website.build import BUILD, SITE, build, collect


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m website", description=__doc__)
    parser.add_argument("verb", choices=("build", "serve"))
    parser.add_argument("--address", default="127.0.0.1:8010", metavar="HOST:PORT", help="where it is shown")
    args = parser.parse_args()
    if args.verb == "serve":
        BUILD.mkdir(parents=True, exist_ok=True)
        collect(BUILD)
        words = ["serve", "--config-file", "zensical.toml", "--dev-addr", args.address]
        raise SystemExit(subprocess.call([sys.executable, "-m", "zensical", *words], cwd=BUILD))
    faults = build()
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        raise SystemExit(1)
    print(f"The site is in {SITE}: open {SITE / 'index.html'}.")


if __name__ == "__main__":
    main()
