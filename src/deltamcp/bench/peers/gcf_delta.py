"""gcf-python's delta of keyed sets, its own code, as a process: a request a line in, an answer a line out.

in   {"key": name, "fields": [names], "base": [rows], "new": [rows]}
out  {"text": the delta as it goes out}, or {"error": why there is none}
"""

import json
import sys
from typing import Any

from gcf import GenericSet, diff_generic_sets, encode_generic_delta


def answer(request: dict[str, Any]) -> dict[str, str]:
    key, fields = request["key"], request["fields"]
    try:
        base, new = (GenericSet(key=key, fields=fields, rows=request[side]) for side in ("base", "new"))
        return {"text": encode_generic_delta(diff_generic_sets(base, new))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
